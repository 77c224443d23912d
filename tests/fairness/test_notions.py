"""Notions: definitions written out, names and aliases."""

from __future__ import annotations

import pytest

from mfairfl.errors import ConfigError
from mfairfl.fairness import NOTIONS, Event, Notion, notion


def test_names():
    assert NOTIONS == (
        "demographic_parity",
        "equalized_odds",
        "equal_opportunity",
        "accuracy_parity",
        "accuracy_parity_loss",
    )


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("dp", "max over s of |P(ŷ=1 | s) − P(ŷ=1)|"),
        (
            "eo",
            "max over s of {|P(ŷ=1 | s, y=0) − P(ŷ=1 | y=0)|, |P(ŷ=1 | s, y=1) − P(ŷ=1 | y=1)|}",
        ),
        ("eopp", "max over s of |P(ŷ=1 | s, y=1) − P(ŷ=1 | y=1)|"),
        ("ap", "max over s of |P(ŷ≠y | s) − P(ŷ≠y)|"),
        ("ap-loss", "max over s of |E[ℓ | s] − E[ℓ]|"),
    ],
)
def test_formula(name, formula):
    assert notion(name).formula == formula


@pytest.mark.parametrize(
    ("alias", "name"), list(zip(("dp", "eo", "eopp", "ap", "ap-loss"), NOTIONS, strict=True))
)
def test_alias(alias, name):
    assert notion(alias) is notion(name)
    assert notion(name).name == name


def test_unknown_name_suggests():
    with pytest.raises(ConfigError, match="did you mean 'demographic_parity'"):
        notion("demografic_parity")


def test_formula_follows_a_notion_of_ones_own():
    own = Notion("false_positives", (Event("y=0", (0,)),), "error")
    assert own.formula == "max over s of |P(ŷ≠y | s, y=0) − P(ŷ≠y | y=0)|"


@pytest.mark.parametrize("labels", [(), (2,), (1, 0), (0, 0)])
def test_event_rejects_labels(labels):
    with pytest.raises(ConfigError, match="event 'odd'"):
        Event("odd", labels)
