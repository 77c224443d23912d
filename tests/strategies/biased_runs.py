"""Short runs on data with a known bias: what is left of the violation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

import federations as fed
from mfairfl.data import Task, partition, table_from_frame
from mfairfl.engine.embedded import summarize
from mfairfl.fairness.cells import Statistics
from mfairfl.fairness.constraints import Goal


def biased(errors):
    """600 people at three sites; men are favoured or, with `errors`, their labels are noise."""
    rng = np.random.default_rng(2)
    male = rng.random(600) < np.repeat([0.7, 0.5, 0.3], 200)
    skill = rng.normal(size=600)
    hired = skill + rng.normal(size=600) + np.where(male, 0.6, -0.6) > 0
    if errors:
        hired = (skill > 0) ^ (male & (rng.random(600) < 0.25))
    return pd.DataFrame(
        {
            "skill": skill.round(4),
            "sex": np.where(male, "M", "F"),
            "site": np.repeat(["a", "b", "c"], 200),
            "hired": np.where(hired, "yes", "no"),
        }
    )


def violations(notion, *strategies):
    """Violation on the pooled training rows after the last round, by strategy."""
    task = Task(label="hired", favourable="yes", sensitive=("sex",), client="site")
    table = table_from_frame(biased(notion == "ap"), task, name="biased")
    federation = partition(table, "column", seed=0)
    goal, found = Goal(notions=(notion,)), []
    for strategy in strategies:
        options = {"lr": 0.01, "weight_decay": 1.0, "batch_size": 32, "hidden": (8,)}
        setup = fed.setup_for(federation, strategy, rounds=40, **options)
        _, watch = fed.run(replace(setup, summary=summarize(federation, goal)), federation)
        sums = Statistics.pooled(watch.records[-1].measured["train"])
        right = sums.positives[:, 1].sum() + (sums.counts - sums.positives)[:, 0].sum()
        assert right / sums.counts.sum() > 0.6  # not by answering the same to everyone
        found.append(goal.constraints(federation.attributes).violation(sums))
    return found
