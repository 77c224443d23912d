"""Measurements, scores and reports: taken apart by a silo, put together from sums by the server.

What a silo tells singly: of a measurement its rows, its wrong decisions and its loss; of training
its updates and steps. Counts are summed exactly. Sums of scores and losses, and expected counts of
randomised decisions, are rounded to 2⁻³⁰ at each silo. Multipliers and gaps are weighted by the
silo's rows, so that their means are those over all rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mfairfl.data import Split
from mfairfl.engine.state import Measure, Score, Train
from mfairfl.fairness.cells import SUMS, Statistics
from mfairfl.fairness.histogram import ScoreHistogram
from mfairfl.fairness.masked import MaskedSums, Single
from mfairfl.fairness.scores import CALIBRATION_BINS, LOGIT_BINS, ScoreSums
from mfairfl.guard.modular import Words, fixed_words, from_fixed, from_whole, whole_words
from mfairfl.remote.codec import ArrayForm, Packet, Shape, make_packet, unpack_answer
from mfairfl.remote.masked_messages import Parts, read_masked
from mfairfl.strict_json import JsonLimits
from mfairfl.training.plan import Report

__all__ = [
    "hide_measures",
    "hide_reports",
    "hide_scores",
    "mean_controllers",
    "moved_controllers",
    "open_measures",
    "open_scores",
    "read_measures",
    "read_reports",
    "read_scores",
    "within_bins",
]

_TOLD = "told"
_NOTHING = JsonLimits(characters=1024, values=64)
_REPORTS = JsonLimits(characters=1 << 20, values=1 << 14)
_Header = Mapping[str, Any]


# ------------------------------------------------------------------ measurements


def hide_measures(question: _Header, answer: Packet, silos: int) -> Parts:
    """Take a silo's measurements apart; `silos` are summed."""
    keys = [f"{i}/{split}" for i in range(question["models"]) for split in question["splits"]]
    tables = [answer.arrays[key] for key in keys]
    singles = [Single.of(Statistics(**dict(zip(SUMS, table, strict=True)))) for table in tables]
    told = np.array([[one.rows, one.errors, one.loss] for one in singles]).reshape(-1, 3)
    expected = question["thresholds"] is not None
    words = [_statistics_words(table, expected, silos) for table in tables]
    return Parts(arrays={_TOLD: told}, words=np.concatenate(words))


def _statistics_words(table: np.ndarray, expected: bool, silos: int) -> Words:
    counts, positives, *sums = table
    decided = fixed_words(positives, silos) if expected else whole_words(positives)
    rest = [fixed_words(one, silos) for one in sums]
    return np.concatenate([whole_words(counts), decided, *rest])


def read_measures(reply: Packet, ask: Measure, shape: Shape, *, summed: bool) -> Parts:
    """Read a silo's masked measurements; `summed` says whether there are words to be summed."""
    many = len(ask.weights) * len(ask.splits)
    words = many * len(SUMS) * shape.cells * 2 if summed else 0
    return read_masked(reply, {_TOLD: ArrayForm(np.float64, (many, 3))}, words, _NOTHING)


def open_measures(
    ask: Measure, shape: Shape, found: Mapping[str, Parts], total: Words | None
) -> tuple[dict[Split, MaskedSums], ...]:
    """Return what silos told, by model and split, with the sums if they can be read."""
    keys = [(i, split) for i in range(len(ask.weights)) for split in ask.splits]
    tables: list[Statistics | None] = [None] * len(keys)
    if total is not None:
        parts = np.split(total, len(keys))
        tables = [_statistics(part, shape.cells, ask.thresholds is not None) for part in parts]
    answers: tuple[dict[Split, MaskedSums], ...] = tuple({} for _ in ask.weights)
    for place, (i, split) in enumerate(keys):
        singles = {
            name: Single.told(*one.arrays[_TOLD][place].tolist()) for name, one in found.items()
        }
        answers[i][split] = MaskedSums(singles, tables[place])
    return answers


def _statistics(words: Words, cells: int, expected: bool) -> Statistics:
    counts, positives, *sums = words.reshape(len(SUMS), cells, 2)
    decided = from_fixed(positives) if expected else from_whole(positives).astype(np.float64)
    rest = [from_fixed(one) for one in sums]
    tables = [from_whole(counts).astype(np.float64), decided, *rest]
    return Statistics(**dict(zip(SUMS, tables, strict=True)))


# ------------------------------------------------------------------ scores


