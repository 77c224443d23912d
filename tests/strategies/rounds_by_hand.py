"""One round of a strategy without an engine: measurements in, plans and coefficients out."""

from __future__ import annotations

import numpy as np

from mfairfl.data import Attribute
from mfairfl.fairness.cells import Statistics
from mfairfl.fairness.goal import Goal
from mfairfl.strategies.base import Context, Measurement, Summary
from mfairfl.training.plan import Recipe, Report

SEX = (Attribute("sex", ("F", "M")),)


def statistics(counts, positives=None, losses=None):
    n = np.array(counts, dtype=float)
    return Statistics(
        counts=n,
        positives=n / 2 if positives is None else positives,
        scores=n / 2,
        losses=n / 2 if losses is None else losses,
    )


def measurement(client, counts, positives=None, losses=None):
    return Measurement(client, statistics(counts, positives, losses))


def context(known, *, notion="dp", round_=0, absent=(), attributes=SEX, alpha=0.0, goal=None):
    """A round in which `known` take part; `absent` clients have rows too."""
    counts = {m.client: m.statistics.counts for m in (*known, *absent)}
    return Context(
        round=round_,
        rounds=10,
        participants=tuple(m.client for m in known),
        plan=Recipe().plan(round_, 10),
        rng=np.random.default_rng(0),
        summary=Summary(
            counts=counts,
            attributes=attributes,
            goal=goal or Goal(notions=(notion,), alpha=alpha),
        ),
    )


def report(client):
    return Report(client=client, update=np.ones(2, np.float32), steps=1, lr=0.1)


def play(strategy, known, state=None, *, reporting=None, **where):
    """Plan and combine; return the step and the plans by client."""
    place = context(known, **where)
    begun = strategy.start(place.summary) if state is None else state
    after, jobs = strategy.plan(begun, place, list(known))
    names = [m.client for m in known] if reporting is None else list(reporting)
    step = strategy.combine(after, place, list(known), [report(name) for name in names], None)
    return step, {job.client: job.plan for job in jobs}


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
