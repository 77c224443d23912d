"""Descriptions, encoder sums, histograms and counts taken apart by a silo, and put together.

What a silo tells singly before the first round: its columns and the names of their levels, not
how often they occur; where an interval of numbers holds one value only, that value; the hash of
its file, and its rows in each split. Sums that the encoder is fitted from are exact, so that it is
bit for bit the one that would be fitted without masks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field, ValidationError

from mfairfl.data import SPLITS, EncoderStatistics, Split, Task
from mfairfl.data.binning import Histogram
from mfairfl.data.sums import MOST_ROWS, NumericStatistics
from mfairfl.data.values import StrictModel, canonical_text
from mfairfl.errors import MessageError, first_problem
from mfairfl.guard.modular import (
    LIMBS,
    Words,
    exact_sum,
    float_parts,
    from_whole,
    limbs_of,
    whole_words,
)
from mfairfl.remote.codec import ArrayForm, Packet, expect_answer, make_packet, require_arrays
from mfairfl.remote.enrolment_answers import (
    DESCRIPTION,
    CountsFacts,
    SiloDisclosure,
    check_scale,
    read_withheld,
)
from mfairfl.remote.histograms import Cuts
from mfairfl.remote.masked_messages import Parts, read_masked
from mfairfl.strict_json import JsonLimits

__all__ = [
    "FileFacts",
    "Levels",
    "MaskedCounts",
    "coarse_profile",
    "hide_counts",
    "hide_histograms",
    "hide_sums",
    "level_names",
    "open_counts",
    "open_histograms",
    "open_sums",
    "read_counts",
    "read_histograms",
    "read_levels",
    "read_sums",
]

Levels = Mapping[str, Sequence[str]]
"""Names of levels by column."""

_Header = Mapping[str, Any]
_PARTS = ("train", "others")
_NOTHING = JsonLimits(characters=1024, values=64)
_EMPTY = np.inf  # stands for the value of an interval without rows
_Rows = Annotated[int, Field(strict=True, ge=0, le=MOST_ROWS)]


# ------------------------------------------------------------------ descriptions


def coarse_profile(answer: Packet) -> Packet:
    """Leave out of a silo's description how often values occur, and how many are missing.

    What an agreement asks of a column stays: whether there are values, whether some are missing or
    not numbers, and the names of frequent ones.
    """
    header = json.loads(answer.text)
    profile = header["profile"]
    columns = [_coarse_column(column, profile["rows"]) for column in profile["columns"]]
    return make_packet("profile", {"profile": {**profile, "columns": columns}})


def _coarse_column(column: dict[str, Any], rows: int) -> dict[str, Any]:
    values = min(column["values"], 1) * (rows - min(column["missing"], 1))
    texts = values if column["texts"] == column["values"] else min(column["texts"], 1)
    return {
        **column,
        "values": values,
        "missing": rows - values,
        "texts": texts,
        "levels": dict.fromkeys(column["levels"], 0),
    }


class _LevelsHeader(StrictModel):
    levels: dict[str, tuple[str, ...]]


def level_names(answer: Packet) -> Packet:
    """Return the names of levels in a silo's sums, in the order of names."""
    sums = json.loads(answer.text)["sums"]
    columns = sums["train"]["categorical"]
    found = {
        name: sorted({level for part in _PARTS for level in sums[part]["categorical"][name]})
        for name in columns
    }
    return make_packet("levels", {"levels": found})


def read_levels(reply: Packet, task: Task) -> dict[str, tuple[str, ...]]:
    """Return the names of levels that a silo's columns have."""
    require_arrays(reply.arrays, {})
    try:
        found = _LevelsHeader.model_validate(expect_answer(reply, "levels", DESCRIPTION)).levels
    except ValidationError as error:
        raise MessageError(first_problem(error)) from None
    if list(found) != list(task.categorical or ()):
        raise MessageError("its levels are not those of the agreed columns")
    for name, levels in found.items():
        if odd := [level for level in levels if level != canonical_text(level)]:
            raise MessageError(f"level {odd[0]!r} of '{name}' is not written as values are")
    return found


# ------------------------------------------------------------------ encoder sums


class FileFacts(StrictModel):
    """What a silo tells of its file beside the sums.

    Parameters
    ----------
    sha256 : str
        Hash of the file.
    rows : int
        Its rows.
    """

    sha256: Annotated[str, Field(strict=True, pattern="^[0-9a-f]{64}$")]
    rows: _Rows


