"""All reported numbers of a model's scores at once: of all rows, of each client and each group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mfairfl.fairness.cells import Grouping
from mfairfl.fairness.notions import Notion, available_notions
from mfairfl.fairness.rates import divide
from mfairfl.fairness.scores import (
    CALIBRATION_BINS,
    RowScores,
    ScoreSums,
    pooled_scores,
    roc_auc_interval,
    roc_aucs,
)
from mfairfl.fairness.summary import (
    Found,
    TallySummary,
    defined_values,
    reported_groupings,
    table_rows,
    undefined_numbers,
)
from mfairfl.fairness.tally import Tally
from mfairfl.fairness.uncertainty import Interval, Intervals

Floats = NDArray[np.float64]

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
    groupings = tally.cells.groupings()
    compared = [item for item in chosen if item.statistic == "loss"] if groupings else []

    def numbers(parts: _Parts) -> list[Found]:
        return parts.numbers(randomised=randomised, notions=compared, groupings=groupings)

    (overall,) = numbers(whole)
    by_client = dict(zip(tally.clients, numbers(clients), strict=True))
    by_group = {
        name: {group: part.numbers(randomised=randomised)[0] for group, part in parts.items()}
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
        values=whole.intervals(level)[0],
        by_client=dict(zip(tally.clients, clients.intervals(level), strict=True)),
        by_group={
            name: {group: part.intervals(level)[0] for group, part in parts.items()}
            for name, parts in groups.items()
        },
    )


class _Parts:
    """Some sets of rows over the same cells: sums of their scores, and how many there are.

    Parameters
    ----------
    sums
        Of each of the P sets.
    rows
        How many rows each has, by cell and label, (P, C, 2).
    lost
        Why each may have fewer scores than rows.
    """

    def __init__(
        self, sums: Sequence[ScoreSums], rows: NDArray[np.int64], lost: Sequence[str]
    ) -> None:
        size = rows.shape[1]
        shape = (len(sums), size, 2, CALIBRATION_BINS)
        self._binned = np.array([one.rows for one in sums], dtype=np.int64).reshape(shape)
        self._sums = np.array([one.sums for one in sums], dtype=np.float64).reshape(shape)
        self._losses = np.array([one.losses for one in sums], dtype=np.float64).reshape(rows.shape)
        self._areas = roc_aucs([one.histogram for one in sums])
        self._counts = self._binned.sum(axis=3)
        complete = (self._counts == rows).all(axis=(1, 2)).tolist()
        self._missing = [
            "" if all_there else why for all_there, why in zip(complete, lost, strict=True)
        ]

    def numbers(
        self,
        *,
        randomised: bool,
        notions: Sequence[Notion] = (),
        groupings: Sequence[Grouping] = (),
    ) -> list[Found]:
        """Return `SCORE_NUMBERS` of each set, and how far losses of these groups are apart."""
        labels = self._counts.sum(axis=1)
        rows = labels.sum(axis=1)
        gaps = self._sums.sum(axis=(1, 2)) - self._binned[:, :, 1].sum(axis=1)
        no_rows = ["" if many else "there are no rows" for many in rows.tolist()]
        one_label = [f"no row has y = {0 if positives else 1}" for _, positives in labels.tolist()]
        errors = divide(np.abs(gaps).sum(axis=1), rows)
        columns = {
            "roc_auc": (self._areas, one_label),
            "loss": (divide(self._losses.sum(axis=(1, 2)), rows), no_rows),
            "expected_calibration_error": (errors, no_rows),
        }
        if randomised:
            drawn = [_DRAWN] * len(rows)
            columns["expected_calibration_error"] = np.full(len(rows), np.nan), drawn
        for item in notions:
            columns[f"{item.name}_violation"] = self._loss_gap(item, groupings)
        return table_rows(
            {name: self._unless_missing(*column) for name, column in columns.items()}, len(rows)
        )

    def _unless_missing(self, values: Floats, reasons: Sequence[str]) -> list[tuple[float, str]]:
        """Return each number and why it would be undefined."""
        return [
            (math.nan, missing) if missing else (value, why)
            for value, why, missing in zip(values.tolist(), reasons, self._missing, strict=True)
        ]

    def _loss_gap(self, notion: Notion, groupings: Sequence[Grouping]) -> tuple[Floats, list[str]]:
        """Return how far a group's mean loss is from the overall one (the paper's Eq. 6)."""
        gaps, names = [], []
        for event in notion.events:
            label = np.isin((0, 1), event.labels)
            for grouping in groupings:
                overall = self._mean_loss(grouping.compared[:, None] & label)
                for group, members in zip(grouping.groups, grouping.membership, strict=True):
                    gaps.append(np.abs(overall - self._mean_loss(members[:, None] & label)))
                    names.append(f"group '{group}' of '{grouping.name}' has no rows")
        apart = np.stack(gaps, axis=1)
        first = np.isnan(apart).argmax(axis=1)
        return apart.max(axis=1), [names[place] for place in first.tolist()]

    def _mean_loss(self, chosen: NDArray[np.bool_]) -> Floats:
        """Return the mean loss of the rows in these (cell, label) entries, (P,)."""
        total = np.where(chosen, self._losses, 0.0).sum(axis=(1, 2))
        return divide(total, np.where(chosen, self._counts, 0).sum(axis=(1, 2)))

    def intervals(self, level: float) -> list[dict[str, Interval | None]]:
        """Return that of each set's ROC-AUC."""
        labels = self._counts.sum(axis=1)
        found: list[dict[str, Interval | None]] = [{"roc_auc": None} for _ in self._missing]
        known = [
            i for i, why in enumerate(self._missing) if not why and not math.isnan(self._areas[i])
        ]
        limits = roc_auc_interval(self._areas[known], labels[known, 1], labels[known, 0], level)
        for i, low, high in zip(known, *(ends.tolist() for ends in limits), strict=True):
            found[i]["roc_auc"] = Interval(low, high)
        return found


def _parts(
    tally: Tally, scores: Mapping[str, ScoreSums]
) -> tuple[_Parts, _Parts, dict[str, dict[str, _Parts]]]:
    """Return all rows, those of each client, and those of each group."""
    nothing = ScoreSums.from_rows(RowScores.from_logits([]), [], [], size=tally.cells.size)
    rows = np.rint(tally.counts.sum(axis=3)).astype(np.int64)
    each = [scores.get(name, nothing) for name in tally.clients]
    absent = {
        name: f"the scores of client '{name}' are missing"
        for name in tally.clients
        if name not in scores
    }
    clients = _Parts(each, rows, [absent.get(name, _NOT_FINITE) for name in tally.clients])
    lost = next(iter(absent.values()), _NOT_FINITE)
    total, together = pooled_scores([nothing, *each]), rows.sum(axis=0)
    groups = {
        grouping.name: {
            group: _Parts([total.of_cells(members)], together[None, members], [lost])
            for group, members in zip(grouping.groups, grouping.membership, strict=True)
        }
        for grouping in reported_groupings(tally.cells)
    }
    return _Parts([total], together[None], [lost]), clients, groups
