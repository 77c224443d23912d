"""Which answers count, and what is said of the others: by hand, and at random."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import expit

from mfairfl.engine.acceptance import (
    accept_counted,
    accept_reports,
    measurement_faults,
    score_faults,
)
from mfairfl.engine.state import Setup
from mfairfl.fairness.cells import SUMS, Statistics
from mfairfl.fairness.constraints import Goal
from mfairfl.fairness.scores import RowScores, ScoreSums
from mfairfl.geometry.robust import lower_median
from mfairfl.strategies import Summary, create
from mfairfl.training.plan import Controller, Job, Optimizer, Plan, Prices, Recipe, Report
from rounds import SEX

NOT_FINITE = [np.nan, np.inf, -np.inf]

# ------------------------------------------------------------------ measurements

ROWS = np.array([[4.0, 2.0], [3.0, 0.0]])
# Mean scores .3, .7 and .2 allow losses from −4 ln .7 = 1.43, −2 ln .7 = .71 and −3 ln .8 = .67.
HONEST = {
    "counts": ROWS,
    "positives": np.array([[1.0, 2.0], [0.0, 0.0]]),
    "scores": np.array([[1.2, 1.4], [0.6, 0.0]]),
    "losses": np.array([[1.5, 0.8], [0.7, 0.0]]),
}


def accept_measured(models, enrolled, *, at_half):
    faults_of = partial(measurement_faults, at_half=at_half)
    return accept_counted(models, enrolled, "measurement", faults_of)


def sums(**changes):
    return Statistics(**HONEST | changes)


def changed(name, value, place=(0, 0)):
    """Honest sums but for one number."""
    table = HONEST[name].copy()
    table[place] = value
    return sums(**{name: table})


def why(told, *, enrolled=ROWS, at_half=True):
    """Say why a client's measurement is refused; empty if it is not."""
    known = {} if enrolled is None else {"train": {"a": enrolled}}
    kept, refused = accept_measured([{"train": {"a": told}}], known, at_half=at_half)
    assert set(kept[0]["train"]) == {"a"} - set(refused)
    return refused.get("a", "").removeprefix("its measurement of train rows: ")


def test_an_honest_measurement_is_kept_as_it_is():
    told = sums()
    kept, refused = accept_measured([{"train": {"a": told}}], {"train": {"a": ROWS}}, at_half=True)
    assert refused == {}
    assert kept[0]["train"]["a"] is told


OTHER_COUNTS = "its counts are not those it was enrolled with"
TOO_LOW = "its loss is lower than its scores and decisions allow"


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        *((changed(name, x), "a number is not finite") for name in SUMS for x in NOT_FINITE),
        (sums(counts=1e6 * ROWS), OTHER_COUNTS),
        (sums(counts=0 * ROWS), OTHER_COUNTS),
        (changed("counts", 5.0), OTHER_COUNTS),
        (changed("counts", -4.0), OTHER_COUNTS),
        (changed("counts", 4.0 + 1e-9), OTHER_COUNTS),
        (sums(counts=ROWS[::-1]), OTHER_COUNTS),
        (changed("positives", 4.1), "its positives are below 0 or above its counts"),
        (changed("positives", -0.1), "its positives are below 0 or above its counts"),
        (changed("positives", 1.0, (1, 1)), "its positives are below 0 or above its counts"),
        (changed("scores", 4.1), "its scores are below 0 or above its counts"),
        (changed("scores", -1e300), "its scores are below 0 or above its counts"),
        (changed("losses", 4.1e4), "its mean loss is above 10000"),
        (changed("losses", 1e308), "its mean loss is above 10000"),
        (changed("losses", 0.1, (1, 1)), "its mean loss is above 10000"),  # of no rows
        (sums(losses=0 * ROWS), TOO_LOW),
        (changed("losses", -1e308), TOO_LOW),
        (changed("losses", 1.42), TOO_LOW),
        (changed("losses", 0.70, (0, 1)), TOO_LOW),
        # Four wrong decisions at ½ cost 4 ln 2 = 2.77, whatever the scores are said to be.
        (changed("positives", 4.0), TOO_LOW),
        (changed("positives", 0.0, (0, 1)), TOO_LOW),
    ],
)
def test_a_measurement_that_cannot_be_true_is_refused(told, reason):
    assert why(told) == reason


