"""What runs serve beside one model: ensembles, own models, pooled training, in any company."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import federations as fed
from mfairfl.engine.checkpoint import parse
from mfairfl.engine.embedded import run_all
from mfairfl.engine.output import Output
from mfairfl.errors import ConfigError
from mfairfl.strategies import create
from rounds import close

RECIPE = {"lr": 0.05, "weight_decay": 0.1}


def logits(w, X):
    """One hidden layer of four ReLU units, in float64."""
    w, d = w.astype(float), X.shape[1]
    hidden = np.maximum(X @ w[: 4 * d].reshape(d, 4) + w[4 * d : 4 * d + 4], 0)
    return hidden @ w[4 * d + 4 : 4 * d + 8] + w[4 * d + 8]


def decide(members, shares, X):
    """Whether Σ_k p_k P_k(x) > ½."""
    return shares @ [1 / (1 + np.exp(-logits(w, X))) for w in members] > 0.5


def quality(federation, members, shares):
    """Accuracy and demographic parity violation on everyone's training rows."""
    shards = [client.train for client in federation.clients]
    y, cells = (np.concatenate([getattr(s, part) for s in shards]) for part in ("y", "cells"))
    yes = np.concatenate([decide(members, shares, s.X.astype(float)) for s in shards])
    groups = [cells // 2 == 0, cells // 2 == 1, cells % 2 == 0, cells % 2 == 1]
    return (yes == y).mean(), max(abs(yes.mean() - yes[g].mean()) for g in groups)


# ------------------------------------------------------------------ which rules fit


@pytest.mark.parametrize(
    ("name", "rule", "fitting"),
    [
        ("indfair", "mixture", "last, average, select"),
        ("indfair", "thresholds", "last, average, select"),
        ("ditto", "select", "last"),
        ("ditto", "average", "last"),
        ("ditto", "mixture", "last"),
        ("ditto", "thresholds", "last"),
    ],
)
def test_rules_that_do_not_fit_are_refused_in_one_line(federation, name, rule, fitting):
    with pytest.raises(ConfigError) as error:
        fed.setup_for(federation, name, output=Output(rule=rule))
    said = str(error.value)
    assert said.startswith(f"output.rule = '{rule}' does not fit a strategy that serves ")
    assert said.endswith(f"; use one of: {fitting}")
    assert "\n" not in said


# ------------------------------------------------------------------ ensembles over rounds


@pytest.mark.parametrize("tolerance", [0.0, 0.03, 0.2])
def test_select_takes_the_best_ensemble_of_the_last_half(federation, tolerance):
    output = Output(rule="select", tolerance=tolerance)
    setup = fed.setup_for(federation, "indfair", rounds=6, output=output, **RECIPE)
    result, watch = fed.run(setup, federation)
    bank = {}
    average = watch.weights[1]
    for t, weights in enumerate(watch.weights[1:], start=1):
        average = ((average.astype(float) + weights) / 2).astype(np.float32)
        if t > 3:
            bank |= {f"round {t}": weights, f"average {t}": average}
    held = parse(watch.dumps[-1], "watch").bank
    assert [c.name for c in held] == list(bank)
    shares = np.array([72, 56, 32, 48]) / 208
    found = {name: quality(federation, members, shares) for name, members in bank.items()}
    for candidate in held:
        close(candidate.weights, bank[candidate.name], 1e-6)
    within = {n: (a, i) for i, (n, (a, v)) in enumerate(found.items()) if v <= tolerance}
    least = {n: (-v, a, i) for i, (n, (a, v)) in enumerate(found.items())}
    best = max(within or least, key=(within or least).get)
    served = result.served
    assert (served.kind, served.names) == ("ensemble", (best,) * 4)
    assert np.array_equal(served.members, next(c.weights for c in held if c.name == best))
    assert bool(served.note) == (not within)


def test_average_is_each_members_mean_over_the_last_half(federation):
    setup = fed.setup_for(federation, "indfair", rounds=4, output=Output(rule="average"))
    result, watch = fed.run(setup, federation)
    expected = (watch.weights[3].astype(float) + watch.weights[4]) / 2
    close(result.served.members, expected, 1e-7)
    assert result.served.names == ("average of round 3 to round 4",) * 4
    # What is measured is the average, not the last round.
    sums = [
        sum(s.losses.sum() for s in m["train"].values())
        for m in (result.measured[0], watch.records[-1].measured)
    ]
    assert sums[0] != sums[1]


def test_members_of_absent_clients_stay_as_they_are(federation):
    setup = fed.setup_for(federation, "indfair", rounds=6, participation=0.5)
    _, watch = fed.run(setup, federation)
    names = ["east", "north", "south", "west"]
    for before, after, record in zip(
        watch.weights, watch.weights[1:], watch.records[1:], strict=False
    ):
        moved = [n for n, a, b in zip(names, before, after, strict=True) if (a != b).any()]
        assert moved == sorted(record.coefficients)
        assert len(moved) == 2


@pytest.mark.parametrize("rule", ["last", "average", "select"])
def test_an_ensemble_goes_on_after_any_round_with_the_same_bits(federation, rule):
    setup = fed.setup_for(
        federation, "indfair", rounds=4, participation=0.5, output=Output(rule=rule)
    )
    fed.assert_resumes(setup, federation)


# ------------------------------------------------------------------ all kinds side by side


def test_runs_of_every_kind_beside_each_other_have_the_bits_of_each_alone(federation):
    select, exact = Output(rule="select"), fed.exact_thresholds()
    other = fed.people_federation(fed.people(seed=3), validation=0.2)
    part = {"participation": 0.5}
    members = [
        fed.member_of(fed.setup_for(f, name, output=output, **RECIPE, **options), f)
        for f in (federation, other)
        for name, output, options in [
            ("indfair", select, {"rounds": 3} | part),
            ("ditto", Output(), {"rounds": 2}),
            ("cenfair", select, {"rounds": 4}),
            ("fedavg-threshold", exact, {"rounds": 1}),
            ("fedavg-f", select, {"rounds": 3, "seed": 1}),
            ("mfairfl", Output(rule="mixture"), {"rounds": 3}),
            (create("ditto", pull=0), Output(), {"rounds": 3} | part),
        ]
    ]
    for member, together in zip(members, run_all(members), strict=True):
        alone, _ = fed.run(member.setup, member.federation)
        assert fed.bits(alone) == fed.bits(together)
        assert alone.served.names == together.served.names
        if alone.served.thresholds is not None:
            assert alone.served.thresholds.to_json() == together.served.thresholds.to_json()


def test_a_lone_pooled_trainer_has_the_clients_name(federation):
    one = replace(federation, clients=federation.clients[:1])
    _, watch = fed.run(fed.setup_for(one, "cenfair", rounds=1), one)
    assert watch.records[1].coefficients == {"east": 1.0}
    _, watch = fed.run(fed.setup_for(federation, "cenfair", rounds=1), federation)
    assert watch.records[1].coefficients == {"all clients": 1.0}
