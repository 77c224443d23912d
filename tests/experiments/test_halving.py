"""Successive halving against a runner whose answers are known beforehand."""

from __future__ import annotations

import json
import tomllib
from collections import Counter

import pytest

from mfairfl.experiments.search.halving import RUNGS, Rung, candidates, halve, subjects, write_lock
from mfairfl.experiments.study import StrategyVariant, Study
from records import make_record


def study(*strategies):
    return Study.model_validate(
        {
            "data": ["adult", "bank"],
            "splits": ["high"],
            "notions": ["dp"],
            "protocols": ["10x20"],
            "seeds": [3],
            "strategies": list(strategies),
        }
    )


def record(accuracy, violation, std=0.0):
    numbers = {
        "accuracy": accuracy,
        "demographic_parity_violation": violation,
        "client_accuracy_std": std,
    }
    return make_record(
        metrics={"test": numbers},
        intervals={"test": {"level": 0.95}},
        noise_floor={"test": dict.fromkeys(numbers, 0.0)},
        constant_classifier={"test": {"accuracy": 0.5}},
    )


class Oracle:
    """Accuracy grows with the rate; above .01 a group-fair method is unfair."""

    def __init__(self):
        self.seen = []

    def __call__(self, configs):
        self.seen.append(configs)
        return [record(0.6 + c.training.lr, 0.2 if c.training.lr > 0.01 else 0.0) for c in configs]


def test_the_most_accurate_setting_that_is_fair_enough_wins():
    tuned = subjects(study("fairfed", "fedavg"), 8)
    tried = [
        [setting.get("training.lr", 0.002) for setting in subject.settings] for subject in tuned
    ]
    halve(tuned, Oracle())
    for subject, rates in zip(tuned, tried, strict=True):
        fair = subject.trial.strategy == "fairfed"
        best = max(rate for rate in rates if not fair or rate <= 0.01)
        assert subject.settings[0].get("training.lr", 0.002) == best
        assert subject.scores[0].accuracy == pytest.approx(0.6 + best)


def test_every_method_climbs_the_same_rungs_on_the_same_folds():
    run = Oracle()
    halve(subjects(study("fairfed", "mfairfl"), RUNGS[0].settings), run)
    for rung, configs in zip(RUNGS, run.seen, strict=True):
        counted = Counter((c.data.name, c.strategy.name) for c in configs)
        assert set(counted.values()) == {rung.settings * len(rung.folds)}
        assert {c.clients.fold for c in configs} == set(rung.folds)
        assert {c.training.rounds for c in configs} == {round(10 * rung.share)}
        assert {(c.clients.folds, c.seed, c.training.local_epochs) for c in configs} == {
            (3, 3, 20)
        }


def test_methods_that_protect_clients_are_judged_by_the_spread_of_the_clients():
    def run(configs):
        return [record(0.7 + 0.01 * c.strategy.create().q, 0.5, c.strategy.create().q / 100)
                for c in configs]  # fmt: skip

    variant = {"name": "drfl", "search": {"strategy.q": [0.01, 1.0, 5.0]}}
    first, _ = tuned = subjects(study(variant), 8)
    halve(tuned, run)
    # .01 and less are allowed: q = 1 is the most accurate of those
    assert first.settings[0] == {"strategy.q": 1.0}


def test_the_first_candidate_is_the_default_and_none_comes_twice():
    variant = StrategyVariant.model_validate("mfairfl")
    found = candidates(variant, 8, seed=0)
    assert found[0] == {}
    texts = {json.dumps(setting, sort_keys=True) for setting in found}
    assert len(texts) == len(found) == 8
    assert set(found[1]) == {"training.lr", "strategy.gamma", "strategy.beta", "strategy.delta"}
    # FedAvg has the default and five rates.
    assert len(candidates(StrategyVariant.model_validate("fedavg"), 99, seed=0)) == 6


def test_the_lock_file_holds_what_was_chosen():
    tuned = subjects(study("fairfed"), 4)
    halve(tuned, Oracle(), rungs=(Rung(settings=4, folds=(0,)),))
    lock = tomllib.loads(write_lock(tuned, "Chosen"))
    assert {data: dict(values["fairfed"]) for data, values in lock.items()} == {
        subject.trial.data: dict(subject.settings[0]) for subject in tuned
    }