@pytest.mark.parametrize(
    "told",
    [
        changed("losses", 4e4),
        changed("losses", 1.43),
        changed("positives", 4.0 + 1e-7),  # rounding of a sum
        sums(scores=np.array([[1.2, 1.4], [-1e-7, 0.0]])),
    ],
)
def test_what_is_barely_possible_is_kept(told):
    assert why(told, at_half=False) == ""


def test_other_thresholds_allow_cheap_wrong_decisions():
    told = changed("positives", 4.0)
    assert why(told, at_half=True) == TOO_LOW
    assert why(told, at_half=False) == ""


def test_without_enrolled_counts_they_must_still_be_counts():
    assert why(sums(), enrolled=None) == ""
    assert why(changed("counts", -4.0), enrolled=None) == "a count is negative"
    assert why(changed("counts", 1.1), enrolled=None) == (
        "its scores are below 0 or above its counts"
    )


def test_one_wrong_answer_takes_all_of_a_clients_answers_out():
    """The second model's test rows are wrong: nothing else of south's is believed either."""
    bad = changed("scores", np.nan)
    said = [
        {"train": {"north": sums(), "south": sums()}, "test": {"north": sums(), "south": one}}
        for one in (sums(), bad)
    ]
    enrolled = {split: {"north": ROWS, "south": ROWS} for split in ("train", "test")}
    kept, refused = accept_measured(said, enrolled, at_half=True)
    assert refused == {"south": "its measurement of test rows: a number is not finite"}
    assert [{split: list(c) for split, c in model.items()} for model in kept] == [
        {"train": ["north"], "test": ["north"]}
    ] * 2


def test_the_first_reason_is_the_one_that_is_given():
    said = [{"train": {"a": changed("scores", 9.0)}, "test": {"a": changed("losses", np.nan)}}]
    _, refused = accept_measured(said, {"train": {"a": ROWS}}, at_half=True)
    assert refused == {
        "a": "its measurement of train rows: its scores are below 0 or above its counts"
    }


def cheapest(rows, total, wrong):
    """Least loss of rows of label 1 on a grid of scores with this sum, `wrong` of them up to ½."""
    grid = np.arange(1, 21) / 20
    found = [
        -np.log(scores).sum()
        for scores in product(grid, repeat=rows)
        if abs(sum(scores) - total) < 1e-9 and sum(s <= 0.5 for s in scores) == wrong
    ]
    return min(found)


@pytest.mark.parametrize(
    ("rows", "total", "wrong"),
    [(1, 0.65, 0), (2, 1.7, 0), (3, 2.4, 0), (3, 0.75, 3), (3, 1.9, 1), (3, 1.5, 2), (2, 0.1, 2)],
)
def test_losses_are_bounded_by_the_least_that_rows_can_have(rows, total, wrong):
    least = cheapest(rows, total, wrong)
    mean = total / rows
    if wrong in (0, rows):  # all on one side of ½: equal scores are possible, and cheapest
        assert least == pytest.approx(-rows * np.log(mean))

    def told(loss):
        one = {"counts": rows, "positives": rows - wrong, "scores": total, "losses": loss}
        return Statistics(**{name: [[0.0, value]] for name, value in one.items()})

    enrolled = np.array([[0.0, rows]])
    assert why(told(least), enrolled=enrolled) == ""
    bound = max(-rows * np.log(mean), wrong * np.log(2))
    assert bound <= least + 1e-12
    assert why(told(0.99 * bound), enrolled=enrolled) == TOO_LOW


LOGITS = st.one_of(st.floats(-3, 3), st.floats(-40, 40), st.floats(-1e4, 1e4))


