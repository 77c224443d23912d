"""What clients written by others send: arrays of a model, and sums and counts of its answers.

Nothing is trusted. Whatever does not fit what was sent is refused in one line, before it is
unpacked where sizes tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict

from mfairfl.data import SPLITS, Split
from mfairfl.errors import ConfigError, MessageError
from mfairfl.fairness.cells import Statistics

__all__ = ["CLIENT", "ModelLayout", "read_evaluation", "sums_record"]

CLIENT = "client"
"""The record of an evaluation reply that holds the client's `name`."""

_SUMS = ("counts", "positives", "scores", "losses")
_HEADER = 1024  # bytes that a .npy file may have beside its numbers
_LONGEST = 100  # letters of a client's name


@dataclass(frozen=True, slots=True)
class ModelLayout:
    """How the arrays of a model lie in one flat vector.

    Examples
    --------
    >>> arrays = ArrayRecord({"w": Array(np.ones((2, 3), np.float32))})
    >>> layout = ModelLayout.of(arrays)
    >>> layout.size, layout.record(layout.flat(arrays))["w"].shape
    (6, (2, 3))
    """

    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, arrays: ArrayRecord) -> ModelLayout:
        """Return the layout of a model's arrays; all must be float32 (running counts are not)."""
        for name, array in arrays.items():
            if array.dtype != "float32":
                raise ConfigError(
                    f"initial_arrays: '{name}' is {array.dtype}; give float32 weights (a layer "
                    "with running statistics, such as BatchNorm, has no agreed average)"
                )
        if not arrays:
            raise ConfigError("initial_arrays: the model has no arrays; give its state_dict")
        return cls({name: tuple(array.shape) for name, array in arrays.items()})

    @property
    def size(self) -> int:
        """Number of weights."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def flat(self, arrays: ArrayRecord) -> np.ndarray:
        """Return the weights as one float32 vector."""
        if set(arrays) != set(self.shapes):
            odd = sorted(set(arrays) ^ set(self.shapes))[0]
            where = "not in the model" if odd in arrays else "missing"
            raise MessageError(f"array '{odd}' is {where}; return the arrays that were sent")
        parts = [_plain(name, arrays[name], shape) for name, shape in self.shapes.items()]
        return np.concatenate([part.reshape(-1) for part in parts])

    def record(self, flat: np.ndarray) -> ArrayRecord:
        """Return a vector as the model's arrays."""
        found, at = {}, 0
        for name, shape in self.shapes.items():
            stop = at + math.prod(shape)
            found[name] = Array(flat[at:stop].reshape(shape).astype(np.float32))
            at = stop
        return ArrayRecord(found)


def _plain(name: str, array: Array, shape: tuple[int, ...]) -> np.ndarray:
    said = f"array '{name}' is {array.dtype} {tuple(array.shape)}"
    if array.dtype != "float32" or tuple(array.shape) != shape:
        raise MessageError(f"{said}; float32 {shape} was sent")
    if len(array.data) > 4 * math.prod(shape) + _HEADER:
        raise MessageError(f"{said} in {len(array.data)} bytes; that is too many")
    try:
        found: np.ndarray = array.numpy()
    except (ValueError, TypeError, EOFError) as error:
        raise MessageError(f"array '{name}' cannot be read ({error})") from None
    if found.shape != shape or found.dtype != np.float32:
        raise MessageError(f"array '{name}' is not what it says it is")
    if not np.isfinite(found).all():
        raise MessageError(f"array '{name}' holds a number that is not finite")
    return found


def sums_record(statistics: Statistics) -> MetricRecord:
    """Return sums and counts as a record: a list over (cell, label) for each."""
    return MetricRecord({name: getattr(statistics, name).reshape(-1).tolist() for name in _SUMS})


def read_evaluation(content: RecordDict, cells: int) -> tuple[str, dict[Split, Statistics]]:
    """Return who answered an evaluation, and the sums and counts of each split sent."""
    said = content.config_records.get(CLIENT)
    name: Any = None if said is None else said.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST:
        raise MessageError(
            f'its reply names no client; add "{CLIENT}": ConfigRecord({{"name": …}})'
        )
    records = content.metric_records
    found = {s: _sums(s, records[s], cells) for s in SPLITS if s in records}
    if "train" not in found:
        raise MessageError("its reply has no record 'train'; add a measurement_record")
    if not found["train"].counts.any():
        raise MessageError("it has no training rows")
    return name, found


def _sums(split: str, record: MetricRecord, cells: int) -> Statistics:
    tables = {}
    for name in _SUMS:
        numbers = record.get(name)
        if not isinstance(numbers, list) or len(numbers) != 2 * cells:
            raise MessageError(
                f"record '{split}': '{name}' is no list of {2 * cells} numbers, two for each of "
                f"{cells} cells; use measurement_record with the server's sensitive attributes"
            )
        tables[name] = np.array(numbers, dtype=np.float64).reshape(cells, 2)
        if not np.isfinite(tables[name]).all():
            raise MessageError(f"record '{split}': '{name}' holds a number that is not finite")
    counts, positives = tables["counts"], tables["positives"]
    if not ((positives >= 0) & (positives <= counts)).all():
        raise MessageError(f"record '{split}' holds counts that cannot be")
    return Statistics(**tables)
