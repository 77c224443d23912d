"""`choose`: the pick against a naive oracle, its numbers against runs, and what is refused."""

from __future__ import annotations

import json
import logging
import math
from dataclasses import replace

import numpy as np
import pytest

import mfairfl
from federations import people, people_table
from mfairfl.data import partition
from mfairfl.engine.embedded import counts_of
from mfairfl.errors import ConfigError, DataError
from mfairfl.experiments.candidates import (
    Contender,
    FoldDifference,
    FoldNumbers,
    Pick,
    pick_accurate,
    pick_fair,
)
from mfairfl.experiments.choice import Wanted
from mfairfl.experiments.choosing import TOLERANCES, choose

SHORT = {
    "training": {"rounds": 3, "local_epochs": 1, "batch_size": 20, "lr": 0.02},
    "model": {"hidden": [4]},
    "seed": 4,
}
TWO = {"methods": ("fpfl",), "folds": 2, "workers": 1}
QUANTILES = {2: 12.7062, 3: 4.3027, 4: 3.1824}  # of Student's t, 97.5 %, from a printed table
KINDS = (
    ("fedavg", "last", None),
    ("fedavg", "thresholds", "none"),
    ("fedavg", "thresholds", "group"),
    ("fedfb", "select", None),
    ("mfairfl", "select", None),
)


def drawn(seed):
    """Numbers of folds in which near ties, undefined tails and useless candidates are common."""
    rng = np.random.default_rng(seed)
    folds = int(rng.integers(2, 5))
    shared = rng.normal(0.0, 0.01, folds)
    trials = []
    for strategy, rule, by in KINDS:
        accuracies = 0.8 + shared + rng.choice([0.0, 0.004, 0.05]) + rng.normal(0, 0.001, folds)
        violations = np.abs(rng.choice([0.01, 0.05, 0.2]) + rng.normal(0, 0.004, folds))
        trials.append(
            FoldNumbers(
                candidate=Contender(strategy=strategy, rule=rule, by=by),
                accuracies=tuple(accuracies.tolist()),
                violations=tuple(violations.tolist()),
                violation=float(violations.mean()),
                constant_accuracy=0.795,
            )
        )
    return trials


def oracle(trials, *, limit=None, most_lost=None, by="none"):
    """Return the chosen and the alike, by a plain reading of the rules."""
    means = [sum(t.accuracies) / len(t.accuracies) for t in trials]
    open_ = [i for i, t in enumerate(trials) if t.candidate.by != "group" or by == "group"]
    pool = [i for i in open_ if means[i] - trials[i].constant_accuracy >= 0.01] or open_
    fairest = limit is None
    if limit is not None:
        within = [i for i in pool if trials[i].violation <= limit]
        fairest, pool = not within, within or pool
    else:
        pool = [i for i in pool if means[i] >= means[0] - most_lost] or [0]
    if fairest:
        best = sorted(pool, key=lambda i: trials[i].violation)[0]
        columns, hardly = [t.violations for t in trials], 0.002
    else:
        best = sorted(pool, key=lambda i: means[i])[-1]
        columns, hardly = [t.accuracies for t in trials], 0.01
    alike = {best}
    for i in pool:
        gaps = [a - b for a, b in zip(columns[best], columns[i], strict=True)]
        k, mean = len(gaps), sum(gaps) / len(gaps)
        spread = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / (k - 1))
        half = QUANTILES[k] * spread * math.sqrt(1 / k + 1 / (k - 1))
        if abs(mean) <= half and abs(mean) <= hardly:
            alike.add(i)
    rank = {"fedavg": 0, "fedfb": 1, "mfairfl": 1}

    def order(i):
        candidate = trials[i].candidate
        return (candidate.by == "group", rank[candidate.strategy], i)

    chosen = sorted(alike, key=order)[0]
    return chosen, alike - {chosen}


@pytest.mark.parametrize("by", ["none", "group"])
def test_the_pick_is_the_one_of_a_plain_reading(by):
    seen = set()
    for seed in range(300):
        trials = drawn(seed)
        for limit in (0.004, 0.03, 0.3):
            found = pick_accurate(trials, limit, by=by)
            assert (found.chosen, {*found.alike}) == oracle(trials, limit=limit, by=by), seed
            seen.add(found.chosen)
        found = pick_fair(trials, 0.01, by=by)
        assert (found.chosen, {*found.alike}) == oracle(trials, most_lost=0.01, by=by), seed
    assert seen == {0, 1, 3, 4} | ({2} if by == "group" else set())  # every answer occurs


def numbers(name, accuracies, violation=0.01, by=None):
    return FoldNumbers(
        candidate=Contender(strategy=name, rule="last", by=by),
        accuracies=accuracies,
        violations=(violation,) * len(accuracies),
        violation=violation,
        constant_accuracy=0.5,
    )