@settings(max_examples=300, deadline=None)
@given(
    rows=st.lists(st.tuples(LOGITS, st.integers(0, 1), st.integers(0, 2)), max_size=40),
    threshold=st.sampled_from([0.0, 0.0, -1.0, 2.0]),
)
def test_whatever_a_model_answers_an_honest_measurement_is_kept(rows, threshold):
    z, y, cells = np.array(rows, dtype=float).reshape(-1, 3).T
    told = Statistics.from_rows(
        size=3,
        cells=cells,
        y=y,
        decisions=z > threshold,
        scores=expit(z),
        losses=np.logaddexp(0, z) - y * z,
    )
    enrolled = np.bincount((2 * cells + y).astype(int), minlength=6).reshape(3, 2)
    assert why(told, enrolled=enrolled, at_half=threshold == 0) == ""


ANY = st.one_of(st.floats(), st.sampled_from([0.0, -1.0, 1.0, 4.0, 1e308, -1e308, 5e-324]))


@settings(max_examples=300, deadline=None)
@given(
    table=arrays(np.float64, (4, 2, 2), elements=ANY),
    known=st.booleans(),
    at_half=st.booleans(),
)
def test_no_measurement_raises_and_none_is_kept_with_other_counts(table, known, at_half):
    with np.errstate(over="ignore"):
        told = Statistics(**dict(zip(SUMS, table, strict=True)))
        reason = why(told, enrolled=ROWS if known else None, at_half=at_half)
    if not np.isfinite(table).all():
        assert reason == "a number is not finite"
    elif known and not np.array_equal(table[0], ROWS):
        assert reason == OTHER_COUNTS


# ------------------------------------------------------------------ scores


def scores(logits, labels):
    cells = np.zeros(len(labels), int)
    return ScoreSums.from_rows(RowScores.from_logits(logits), cells, labels, size=1)


def test_scores_must_hold_the_enrolled_rows():
    three, enrolled = scores([0.0, 1.0, -1.0], [0, 1, 1]), np.array([[1.0, 2.0]])
    lost = scores([0.0, np.nan, -1.0], [0, 1, 1])  # a row without a finite score is not counted
    wide = ScoreSums.from_rows(RowScores.from_logits([0.0]), [1], [0], size=2)
    said = {"test": {"a": three, "b": lost, "c": three + three, "d": wide, "e": three}}
    rows = {"test": dict.fromkeys("abcd", enrolled)}
    (kept,), refused = accept_counted([said], rows, "scores", score_faults)
    reason = "its scores of test rows: its histogram does not hold the rows it was enrolled with"
    assert refused == dict.fromkeys("bcd", reason)
    assert kept == {"test": {"a": three, "e": three}}


def test_scores_of_a_loss_beyond_belief_are_refused_in_all_splits():
    sound = scores([0.0, 1.0], [0, 1])
    steep = replace(sound, losses=np.array([[0.7, 1.01e4]]))
    said = {"train": {"a": sound, "b": sound}, "test": {"a": sound, "b": steep}}
    enrolled = {split: dict.fromkeys("ab", np.ones((1, 2))) for split in said}
    (kept,), refused = accept_counted([said], enrolled, "scores", score_faults)
    assert refused == {"b": "its scores of test rows: its mean loss is above 10000"}
    assert kept == {"train": {"a": sound}, "test": {"a": sound}}


# ------------------------------------------------------------------ reports

PLAN = Plan(epochs=3, batch_size=10, optimizer=Optimizer(lr=0.1))
STEPS = 9  # three epochs of three batches: 10, 10 and 5 rows


