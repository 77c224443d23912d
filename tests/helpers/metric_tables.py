"""Parts of a `MetricTable` as plain dicts, to be compared with oracles."""

from __future__ import annotations

import numpy as np

from mfairfl.data import Attribute
from mfairfl.fairness import Interval, MetricTable, Slice, Tally, scores
from mfairfl.fairness.measuring import has_interval, has_noise_floor


def _numbers(part):
    if isinstance(part, MetricTable):
        return part.overall
    if isinstance(part, Slice):
        return part.numbers
    return part


def score_numbers(sums):
    """Value and reason of each number of one set of scores."""
    decisions = np.stack([sums.counts, np.zeros_like(sums.counts)], axis=-1)
    groups = Attribute("group", tuple(map(str, range(len(decisions)))))
    tally = Tally(decisions[None], ("all",), (groups,))
    return scores.score_numbers(tally, {"all": sums})["overall",][0]


def marginal(tally, attribute):
    """The tally over the groups of one attribute."""
    axis = [item.name for item in tally.attributes].index(attribute)
    others = tuple(1 + other for other in range(len(tally.attributes)) if other != axis)
    table = tally.counts.reshape(len(tally.clients), *tally.cells.shape, 2, 2).sum(axis=others)
    return Tally(table, tally.clients, (tally.attributes[axis],))


def quick_table(tally, **options):
    """A table for its values: intervals and floors are from one draw."""
    return MetricTable.from_tally(tally, draws=1, **options)


def values(part):
    """The values by name, of a table's overall numbers, of a slice or of measures by name."""
    return {name: number.value for name, number in _numbers(part).items()}


def limits(part):
    """The intervals by name, None where a number that has one is undefined."""
    return {
        name: None if number.interval is None else Interval(*number.interval)
        for name, number in _numbers(part).items()
        if has_interval(name)
    }


def floors(part):
    """The noise floors by name, None where a number that has one is undefined."""
    return {
        name: number.noise_floor
        for name, number in _numbers(part).items()
        if has_noise_floor(name)
    }