def test_the_reason_says_why_and_what_cannot_be_told_apart():
    trials = [
        numbers("fedavg", (0.80, 0.82, 0.84)),
        numbers("fedfb", (0.81, 0.81, 0.85)),
        numbers("mfairfl", (0.85, 0.87, 0.89), violation=0.2),
    ]
    found = pick_accurate(trials, 0.05, by="none")
    assert found.reason == (
        "fedfb is the most accurate of 2 with a held-out violation of at most 0.0500; the simpler "
        "fedavg cannot be told apart from it (+0.0033 ± 0.0454) and is chosen."
    )
    assert (found.chosen, found.alike) == (0, (1,))


def test_an_undefined_violation_is_refused():
    trials = [numbers("fedavg", (0.8, 0.8), violation=math.nan)]
    with pytest.raises(DataError, match="undefined on held-out rows"):
        pick_accurate(trials, 0.05, by="none")


def test_equal_differences_tell():
    assert FoldDifference.of([0.8, 0.9], [0.7, 0.8]).tells
    assert not FoldDifference.of([0.8, 0.9], [0.8, 0.9]).tells


# ------------------------------------------------------------------ a whole choice


@pytest.fixture(scope="module")
def chosen(tmp_path_factory):
    """A choice whose rows are too few, and its folder."""
    out = tmp_path_factory.mktemp("choice") / "run"
    return choose(SHORT, out, at_most="dp 0.2", rows=people_table(), **TWO), out


def settings(**more):
    """Return the same settings, as one run is given them."""
    return {**SHORT, "fairness": {"tolerance": 0.2}, **more}


@pytest.mark.slow
def test_the_numbers_of_candidates_are_those_of_runs(chosen):
    choice, _ = chosen
    kinds = [(t.candidate.strategy, t.candidate.by) for t in choice.trials]
    assert kinds == [("fedavg", None), ("fedavg", "none"), ("fedavg", "group"), ("fpfl", None)]
    final = mfairfl.train(people_table(), config=settings(strategy={"name": "fpfl"}))
    aim = {"dead_zone": final.record.served.dead_zone, "tolerance": 0.2}
    for trial in choice.trials:
        one = trial.candidate
        output = {} if one.by is None else {"rule": "thresholds", "by": one.by}
        if one.rule != "last":
            output["tolerance"] = aim["dead_zone"]
        for fold in range(2):
            config = settings(
                strategy={"name": one.strategy},
                clients={"folds": 2, "fold": fold},
                fairness=aim,
                output=output,
            )
            test = mfairfl.train(people_table(), config=config).record.table("test")
            assert test["accuracy"].value == pytest.approx(trial.accuracies[fold], abs=1e-12)
            violation = test["demographic_parity_violation"].value
            assert violation == pytest.approx(trial.violations[fold], abs=1e-12)


def test_what_was_chosen_is_an_ordinary_run(chosen):
    choice, out = chosen
    one = choice.candidate
    output = {} if one.by is None else {"rule": "thresholds", "by": one.by}
    config = settings(strategy={"name": one.strategy}, output=output)
    again = mfairfl.train(people_table(), config=config)
    assert again.metrics["test"] == choice.run.metrics["test"]
    assert (out / "baseline" / "run.json").exists() == (choice.baseline is not choice.run)
    assert len(mfairfl.load(out).predict(people())) == len(people())
    written = json.loads((out / "choice.json").read_text())
    assert written == json.loads(json.dumps(choice.to_json()))
    assert written["chosen"]["strategy"] == one.strategy
    assert choice.pick.reason in str(choice)


def margin(split):
    """Return how many rows there are, and 3.24 standard errors of the least certain gap."""
    federation = partition(people_table(), "column", seed=4, test=0.2)
    n = sum(counts_of(federation, split).values())
    attributes = federation.attributes
    cells = np.unravel_index(range(len(n)), [len(one.groups) for one in attributes])
    q, errors = n[:, 1].sum() / n.sum(), []
    for codes, one in zip(cells, attributes, strict=True):
        sizes = [n[codes == group].sum() for group in range(len(one.groups))]
        errors += [math.sqrt(q * (1 - q) * (1 / size - 1 / n.sum())) for size in sizes if size]
    return n.sum(), 3.24 * max(errors)


def test_too_few_rows_are_said_beforehand(chosen):
    choice, _ = chosen
    rows, wide = margin("test")
    needed = rows * (wide / 0.1) ** 2
    assert choice.beforehand == (
        f"too few rows to show a violation of at most 0.2: {rows:.0f} test rows ask for a "
        f"margin of {wide:.4f}, more than half of it; about {needed:,.0f} test rows "
        f"({needed / 0.2:,.0f} in all) would do"
    )
    assert "violation of at most 0.2000" in choice.pick.reason  # .1 and the margin are more


def test_candidates_have_room_for_chance_on_held_out_rows(caplog):
    (_, wide), (_, narrow) = margin("test"), margin("train")
    assert narrow < wide < 0.45
    with caplog.at_level(logging.WARNING, "mfairfl"):
        enough = choose(
            SHORT, at_most="dp 0.9", rows=people_table(), methods=(), folds=2, workers=1
        )
    assert not enough.beforehand
    assert not caplog.records
    assert f"violation of at most {0.9 - wide + narrow:.4f}" in enough.pick.reason


