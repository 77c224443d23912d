"""The embedded engine: counts, what clients keep between rounds, runs of different shapes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import federations as fed
from mfairfl.engine import embedded
from mfairfl.engine.embedded import Member, run_all, splits_of, summarize
from mfairfl.engine.loop import federate
from mfairfl.engine.state import Train
from mfairfl.fairness.constraints import Goal
from mfairfl.models import ModuleModel
from mfairfl.strategies.base import Card, Step, Strategy
from mfairfl.training.batches import RowStore
from mfairfl.training.plan import Job, Optimizer
from rounds import close


def test_the_summary_counts_training_rows_by_cell_and_label(federation):
    summary = summarize(federation, Goal())
    frame = fed.people()
    for client in federation.clients:
        rows = frame.iloc[client.train.rows]
        expected = np.zeros((4, 2))
        for i, (sex, age) in enumerate(product(["F", "M"], ["old", "young"])):
            cell = rows[(rows.sex == sex) & (rows.age == age)]
            expected[i] = [(cell.hired == "no").sum(), (cell.hired == "yes").sum()]
        assert summary.counts[client.name].tolist() == expected.tolist()
    assert summary.pooled.sum() == 208


def test_splits_are_those_with_rows(federation):
    assert splits_of(federation) == ("train", "test")
    assert splits_of(fed.people_federation(validation=0.2)) == ("train", "validation", "test")


def test_results_come_in_the_order_of_the_runs_whatever_their_shapes(federation):
    other = fed.people_federation(fed.people(seed=3), validation=0.2)
    setups = [
        (fed.setup_for(federation, hidden=(4,), rounds=1), federation),
        (fed.setup_for(other, hidden=(), rounds=2), other),
        (fed.setup_for(other, hidden=(4,), rounds=3), other),
        (fed.setup_for(federation, hidden=(), rounds=0), federation),
    ]
    results = run_all([fed.member_of(s, f) for s, f in setups])
    assert [r.rounds for r in results] == [1, 2, 3, 0]
    for result, (setup, own) in zip(results, setups, strict=True):
        assert fed.bits(result) == fed.bits(fed.run(setup, own)[0])
        rows = sum(s.counts.sum() for s in result.measured[0]["train"].values())
        assert rows == sum(len(c.train) for c in own.clients)


@pytest.mark.parametrize("strategy", ["fedavg", "cenfair"])
@pytest.mark.parametrize("validation", [0.0, 0.2])
def test_a_federations_rows_are_in_memory_once(strategy, validation, monkeypatch):
    federation = fed.people_federation(validation=validation)
    made = []

    def from_arrays(shards, cells):
        made.append(RowStore.from_arrays(shards, cells))
        return made[-1]

    monkeypatch.setattr(embedded, "RowStore", SimpleNamespace(from_arrays=from_arrays))
    setup = fed.setup_for(federation, strategy=strategy, hidden=(4,), rounds=1)
    run_all([fed.member_of(setup, federation)])
    ((store, _),) = made
    assert store.X.data_ptr() == federation.pool.X.__array_interface__["data"][0]
    assert len(store.X) == len(federation.pool)


def test_no_runs_no_results():
    assert run_all([]) == []


def test_modules_of_ones_own_run_beside_each_other(federation):
    def narrow(inputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(inputs, 3), nn.Tanh(), nn.Linear(3, 1))

    def relu(inputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(inputs, 3), nn.ReLU(), nn.Linear(3, 1))

    plain, inputs = fed.setup_for(federation, rounds=2), federation.pool.X.shape[1]
    members = [
        Member(setup=replace(plain, size=model.size), model=model, federation=federation)
        for model in (ModuleModel(narrow, inputs), ModuleModel(relu, inputs))
    ]
    together = run_all(members)
    for member, result in zip(members, together, strict=True):
        assert fed.bits(result) == fed.bits(run_all([member])[0])
    assert not np.array_equal(together[0].served.members, together[1].served.members)


# ------------------------------------------------------------------ what clients keep


@dataclass(frozen=True)
class Asking(Strategy):
    """Gives every participant the same job, made of these parts."""

    job: dict[str, Any]
    plan_changes: dict[str, Any]
    card = Card(title="Asking")

    def plan(self, state, round):
        plan = replace(round.plan, **self.plan_changes)
        jobs = [Job(client=name, plan=plan, **self.job) for name in round.participants]
        return state, jobs

    def combine(self, state, round, reports, gram):
        return Step(np.zeros(len(reports)))


def gradient(federation, client: str, weights: np.ndarray) -> np.ndarray:
    """The mean cross-entropy's gradient of logistic regression, by automatic differentiation."""
    shard = next(c.train for c in federation.clients if c.name == client)
    w = torch.tensor(weights, dtype=torch.float64, requires_grad=True)
    X = torch.tensor(shard.X, dtype=torch.float64)
    y = torch.tensor(shard.y, dtype=torch.float64)
    nn.functional.binary_cross_entropy_with_logits(X @ w[:-1] + w[-1], y).backward()
    return w.grad.numpy()


def run_asking(federation, strategy: Asking, rounds: int):
    """Run logistic regression; return the slots after it and the reports of each round."""
    setup = fed.setup_for(federation, strategy, rounds=rounds, hidden=(), batch_size=999)
    clients, state = fed.clients_and_state(setup, federation)
    start = state.weights.astype(np.float64)
    loop = federate(setup, state)
    request, reports = next(loop), []
    try:
        while True:
            answers = clients.answer({0: request})[0]
            if isinstance(request, Train):
                reports.append(fed.reports_in(answers))
            request = loop.send(answers)
    except StopIteration:
        return start, state.slots, reports


def test_a_slot_is_trained_on_from_round_to_round_and_stays_with_its_client(federation):
    strategy = Asking(
        {"start": "own", "keep": "own", "send": False},
        {"optimizer": Optimizer(name="gradient", lr=1.0)},
    )
    start, slots, reports = run_asking(federation, strategy, rounds=3)
    assert reports == [[], [], []]
    for client in ("east", "north", "south", "west"):
        own = start.copy()
        for _ in range(3):
            own -= gradient(federation, client, own)
        close(slots[client]["own"], own, 2e-6)


def test_control_variates_follow_their_formula(federation):
    """c_k⁺ = c_k − c + (w − w_k)/(steps·lr), with one full-batch step of rate lr a round."""
    c = np.linspace(-0.1, 0.1, federation.pool.X.shape[1] + 1).astype(np.float32)
    strategy = Asking(
        {"keep_control": "c_k"},
        {
            "epochs": 1,
            "optimizer": Optimizer(name="sgd", lr=0.5, weight_decay=0.0),
            "linear": c,
            "linear_slot": "c_k",
        },
    )
    start, slots, reports = run_asking(federation, strategy, rounds=2)
    for k, client in enumerate(["east", "north", "south", "west"]):
        g = gradient(federation, client, start)  # the server stays at its start
        # One step w − w_k = lr·(g + c − c_k), so c_k⁺ = g whatever c and c_k are.
        close(slots[client]["c_k"], g, 2e-6)
        first, second = reports[0][k], reports[1][k]
        close(first.update, 0.5 * (g + c), 2e-6)
        close(first.control_change, g, 2e-6)
        close(second.update, 0.5 * c, 2e-6)
        close(second.control_change, 0, 2e-6)