def hide_scores(question: _Header, answer: Packet, silos: int) -> Parts:
    """Take a silo's scores apart: nothing of them is told."""
    words = []
    for split in question["splits"]:
        histogram, rows, sums, losses = (
            answer.arrays[f"{split}/{name}"] for name in ("histogram", "rows", "sums", "losses")
        )
        words += [whole_words(histogram), whole_words(rows)]
        words += [fixed_words(sums, silos), fixed_words(losses, silos)]
    return Parts(words=np.concatenate(words))


def read_scores(reply: Packet, ask: Score, shape: Shape) -> Parts:
    """Read a silo's masked scores."""
    return read_masked(reply, {}, len(ask.splits) * sum(_score_sizes(shape)), _NOTHING)


def _score_sizes(shape: Shape) -> tuple[int, int, int, int]:
    """Return how many words the four arrays of a split's scores have."""
    cells = 2 * shape.cells
    return cells * LOGIT_BINS, cells * CALIBRATION_BINS, cells * CALIBRATION_BINS, cells


def open_scores(ask: Score, shape: Shape, total: Words, silos: int) -> dict[Split, ScoreSums]:
    """Return the sums of scores over all silos."""
    parts = np.split(total, len(ask.splits))
    return {
        split: _scores(part, shape, silos) for split, part in zip(ask.splits, parts, strict=True)
    }


def _scores(words: Words, shape: Shape, silos: int) -> ScoreSums:
    histogram, rows, sums, losses = np.split(words, np.cumsum(_score_sizes(shape))[:-1])
    bins = (shape.cells, 2, CALIBRATION_BINS)
    counts = from_whole(rows).reshape(bins)
    return ScoreSums(
        ScoreHistogram(from_whole(histogram).reshape(shape.cells, 2, LOGIT_BINS)),
        counts,
        within_bins(from_fixed(sums).reshape(bins), counts, silos),
        from_fixed(losses).reshape(shape.cells, 2),
    )


def within_bins(sums: np.ndarray, rows: np.ndarray, silos: int) -> np.ndarray:
    """Undo rounding where it moved a sum of probabilities out of what its bin can hold."""
    edges = np.arange(CALIBRATION_BINS + 1) / CALIBRATION_BINS
    inside = np.clip(sums, rows * edges[:-1], rows * edges[1:])
    rounding = from_fixed(np.array([silos], np.uint64))[0]
    return np.where(np.abs(inside - sums) <= rounding, inside, sums)


# ------------------------------------------------------------------ reports


def moved_controllers(ask: Train, silos: list[str]) -> int:
    """Return how many multipliers all of these silos move for the server; 0 if not all do."""
    sending = [job for job in ask.jobs if job.send]
    if sorted(job.client for job in sending) != silos:
        return 0
    controllers = [job.plan.controller for job in sending]
    lengths = {0 if c is None or c.slot is not None else len(c.multipliers) for c in controllers}
    return lengths.pop() if len(lengths) == 1 else 0


def hide_reports(answer: Packet, rows: int, silos: int) -> Parts:
    """Take a silo's reports apart; without `silos` to sum over, multipliers are left out."""
    header = json.loads(answer.text)
    words = []
    for report in header["reports"]:
        numbers = np.array([report.pop(name) for name in ("multipliers", "gaps")])
        report |= {"multipliers": [], "gaps": []}
        if silos:
            words.append(fixed_words(rows * numbers, silos))
    told = {"reports": header["reports"]}
    return Parts(told, answer.arrays, np.concatenate([np.zeros(0, np.uint64), *words]))


def read_reports(
    reply: Packet, ask: Train, name: str, shape: Shape, words: int
) -> tuple[Parts, list[Report]]:
    """Read a silo's reports; multipliers and gaps of one are in `words`, if any."""
    jobs = [job for job in ask.jobs if job.client == name]
    sending = [job for job in jobs if job.send]
    vector = ArrayForm(np.float32, (shape.weights,))
    forms = {f"update/{i}": vector for i in range(len(sending))}
    forms |= {
        f"control/{i}": vector for i, job in enumerate(sending) if job.keep_control is not None
    }
    parts = read_masked(reply, forms, words, _REPORTS)
    plain = make_packet("reports", parts.told, parts.arrays)
    reports = unpack_answer(plain, replace(ask, jobs=tuple(jobs)), name, shape)
    return parts, list(reports)  # type: ignore[arg-type]  # those of a Train


def mean_controllers(reports: list[Report], total: Words, rows: float) -> list[Report]:
    """Give every report the means, over all rows, of multipliers and gaps."""
    multipliers, gaps = (from_fixed(total) / rows).reshape(2, -1).tolist()
    return [
        replace(report, multipliers=tuple(multipliers), gaps=tuple(gaps)) for report in reports
    ]