def test_the_fairest_that_loses_little(chosen):
    choice = choose(SHORT, lose_at_most=0.02, rows=people_table(), **TWO)
    trained = [t.candidate for t in choice.trials]
    assert [c.tolerance for c in trained if c.strategy == "fpfl"] == [*TOLERANCES]
    assert sum(c.by is not None for c in trained) == 2 * len(TOLERANCES)
    first = choice.trials[0]
    assert choice.trials[choice.pick.chosen].accuracy >= first.accuracy - 0.02
    assert choice.verdict is None
    assert "lost at most 0.02" in choice.lines[-1] or choice.run.worsened


def test_a_blind_choice_has_no_candidate_that_reads_the_group():
    config = {**SHORT, "fairness": {"blind": True}}
    choice = choose(config, at_most="dp 0.5", rows=people_table(), methods=(), folds=2, workers=1)
    assert not any(trial.candidate.reads_group for trial in choice.trials)
    with pytest.raises(ConfigError, match="by = 'group' reads the group"):
        choose(config, at_most="dp 0.5", by="group", rows=people_table())


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({}, "give at_most"),
        ({"at_most": "dp 0.1", "lose_at_most": 0.1}, "give at_most"),
        ({"at_most": "0.1"}, "write a notion and a number"),
        ({"at_most": "dp"}, "write a notion and a number"),
        ({"at_most": "dp 5"}, "write a notion and a number"),
        ({"lose_at_most": 0.0}, "write a notion and a number"),
        ({"at_most": "parity 0.1"}, "parity"),
        ({"at_most": "dp 0.1", "by": "client"}, "by"),
        ({"at_most": "dp 0.1", "methods": ("fedafg",)}, "fedafg"),
        ({"at_most": "dp 0.1", "folds": 1}, "folds"),
    ],
)
def test_what_cannot_be_asked(asked, problem):
    with pytest.raises(ConfigError, match=problem):
        choose(SHORT, rows=people_table(), **asked)


@pytest.mark.parametrize(
    "said",
    [
        {"output": {"rule": "last"}},
        {"fairness": {"tolerance": 0.1}},
        {"fairness": {"dead_zone": 0.1}},
        {"clients": {"folds": 3}},
        {"clients": {"test": 0.0}},
    ],
)
def test_what_is_chosen_is_not_configured(said):
    with pytest.raises(ConfigError, match=rf"{next(iter(said))}\.{next(iter(*said.values()))}"):
        choose({**SHORT, **said}, at_most="dp 0.1", rows=people_table())


def test_the_next_more_accurate_candidate_is_named(chosen):
    choice, _ = chosen
    trials = (
        numbers("fedavg", (0.90, 0.92), violation=0.3),
        numbers("fedfb", (0.80, 0.82), violation=0.02),
        numbers("fpfl", (0.85, 0.89), violation=0.1),
        numbers("mfairfl", (0.85, 0.89), violation=0.05, by="group"),
    )
    other = replace(choice, trials=trials, pick=Pick(1, (), ""))
    assert other.neighbour == (
        "fpfl would be more accurate (+0.0600 ± 0.2201) at a held-out violation of 0.1000 in "
        "place of 0.0200."
    )
    assert other.neighbour in str(other)
    assert not replace(other, pick=Pick(0, (), "")).neighbour


def test_what_the_group_would_have_gained_is_said(chosen):
    choice, _ = chosen
    trials = (
        numbers("fedavg", (0.90, 0.92)),
        numbers("fedavg", (0.94, 0.98), violation=0.02, by="group"),
    )
    pick, free = Pick(0, (), ""), Pick(1, (), "")
    other = replace(choice, trials=trials, pick=pick, free=free)
    assert other.gain == (
        "If decisions might depend on the group (by = group), fedavg with a threshold for each "
        "group would be chosen: held-out accuracy +0.0500 ± 0.2201, violation 0.0200."
    )
    assert other.gain in str(other)
    assert not replace(other, pick=free).gain
    assert not replace(other, free=pick).gain


def test_the_verdict_is_about_the_whole_interval(chosen):
    choice, _ = chosen
    run = mfairfl.train(people_table(), config={**SHORT, "fairness": {"notion": ["dp", "eo"]}})
    table = run.record.table("test")
    ends = [
        table[f"{name}_violation"].interval for name in ("demographic_parity", "equalized_odds")
    ]
    highest, lowest = max(upper for _, upper in ends), max(lower for lower, _ in ends)

    def verdict(budget):
        return replace(choice, run=run, wanted=Wanted(("dp", "eo"), budget, None)).verdict

    assert verdict(highest) == "met"
    assert verdict(highest - 1e-6) == "too few rows to tell"
    assert lowest > 0
    assert verdict(lowest - 1e-6) == "not met"


def test_several_notions_share_a_budget():
    assert Wanted.of("dp, eo 0.1", None) == (("dp", "eo"), 0.1, None)
