"""One round of a strategy without an engine: measurements in, plans and coefficients out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mfairfl.data import Attribute
from mfairfl.fairness.cells import Statistics
from mfairfl.fairness.constraints import Goal
from mfairfl.strategies import Measurement, Report, Round, Summary
from mfairfl.training.plan import Recipe

SEX = (Attribute("sex", ("F", "M")),)
NO_GRAM = np.zeros((0, 0))
NAMES = "abcdefghij"
FLOAT32 = 2e-5  # how far training in float32 may be from the same steps in float64


def close(found, expected, atol=1e-12):
    """Equal but for rounding in float64, unless another tolerance is given."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def statistics(counts, positives=None, losses=None, scores=None):
    """Sums over (cell, label); what is not given is half of the counts."""
    n = np.array(counts, dtype=float)
    given = {"positives": positives, "scores": scores, "losses": losses}
    return Statistics(counts=n, **{k: n / 2 if v is None else v for k, v in given.items()})


def measurement(client, counts, positives=None, losses=None, scores=None):
    return Measurement(client, statistics(counts, positives, losses, scores))


def measured(losses, rows=None):
    """Measurements of clients a, b, … with these mean losses, all rows in one cell."""
    sizes = [10] * len(losses) if rows is None else rows
    return [
        measurement(name, [[n, 0.0]], losses=[[n * loss, 0.0]])
        for name, loss, n in zip(NAMES, losses, sizes, strict=False)
    ]


def a_round(
    known=(),
    *,
    goal=None,
    index=0,
    rounds=1,
    absent=(),
    attributes=SEX,
    recipe=None,
    seed=0,
    counts=None,
    **more,
):
    """A round in which the clients of `known` take part; `absent` clients have rows too."""
    rows = {m.client: m.statistics.counts for m in (*known, *absent)} if counts is None else counts
    return Round(
        index=index,
        rounds=rounds,
        participants=more.pop("participants", tuple(m.client for m in known)),
        plan=(recipe or Recipe()).plan(index, rounds),
        rng=np.random.default_rng(seed),
        summary=Summary(counts=rows, attributes=attributes, goal=goal or Goal()),
        measurements=tuple(known),
        **more,
    )


def report(client, update=(1.0, 1.0), **more):
    vector = np.array(update, dtype=np.float32)
    return Report(client=client, update=vector, **{"steps": 1, "lr": 0.1, **more})


def reports(clients, **more):
    return [report(client, **more) for client in clients]


def planned(strategy, known, state=None, **where):
    """Return the state after planning, and the plans by client."""
    place = a_round(known, **where)
    after, jobs = strategy.plan(strategy.start(place.summary) if state is None else state, place)
    return after, {job.client: job.plan for job in jobs}


def combined(strategy, known, updates, state=None, **where):
    """Return the server's answer to updates by client, whose Gram matrix is in float64.

    `state` changes entries of the first state.
    """
    place = a_round(known, **where)
    begun = {**strategy.start(place.summary), **(state or {})}
    G = np.array(list(updates.values()), dtype=float)
    sent = [report(name, update) for name, update in updates.items()]
    return strategy.combine(begun, place, sent, G @ G.T)


def play(strategy, known, state=None, *, reporting=None, notion="dp", alpha=0.0, **where):
    """Plan and combine; return the step and the plans by client."""
    goal = where.pop("goal", None) or Goal(notions=(notion,), dead_zone=alpha)
    where |= {"goal": goal, "rounds": 10}
    after, plans = planned(strategy, known, state, **where)
    names = [m.client for m in known] if reporting is None else reporting
    step = strategy.combine(after, a_round(known, **where), reports(names), NO_GRAM)
    if step.state is None:  # as the loop does
        step = replace(step, state=after)
    return step, plans