def accept(sent, clients, plan=PLAN, longest=None, rows=None, **job):
    """Hold reports against the jobs of these clients; each has 25 rows unless others are given."""
    counts = {
        name: np.array([[n, 0.0], [0.0, 0.0]])
        for name, n in (rows or dict.fromkeys("abcdefghij", 25.0)).items()
    }
    setup = Setup(
        strategy=create("fedavg"),
        size=2,
        recipe=Recipe(),
        rounds=1,
        seed=0,
        summary=Summary(counts=counts, attributes=SEX, goal=Goal()),
    )
    jobs = [Job(client=name, plan=plan, **job) for name in clients]
    return accept_reports(sent, jobs, setup, longest or {})


def report(client="a", update=(3.0, 4.0), **changes):
    base = {"update": np.array(update, np.float32), "steps": STEPS, "lr": 0.1}
    return Report(client=client, **base | changes)


def fault(told, **where):
    """Say why the only report is set aside; empty if it is not."""
    accepted, reasons, _ = accept([told], "a", **where)
    assert [one.client for one in accepted] == ([] if reasons else ["a"])
    return reasons.get("a", "")


def test_sound_reports_come_in_the_order_of_their_names():
    sent = [report("c"), report("a"), report("b")]
    accepted, reasons, longest = accept(sent, "abc")
    assert accepted == [sent[1], sent[2], sent[0]]
    assert reasons == {}
    assert longest == {"update": 5.0}


def test_who_was_not_asked_and_who_sent_nothing_are_named():
    accepted, reasons, _ = accept([report("b"), report("stranger")], "ab")
    assert [one.client for one in accepted] == ["b"]
    assert list(reasons.items()) == [
        ("a", "it sent no report"),
        ("stranger", "it was not asked to train"),
    ]


def test_a_job_that_sends_nothing_may_not_be_answered():
    accepted, reasons, _ = accept([report("a")], "a", send=False)
    assert (accepted, reasons) == ([], {"a": "it was not asked to train"})
    assert accept([], "a", send=False)[:2] == ([], {})


def test_without_any_report_everyone_is_named_and_nothing_is_remembered():
    earlier = {"update": 2.0}
    found = accept([], "ba", longest=earlier)
    assert found == ([], dict.fromkeys("ab", "it sent no report"), earlier)


UPDATE_NOT_FINITE = "its update holds a number that is not finite"


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        *((report(update=(1.0, x)), UPDATE_NOT_FINITE) for x in NOT_FINITE),
        (
            report(control_change=np.array([np.nan, 0], np.float32)),
            "its control change holds a number that is not finite",
        ),
        (report(steps=8), "it reports 8 steps at rate 0.1; it was asked for 9 at 0.1"),
        (report(steps=0), "it reports 0 steps at rate 0.1; it was asked for 9 at 0.1"),
        (report(steps=2**62), f"it reports {2**62} steps at rate 0.1; it was asked for 9 at 0.1"),
        (report(lr=0.0), "it reports 9 steps at rate 0; it was asked for 9 at 0.1"),
        (report(lr=np.nan), "it reports 9 steps at rate nan; it was asked for 9 at 0.1"),
        (report(lr=1e300), "it reports 9 steps at rate 1e+300; it was asked for 9 at 0.1"),
        (report(multipliers=(1.0,)), "it sends multipliers that were not asked for"),
        (report(gaps=(np.nan,)), "it sends multipliers that were not asked for"),
    ],
)
def test_a_report_that_was_not_asked_for_like_this_is_set_aside(told, reason):
    assert fault(told) == reason


def test_a_gradient_goes_over_the_rows_once():
    gradient = PLAN.by_gradient()
    assert fault(report(steps=3), plan=gradient) == ""
    assert fault(report(steps=9), plan=gradient).endswith("it was asked for 3 at 0.1")


def test_a_client_counts_once_with_its_first_sound_report():
    bad, first, second = report(update=(np.nan, 0)), report(update=(1, 1)), report(update=(2, 2))
    accepted, reasons, _ = accept([bad, first, second], "a")
    assert accepted == [first]
    assert reasons == {}  # it did send one that counts


# ------------------------------------------------------------------ multipliers

