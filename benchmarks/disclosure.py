"""What a coordinator can read out of a silo: rows, scores and who took part, measured on Adult.

    make disclosure

All in this process, on data that ship with mfairfl. `readouts/` has one module for each section.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from attackers import BUDGET, by_steps
from attackers import ROWS as PEOPLE
from mfairfl.silo.policy import Policy
from mfairfl.text import aligned
from mfairfl.training.plan import Optimizer, Plan, Recipe
from readouts.audit_scores import ROWS as SCORES
from readouts.audit_scores import read_scores
from readouts.chosen_models import read_rows
from readouts.crafted import ATTACKS, crafted_requests
from readouts.honest import isolated_by_enrolment
from readouts.membership import membership
from readouts.silo import (
    HIDDEN,
    SIZES,
    Reading,
    Run,
    adult_rows,
    adult_task,
    exact_encoder,
    judge_rows,
    line_to,
)
from readouts.training import read_by_training

SEEDS = (0, 1, 2)
TIMES = len(SEEDS)
ROWS, TRAIN_ROWS = 2000, 1600
ROUNDS = 40  # of a default run
LAST = ("every level named", "wrong claims")
WIDE = (1200, 592)
AGES = (0, 26, 33, 41, 50, 100)

OPENING = f"""\
A coordinator that chooses its messages can read nearly every row of a silo, so it must be trusted
as with pseudonymised rows; the floor (`min_rows`) protects people in what is published, not from
it. Measured under the default policy on {ROWS:,} rows of Adult at a simulated silo, {TIMES} times;
a row is read if its twelve features and its label all are as in the silo's file.
"""


def main() -> None:
    """Print one section after the other."""
    print(OPENING)
    for title, note, section in SECTIONS:
        print(title, note, sep="\n", end="\n\n")
        header, *rows = section()
        print("\n".join(aligned([header, *rows], right=range(1, len(header)))) + "\n", flush=True)


# ------------------------------------------------------------------ chosen models, training


class Setting(NamedTuple):
    """What the silo holds, and what the coordinator proposes to it.

    `agreed` says whether the silo holds a run.toml, `fitted` whether the encoder is fitted to its
    answers as in an honest run; else it is one of the coordinator's choice.
    """

    name: str
    agreed: bool = False
    fitted: bool = False
    groups: tuple[Any, ...] = ()
    hidden: tuple[int, int] = HIDDEN

    def enrolled(self, folder: Path, frame: pd.DataFrame) -> Run:
        """Return a run that the silo takes part in."""
        run = Run(line_to(folder, frame, agreed=self.agreed), "run-1")
        task = adult_task(*self.groups)
        if self.fitted:
            run.enrol_as_agreed(task)
        else:
            run.enrol_freely(task, exact_encoder(), self.hidden)
        return run


class Point(NamedTuple):
    """Where an attack stands: messages so far, and what was read."""

    messages: int
    reading: Reading


def courses(
    setting: Setting, attack: Callable[[Run, int], Iterable[pd.DataFrame]]
) -> list[list[Point]]:
    """Return, for each sample, where an attack stands after each of its passes or rounds."""
    found = []
    for seed in SEEDS:
        frame = adult_rows(seed, ROWS)
        with tempfile.TemporaryDirectory() as folder:
            run = setting.enrolled(Path(folder), frame)
            found.append(
                [
                    Point(run.line.sent, judge_rows(claims, frame, run.encoder))
                    for claims in attack(run, seed)
                ]
            )
    return found


def chosen_models() -> Iterator[list[str]]:
    """Rows from scores and measurements."""
    yield ["", "pass", "messages", "rows read", "least", "most", *LAST]
    for setting in (
        Setting("own groups, model, encoder", groups=(by_steps("age", AGES),), hidden=(128, 64)),
        Setting("agreed task and model, own encoder", agreed=True),
        Setting("agreed task and model, fitted encoder", agreed=True, fitted=True),
    ):
        points = courses(setting, partial(read_rows, sizes=SIZES, passes=3))
        for number, same in enumerate(zip(*points, strict=True), start=1):
            yield [setting.name, str(number), *summary(same, ROWS)]


def training() -> Iterator[list[str]]:
    """Rows from rounds of local training."""
    yield ["", "rounds", "messages", "train rows", "least", "most", *LAST]
    free = Setting(f"own encoder, {WIDE[0]:,} and {WIDE[1]} units", hidden=WIDE)
    agreed = Setting("all as agreed", agreed=True, fitted=True)
    sgd = Optimizer(name="sgd", lr=0.02, weight_decay=0.0)
    damped = Optimizer(weight_decay=0.0, eps=0.2)
    for setting, name, optimizers, told in (
        (free, "SGD, rate .02", [sgd] * 10, (1, 10)),
        (free, "AdamW, eps .2, no decay", [damped] * 10, (1, 10)),
        (free, "AdamW, default", [default(i) for i in range(10)], (1, 10)),
        (agreed, "AdamW, default", [default(i) for i in range(ROUNDS)], (1, 10, ROUNDS)),
    ):
        plans = [usual(optimizer) for optimizer in optimizers]
        points = courses(setting, partial(read_by_training, sizes=SIZES, plans=plans))
        for number in told:
            same = [each[number - 1] for each in points]
            yield [f"{setting.name}: {name}", str(number), *summary(same, TRAIN_ROWS)]


def usual(optimizer: Optimizer) -> dict[str, Any]:
    """Return the default local training but for the optimiser."""
    recipe = Recipe()
    return asdict(
        Plan(epochs=recipe.local_epochs, batch_size=recipe.batch_size, optimizer=optimizer)
    )


def default(round_: int) -> Optimizer:
    """Return the optimiser of a round of a default run."""
    return Recipe().plan(round_, ROUNDS).optimizer


def summary(points: Sequence[Point], rows: int) -> list[str]:
    """Return messages, shares of rows and wrong claims over the samples."""
    right, named, wrong = np.array([point.reading for point in points]).T
    messages = {point.messages for point in points}
    sent = f"{min(messages)}" if len(messages) == 1 else f"{min(messages)} to {max(messages)}"
    shares = [right.mean(), right.min(), right.max(), named.mean()]
    # Rounded down: 100 % is every row.
    return [sent, *(f"{np.floor(1000 * x / rows) / 10:.1f} %" for x in shares), str(wrong.sum())]


# ------------------------------------------------------------------ audits, requests, honest runs


def audits() -> Iterator[list[str]]:
    """Scores by the threshold of audits."""
    yield ["", f"of {SCORES} scores", "wrong claims", "messages", "refused"]
    with tempfile.TemporaryDirectory() as folder:
        found = read_scores(Path(folder), SEEDS[0])
    yield ["bisected", *map(str, (found.right, found.wrong, found.messages, found.refused))]


def crafted() -> Iterator[list[str]]:
    """Rows by requests that isolate them."""
    yield ["", f"of {PEOPLE} rows", "messages", "with an agreed run.toml", "messages"]
    for name in ATTACKS:
        free, agreed = (crafted_requests(name, Policy(), agreed=held) for held in (False, True))
        cells = [str(x) for v in (free, agreed) for x in (v.recovered, v.messages)]
        yield [name, *cells]


def honest() -> Iterator[list[str]]:
    """Rows that an honest enrolment isolates."""
    yield ["", "silos", "rows they differ by"]
    for name in ("adult", "bank"):
        with tempfile.TemporaryDirectory() as folder:
            found = isolated_by_enrolment(name, Path(folder), Policy())
        pairs = sorted({(one.inner, one.outer) for one in found})
        for pair in pairs:
            rows = [one.rows for one in found if (one.inner, one.outer) == pair]
            told = f"{name}: {pair[0]} within {pair[1]}"
            yield [told, str(len(rows)), ", ".join(map(str, rows))]
        if not pairs:
            yield [f"{name}: none", "0", ""]


def members() -> Iterator[list[str]]:
    """Guesses about who took part."""
    yield ["", "mean", "least", "most"]
    found: list[Mapping[str, float]] = [membership(seed) for seed in SEEDS]
    for name in found[0]:
        held = np.array([one[name] for one in found])
        yield [name, *(f"{x:.3f}" for x in (held.mean(), held.min(), held.max()))]


SECTIONS: tuple[tuple[str, str, Callable[[], Iterator[list[str]]]], ...] = (
    (
        "1. Chosen models: scores and measurements only",
        "Train and test rows. Each pass takes a random projection, places rows in its bins by "
        "scores and\nreads them by measurements of 64 models a message. An own encoder has the "
        "numbers as\nthey are and each level that Adult is known to have. In a fitted one some "
        "levels have no input\nof their own and are read as rare.",
        chosen_models,
    ),
    (
        "2. Chosen models: rounds of ordinary training",
        "Weights that trap rows, two local epochs with batches of 512. Messages include nine "
        "scores that\nplace the rows of a projection.",
        training,
    ),
    (
        "3. Audits: scores in a silo's file, bisected by counts",
        "Scores of four decimals. An audit counts the rows above a threshold by group and label; "
        "the silo's\n`[audit]` states the threshold, and another is refused.",
        audits,
    ),
    (
        "4. Crafted requests: what the floor and the counters stop, and what not",
        "Fifteen ways to isolate rows of a made-up file by splits, groups, prices and batches;\n"
        f"at most {BUDGET:,} messages each.",
        crafted,
    ),
    (
        "5. An honest run: rows that its counts isolate",
        "Five silos. Two counts of ten rows or more that every run tells, one set within the "
        "other, that\ndiffer by fewer than ten.",
        honest,
    ),
    (
        "6. An honest run: guesses about who was trained on",
        "Six silos of 2,000 rows, default mFairFL run; .5 is chance for an AUC.",
        members,
    ),
)


if __name__ == "__main__":
    main()
