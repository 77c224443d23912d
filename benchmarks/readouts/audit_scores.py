"""Scores from audits whose threshold the coordinator names: bisected by counts.

An audit counts, by group and label, the rows with a score above a threshold. Counts at two
thresholds differ by the rows between them, so thresholds moved together leave one value that a
score can have. A silo that states the threshold in its `[audit]` refuses every other.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attackers import Line
from mfairfl.wire.packing import make_packet
from readouts.silo import HIGH, LABEL, RefusedError, adult_rows, line_to

ROWS = 200
STEPS = 10_000  # scores have four decimals
AGREED = STEPS // 2
COLUMNS = {"label": LABEL, "favourable": HIGH, "score": "score", "sensitive": ("sex",)}


class Bisected(NamedTuple):
    """Scores that are counted and that were read, wrong claims, messages, and refusals."""

    counted: int
    right: int
    wrong: int
    messages: int
    refused: int


def read_scores(folder: Path, seed: int, *, rows: int = ROWS) -> Bisected:
    """Bisect the scores in a silo's file, as far as it answers."""
    frame = adult_rows(seed, rows)
    frame["score"] = np.random.default_rng(seed).integers(0, STEPS + 1, rows) / STEPS
    line = line_to(folder, frame, audit=COLUMNS | {"threshold": AGREED / STEPS})
    everyone, above = _counts(line, AGREED)
    told = {-1: everyone, AGREED: above, STEPS: np.zeros_like(everyone)}  # rows above each step
    with contextlib.suppress(RefusedError):
        while (step := _next_step(told)) is not None:
            told[step] = _counts(line, step)[1]
    true = Counter(
        (sex == "Male", y == HIGH, round(score * STEPS))
        for sex, y, score in zip(frame["sex"], frame[LABEL], frame["score"], strict=True)
    )
    claims = Counter(_claims(told))
    right = sum(min(count, true[one]) for one, count in claims.items())
    wrong = claims.total() - right
    return Bisected(int(everyone.sum()), right, wrong, line.sent, line.refused)


def _counts(line: Line, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows by group and label, and those with a score above a step."""
    columns = COLUMNS | {"threshold": step / STEPS, "prediction": None, "client": None}
    columns |= {"selected": None}
    attributes = [{"name": "sex", "groups": ["Female", "Male", "?"]}]
    said = {"columns": columns, "attributes": attributes, "grid": {"lowest": 0.0, "highest": 1.0}}
    answer = line.ask(make_packet("audit", said), "audit")
    if answer is None:
        raise RefusedError(line.reason)
    decided = answer.arrays["decided"][:2, :2]
    return decided.sum(axis=-1), decided[..., 1]


def _next_step(told: dict[int, np.ndarray]) -> int | None:
    """Return the middle of the gap between steps that most is to be learnt in."""
    gaps = [
        (int((told[low] - told[high]).sum()) * (high - low), low, high)
        for low, high in pairwise(sorted(told))
        if high - low > 1 and (told[low] > told[high]).any()
    ]
    if not gaps:
        return None
    _, low, high = max(gaps)
    return (low + high) // 2


def _claims(told: dict[int, np.ndarray]) -> Iterator[tuple[bool, bool, int]]:
    """Yield group, label and score of each row between two neighbouring steps."""
    for low, high in pairwise(sorted(told)):
        if high - low == 1:
            for sex, y in np.ndindex(2, 2):
                for _ in range(int(told[low][sex, y] - told[high][sex, y])):
                    yield bool(sex), bool(y), high
