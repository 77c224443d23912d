"""How a numeric column's rows between cuts are asked for and told; what cannot be is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from mfairfl.data.binning import MOST_CUTS, Histogram
from mfairfl.errors import MessageError, first_problem, require_known
from mfairfl.wire.codec import (
    ArrayForm,
    Packet,
    expect_answer,
    make_packet,
    read_header,
    require_arrays,
)

Cuts = Mapping[str, np.ndarray]
"""Cuts by column."""


class _CutsHeader(BaseModel):
    columns: tuple[str, ...] = Field(min_length=1)


def pack_cuts(cuts: Cuts, header: Mapping[str, Any]) -> Packet:
    """Return the request to count rows between cuts; `header` says which rows."""
    arrays = {f"cuts/{i}": given for i, given in enumerate(cuts.values())}
    return make_packet("cuts", {**header, "columns": list(cuts)}, arrays)


def unpack_cuts(packet: Packet, known: Sequence[str]) -> Cuts:
    """Return the cuts that a request holds, for some of the `known` columns."""
    try:
        columns = _CutsHeader.model_validate(read_header(packet)[1]).columns
    except ValidationError as error:
        raise MessageError(f"a 'cuts' message: {first_problem(error)}") from None
    require_known("numeric column", columns, known, MessageError)
    if len(set(columns)) < len(columns):
        raise MessageError("a 'cuts' message names a column twice")
    return {column: _cuts(packet, i, column) for i, column in enumerate(columns)}


def _cuts(packet: Packet, place: int, column: str) -> np.ndarray:
    found = packet.arrays.get(f"cuts/{place}")
    if found is None or found.ndim != 1 or found.dtype != np.float64:
        raise MessageError(f"the cuts of '{column}' are not a list of float64 numbers")
    if not 0 < len(found) <= MOST_CUTS:
        raise MessageError(f"{len(found)} cuts of '{column}'; 1 to {MOST_CUTS} are answered")
    if not (np.isfinite(found).all() and (np.diff(found) > 0).all()):
        raise MessageError(f"the cuts of '{column}' are not finite numbers in ascending order")
    return found


def pack_histograms(found: Sequence[Histogram]) -> Packet:
    """Return the answer, in the order of the request's columns."""
    arrays: dict[str, np.ndarray] = {}
    for i, one in enumerate(found):
        arrays |= {f"counts/{i}": one.counts, f"values/{i}": one.values}
    return make_packet("histograms", {}, arrays)


def unpack_histograms(packet: Packet, cuts: Cuts, rows: Mapping[str, int]) -> dict[str, Histogram]:
    """Return the histograms that an answer holds; `rows` are known to have a value."""
    if expect_answer(packet, "histograms"):
        raise MessageError("histograms with a text; only arrays were asked for")
    wanted = {}
    for i, given in enumerate(cuts.values()):
        wanted[f"counts/{i}"] = ArrayForm(np.int64, (len(given) + 1,))
        wanted[f"values/{i}"] = ArrayForm(np.float64, (len(given) + 1,))
    require_arrays(packet.arrays, wanted)
    return {
        column: _histogram(
            column,
            given,
            packet.arrays[f"counts/{i}"],
            packet.arrays[f"values/{i}"],
            rows[column],
        )
        for i, (column, given) in enumerate(cuts.items())
    }


def _histogram(
    column: str, cuts: np.ndarray, counts: np.ndarray, values: np.ndarray, rows: int
) -> Histogram:
    # Each one first: a sum of huge counts may come out right.
    if not ((counts >= 0) & (counts <= rows)).all() or counts.sum() != rows:
        raise MessageError(f"its counts of '{column}' are not those of {rows} rows")
    told = ~np.isnan(values)
    low, high = np.array([-np.inf, *cuts]), np.array([*cuts, np.inf])
    inside = np.isfinite(values) & (values >= low) & (values < high) & (counts > 0)
    if (told & ~inside).any():
        raise MessageError(f"its values of '{column}' do not lie between their cuts")
    return Histogram(cuts, counts, values)
