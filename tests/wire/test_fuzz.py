"""No answer of one client ends a run, hangs it or takes the model away: a few hundred mutations.

`make fuzz` plays many more, and counts.
"""

from __future__ import annotations

import logging
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzzing import Hung, all_stages, deadline, judged, model_problem, unchanged

STAGES = (
    "fedavg",
    "mfairfl, every = 1",
    "fpfl",
    "fedfb",
    "qffl",
    "scaffold",
    "ditto",
    "fedavg-threshold",
    "enrolment",
    "audit",
    "names of nodes",
    "app, mfairfl",
    "app, qffl",
)


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    return all_stages(tmp_path_factory.mktemp("fuzz"))


@pytest.fixture(autouse=True)
def quiet():
    """Flower tells every step of every run."""
    logger = logging.getLogger("flwr")
    before = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(before)


@pytest.mark.slow
@pytest.mark.parametrize("name", STAGES)
@settings(max_examples=40, derandomize=True, deadline=None)
@given(seed=st.integers(0, 10**9))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numbers overflow before they are refused
def test_a_mutated_answer_changes_little(stages, name, seed):
    assert judged(stages[name], seed).problem == ""


@pytest.mark.parametrize("name", STAGES)
def test_a_valid_answer_is_accepted(stages, name, caplog):
    case = stages[name].case(random.Random(1), unchanged)
    assert case.run() == ""
    assert "left out" not in caplog.text


def spin():
    while True:
        pass


def test_the_harness_sees_what_must_not_happen(stages):
    """A run that raises, one that hangs, and models that are lost are told apart."""

    class Broken:
        def case(self, rng):
            return type("Case", (), {"kind": "x", "run": staticmethod(lambda: 1 / 0)})

    assert judged(Broken(), 0).problem == "ends the run: ZeroDivisionError: division by zero"
    with pytest.raises(Hung), deadline(0.05):
        spin()
    honest = stages["fedavg"].honest
    assert model_problem(honest, honest) == ""
    assert "11 times the honest" in model_problem(11 * honest, honest)
    assert model_problem(honest * float("nan"), honest) == "the model is not finite"