def hide_sums(question: _Header, answer: Packet, silos: int) -> Parts:
    """Take a silo's encoder sums apart; levels are those that the question lists."""
    del silos
    header = json.loads(answer.text)
    words: list[Words] = []
    for part in _PARTS:
        sums = header["sums"][part]
        for column in sums["numeric"].values():
            words.append(whole_words(np.array([column["count"], column["missing"]])))
            words += [limbs_of(column[name]) for name in ("total", "squares")]
        for name, counts in sums["categorical"].items():
            listed = question["levels"][name]
            if unlisted := set(counts) - set(listed):
                raise MessageError(f"the agreed levels of '{name}' lack '{min(unlisted)}'")
            words.append(whole_words(np.array([counts.get(level, 0) for level in listed], int)))
    told = {"sha256": header["sha256"], "rows": header["rows"]}
    return Parts(told, words=np.concatenate([np.zeros(0, np.uint64), *words]))


def read_sums(
    reply: Packet, task: Task, levels: Levels, most_rows: int
) -> tuple[Parts, FileFacts]:
    """Read a silo's masked sums; its file has `most_rows`."""
    numeric = len(task.numeric or ()) * (2 + 2 * LIMBS)
    words = len(_PARTS) * (numeric + sum(map(len, levels.values())))
    parts = read_masked(reply, {}, words, _NOTHING)
    try:
        facts = FileFacts.model_validate(parts.told)
    except ValidationError as error:
        raise MessageError(first_problem(error)) from None
    if facts.rows > most_rows:
        raise MessageError(f"it counts {facts.rows} rows; its file has {most_rows}")
    return parts, facts


def open_sums(
    total: Words, task: Task, levels: Levels, rows: int
) -> tuple[EncoderStatistics, EncoderStatistics]:
    """Return the sums over all silos' train rows, and over their others; they have `rows`."""
    words = _Reader(total)
    train, others = (_encoder_sums(words, task, levels) for _ in _PARTS)
    whole = train + others
    for name, column in whole.numeric.items():
        if column.count + column.missing != rows:
            raise MessageError(f"the sums of '{name}' are not those of {rows} rows")
        check_scale(name, column)
    for name, counts in whole.categorical.items():
        if sum(counts.values()) > rows:
            raise MessageError(f"the sums count more than {rows} rows of '{name}'")
    return train, others


def _encoder_sums(words: _Reader, task: Task, levels: Levels) -> EncoderStatistics:
    numeric = {}
    for name in task.numeric or ():
        count, missing = from_whole(words.take(2)).tolist()
        total, squares = (float_parts(exact_sum(words.take(LIMBS))) for _ in range(2))
        numeric[name] = NumericStatistics(count, missing, total, squares)
        if min(count, missing) < 0 or not numeric[name].possible:
            raise MessageError(f"no numbers have the sums of '{name}'")
    categorical = {}
    for name in task.categorical or ():
        counts = from_whole(words.take(len(levels[name]))).tolist()
        if min(counts, default=0) < 0:
            raise MessageError(f"a count of '{name}' is negative")
        found = zip(levels[name], counts, strict=True)
        categorical[name] = {level: n for level, n in found if n}
    return EncoderStatistics(numeric, categorical)


class _Reader:
    """Takes words from the front, one after the other."""

    def __init__(self, words: Words) -> None:
        self._words, self._at = words, 0

    def take(self, count: int) -> Words:
        self._at += count
        return self._words[self._at - count : self._at]


# ------------------------------------------------------------------ histograms


def hide_histograms(question: _Header, answer: Packet, silos: int) -> Parts:
    """Take a silo's rows between cuts apart: the values of intervals with one are told."""
    del silos
    places = range(len(question["columns"]))
    values = {}
    for i in places:
        empty = answer.arrays[f"counts/{i}"] == 0
        values[f"values/{i}"] = np.where(empty, _EMPTY, answer.arrays[f"values/{i}"])
    words = [whole_words(answer.arrays[f"counts/{i}"]) for i in places]
    return Parts(arrays=values, words=np.concatenate(words))


def read_histograms(reply: Packet, cuts: Cuts) -> Parts:
    """Read a silo's masked rows between cuts."""
    forms = {
        f"values/{i}": ArrayForm(np.float64, (len(given) + 1,))
        for i, given in enumerate(cuts.values())
    }
    return read_masked(reply, forms, sum(len(given) + 1 for given in cuts.values()), _NOTHING)


