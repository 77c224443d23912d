"""scores.safetensors: what clients counted of the served model's scores, kept with the run.

For each split it holds every client's rows by (cell, label, bin of the logit): the histograms that
ROC-AUC was computed from. Thresholds on their grid have exact counts, so what another tolerance
would have cost is known without training, and without a row.

The file has three arrays for each split: `entries`, how many bins that are not empty each client
has; `places`, where they are, one client after another; `numbers`, the rows in them. All are
unsigned integers of the narrowest type that holds them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationError
from safetensors.numpy import save as save_tensors

from mfairfl.data import SPLITS, Split
from mfairfl.data.sums import MOST_ROWS
from mfairfl.data.values import StrictModel
from mfairfl.engine.checkpoint import parse_tensors
from mfairfl.errors import RunDirectoryError, first_problem
from mfairfl.fairness.histogram import ScoreHistogram
from mfairfl.fairness.scores import LOGIT_BINS

if TYPE_CHECKING:  # reading scores needs no PyTorch
    from mfairfl.engine.loop import Result

Scores = Mapping[Split, Mapping[str, ScoreHistogram]]
"""For each split, each client's rows by (cell, label, bin of the logit)."""

_HEADER = "scores"  # key of the header
_PARTS = ("entries", "places", "numbers")
_MOST_CELLS = 1 << 20


class _Header(StrictModel):
    """What the file says beside its arrays."""

    bins: Literal[2048]
    cells: Annotated[int, Field(ge=1, le=_MOST_CELLS, strict=True)]
    clients: dict[Split, tuple[str, ...]]


def scores_of(result: Result) -> Scores:
    """Return the histograms of a run's scores; none if no threshold on them decides.

    Clients that are not in the final numbers are left out.

    The score of a model that is drawn at random is its chance of a favourable decision: another
    threshold on it would be another model, not another tolerance.
    """
    if result.served.kind == "mixture":
        return {}
    (measured,) = result.measured
    scores = {
        split: {name: sums.histogram for name, sums in clients.items() if name in measured[split]}
        for split, clients in result.scored.items()
    }
    return {split: clients for split, clients in scores.items() if clients}


def dump_scores(scores: Scores) -> bytes:
    """Return the file of these histograms; clients are in name order.

    Examples
    --------
    >>> east = ScoreHistogram.from_logits([0.5], [0], [1], size=1, bins=2048)
    >>> parse_scores(dump_scores({"test": {"east": east}}))["test"]["east"].rows.tolist()
    [[0, 1]]
    """
    arrays, clients, cells = dict[str, np.ndarray](), {}, 1
    for split in [split for split in SPLITS if split in scores]:
        clients[split] = sorted(scores[split])
        parts = [scores[split][name] for name in clients[split]]
        cells = parts[0].shape[0]
        lists = (
            [np.array([len(part.places) for part in parts])],
            [part.places for part in parts],
            [part.numbers for part in parts],
        )
        for name, values in zip(_PARTS, lists, strict=True):
            whole = np.concatenate(values)
            arrays[f"{split}/{name}"] = whole.astype(np.min_scalar_type(whole.max(initial=0)))
    header = {"bins": LOGIT_BINS, "cells": cells, "clients": clients}
    data: bytes = save_tensors(arrays, metadata={_HEADER: json.dumps(header)})
    return data


def parse_scores(data: bytes) -> Scores:
    """Return the histograms of a file from an untrusted source.

    Raises
    ------
    RunDirectoryError
        If it is not what `dump_scores` writes.
    """
    try:
        arrays, plain = parse_tensors(data, _HEADER)
        header = _Header.model_validate(plain)
        scores = {
            split: _histograms(names, header.cells, *(arrays.pop(f"{split}/{p}") for p in _PARTS))
            for split, names in header.clients.items()
        }
    except ValidationError as error:
        problem = first_problem(error, _Header)
    except KeyError as error:
        problem = f"no array {error}"
    except ValueError as error:
        problem = str(error)
    else:
        if not arrays:
            return scores
        problem = f"unknown array '{min(arrays)}'"
    raise RunDirectoryError(f"not the scores of a run of mfairfl ({problem})")


def _histograms(
    clients: tuple[str, ...], cells: int, entries: Any, places: Any, numbers: Any
) -> dict[str, ScoreHistogram]:
    """Return each client's histogram from the arrays of a split."""
    if not clients or list(clients) != sorted(set(clients)):
        raise ValueError("its clients are none, not in order or not different")
    if any(array.dtype.kind != "u" or array.ndim != 1 for array in (entries, places, numbers)):
        raise ValueError("its arrays are not lists of unsigned integers")
    shape = (cells, 2, LOGIT_BINS)
    # Floats: sums of numbers of 64 bits do not wrap around.
    if not entries.sum(dtype=float) == len(places) == len(numbers) or len(entries) != len(clients):
        raise ValueError("its lists do not fit together")
    if (places >= np.prod(shape)).any() or (numbers == 0).any():
        raise ValueError("a bin is outside the histograms, or empty")
    if numbers.sum(dtype=float) > MOST_ROWS:
        raise ValueError("it counts more rows than there can be")
    histograms, ends = {}, np.cumsum(entries.astype(np.intp))
    for name, held, rows in zip(
        clients, np.split(places, ends[:-1]), np.split(numbers, ends[:-1]), strict=True
    ):
        if (held[1:] <= held[:-1]).any():
            raise ValueError(f"the bins of '{name}' are not in order")
        histograms[name] = ScoreHistogram.from_places(held, rows, shape)
    return histograms
