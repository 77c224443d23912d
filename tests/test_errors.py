"""Errors are one line, name the nearest known name, and share one base."""

from __future__ import annotations

import pytest

from mfairfl import errors
from mfairfl.errors import MfairflError, unknown


@pytest.mark.parametrize(
    "name", ["CheckpointError", "ConfigError", "DataError", "RunDirectoryError"]
)
def test_one_except_clause_catches_every_user_error(name):
    assert issubclass(getattr(errors, name), MfairflError)
    assert not issubclass(MfairflError, (ValueError, OSError))


def test_unknown_names_the_nearest_and_sorts_the_known():
    assert (
        unknown("notion", "equalised_odds", ["equalized_odds", "accuracy_parity"])
        == "unknown notion 'equalised_odds': did you mean 'equalized_odds'? "
        "(known: accuracy_parity, equalized_odds)"
    )


def test_unknown_gives_no_hint_when_nothing_is_near():
    assert unknown("strategy", "zzz", ["fedavg"]) == "unknown strategy 'zzz': (known: fedavg)"


def test_unknown_accepts_any_iterable_once():
    assert "(known: a, b)" in unknown("key", "c", iter(["b", "a"]))
