"""Predictions measured on labelled rows: counts, and every number that is reported of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from mfairfl.data import MISSING, Attribute, Task, table_from_frame
from mfairfl.data.coding import label_codes
from mfairfl.data.columns import Column
from mfairfl.errors import DataError
from mfairfl.fairness import Tally
from mfairfl.fairness.arrays import binary_column
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.results import MetricTable
from mfairfl.fairness.scores import RowScores, ScoreSums


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRows:
    """Predictions on labelled rows, counted and summed.

    Attributes
    ----------
    tally
        Labels and decisions; expected counts if decisions are random.
    scores
        Sums and counts of each client's scores.
    randomised
        Whether a score is the chance of a favourable decision of a model that is drawn.
    """

    tally: Tally
    scores: Mapping[str, ScoreSums]
    randomised: bool = False

    def table(self, *, majority: Tally | None = None) -> MetricTable:
        """Return every number; `majority` as in `MetricTable.from_tally`."""
        return MetricTable.from_tally(
            self.tally, scores=self.scores, randomised=self.randomised, majority=majority
        )


def measure_predictions(
    frame: pd.DataFrame,
    task: Task,
    chance: NDArray[np.float64],
    scores: RowScores,
    *,
    randomised: bool = False,
    name: str = "the frame",
) -> MeasuredRows | None:
    """Measure predictions on the rows that have a label.

    Parameters
    ----------
    frame : DataFrame
        Raw rows. Sensitive and client columns that are absent are not compared.
    task : Task
        What label, groups and clients are.
    chance : ndarray (n,)
        Probability of a favourable decision; 0 or 1 unless decisions are random.
    scores : RowScores
        What the decisions were made from.
    randomised : bool
        As in `MeasuredRows`.
    name : str
        What error messages call the rows.

    Returns
    -------
    MeasuredRows or None
        None if no row has a label.
    """
    if task.label not in frame:
        return None
    column = Column(name, frame[task.label], task.rules(task.label))
    known = ~column.missing
    if task.client is not None and task.client in frame:  # without one, a row is nobody's
        known &= ~Column(name, frame[task.client], task.rules(task.client)).missing
    if not known.any():
        return None
    meaning = label_codes(column.levels, task)
    frame, labels = frame[known], column.texts[known]
    strange = [text for text in labels if text not in meaning]
    if strange:
        raise DataError(
            f"{name}: column '{task.label}' holds '{strange[0]}', neither '{task.favourable}' nor "
            f"'{task.unfavourable}'"
        )
    y = np.array([meaning[text] for text in labels], dtype=np.intp)
    cells, clients = np.zeros(len(y), dtype=np.intp), np.full(len(y), "all")
    attributes: tuple[Attribute, ...] = ()
    present = tuple(s for s in task.sensitive if s.column in frame or MISSING in (s.groups or ()))
    if present:
        client = task.client if task.client in frame else None
        same = {"sensitive": present, "client": client, "missing": "level"}
        table = table_from_frame(frame, task.model_copy(update=same), name=name)
        cells, attributes = table.cells, table.attributes
        clients = clients if table.clients is None else table.clients
    place: dict[str, Any] = {"cells": cells, "clients": clients, "attributes": attributes}
    rows = _measured(y, chance[known], scores[known], **place)
    return replace(rows, randomised=randomised)


def evaluate_rows(
    y: ArrayLike,
    *,
    probabilities: ArrayLike,
    decisions: ArrayLike,
    cells: ArrayLike,
    attributes: Sequence[Attribute],
    clients: ArrayLike | None = None,
    majority: Tally | None = None,
) -> MetricTable:
    """Return every number of a model that is not ours, from its predictions row by row.

    Parameters
    ----------
    y : array (n,)
        Labels, 0 or 1.
    probabilities : array (n,)
        Of y = 1.
    decisions : array (n,)
        0 or 1, or the probability of deciding 1 where decisions are drawn.
    cells : array (n,)
        Each row's cell of `attributes`, as in `Shard.cells`.
    attributes : sequence of Attribute
        The sensitive attributes.
    clients : array (n,), optional
        Each row's client; without it all rows are one client's, called ``all``.
    majority : Tally, optional
        As in `MetricTable.from_tally`.

    Examples
    --------
    >>> sex = Attribute("sex", ("F", "M"))
    >>> rows = dict(probabilities=[0.1, 0.4, 0.35, 0.8], decisions=[0, 0, 0, 1])
    >>> table = evaluate_rows([0, 0, 1, 1], cells=[0, 1, 0, 1], attributes=[sex], **rows)
    >>> table["roc_auc"].value, table.by_group["sex"]["M"]["accuracy"].value
    (0.75, 1.0)
    """
    label, chance = binary_column(y, "y"), np.asarray(decisions, dtype=np.float64)
    if not ((chance >= 0) & (chance <= 1)).all():
        raise DataError("decisions: use 0 and 1, or probabilities of deciding 1")
    scores, cell = RowScores.from_probabilities(probabilities), np.asarray(cells, dtype=np.intp)
    owner = np.full(len(label), "all") if clients is None else np.asarray(clients)
    lengths = {len(one) for one in (label, chance, scores.logits, cell, owner)}
    if len(lengths) > 1:
        raise DataError(
            "y, probabilities, decisions, cells and clients differ in length; give one of each "
            "per row"
        )
    rows = _measured(
        label, chance, scores, cells=cell, clients=owner, attributes=tuple(attributes)
    )
    return rows.table(majority=majority)


def _measured(
    y: NDArray[np.intp],
    chance: NDArray[np.float64],
    scores: RowScores,
    *,
    cells: NDArray[np.intp],
    clients: NDArray[Any],
    attributes: tuple[Attribute, ...],
) -> MeasuredRows:
    """Count decisions by (client, cell, label, decision), sum each client's scores."""
    names, codes = np.unique(clients, return_inverse=True)
    size = Cells(attributes).size
    shape = (len(names), size, 2)
    place = np.ravel_multi_index((codes, cells, y), shape)
    sums = [np.bincount(place, weights, math.prod(shape)) for weights in (1 - chance, chance)]
    counts = np.stack(sums, axis=-1).reshape(*shape, 2)
    whole = np.isin(chance, (0.0, 1.0)).all()
    known = tuple(map(str, names))
    own = [codes == k for k in range(len(names))]
    return MeasuredRows(
        tally=Tally(counts.astype(np.int64) if whole else counts, known, attributes),
        scores={
            client: ScoreSums.from_rows(scores[rows], cells[rows], y[rows], size=size)
            for client, rows in zip(known, own, strict=True)
        },
    )
