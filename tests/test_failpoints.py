"""A failpoint kills the process that its environment names it to, and nothing else."""

from __future__ import annotations

import ast
import os
import signal
from pathlib import Path

import pytest

import mfairfl
from mfairfl.errors import ConfigError
from mfairfl.failpoints import FAILPOINTS, VARIABLE, failpoint

SOURCE = Path(mfairfl.__file__).parent


@pytest.fixture
def killed(monkeypatch):
    """Signals that would have been sent."""
    sent = []
    monkeypatch.setattr(os, "kill", lambda *sending: sent.append(sending))
    return sent


@pytest.mark.parametrize(
    ("wanted", "dies"),
    [
        (None, False),
        ("", False),
        ("round.trained", True),
        ("round.trained@3", True),
        ("round.trained@30", False),
        ("round.trained@", True),
        ("round.planned@3", False),
    ],
)
def test_only_what_is_named_dies(wanted, dies, killed, monkeypatch):
    if wanted is None:
        monkeypatch.delenv(VARIABLE, raising=False)
    else:
        monkeypatch.setenv(VARIABLE, wanted)
    failpoint("round.trained", 3)
    assert killed == [(os.getpid(), signal.SIGKILL)] * dies


def test_names_that_are_not_listed_are_refused(killed, monkeypatch):
    with pytest.raises(ValueError, match="not listed"):
        failpoint("round.trainde", 1)
    monkeypatch.setenv(VARIABLE, "round.trainde@1")
    with pytest.raises(ConfigError, match=r"MFAIRFL_FAILPOINT.*did you mean 'round\.trained'"):
        failpoint("round.planned", 1)
    assert not killed


@pytest.mark.slow
def test_every_listed_name_is_somewhere_in_the_source_once():
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py")]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = [
        call.args[0].value
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "failpoint"
    ]
    assert sorted(names) == sorted(FAILPOINTS)
    assert len(FAILPOINTS) >= 8
