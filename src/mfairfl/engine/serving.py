"""Who answers when the rounds are over: the output rule applied, and what it serves measured."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from mfairfl.engine.output import Candidate, Served, choose
from mfairfl.engine.state import Ask, Measure, Measured, RunState, Score, Setup
from mfairfl.engine.tallies import pooled
from mfairfl.fairness.thresholds import fit_thresholds
from mfairfl.training.plan import PERSONAL

__all__ = ["ask_about", "serve"]


def serve(
    setup: Setup, state: RunState, measured: Measured
) -> Generator[Ask, Any, tuple[Served, Sequence[Measured]]]:
    """Apply the output rule and measure what is served."""
    last = Candidate(f"round {state.round}", state.weights, pooled(measured[setup.held_out]))
    constraints = setup.summary.goal.constraints(setup.summary.attributes)
    served = choose(setup.output, last, state.bank, constraints)
    serves = setup.strategy.card.serves
    if serves != "global":
        clients = tuple(sorted(setup.summary.counts))
        served = replace(served, names=served.names * len(clients), clients=clients)
    if serves == "personal":
        return _personal(served, state), (measured,)
    if serves == "ensemble":
        served = replace(served, kind="ensemble", weights=_shares(setup))
        return served, (yield ask_about(setup, served.members))
    if setup.output.rule == "threshold":
        counts = yield Score(state.weights, setup.held_out)
        total = reduce(add, (counts[name] for name in sorted(counts)))
        fitted = fit_thresholds(total, constraints, tolerance=setup.output.tolerance)
        served = replace(served, thresholds=fitted)
    request = Measure(tuple(served.members), setup.splits, thresholds=served.thresholds)
    return served, (yield request)


def ask_about(setup: Setup, *models: np.ndarray) -> Measure:
    """Ask how models do as they would be served."""
    serves = setup.strategy.card.serves
    return Measure(
        models,
        setup.splits,
        shares=_shares(setup) if serves == "ensemble" else None,
        slot=PERSONAL if serves == "personal" else None,
    )


def _shares(setup: Setup) -> np.ndarray:
    """Return how much each member of an ensemble counts, in client order."""
    sizes = np.array([setup.summary.counts[name].sum() for name in sorted(setup.summary.counts)])
    if getattr(setup.strategy, "weights", "size") == "uniform":
        sizes = np.sign(sizes)  # who has no rows has no model of its own
    return np.asarray(sizes / sizes.sum())


def _personal(served: Served, state: RunState) -> Served:
    """Serve each client the model it holds; where none is held, the server's."""
    held = [state.slots.get(name, {}).get(PERSONAL, state.weights) for name in served.clients]
    share = np.full(len(held), 1 / len(held))
    return replace(served, kind="personal", members=np.stack(held), weights=share)