# Two constraints, the women's and the men's rate; three moves of at most .5 · (2 + |offset|).
CONTROLLER = Controller(
    goal=Goal(), multipliers=(0.2, -0.2), step=(0.5, 0.5), offset=(0.1, -0.1), every=1
)


def controlled(multipliers=(0.3, -0.3), gaps=(0.1, -0.1), **changes):
    plan = replace(PLAN, controller=replace(CONTROLLER, **changes))
    return fault(report(multipliers=multipliers, gaps=gaps), plan=plan)


TOO_MUCH = "a multiplier is larger than its steps and its price allow"
TOO_WIDE = "a gap is larger than rates can differ"


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({}, ""),
        ({"multipliers": ()}, "it sends 0 multipliers; 2 were asked for"),
        ({"multipliers": (0.1,)}, "it sends 1 multipliers; 2 were asked for"),
        ({"multipliers": (0.1,) * 400}, "it sends 400 multipliers; 2 were asked for"),
        ({"gaps": (0.1, 0.1, 0.1)}, "it sends 3 gaps; 2 were asked for"),
        # |gap| ≤ 2 + .1, |μ| ≤ .2 + 3 · .5 · 2.1 = 3.35.
        ({"gaps": (2.1, -2.1)}, ""),
        ({"gaps": (2.11, 0)}, TOO_WIDE),
        ({"gaps": (0, -1e300)}, TOO_WIDE),
        *(({"gaps": (x, 0)}, TOO_WIDE) for x in NOT_FINITE),
        ({"multipliers": (3.35, -3.35)}, ""),
        ({"multipliers": (3.36, 0)}, TOO_MUCH),
        ({"multipliers": (0, -1e300)}, TOO_MUCH),
        *(({"multipliers": (0, x)}, TOO_MUCH) for x in NOT_FINITE),
        # One move in three epochs: .2 + .5 · 2.1 = 1.25.
        ({"multipliers": (1.25, 0), "every": 3}, ""),
        ({"multipliers": (1.26, 0), "every": 3}, TOO_MUCH),
        ({"multipliers": (0.21, 0), "every": 4}, TOO_MUCH),  # never moved
        # What its group's price may show: cap · n_g/n = 3 · 10/40 = .75 for women, 2.25 for men.
        ({"multipliers": (0.75, 2.25), "counts": ((5, 5), (15, 15)), "prices": Prices(cap=3)}, ""),
        (
            {"multipliers": (0.76, 0), "counts": ((5, 5), (15, 15)), "prices": Prices(cap=3)},
            TOO_MUCH,
        ),
    ],
)
def test_multipliers_are_what_the_agreed_controller_can_end_in(told, reason):
    assert controlled(**told) == reason


def test_multipliers_that_a_client_keeps_are_not_sent():
    assert controlled(slot="mine") == "it sends multipliers that were not asked for"
    assert controlled(multipliers=(), gaps=(), slot="mine") == ""


# ------------------------------------------------------------------ lengths


def of_length(**lengths):
    return [report(name, (0.6 * n, 0.8 * n)) for name, n in lengths.items()]


def too_long(sent, **where):
    accepted, reasons, longest = accept(sent, [r.client for r in sent], **where)
    assert {one.client for one in accepted} == {r.client for r in sent} - set(reasons)
    return reasons, longest


def test_an_update_of_more_than_ten_medians_is_set_aside():
    reasons, longest = too_long(of_length(a=1, b=2, c=3, d=20, e=31))
    assert reasons == {"e": "its update has length 31; 30 is the longest"}
    assert longest["update"] == pytest.approx(3)


def test_of_two_clients_the_longer_one_does_not_decide():
    reasons, longest = too_long(of_length(a=1e6, b=1))
    assert reasons == {"a": "its update has length 1e+06; 10 is the longest"}
    assert longest["update"] == pytest.approx(1)


