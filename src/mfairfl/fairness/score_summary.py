"""All reported numbers of a model's scores at once: of all rows, of each client and each group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from mfairfl.fairness.cells import Cells, Statistics
from mfairfl.fairness.constraints import Constraints
from mfairfl.fairness.notions import Notion, available_notions
from mfairfl.fairness.scores import RowScores, ScoreSums, roc_auc_interval
from mfairfl.fairness.summary import (
    Found,
    TallySummary,
    defined_values,
    reported_groupings,
    undefined_numbers,
)
from mfairfl.fairness.tally import Tally
from mfairfl.fairness.uncertainty import Interval, Intervals

__all__ = ["SCORE_NUMBERS", "summarise_scores"]

SCORE_NUMBERS = ("roc_auc", "loss", "expected_calibration_error")

_NOT_FINITE = "not every row has a finite score"
_DRAWN = "the model is drawn at random: its score is the chance of a favourable decision"


def summarise_scores(
    tally: Tally,
    scores: Mapping[str, ScoreSums],
    *,
    randomised: bool = False,
    level: float = 0.95,
    notions: Sequence[Notion] | None = None,
) -> tuple[TallySummary, Intervals]:
    """Return ROC-AUC, log-loss, calibration error and gaps of losses, and intervals of ROC-AUC.

    Parameters
    ----------
    tally
        The same rows' decisions: who is in which group, and how many rows there are. Where scores
        of fewer rows have arrived the numbers are undefined.
    scores
        Each client's sums and counts.
    randomised
        Whether a score is the chance of a favourable decision of a model that is drawn; that is
        no probability of the label, so it has no calibration error.
    level
        Of the intervals.
    notions
        Those that compare losses are measured; by default every registered one.

    Examples
    --------
    >>> tally = Tally.from_predictions([0, 0, 1, 1], [0, 0, 0, 1], sensitive_features=list("abab"))
    >>> rows = RowScores.from_probabilities([0.1, 0.4, 0.35, 0.8])
    >>> sums = ScoreSums.from_rows(rows, [0, 1, 0, 1], [0, 0, 1, 1], size=2)
    >>> found, _ = summarise_scores(tally, {"all": sums})
    >>> found.values["roc_auc"], found.by_group["sensitive_feature"]["a"]["roc_auc"]
    (0.75, 1.0)
    """
    whole, clients, groups = _parts(tally, scores)
    chosen = available_notions() if notions is None else notions
    constraints = _constraints(tally.cells, [n for n in chosen if n.statistic == "loss"])

    def numbers(part: _Part) -> Found:
        return part.numbers(randomised=randomised) | _loss_gaps(part, constraints)

    overall = numbers(whole)
    by_client = {name: numbers(part) for name, part in clients.items()}
    by_group = {
        name: {group: part.numbers(randomised=randomised) for group, part in parts.items()}
        for name, parts in groups.items()
    }
    undefined = undefined_numbers("", overall)
    for name, found in by_client.items():
        undefined |= undefined_numbers(f"by_client.{name}.", found)
    for name, tables in by_group.items():
        for group, found in tables.items():
            undefined |= undefined_numbers(f"by_group.{name}.{group}.", found)
    summary = TallySummary(
        values=defined_values(overall),
        undefined=undefined,
        by_client={name: defined_values(found) for name, found in by_client.items()},
        by_group={
            name: {group: defined_values(found) for group, found in tables.items()}
            for name, tables in by_group.items()
        },
    )
    return summary, Intervals(
        level=level,
        values=whole.intervals(level),
        by_client={name: part.intervals(level) for name, part in clients.items()},
        by_group={
            name: {group: part.intervals(level) for group, part in parts.items()}
            for name, parts in groups.items()
        },
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """Some of the rows: sums of their scores, and how many there are by (cell, label).

    `lost` says why there may be fewer scores than rows.
    """

    sums: ScoreSums
    rows: NDArray[np.int64]
    lost: str

    @property
    def missing(self) -> str:
        """Say that some rows have no score; empty if all have one."""
        return "" if np.array_equal(self.rows, self.sums.counts) else self.lost

    def numbers(self, *, randomised: bool) -> Found:
        """Return `SCORE_NUMBERS`."""
        if self.missing:
            return dict.fromkeys(SCORE_NUMBERS, (math.nan, self.missing))
        found = {name: getattr(self.sums, name)() for name in SCORE_NUMBERS}
        return found | ({"expected_calibration_error": (math.nan, _DRAWN)} if randomised else {})

    def intervals(self, level: float) -> dict[str, Interval | None]:
        """Return that of the ROC-AUC."""
        area, why = self.sums.roc_auc()
        if why or self.missing:
            return {"roc_auc": None}
        negatives, positives = self.rows.sum(axis=0).tolist()
        return {"roc_auc": Interval(*roc_auc_interval(area, positives, negatives, level))}


def _parts(
    tally: Tally, scores: Mapping[str, ScoreSums]
) -> tuple[_Part, dict[str, _Part], dict[str, dict[str, _Part]]]:
    """Return all rows, those of each client, and those of each group."""
    nothing = ScoreSums.from_rows(RowScores.from_logits([]), [], [], size=tally.cells.size)
    rows = np.rint(tally.counts.sum(axis=3)).astype(np.int64)
    clients = {
        name: _Part(
            scores.get(name, nothing),
            own,
            _NOT_FINITE if name in scores else f"the scores of client '{name}' are missing",
        )
        for name, own in zip(tally.clients, rows, strict=True)
    }
    absent = [part.lost for name, part in clients.items() if name not in scores]
    lost = absent[0] if absent else _NOT_FINITE
    total = reduce(add, (part.sums for part in clients.values()), nothing)
    whole = _Part(total, rows.sum(axis=0), lost)
    groups = {
        grouping.name: {
            group: _Part(total.of_cells(members), whole.rows[members], lost)
            for group, members in zip(grouping.groups, grouping.membership, strict=True)
        }
        for grouping in reported_groupings(tally.cells)
    }
    return whole, clients, groups


def _constraints(cells: Cells, notions: Sequence[Notion]) -> dict[str, Constraints]:
    """Return what compares groups' losses; nothing without groups."""
    if not cells.attributes:
        return {}
    return {f"{item.name}_violation": Constraints(cells, item) for item in notions}


def _loss_gaps(part: _Part, constraints: Mapping[str, Constraints]) -> Found:
    """Return how far a group's mean loss is from the overall one (the paper's Eq. 6)."""
    if part.missing:
        return dict.fromkeys(constraints, (math.nan, part.missing))
    sums, counts = part.sums, part.sums.counts.astype(np.float64)
    scores = sums.sums.sum(axis=2)
    # A gap of losses is no matter of decisions: they are left out.
    known = Statistics(counts=counts, positives=scores, scores=scores, losses=sums.losses)
    found: Found = {}
    for name, constraint in constraints.items():
        gaps = np.abs(constraint.gaps(known))
        empty = np.flatnonzero(np.isnan(gaps))
        _, _, attribute, group = constraint.labels[empty[0] if empty.size else 0]
        found[name] = float(gaps.max()), f"group '{group}' of '{attribute}' has no rows"
    return found
