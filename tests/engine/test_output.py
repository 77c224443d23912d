"""Output rules on hand-made banks; the mixture against a brute-force grid."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mfairfl.engine.output import Candidate, Output, Served, choose, single
from mfairfl.errors import ConfigError
from mfairfl.fairness.cells import Statistics
from mfairfl.fairness.constraints import Goal
from rounds import SEX, statistics

PARITY = Goal(notions=("demographic_parity",)).constraints(SEX)
# Ten rows in each of F/0, F/1, M/0, M/1.
TENS = np.full((2, 2), 10.0)


def candidate(name: str, positives: object, counts: np.ndarray = TENS) -> Candidate:
    """A model with these favourable decisions per (group, label); its weights spell its number."""
    table = np.array(positives, dtype=float)
    statistics = Statistics(counts=counts, positives=table, scores=table, losses=table)
    return Candidate(name, np.array([sum(map(ord, name)), 1.0], np.float32), statistics)


# Decisions per (F/0, F/1), (M/0, M/1); 40 rows. The violation is |selection rate − group's|.
SHARP = candidate("sharp", [[0, 8], [4, 10]])  # right 10+8+6+10 = 34; rates .4/.7, violation .15
FAIR = candidate("fair", [[2, 6], [2, 6]])  # right 8+6+8+6 = 28; rates equal, violation 0
FAIRER = candidate("fairer", [[1, 7], [2, 7]])  # right 9+7+8+7 = 31; .4/.45, violation .025
FLIPPED = candidate("flipped", [[4, 10], [0, 8]])  # right 34; rates .7/.4, violation .15
BIASED = candidate("biased", [[0, 0], [10, 10]])  # right 20; rates 0/1, violation .5


def served(rule: str, tolerance: float, *bank: Candidate, last: Candidate | None = None):
    final = last or bank[-1]
    output = Output(rule=rule, tolerance=tolerance)
    return choose(output, single(final.name, final.weights), bank, PARITY)


# ------------------------------------------------------------------ last and average


def test_last_serves_the_last_weights_whatever_the_bank_holds():
    found = served("last", 0.0, FAIR, FAIRER, last=SHARP)
    assert (found.kind, found.names) == ("single", ("sharp",))
    assert found.members.tolist() == [SHARP.weights.tolist()]


def test_average_is_the_mean_of_the_rounds_and_not_of_their_averages():
    def at(name: str, first: float) -> Candidate:
        return Candidate(name, np.array([first, 1], np.float32), FAIR.statistics)

    bank = [at("round 3", 1), at("average 3", 50), at("round 4", 4), at("average 4", 70)]
    found = served("average", 0.0, *bank)
    assert found.members.tolist() == [[2.5, 1.0]]
    assert found.members.dtype == np.float32
    assert found.names == ("average of round 3 to round 4",)


# ------------------------------------------------------------------ select


@pytest.mark.parametrize(
    ("tolerance", "name"),
    [(0.0, "fair"), (0.0249, "fair"), (0.0251, "fairer"), (0.149, "fairer"), (0.151, "sharp")],
)
def test_select_takes_the_most_accurate_within_the_tolerance(tolerance, name):
    found = served("select", tolerance, BIASED, SHARP, FAIR, FAIRER)
    assert (found.names, found.note) == ((name,), "")


def test_select_takes_the_least_violating_where_none_is_within():
    found = served("select", 0.01, BIASED, FAIRER, SHARP)
    assert found.names == ("fairer",)
    assert "no model of the last rounds is within 0.01, the output rule's tolerance" in found.note
    assert "0.0250" in found.note


def test_select_takes_the_latest_of_equals():
    twin = candidate("twin", [[0, 8], [4, 10]])
    assert served("select", 0.2, SHARP, FLIPPED, twin).names == ("twin",)
    assert served("select", 0.1, SHARP, FLIPPED, twin).names == ("twin",)


def test_select_prefers_accuracy_among_the_least_violating():
    # Rates .4/.7 with 30 right: as unfair as sharp, less accurate, and later.
    worse = candidate("worse", [[2, 6], [4, 10]])
    assert served("select", 0.1, SHARP, worse).names == ("sharp",)


def test_going_in_and_out_of_the_tolerance_is_said():
    def rounds(*tables: list[list[int]]) -> list[Candidate]:
        return [candidate(f"round {i}", table) for i, table in enumerate(tables, 5)]

    fair, biased = [[2, 6], [2, 6]], [[0, 8], [4, 10]]  # violations 0 and .15
    found = served("select", 0.04, *rounds(fair, fair, biased, fair))
    assert found.names == ("round 8",)
    assert found.note == (
        "training had not settled: the models of round 7 to round 8 violate between 0.0000 and "
        "0.1500"
    )
    assert served("select", 0.05, *rounds(fair, fair, biased, fair)).note == ""  # 3 × .05
    assert served("select", 0.04, *rounds(biased, biased, fair, fair)).note == ""  # long ago
    steady = served("select", 0.04, *rounds(biased, biased, biased, biased))
    assert steady.note.startswith("no model of the last rounds is within")
    assert "settled" not in steady.note


def test_an_undefined_violation_is_said():
    one_group = np.array([[0.0, 0.0], [0.0, 0.0]])
    nobody = candidate("nobody", [[0, 0], [0, 0]], counts=one_group)
    goal = Goal(notions=("equal_opportunity",)).constraints(SEX)
    counts = np.array([[10.0, 0.0], [10.0, 0.0]])  # nobody deserves the favourable label
    found = [candidate(n, [[p, 0], [0, 0]], counts=counts) for n, p in (("a", 0), ("b", 5))]
    for rule in ("select", "mixture"):
        chosen = choose(Output(rule=rule), single("b", found[1].weights), found, goal)
        assert chosen.names == ("b",)  # the last one, though "a" is more accurate
        assert chosen.kind == "single"
        assert "undefined" in chosen.note
        empty = choose(Output(rule=rule), single("nobody", nobody.weights), [nobody], PARITY)
        assert "undefined" in empty.note


# ------------------------------------------------------------------ mixture


def test_two_opposite_models_mix_into_a_fair_and_accurate_one():
    found = served("mixture", 0.0, SHARP, FLIPPED, FAIR)
    assert found.kind == "mixture"
    assert set(found.names) == {"sharp", "flipped"}
    np.testing.assert_allclose(found.weights, [0.5, 0.5], atol=1e-9)
    assert found.members.shape == (2, 2)
    assert found.note == ""


def test_a_mixture_uses_its_tolerance():
    # Violations are linear along the mix: π·.15 ≤ .05, so a third of sharp is allowed.
    found = served("mixture", 0.05, SHARP, FAIR)
    assert dict(zip(found.names, found.weights, strict=True)) == pytest.approx(
        {"sharp": 1 / 3, "fair": 2 / 3}, abs=1e-9
    )


def test_a_mixture_of_one_is_a_single_model():
    found = served("mixture", 0.2, FAIR, SHARP, FAIRER)
    assert (found.kind, found.names, found.weights.tolist()) == ("single", ("sharp",), [1.0])


def test_without_a_feasible_mixture_the_violation_is_least():
    # Gaps of group F: sharp +.15, biased +.5. No mixture is below .15.
    found = served("mixture", 0.1, SHARP, BIASED)
    assert found.names == ("sharp",)
    assert "no mixture is within the tolerance 0.1" in found.note


quarters = st.lists(st.integers(0, 4), min_size=4, max_size=4)


@given(
    st.lists(quarters, min_size=2, max_size=3),
    st.sampled_from([(12, 12), (4, 20)]),
    st.sampled_from([0.0, 0.01, 0.05, 0.2]),
)
def test_the_mixture_is_as_good_as_the_best_on_a_grid(tables, sizes, tolerance):
    women, men = sizes  # rows of each label; the gaps of unequal groups are unequal
    counts = np.array([[women] * 2, [men] * 2], dtype=float)
    positives = [np.reshape(t, (2, 2)) / 4 * counts for t in tables]
    found = [candidate(f"c{i}", p, counts=counts) for i, p in enumerate(positives)]
    answer = served("mixture", tolerance, *found)
    share = dict(zip(answer.names, answer.weights, strict=True))
    pi = np.array([share.get(c.name, 0.0) for c in found])
    assert pi.sum() == pytest.approx(1)

    # By hand: selection rates of both groups and of everyone, and the share of right decisions.
    rate = np.array([[p[0].sum() / (2 * women), p[1].sum() / (2 * men)] for p in positives])
    overall = np.array([p.sum() / (2 * women + 2 * men) for p in positives])
    gap = overall[:, None] - rate
    right = [(counts[:, 0] - p[:, 0] + p[:, 1]).sum() / counts.sum() for p in positives]
    accuracy = np.array(right)
    steps = 60
    grid = np.array(
        [p for p in itertools.product(range(steps + 1), repeat=len(found)) if sum(p) == steps]
    )
    grid = grid / steps
    violation = np.abs(grid @ gap).max(axis=1)
    coarse = len(found) / steps  # how far, in sum, any mixture is from the nearest grid point
    if violation.min() > tolerance + coarse:  # clearly infeasible
        assert np.abs(pi @ gap).max() <= violation.min() + 1e-6
        assert "no mixture" in answer.note
    elif violation.min() <= tolerance:  # clearly feasible
        assert np.abs(pi @ gap).max() <= tolerance + 1e-6
        assert pi @ accuracy >= (grid @ accuracy)[violation <= tolerance].max() - 1e-6
        loose = violation <= tolerance + coarse
        assert pi @ accuracy <= (grid @ accuracy)[loose].max() + coarse
        assert answer.note == ""


def test_the_tolerance_must_be_a_share():
    for wrong in (-0.1, 1.5, float("nan")):
        with pytest.raises(ConfigError, match=r"output\.tolerance"):
            Output(rule="select", tolerance=wrong)


def test_a_mixtures_tally_is_the_expected_one():
    sums = statistics([[4, 6], [3, 7]], [[1, 5], [0, 7]])
    other = statistics([[4, 6], [3, 7]], [[4, 6], [3, 7]])
    mixed = Served(
        kind="mixture",
        members=np.zeros((2, 1), np.float32),
        weights=np.array([0.25, 0.75]),
        names=("x", "y"),
    )
    tally = mixed.tally([{"test": {"a": sums}}, {"test": {"a": other}}], "test", SEX)
    # ¼·[3, 1] + ¾·[0, 4] = [.75, 3.25], and so on.
    assert tally.counts[0].tolist() == [[[0.75, 3.25], [0.25, 5.75]], [[0.75, 2.25], [0, 7]]]
    assert tally.counts.sum() == 20