def test_an_earlier_round_may_have_been_longer_but_not_shorter():
    """Updates shrink as training goes on: a client that was away may send what was usual."""
    assert too_long(of_length(a=1, b=1, c=90), longest={"update": 10.0}) == ({}, {"update": 10.0})
    reasons, longest = too_long(of_length(a=20, b=20, c=220), longest={"update": 10.0})
    assert list(reasons) == ["c"]
    assert longest["update"] == pytest.approx(20)


def test_a_lone_client_is_held_against_earlier_rounds_and_sets_nothing():
    reasons, longest = too_long(of_length(a=101), longest={"update": 10.0})
    assert reasons == {"a": "its update has length 101; 100 is the longest"}
    assert longest == {"update": 10.0}
    assert too_long(of_length(a=1e6)) == ({}, {})  # nobody to compare with, and no past


def test_who_takes_more_steps_may_go_farther():
    """Four clients of 10 rows, one of 100: ten times the steps of the usual."""
    rows = {**dict.fromkeys("abcd", 10.0), "e": 100.0}
    sent = [replace(r, steps=3) for r in of_length(a=1, b=1, c=1, d=11)]
    sent += [replace(r, steps=30) for r in of_length(e=99)]
    reasons, _ = too_long(sent, rows=rows)
    assert reasons == {"d": "its update has length 11; 10 is the longest"}
    reasons, _ = too_long([*sent[:3], replace(sent[4], update=sent[4].update * 2)], rows=rows)
    assert reasons == {"e": "its update has length 198; 100 is the longest"}


def test_control_changes_have_a_length_of_their_own():
    sent = [
        replace(one, control_change=np.array([n, 0], np.float32))
        for one, n in zip(of_length(a=1, b=1, c=1), (1, 1, 11), strict=True)
    ]
    reasons, longest = too_long(sent, keep_control="c")
    assert reasons == {"c": "its control change has length 11; 10 is the longest"}
    assert longest == {"update": pytest.approx(1), "control change": 1.0}


def test_updates_of_no_length_bound_nobody():
    assert too_long(of_length(a=0, b=0, c=1))[0] == {}


def test_what_float32_can_hold_has_a_length():
    reasons, _ = too_long([report("a", (3e38, 3e38)), *of_length(b=1, c=1)])
    assert reasons == {"a": "its update has length 4.24e+38; 10 is the longest"}


@settings(max_examples=200, deadline=None)
@given(
    update=st.lists(st.floats(width=32), min_size=2, max_size=2),
    steps=st.integers(-(2**63), 2**63 - 1) | st.just(STEPS),
    lr=st.floats() | st.just(0.1),
    multipliers=st.lists(st.floats(), max_size=3) | st.just([0.1, 0.1]),
    gaps=st.lists(st.floats(), max_size=3) | st.just([0.1, 0.1]),
    control=st.none() | st.lists(st.floats(width=32), min_size=2, max_size=2),
)
def test_no_report_raises(update, steps, lr, multipliers, gaps, control):
    told = Report(
        client="a",
        update=np.array(update, np.float32),
        steps=steps,
        lr=lr,
        multipliers=tuple(multipliers),
        gaps=tuple(gaps),
        control_change=None if control is None else np.array(control, np.float32),
    )
    plan = replace(PLAN, controller=CONTROLLER)
    # Two honest ones: of two reports the shorter sets the bound, and it may be the other.
    honest = [report(name, multipliers=(0.1, 0.1), gaps=(0.1, 0.1)) for name in "bc"]
    accepted, reasons, _ = accept([told, *honest], "abc", plan=plan)
    assert [one.client for one in accepted] == [n for n in "abc" if n not in reasons]
    assert not {"b", "c"} & set(reasons)
    for one in accepted:
        assert np.isfinite(one.update).all()
        assert (one.steps, one.lr) == (STEPS, 0.1)
        assert np.linalg.norm(one.update) <= 50 * (1 + 1e-6)


def test_of_two_in_the_middle_the_lower_is_the_median():
    assert [lower_median(x) for x in ([4.0], [4.0, 2.0], [9, 1, 5], [8, 2, 6, 4])] == [4, 2, 5, 4]
