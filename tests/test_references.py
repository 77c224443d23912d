"""Pooled references: scikit-learn's on the same rows, and thresholds fair on unseen scores."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest
import threadpoolctl
from fairlearn.metrics import MetricFrame, selection_rate

import federations as fed
import mfairfl
import pooled_by_hand
from mfairfl.data import Task, table_from_frame
from mfairfl.data.federation import hold_out
from mfairfl.errors import ConfigError, DataError
from mfairfl.fairness.constraints import Goal
from mfairfl.randomness import stream
from mfairfl.references import REFERENCES, PooledRows, fit_reference, reference_settings


@pytest.fixture(scope="module")
def german():
    table = mfairfl.load_dataset("german")
    return table, mfairfl.partition(table, "iid", seed=3)


def rows_of(table, federation, split):
    shard = federation.pooled(split)
    return table.X.iloc[shard.rows], shard


# ------------------------------------------------------------------ the models


def test_boosting_is_scikit_learn_s_on_the_pooled_train_rows(german):
    table, federation = german
    X, train = rows_of(table, federation, "train")
    by_hand = pooled_by_hand.boosted(X, train.y, table.task.categorical, seed=3)
    found = fit_reference("boosting", table, federation)
    for split in ("train", "test"):
        features, shard = rows_of(table, federation, split)
        logits = found.logits(features)
        assert np.array_equal(logits, by_hand(features))
        assert np.array_equal(found.chances(logits, shard.cells), by_hand(features) > 0)


def test_logistic_is_scikit_learn_s_on_the_pooled_train_rows(german):
    table, federation = german
    X, train = rows_of(table, federation, "train")
    by_hand = pooled_by_hand.logistic(X, train.y, table.task.numeric, table.task.categorical)
    features, _ = rows_of(table, federation, "test")
    found = fit_reference("logistic", table, federation).logits(features)
    assert found == pytest.approx(by_hand(features), abs=5e-3)
    assert np.std(found) > 1


def test_missing_numbers_and_new_levels_are_taken_as_they_are():
    frame = fed.people()
    frame.loc[::7, "years"] = None
    table = fed.people_table(frame)
    federation = mfairfl.partition(table, "column")
    changed = table.X.assign(job="astronaut")
    for name in REFERENCES:
        found = fit_reference(name, table, federation)
        assert np.isfinite(found.logits(changed)).all()
        assert found.logits(changed[:0]).shape == (0,)


def wide_table(levels):
    """A text column with many levels: the label follows the frequent ones, others are rare."""
    rng = np.random.default_rng(1)
    frequent = [f"often {i:03}" for i in range(250)]
    code = np.repeat(frequent, 8).tolist()
    rare = [f"rare {i:03}" for i in range(levels - len(frequent))]
    code += rare * 2
    code = np.array(code)
    chance = np.where(
        np.char.startswith(code, "rare"), 0.5, 0.1 + 0.8 * (np.arange(len(code)) % 2)
    )
    frame = pd.DataFrame(
        {
            "code": code,
            "x": rng.normal(size=len(code)),
            "sex": rng.choice(["f", "m"], len(code)),
            "y": (rng.random(len(code)) < chance).astype(int),
        }
    )
    task = Task(label="y", favourable=1, sensitive=("sex",), categorical=("code",))
    return table_from_frame(frame, task)


def kept_levels(reference, table):
    """The levels that boosting tells from all others."""
    numbers = reference.prepare(table.X)["code"].cat.codes
    by_level = dict(zip(table.X["code"], numbers, strict=True))
    shared = Counter(by_level.values())
    return sorted(level for level, number in by_level.items() if shared[number] == 1)


@pytest.mark.parametrize(("levels", "merged"), [(300, True), (254, False)])
def test_the_rarest_of_more_levels_than_boosting_takes_are_one(levels, merged):
    table = wide_table(levels)
    federation = mfairfl.partition(table, "iid", clients=2, test=0.0)
    found = fit_reference("boosting", table, federation)
    kept = kept_levels(found, table)
    assert len(kept) == 254
    assert [level for level in kept if level.startswith("often")] == sorted(
        {code for code in table.X["code"] if code.startswith("often")}
    )
    one = table.X[:1]
    codes = ["rare 030", "rare 045", "never seen"] if merged else ["never seen", "nor this"]
    logits = [found.logits(one.assign(code=code)).item() for code in codes]
    assert len(set(logits)) == 1


def test_of_equally_frequent_levels_the_first_by_name_are_kept():
    table = wide_table(300)
    federation = mfairfl.partition(table, "iid", clients=2, test=0.0)
    kept = kept_levels(fit_reference("boosting", table, federation), table)
    rare = [level for level in kept if level.startswith("rare")]
    assert rare == [f"rare {i:03}" for i in range(4)]


def test_the_same_seed_gives_the_same_bits_and_one_thread_computes(german, monkeypatch):
    table, federation = german
    features, _ = rows_of(table, federation, "test")
    threads = []
    limits = threadpoolctl.threadpool_limits

    def watched(**given):
        threads.append(given)
        return limits(**given)

    monkeypatch.setattr(threadpoolctl, "threadpool_limits", watched)
    once, again = (fit_reference("boosting", table, federation).logits(features) for _ in "ab")
    assert np.array_equal(once, again)
    assert threads == [{"limits": 1}] * 4  # two fits, two predictions
    other = mfairfl.partition(table, "iid", seed=4)
    assert not np.array_equal(once, fit_reference("boosting", table, other).logits(features))


# ------------------------------------------------------------------ thresholds


def unseen_scores(table, federation):
    """Scores of the train rows by models of scikit-learn that were fitted without them."""
    X, train = rows_of(table, federation, "train")
    strata = train.cells.astype(int) * 2 + train.y
    logits = np.full(len(train), np.nan)
    for fold in range(5):
        rng = stream(federation.seed, "reference folds")
        kept, held = hold_out(strata, fold=fold, folds=5, rng=rng)
        by_hand = pooled_by_hand.boosted(
            X.iloc[kept], train.y[kept], table.task.categorical, seed=federation.seed
        )
        logits[held] = by_hand(X.iloc[held])
    return logits


def violation(chance, train, labels):
    """The largest deviation of a group's share of favourable decisions from the overall one."""
    worst = 0.0
    for rows in labels:
        for group in np.unique(train.cells):
            own = rows & (train.cells == group)
            worst = max(worst, abs(chance[own].mean() - chance[rows].mean()))
    return worst


