"""The goal held against the tolerance, on counts whose answer is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fairlearn.metrics import MetricFrame, selection_rate

from counted_runs import SEX, decided, write_counted
from mfairfl.data import Attribute
from mfairfl.report.headline import run_headline, run_judgements, verdict_sentence
from mfairfl.report.reported_run import read_runs
from mfairfl.report.run_document import group_use

AGE = Attribute("age", ("old", "young"))


def judged(tmp_path, cells, **changes):
    run = read_runs([write_counted(tmp_path / "run", cells, **changes)])[0]
    judged = run_judgements(run)
    return judged, verdict_sentence(judged)


def halves(selected_f, selected_m, rows):
    """Women and men of each of two clients; so many of them are selected, and deserve it."""
    return [decided(rows, selected_f), decided(rows, selected_m)]


def test_met_only_if_all_of_the_interval_is_within(tmp_path):
    (one,), said = judged(tmp_path, halves(250, 250, 500), tolerance=0.05)
    assert one.measure.value == 0
    # Each rate is of 1,000 rows, the distance to everyone is half of the difference of the two.
    expected = 1.96 * np.sqrt(2 * 0.25 / 1000) / 2
    assert one.measure.interval == pytest.approx((0, expected), abs=0.002)
    assert (one.tolerance, one.outcome, one.caution) == (0.05, "met", "")
    high = f"{100 * one.measure.interval[1]:.1f}"
    assert one.sentence == said
    assert said == (
        "The tolerance of 5.0 percentage points set before training is met for demographic "
        "parity: the largest distance "
        "between a group (by sex) and everyone in the share of people who get the favourable "
        f"decision is 0.0 percentage points (95 % interval 0.0 to {high}, 2,000 test rows)."
    )


def test_not_met_only_if_none_of_the_interval_is_within(tmp_path):
    (one,), said = judged(tmp_path, halves(150, 350, 500), tolerance=0.05)
    assert one.measure.value == pytest.approx(0.2)
    assert one.outcome == "not met"
    assert said.startswith(
        "The tolerance of 5.0 percentage points set before training is not met for "
    )
    assert "is 20.0 percentage points (95 % interval 1" in said


def test_few_rows_tell_neither(tmp_path):
    (one,), said = judged(tmp_path, halves(5, 5, 10), tolerance=0.05)
    assert one.measure.value == 0
    assert one.outcome == "too few rows to tell"
    assert said.startswith(
        "Whether the tolerance of 5.0 percentage points set before training is "
    )
    assert "met for demographic parity cannot be told from so few rows: the largest" in said


def test_a_group_without_rows_cannot_be_judged_and_the_reason_is_said(tmp_path):
    (one,), said = judged(tmp_path, halves(0, 250, 500)[1:] + halves(0, 0, 0)[:1], tolerance=0.05)
    assert one.measure.value is None
    assert one.outcome == "too few rows to tell"
    assert said.endswith("is undefined, since group 'M' of 'sex' has no rows.")


def test_without_a_tolerance_there_is_no_verdict_and_a_way_to_get_one(tmp_path):
    (one,), said = judged(tmp_path, halves(250, 250, 500))
    assert (one.tolerance, one.outcome) == (None, "no verdict")
    assert said.startswith(
        "There is no verdict on demographic parity, because no tolerance was set before training ("
    )
    assert "--tolerance 0.05" in said
    assert "is 0.0 percentage points" in said


def test_rows_that_trained_the_model_give_no_verdict(tmp_path):
    (one,), said = judged(tmp_path, halves(250, 250, 500), tolerance=0.05, splits=("train",))
    assert one.outcome == "no verdict"
    assert "no rows were kept that only measure (train rows" in said


@pytest.mark.parametrize("tolerance", [0.05, None])
def test_a_useless_model_that_meets_its_goal_is_no_good_news(tmp_path, tolerance):
    # Nobody is selected, though 100 of 500 deserve it: no group is treated differently.
    nobody = [[[400, 0], [100, 0]]] * 2
    (one,), said = judged(tmp_path, nobody, tolerance=tolerance)
    assert one.outcome == ("met" if tolerance else "no verdict")
    assert one.caution.startswith(
        "the model gives almost everyone the same decision: it selects 0 of 2,"
    )
    assert said.endswith(f"A low violation means little here: {one.caution}.")


def test_a_goal_that_is_missed_needs_no_caution(tmp_path):
    # Worse than giving everyone the commoner label, and unfair as well.
    bad = [[[100, 300], [50, 50]], [[390, 10], [95, 5]]]
    (one,), said = judged(tmp_path, bad, tolerance=0.05)
    assert one.outcome == "not met"
    assert one.caution == ""
    assert "means little" not in said


def test_several_notions_have_one_sentence_each(tmp_path):
    # Equal shares are selected, but of the men nobody who deserves it: every decision is wrong.
    cells = [decided(500, 250), [[0, 250], [250, 0]]]
    fairness = {"notion": ["demographic_parity", "equal_opportunity"]}
    (dp, eopp), said = judged(tmp_path, cells, tolerance=0.05, fairness=fairness)
    assert (dp.outcome, eopp.outcome) == ("met", "not met")
    assert eopp.measure.value == pytest.approx(0.5)  # 1 and 0, everyone ½
    assert said.startswith(
        "The tolerance of 5.0 percentage points set before training is met for demographic "
        "parity: the largest distance"
    )
    assert " set before training is not met for equal opportunity: the largest distance" in said
    assert "among people whose true label is favourable is 50.0 percentage points" in said


def test_an_end_next_to_the_tolerance_is_shown_with_enough_digits(tmp_path):
    (one,), _ = judged(tmp_path, halves(150, 350, 500))
    low, _ = one.measure.interval
    near = low - 1e-4  # the same to one digit of a per cent
    (two,), said = judged(tmp_path / "..", halves(150, 350, 500), tolerance=near)
    assert two.outcome == "not met"
    shown = said.partition("tolerance of ")[2].partition(" ")[0]
    assert f"{shown} to" not in said


def four_cells(rng, rows):
    """Random decisions of two clients on sex × age."""
    return [
        [[[int(n) for n in rng.multinomial(rows, [0.25] * 4)][i : i + 2] for i in (0, 2)]
         for _ in range(4)]
        for _ in range(2)
    ]  # fmt: skip


def rows_of(cells):
    """Turn counts back into rows: sex, age, decision."""
    rows = []
    for client in cells:
        for cell, table in enumerate(client):
            for label in (0, 1):
                for decision in (0, 1):
                    sex, age = SEX.groups[cell // 2], AGE.groups[cell % 2]
                    rows += [(sex, age, label, decision)] * table[label][decision]
    return np.array(rows, dtype=object)


@pytest.mark.parametrize(
    ("fairness", "columns", "whom"),
    [
        ({}, [[0], [1]], "sex and age"),
        ({"sensitive": ["age"]}, [[1]], "age"),
        ({"intersections": True}, [[0], [1], [0, 1]], "sex and age and their combinations"),
        ({"sensitive": ["sex"], "intersections": True}, [[0]], "sex"),
    ],
)
def test_the_measure_is_that_of_the_groups_that_the_goal_names(tmp_path, fairness, columns, whom):
    cells = four_cells(np.random.default_rng(3), 60)
    (one,), said = judged(tmp_path, cells, attributes=(SEX, AGE), fairness=fairness)
    rows = rows_of(cells)
    expected = max(
        MetricFrame(
            metrics=selection_rate,
            y_true=rows[:, 2].astype(int),
            y_pred=rows[:, 3].astype(int),
            sensitive_features=rows[:, chosen],
        ).difference(method="to_overall")
        for chosen in columns
    )
    assert one.measure.value == pytest.approx(expected, abs=1e-12)
    low, high = one.measure.interval
    assert low <= expected <= high
    assert 0 < one.measure.noise_floor < 0.2
    assert f"a group (by {whom}) and everyone" in said


def test_losses_have_no_interval_and_therefore_no_verdict(tmp_path):
    fairness = {"notion": ["accuracy_parity_loss"]}
    cells, more = halves(250, 250, 500), {"accuracy_parity_loss_violation": 0.031}
    (one,), said = judged(tmp_path, cells, tolerance=0.05, fairness=fairness, more=more)
    assert one.outcome == "no verdict"
    assert said == (
        "There is no verdict on accuracy parity loss, because this measure has no interval: the "
        "largest distance between a group (by sex) and everyone in the mean log-loss of the "
        "model's scores is 0.0310 (2,000 test rows)."
    )


def test_without_a_sensitive_attribute_nothing_is_called_fair(tmp_path):
    (run,) = read_runs([write_counted(tmp_path / "run", halves(9, 9, 20), tolerance=0.05)])
    task = run.record.task.model_copy(update={"sensitive": ()})
    aim = run.aim.model_copy(update={"attributes": (), "notions": ()})
    plain = replace(run, record=run.record.model_copy(update={"task": task}), aim=aim)
    assert run_judgements(plain) == []
    assert verdict_sentence([]).startswith(
        "There is no verdict, because no sensitive attribute was named"
    )
    assert run_headline(plain, None, [], None, []).what.endswith(
        "no sensitive attribute was named, so it has no fairness goal."
    )
    assert group_use(plain).sentence.startswith("No sensitive attribute was named")
