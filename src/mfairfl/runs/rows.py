"""Raw rows and a run: read as its model reads them, divided as for its training, measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mfairfl import data
from mfairfl.data import MISSING, Task
from mfairfl.data.columns import columns_of
from mfairfl.data.files import FileContent, read_file
from mfairfl.data.table import table_from_content
from mfairfl.errors import DataError, MfairflError
from mfairfl.fairness import Tally
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.results import MetricTable
from mfairfl.fairness.scores import RowScores, ScoreSums
from mfairfl.runs.record import FederationFacts, RunRecord

_SHOWN_VALUES = 3  # unseen values that a note names
_SHOWN_REASON = 300  # characters of a reason, which may quote the file


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadRows:
    """Rows ready for a model; `Predictor` takes them in place of a frame.

    Parameters
    ----------
    frame : pandas.DataFrame
        The raw rows.
    inputs : Inputs
        The encoded features.
    name : str
        What messages call the rows.
    missing : dict of str to int
        How many values each feature column lacks; columns that lack none are left out.
    unseen : dict of str to dict
        The categories that training did not see, by column, with the number of their rows.
    notes : tuple of str
        The same in words, after what was guessed when the file was read.
    """

    frame: pd.DataFrame
    inputs: data.Inputs
    name: str
    missing: Mapping[str, int]
    unseen: Mapping[str, Mapping[str, int]]
    notes: tuple[str, ...]

    @property
    def X(self) -> NDArray[np.float32]:  # noqa: N802 - as features are called everywhere
        """The encoded features as numbers, (n, features); with `Encoder.compact` a new array."""
        return self.inputs.dense()


def read_rows(
    source: Any, task: Task, encoder: data.Encoder, *, name: str | None = None
) -> ReadRows:
    """Read and encode rows of any kind with the task and the encoder of a run."""
    frame, name, guesses = _frame_of(source, name)
    features = data.features_frame(frame, task, name=name)
    inputs, rows = encoder.encode(features), f"{len(frame):,} values"
    numeric = frame[[c.name for c in encoder.numeric if c.name in frame]]
    notes = [*guesses]
    notes += [doubt for c in columns_of(numeric, name, task).values() for doubt in c.doubts]
    missing: dict[str, int] = {}
    unseen: dict[str, dict[str, int]] = {}
    for number in encoder.numeric:
        if n := int(features[number.name].isna().sum()):
            missing[number.name] = n
            filled = f"filled with the mean of training ({number.mean:.6g})"
            notes.append(f"{number.name}: {n:,} of {rows} missing, {filled}")
    for category in encoder.categorical:
        column, levels = category.name, {*category.levels, *category.rare}
        unknown = "taken for a rare level" if category.rare else "taken for no level"
        counts = {str(v): int(n) for v, n in features[column].value_counts().items() if n}
        if n := counts.pop(MISSING, 0):
            missing[column] = n
            how = f"the level '{MISSING}', as in training" if MISSING in levels else unknown
            notes.append(f"{column}: {n:,} of {rows} missing, {how}")
        if values := {value: n for value, n in counts.items() if value not in levels}:
            unseen[column] = values
            # The most frequent first, as they were counted.
            shown = ", ".join(f"'{v}' {n:,}" for v, n in [*values.items()][:_SHOWN_VALUES])
            more = ", ..." * (len(values) > _SHOWN_VALUES)
            notes.append(
                f"{column}: {sum(values.values()):,} of {rows} not seen in training "
                f"({shown}{more}), {unknown}"
            )
    return ReadRows(
        frame=frame, inputs=inputs, name=name, missing=missing, unseen=unseen, notes=tuple(notes)
    )


def _frame_of(source: Any, name: str | None) -> tuple[pd.DataFrame, str, tuple[str, ...]]:
    """Return rows of any kind as a frame, their name, and what was guessed when they were read."""
    if isinstance(source, str | PathLike):
        content = read_file(source)
        return content.frame, name or str(source), content.notes
    return data.read_frame(source), name or "the frame", ()


def splits_of_rows(
    record: RunRecord, content: FileContent, *, name: str
) -> NDArray[np.object_] | None:
    """Return the split that each row of a file was in when a run was trained on it.

    The file is recognised by its SHA-256. Its rows are divided once more, which gives the same
    splits: they follow from the rows, the seed and the scheme.

    Parameters
    ----------
    record
        The run's.
    content
        The file (`read_file`).
    name
        What messages call it.

    Returns
    -------
    ndarray (n,) of str, or None
        ``train``, ``validation``, ``test``, or nothing for a row that was in none of them. None if
        the run was trained on other bytes, on rows in memory, or over silos.

    Raises
    ------
    DataError
        If these are the bytes, but the rows cannot be divided as the record says: read by another
        sheet or delimiter, or from a data set with a reader of its own.

    Examples
    --------
    >>> from mfairfl.data.files import read_file
    >>> record = RunRecord.read("runs/people")  # doctest: +SKIP
    >>> splits_of_rows(record, read_file("people.csv"), name="people.csv")  # doctest: +SKIP
    array(['train', 'test', 'train', ''], dtype=object)
    """
    facts = record.federation
    if content.sha256 != facts.sha256:
        return None
    options = {key: value for key, value in facts.options.items() if key != "encoder"}
    try:
        table = table_from_content(content, record.task, name=name)
        federation = data.partition(table, facts.scheme, seed=facts.seed, **options)
        if FederationFacts.of(federation).clients != facts.clients:
            raise DataError("divided once more, clients hold other rows than run.json says")
    except (MfairflError, TypeError, ValueError) as error:
        raise DataError(
            f"{name}: the run was trained on this file, but on which of its rows cannot be told "
            f"({' '.join(str(error).split())[:_SHOWN_REASON]})"
        ) from None
    splits = np.full(len(content.frame), "", dtype=object)
    for split in data.SPLITS:
        splits[_places(table)[federation.pooled(split).rows]] = split
    return splits


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
    present = tuple(s for s in task.sensitive if s.column in frame or MISSING in (s.groups or ()))
    client = task.client if task.client in frame else None
    changes = {"sensitive": present, "client": client, "missing": "level"}
    # Rows without a label, or without a client to belong to, are left out.
    table = data.table_from_frame(frame, task.model_copy(update=changes), name=name)
    if not len(table):
        return None
    places = _places(table)
    return measure_rows(
        table.y,
        chance[places],
        scores[places],
        cells=table.cells,
        clients=np.full(len(table), "all") if table.clients is None else table.clients,
        attributes=table.attributes,
        randomised=randomised,
    )


def _places(table: data.Table) -> NDArray[np.intp]:
    """Return where the rows of a table are in the file or frame that it was made from."""
    return np.arange(len(table)) if table.places is None else table.places


def measure_rows(
    y: NDArray[Any],
    chance: NDArray[np.float64],
    scores: RowScores,
    *,
    cells: NDArray[np.intp],
    clients: NDArray[Any],
    attributes: tuple[data.Attribute, ...],
    names: Sequence[str] | None = None,
    randomised: bool = False,
) -> MeasuredRows:
    """Count decisions by (client, cell, label, decision), sum each client's scores.

    Clients that are named and have no rows are counted as such; by default no others are named.
    """
    names = [str(name) for name in np.unique(clients)] if names is None else names
    size, counts, sums = Cells(attributes).size, [], {}
    for name in names:
        rows = clients == name
        place = 2 * cells[rows] + y[rows]
        parts = [np.bincount(place, part[rows], 2 * size) for part in (1 - chance, chance)]
        counts.append(np.stack(parts, axis=-1).reshape(size, 2, 2))
        sums[name] = ScoreSums.from_rows(scores[rows], cells[rows], y[rows], size=size)
    table = np.array(counts)
    if np.isin(chance, (0.0, 1.0)).all():  # else the counts are expected ones
        table = table.astype(np.int64)
    tally = Tally(table, tuple(names), attributes)
    return MeasuredRows(tally=tally, scores=sums, randomised=randomised)
