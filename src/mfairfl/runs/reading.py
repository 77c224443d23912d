"""Raw rows as a trained model reads them, and what had to be filled in or passed over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mfairfl.data import MISSING, Encoder, Inputs, Task, features_frame, read_frame
from mfairfl.data.columns import columns_of
from mfairfl.data.files import read_file

_SHOWN = 3  # unseen values that a note names


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
    guessed: tuple[str, ...] = ()
    if isinstance(source, str | PathLike):
        content = read_file(source)
        frame, guessed, own = content.frame, content.notes, str(source)
    else:
        frame, own = read_frame(source), "the frame"
    name = own if name is None else name
    features = features_frame(frame, task, name=name)
    inputs = encoder.encode(features)
    numbers = {c.name: int(features[c.name].isna().sum()) for c in encoder.numeric}
    counts = {c.name: features[c.name].value_counts() for c in encoder.categorical}
    texts = {column: int(found.get(MISSING, 0)) for column, found in counts.items()}
    strange = {
        c.name: counts[c.name].drop([*c.levels, *c.rare, MISSING], errors="ignore")
        for c in encoder.categorical
    }
    unseen = {c: {str(v): int(n) for v, n in found.items()} for c, found in strange.items()}
    unseen = {column: found for column, found in unseen.items() if found}
    missing = {column: n for column, n in (numbers | texts).items() if n}
    columns = columns_of(frame[[c.name for c in encoder.numeric if c.name in frame]], name, task)
    doubts = [doubt for column in columns.values() for doubt in column.doubts]
    notes = (*guessed, *doubts, *_notes(encoder, len(inputs), missing, unseen))
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
            known = MISSING in (*category.levels, *category.rare)
            how = f"the level '{MISSING}', as in training" if known else unknown
            yield f"{category.name}: {n:,} of {rows:,} values missing, {how}"
        if found := unseen.get(category.name):
            # The most frequent first, as they were counted.
            shown = ", ".join(f"'{value}' {n:,}" for value, n in [*found.items()][:_SHOWN])
            more = ", ..." * (len(found) > _SHOWN)
            yield (
                f"{category.name}: {sum(found.values()):,} of {rows:,} values not seen in "
                f"training ({shown}{more}), {unknown}"
            )
