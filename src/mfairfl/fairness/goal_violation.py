"""The violation of one notion between any groups of a tally, with interval and noise floor.

`summarise`, `intervals` and `noise_floor` measure between the groups of each attribute of a task.
A goal may name fewer attributes, or their intersections as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mfairfl.fairness.cells import Grouping
from mfairfl.fairness.notions import Notion
from mfairfl.fairness.rates import compared_counts, group_measure, violation_of
from mfairfl.fairness.tally import Tally
from mfairfl.fairness.uncertainty import Interval, Resampling, fair_kind, simulated_fair


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalViolation:
    """A violation; None where it is undefined, and why."""

    value: float | None
    interval: Interval | None = None
    floor: float | None = None
    undefined: str = ""


def goal_violation(
    tally: Tally,
    notion: Notion,
    groupings: Sequence[Grouping],
    *,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> GoalViolation:
    """Measure the largest deviation of a group of these groupings from everyone compared.

    Parameters
    ----------
    tally
        The counts.
    notion
        A notion that compares decisions, not losses.
    groupings
        The groups, for example ``tally.cells.groupings(["sex", "age"], intersections=True)``.
    level, draws, seed
        As in `mfairfl.fairness.intervals`.

    Examples
    --------
    >>> from mfairfl.fairness import notion
    >>> tally = Tally.from_predictions(
    ...     [1, 0] * 50, [1] * 25 + [0] * 75, sensitive_features=["a"] * 50 + ["b"] * 50
    ... )
    >>> goal_violation(tally, notion("dp"), tally.cells.groupings()).value
    0.25
    """
    value, why = group_measure("violation", notion, tally.counts, groupings)
    if np.isnan(value):
        return GoalViolation(value=None, undefined=why)
    name, rng = f"{notion.name}_violation", np.random.default_rng(seed)
    around = Resampling(rng, level, draws)
    found = around.violations([notion], groupings, tally.counts)
    fair = simulated_fair(compared_counts(tally.counts, groupings), draws, rng)[fair_kind(notion)]
    floor = float(violation_of(notion, groupings).value(fair).mean())
    return GoalViolation(value=value, interval=found[name], floor=floor)
