"""Raw rows and a run: read as its model reads them, or divided as they were for its training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mfairfl.data import (
    MISSING,
    SPLITS,
    Encoder,
    Inputs,
    Task,
    features_frame,
    partition,
    read_frame,
)
from mfairfl.data.columns import columns_of
from mfairfl.data.files import FileContent, read_file
from mfairfl.data.table import table_from_content
from mfairfl.errors import DataError, MfairflError
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
    inputs: Inputs
    name: str
    missing: Mapping[str, int]
    unseen: Mapping[str, Mapping[str, int]]
    notes: tuple[str, ...]

    @property
    def X(self) -> NDArray[np.float32]:  # noqa: N802 - as features are called everywhere
        """The encoded features as numbers, (n, features); with `Encoder.compact` a new array."""
        return self.inputs.dense()


def read_rows(source: Any, task: Task, encoder: Encoder, *, name: str | None = None) -> ReadRows:
    """Read and encode rows of any kind with the task and the encoder of a run."""
    guesses: tuple[str, ...] = ()
    if isinstance(source, str | PathLike):
        content = read_file(source)
        frame, guesses, name = content.frame, content.notes, name or str(source)
    else:
        frame, name = read_frame(source), name or "the frame"
    features = features_frame(frame, task, name=name)
    inputs = encoder.encode(features)
    missing = {c.name: int(features[c.name].isna().sum()) for c in encoder.numeric}
    unseen = {}
    for category in encoder.categorical:
        counts = features[category.name].value_counts()
        missing[category.name] = int(counts.get(MISSING, 0))
        seen = [*category.levels, *category.rare, MISSING]
        values = counts.drop(seen, errors="ignore")
        unseen[category.name] = {str(value): int(n) for value, n in values.items()}
    missing = {column: n for column, n in missing.items() if n}
    unseen = {column: values for column, values in unseen.items() if values}
    numeric = frame[[c.name for c in encoder.numeric if c.name in frame]]
    doubts = [doubt for c in columns_of(numeric, name, task).values() for doubt in c.doubts]
    notes = (*guesses, *doubts, *_notes(encoder, len(inputs), missing, unseen))
    return ReadRows(
        frame=frame, inputs=inputs, name=name, missing=missing, unseen=unseen, notes=notes
    )


def _notes(
    encoder: Encoder,
    rows: int,
    missing: Mapping[str, int],
    unseen: Mapping[str, Mapping[str, int]],
) -> Iterator[str]:
    for number in encoder.numeric:
        if n := missing.get(number.name):
            yield (
                f"{number.name}: {n:,} of {rows:,} values missing, filled with the mean of "
                f"training ({number.mean:.6g})"
            )
    for category in encoder.categorical:
        unknown = "taken for a rare level" if category.rare else "taken for no level"
        if n := missing.get(category.name):
            trained = MISSING in (*category.levels, *category.rare)
            how = f"the level '{MISSING}', as in training" if trained else unknown
            yield f"{category.name}: {n:,} of {rows:,} values missing, {how}"
        if values := unseen.get(category.name):
            # The most frequent first, as they were counted.
            shown = ", ".join(f"'{v}' {n:,}" for v, n in [*values.items()][:_SHOWN_VALUES])
            more = ", ..." * (len(values) > _SHOWN_VALUES)
            yield (
                f"{category.name}: {sum(values.values()):,} of {rows:,} values not seen in "
                f"training ({shown}{more}), {unknown}"
            )


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
        federation = partition(table, facts.scheme, seed=facts.seed, **options)
        if FederationFacts.of(federation).clients != facts.clients:
            raise DataError("divided once more, clients hold other rows than run.json says")
    except (MfairflError, TypeError, ValueError) as error:
        raise DataError(
            f"{name}: the run was trained on this file, but on which of its rows cannot be told "
            f"({' '.join(str(error).split())[:_SHOWN_REASON]})"
        ) from None
    places = np.arange(len(table)) if table.places is None else table.places
    splits = np.full(len(content.frame), "", dtype=object)
    for split in SPLITS:
        splits[places[federation.pooled(split).rows]] = split
    return splits