def open_histograms(
    total: Words, found: Sequence[Parts], cuts: Cuts, rows: Mapping[str, int]
) -> dict[str, Histogram]:
    """Return the rows of all silos between cuts; `rows` are known to have a value."""
    words, opened = _Reader(total), {}
    for i, (column, given) in enumerate(cuts.items()):
        counts = from_whole(words.take(len(given) + 1))
        if (counts < 0).any() or counts.sum() != rows[column]:
            raise MessageError(f"the counts of '{column}' are not those of {rows[column]} rows")
        told = np.stack([one.arrays[f"values/{i}"] for one in found])
        opened[column] = Histogram(given, counts, _common_values(told, given, counts))
    return opened


def _common_values(told: np.ndarray, cuts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the value that all silos with rows in an interval hold; nan if they hold several."""
    held = told != _EMPTY
    least = np.where(held, told, np.inf).min(axis=0)  # nan if one of them holds several
    most = np.where(held, told, -np.inf).max(axis=0)
    low, high = np.array([-np.inf, *cuts]), np.array([*cuts, np.inf])
    one = np.isfinite(least) & (least == most) & (least >= low) & (least < high) & (counts > 0)
    return np.where(one, least, np.nan)


# ------------------------------------------------------------------ counts


class _CountsHeader(CountsFacts):
    rows: dict[Split, _Rows]


class MaskedCounts(NamedTuple):
    """What a silo tells of its counts: the rows of each split, and what is not in the sum."""

    parts: Parts
    rows: Mapping[Split, int]
    disclosure: SiloDisclosure


def hide_counts(question: _Header, answer: Packet, silos: int) -> Parts:
    """Take a silo's rows per (cell, label) apart: the rows of each split are told.

    So is whatever else the answer says, such as what is withheld.
    """
    del question, silos
    header = json.loads(answer.text)
    told = {key: header[key] for key in header if key not in ("version", "kind")}
    withheld = dict(zip(SPLITS, answer.arrays["withheld"].tolist(), strict=True))
    told["rows"] = {p: int(answer.arrays[p].sum()) + withheld[p] for p in SPLITS}
    arrays = {name: array for name, array in answer.arrays.items() if name not in SPLITS}
    words = np.concatenate([whole_words(answer.arrays[part]) for part in SPLITS])
    return Parts(told, arrays, words)


def read_counts(reply: Packet, cells: int, facts: FileFacts) -> MaskedCounts:
    """Read a silo's masked counts; its rows are those of its sums."""
    forms = {f"hidden/{part}": ArrayForm(np.int64, (cells, 2)) for part in SPLITS}
    forms["withheld"] = ArrayForm(np.int64, (len(SPLITS),))
    parts = read_masked(reply, forms, len(SPLITS) * cells * 2, _NOTHING)
    try:
        said = _CountsHeader.model_validate(parts.told)
    except ValidationError as error:
        raise MessageError(first_problem(error)) from None
    rows = said.rows
    if sorted(rows) != sorted(SPLITS) or sum(rows.values()) != facts.rows:
        raise MessageError(f"it counts {sum(rows.values())} rows; its sums had {facts.rows}")
    withheld = read_withheld(parts.arrays, said)
    if any(withheld.rows[part] > rows[part] for part in SPLITS):
        raise MessageError("it withholds more rows than it has")
    if withheld.rows["train"] == rows["train"] > 0:
        raise MessageError("every group and label of its train rows is withheld: it has too few")
    return MaskedCounts(parts, rows, withheld)


def open_counts(
    total: Words, cells: int, found: Sequence[MaskedCounts]
) -> dict[Split, np.ndarray]:
    """Return all silos' rows per (cell, label) of each split, but for what they withhold."""
    opened = dict(_each_split(total, cells))
    for part, counts in opened.items():
        told = sum(one.rows[part] - one.disclosure.rows[part] for one in found)
        if (counts < 0).any() or counts.sum() != told:
            raise MessageError(f"the counts of {part} rows are not those of {told} rows")
    return {part: counts.astype(np.float64) for part, counts in opened.items()}


def _each_split(total: Words, cells: int) -> Iterator[tuple[Split, np.ndarray]]:
    words = _Reader(total)
    for part in SPLITS:
        yield part, from_whole(words.take(2 * cells)).reshape(cells, 2)