@pytest.mark.slow
@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds"])
def test_thresholds_meet_the_tolerance_on_unseen_scores_of_the_train_rows(german, notion):
    table, federation = german
    _, train = rows_of(table, federation, "train")
    logits = unseen_scores(table, federation)
    everyone = np.ones(len(train), dtype=bool)
    labels = [everyone] if notion == "demographic_parity" else [train.y == 0, train.y == 1]
    rows = PooledRows(table, federation)
    plain = violation((logits >= 0).astype(float), train, labels)
    accuracies = []
    for tolerance in (0.0, 0.01):
        fitted = rows.fit("boosting-threshold", goal=Goal(notions=(notion,)), tolerance=tolerance)
        chance = fitted.chances(logits, train.cells)
        assert set(chance.tolist()) == {0.0, 1.0}
        # One threshold for each group: its few hundred rows leave steps between violations.
        assert violation(chance, train, labels) <= tolerance + 1e-3
        accuracies.append(np.where(train.y == 1, chance, 1 - chance).mean())
    assert plain > 0.01
    assert accuracies[0] <= accuracies[1]
    if notion == "demographic_parity":  # fairlearn's difference between groups agrees
        exact = rows.fit("boosting-threshold").chances(logits, train.cells)
        frame = MetricFrame(
            metrics=lambda y_true, y_pred: y_pred.mean(),
            y_true=train.y, y_pred=exact, sensitive_features=train.cells,
        )  # fmt: skip
        assert frame.difference() == pytest.approx(0, abs=1e-3)
        decided = (logits >= 0).astype(int)
        raw = MetricFrame(
            metrics=selection_rate, y_true=train.y, y_pred=decided,
            sensitive_features=train.cells,
        )  # fmt: skip
        assert raw.difference(method="to_overall") == pytest.approx(plain)


def test_the_thresholded_reference_is_the_boosted_model_with_other_decisions(german):
    table, federation = german
    features, shard = rows_of(table, federation, "test")
    rows = PooledRows(table, federation)
    plain, fair = rows.fit("boosting"), rows.fit("boosting-threshold")
    assert plain.estimator is fair.estimator  # fitted once
    logits = fair.logits(features)
    assert np.array_equal(logits, plain.logits(features))
    assert not np.array_equal(
        fair.chances(logits, shard.cells), plain.chances(logits, shard.cells)
    )


def test_by_default_thresholds_are_fair_to_all_sensitive_attributes():
    table = fed.people_table()
    federation = mfairfl.partition(table, "column")
    names = ("sex", "age")

    def thresholds(goal):
        fitted = fit_reference("boosting-threshold", table, federation, goal=goal)
        return repr(fitted.thresholds)

    assert thresholds(None) == thresholds(Goal(attributes=names))
    assert thresholds(None) != thresholds(Goal(attributes=names[:1]))


# ------------------------------------------------------------------ refusals


def test_mistakes_are_one_line_with_a_fix(german):
    table, federation = german
    with pytest.raises(ConfigError, match="did you mean 'boosting'"):
        fit_reference("boostin", table, federation)
    with pytest.raises(DataError, match=r"table 'people' is not the one .*pass the table"):
        fit_reference("logistic", fed.people_table(), federation)
    goal = Goal(notions=("accuracy_parity_loss",))
    with pytest.raises(ConfigError, match="thresholds change decisions, not losses"):
        fit_reference("boosting-threshold", table, federation, goal=goal)
    few = fed.people(sites={"east": 12, "north": 12})
    few["hired"] = ["yes"] * 4 + ["no"] * 20
    small = fed.people_table(few)
    with pytest.raises(DataError, match=r"\d train rows of one label; a reference needs 10"):
        fit_reference("logistic", small, mfairfl.partition(small, "column", test=0.0))


def test_settings_name_what_decides_the_fit():
    assert reference_settings("boosting")["early_stopping"] is True
    assert reference_settings("boosting-threshold") == reference_settings("boosting") | {
        "folds": 5
    }
