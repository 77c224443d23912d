"""Predictions measured on labelled rows: counts, and every number that is reported of them."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mfairfl.data import MISSING, Attribute, Task, table_from_frame
from mfairfl.data.columns import Column
from mfairfl.data.labels import label_codes
from mfairfl.errors import DataError
from mfairfl.fairness import Tally
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.summary import TallySummary, constant_classifier, summarise
from mfairfl.fairness.uncertainty import Intervals, NoiseFloor, intervals, noise_floor
from mfairfl.runs.record import Evaluation, MetricIntervals, Metrics, NoiseFloors

__all__ = ["evaluate", "measure_predictions"]


def measure_predictions(
    frame: pd.DataFrame, task: Task, chance: NDArray[np.float64], *, name: str = "the frame"
) -> Tally | None:
    """Count predictions on the rows that have a label.

    Parameters
    ----------
    frame : DataFrame
        Raw rows. Sensitive and client columns that are absent are not compared.
    task : Task
        What label, groups and clients are.
    chance : ndarray (n,)
        Probability of a favourable decision; 0 or 1 unless decisions are random.
    name : str
        What error messages call the rows.

    Returns
    -------
    Tally or None
        Expected counts if decisions are random; None if no row has a label.
    """
    if task.label not in frame:
        return None
    column = Column(name, frame[task.label], task.rules(task.label))
    known = ~column.missing
    if (
        task.client is not None and task.client in frame
    ):  # a row without a client is nobody's to compare
        known &= ~Column(name, frame[task.client], task.rules(task.client)).missing
    if not known.any():
        return None
    meaning = label_codes(column.levels, task)
    frame, chance = frame[known], chance[known]
    labels = column.texts[known]
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
    names, codes = np.unique(clients, return_inverse=True)
    shape = (len(names), Cells(attributes).size, 2)
    place = np.ravel_multi_index((codes, cells, y), shape)
    sums = [np.bincount(place, weights, math.prod(shape)) for weights in (1 - chance, chance)]
    counts = np.stack(sums, axis=-1).reshape(*shape, 2)
    whole = np.isin(chance, (0.0, 1.0)).all()
    return Tally(counts.astype(np.int64) if whole else counts, tuple(map(str, names)), attributes)


def evaluate(tally: Tally, *, majority: Tally | None = None) -> Evaluation:
    """Return a tally's metrics, intervals, noise floors and constant classifier.

    Parameters
    ----------
    tally : Tally
        The counts of the rows that measure.
    majority : Tally, optional
        The (training) rows whose commoner label the constant classifier answers.

    Examples
    --------
    >>> tally = Tally.from_predictions([1, 0, 1], [1, 1, 1], sensitive_features=["a", "a", "b"])
    >>> round(evaluate(tally).metrics["accuracy"], 3)
    0.667
    """
    return Evaluation(
        metrics=Metrics(**_flat(summarise(tally))),
        intervals=MetricIntervals(**_flat(intervals(tally))),
        noise_floor=NoiseFloors(**_flat(noise_floor(tally))),
        constant_classifier=summarise(constant_classifier(tally, majority=majority)).values,
    )


def _flat(found: TallySummary | Intervals | NoiseFloor) -> dict[str, Any]:
    """Return numbers by name with the tables beside them, as in run.json."""
    parts = asdict(found)
    return {**parts.pop("values"), **parts}
