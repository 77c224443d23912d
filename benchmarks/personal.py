"""Thresholds of groups and clients: what they give where clients differ, and where they are alike.

FedAvg is trained once for each split and seed; every rule is then fitted to the counts of its
train rows, and measured on its test rows. Nothing is chosen on these seeds. With --folds, the
alternatives that decision 0032 weighs are compared on folds of other seeds' train rows. What was
trained and measured is kept (and read again) below --runs.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd

from acs_silos import DRAW
from mfairfl.data import Attribute
from mfairfl.fairness import fitting, notion
from mfairfl.fairness.constraints import Constraints
from mfairfl.fairness.fitting import Demand, fit_thresholds
from mfairfl.fairness.histogram import ScoreHistogram
from model_quality import table
from personal_page import (
    BOTH,
    GROUP,
    TOLERANCE,
    about_states,
    aims,
    bounds_table,
    compared,
    published,
)
from personal_runs import Book, Question, Scored, configurations, scored_runs, states

SEEDS, ACS_SEEDS, FOLD_SEEDS = range(70, 80), range(70, 75), range(5)

ADULT = {"data": {"name": "adult"}, "clients": {"scheme": "high"}}
COMPAS = {
    "data": {"name": "compas"},
    "clients": {"scheme": "dirichlet", "count": 10, "options": {"concentration": 0.5}},
}
BY_SEX = {
    "scheme": "dirichlet",
    "count": 5,
    "test": 0.3,
    "options": {"concentration": 0.5, "on": "group"},
}
ALIKE: dict[str, dict[str, Any]] = {
    "Adult, high": ADULT,
    "Adult, low": {"data": {"name": "adult"}, "clients": {"scheme": "low"}},
    "Bank, high": {"data": {"name": "bank"}, "clients": {"scheme": "high"}},
}
LOCAL = {"demographic_parity": (0.01, 0.02, 0.03), "equalized_odds": (0.02, 0.03, 0.05)}
GLOBAL = {"demographic_parity": (0.005, 0.01), "equalized_odds": (0.01, 0.02)}
NOTIONS = ("demographic_parity", "equalized_odds", "accuracy_parity")


def asked(by: str, tolerance: float = TOLERANCE, **more: Any) -> Question:
    """Return a question under the words that the page has for it."""
    item = more.pop("notion", "demographic_parity")
    name, local = (
        {"group": GROUP, "both": BOTH, "client": "clients'"}[by],
        more.get("local_tolerance"),
    )
    if local is not None:
        name += f", {local:g} at each client"
    if "maximise" in more:
        name += ", worst client maximised"
    if more.get("randomise"):
        name += ", drawn"
    if tolerance != TOLERANCE or item != "demographic_parity":
        name = f"{item}, {tolerance:g}: {name}"
    return Question(name=name, notion=item, demand=Demand(by=by, tolerance=tolerance, **more))


# ------------------------------------------------------------------ time


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Return seconds, and seconds of the processor."""
    began, spent = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - spent


def drawn_clients(clients: int) -> Scored:
    """Draw clients of 400 rows in four cells, that differ in labels and scores."""
    rng = np.random.default_rng(clients)
    groups = Attribute("sex", ("F", "M")), Attribute("age", ("old", "young"))
    parts = {}
    for client in range(clients):
        cell = rng.choice(4, 400, p=rng.dirichlet(np.full(4, 5.0)))
        shift = rng.normal(0.0, 0.7) + 0.5 * (cell % 2) - 0.4 * (cell // 2)
        y = (rng.random(400) < 1.0 / (1.0 + np.exp(-shift))).astype(int)
        z = rng.normal(1.6 * y - 0.8 + 0.5 * shift, 1.2)
        parts[f"{client:03d}"] = ScoreHistogram.from_logits(z, cell, y, size=4, bins=2048)
    return Scored(train=parts, test=parts, attributes=groups)


def curve(run: Scored, by: str, *, randomise: bool) -> None:
    for name in NOTIONS:
        for tolerance in np.linspace(0.0, 0.1, 20):
            demand = Demand(by=by, tolerance=float(tolerance), randomise=randomise)
            fit_thresholds(run.train, Constraints(run.cells, notion(name)), demand)


def times(adult: Scored) -> Iterator[list[str]]:
    """Yield what is timed, with and without decisions by chance."""
    work: dict[str, Callable[..., Any]] = {
        f"60 fits of an Adult run, {GROUP}": partial(curve, adult, "group"),
        f"60 fits of an Adult run, {BOTH}": partial(curve, adult, "both"),
    }
    for clients in (47, 500):
        run, item = drawn_clients(clients), notion("demographic_parity")
        for local in (None, 0.05):
            asks = partial(Demand, by="both", tolerance=TOLERANCE, local_tolerance=local)
            with_local = "" if local is None else f", {local:g} at each client"
            work[f"one fit, {clients} clients × 4 cells{with_local}"] = (
                lambda randomise, run=run, asks=asks, item=item: fit_thresholds(
                    run.train, Constraints(run.cells, item), asks(randomise=randomise)
                )
            )
    for name, call in work.items():
        for randomise in (True, False):
            seconds, spent = timed(partial(call, randomise=randomise))
            load = f"{os.getloadavg()[0]:.1f}"
            yield [name, "yes" if randomise else "no", f"{seconds:.1f}", f"{spent:.1f}", load]


# ------------------------------------------------------------------ the page


PERSONAL = [
    asked("group"),
    asked("both"),
    *(asked("both", local_tolerance=x) for x in (0.05, 0.03, 0.02, 0.01)),
]
WORST = asked("both", local_tolerance=0.03, maximise="worst_client_accuracy")
SCORE_HALF = Question(name="score ½", demand=None)


def bounded(item: str, *, randomise: bool) -> list[Question]:
    """Return rules with bounds for everyone and for each client."""
    return [
        asked("both", tolerance, local_tolerance=local, notion=item, randomise=randomise)
        for tolerance in GLOBAL[item]
        for local in LOCAL[item]
    ]


def page(options: argparse.Namespace) -> str:
    book = Book(options.runs)
    states_split = states(options.file, options.rows, options.runs)
    acs = book.rows(configurations(states_split, ACS_SEEDS), [SCORE_HALF, *PERSONAL])
    free = Question(name=f"{BOTH}, no bound", demand=Demand(by="both", tolerance=1.0))
    compas = book.rows(
        configurations(COMPAS, SEEDS), [SCORE_HALF, *PERSONAL, asked("client"), free]
    )
    ours = Question(name="mFairFL, defaults", demand=None)
    default = book.rows(configurations(COMPAS, SEEDS, "mfairfl"), [ours])
    compas = pd.concat([default, compas])
    alike = {
        split: book.rows(configurations(setting, SEEDS), [SCORE_HALF, *PERSONAL[:3], WORST])
        for split, setting in ALIKE.items()
    }
    local = [
        book.rows(configurations(ADULT, SEEDS), bounded(item, randomise=randomise))
        for item in LOCAL
        for randomise in (True, False)
    ]
    by_sex = {"data": ADULT["data"], "clients": BY_SEX}
    beside = {
        name: book.rows(
            configurations({**by_sex, **model}, SEEDS),
            [asked("group"), asked("both", local_tolerance=0.01)],
        )
        for name, model in (("logistic", {"model": {"kind": "logistic"}}), ("default model", {}))
    }
    ((_, adult),) = scored_runs(configurations(ADULT, SEEDS)[:1], options.runs)
    digest = hashlib.sha256(options.file.read_bytes()).hexdigest()
    return "\n".join(
        [
            "# Thresholds of groups and of clients",
            "",
            "One FedAvg for each split and seed (the defaults of a run); every rule is fitted to "
            "the counts of its train rows and measured on its test rows. Made by `make personal "
            f"FILE=…`. Seeds {SEEDS[0]} to {SEEDS[-1]} (ACSIncome: to {ACS_SEEDS[-1]}), on which "
            "nothing was chosen; means, ± half a 95 % t-interval over seeds, paired. The goal is "
            f"demographic parity between women and men, within {TOLERANCE} on train rows unless "
            "a rule says otherwise; a violation is the largest deviation of a group's rate from "
            "everyone's. A *local* violation is that of one client's rows; a floor is what "
            "exactly fair decisions at the same rates would show on as many rows. *Decided "
            "otherwise elsewhere*: the chance that another client would decide a train row "
            "otherwise.",
            "",
            "## Aims",
            "",
            *about_states(acs),
            *aims(compas, alike),
            "## Where clients differ",
            "",
            f"**ACSIncome by state**: {options.label}, SHA-256 of the file {digest}, "
            f"{options.rows:,} rows drawn with seed {DRAW}, 47 clients.",
            "",
            *compared(acs),
            "**COMPAS**, ten clients, labels dealt by Dirichlet(.5): each seed is another deal, "
            "so the sd over seeds is wide.",
            "",
            *compared(compas),
            "Beyond a bound for everyone alone, one client may favour women and another men: the "
            "largest local violation says so. A bound at each client costs part of the gain.",
            "",
            "## Where clients are alike",
            "",
            *(text for split, found in alike.items()
              for text in (f"**{split}**", "", *compared(found))),
            "## Bounds for everyone and for each client",
            "",
            "Adult, high. *Largest excess*: the most by which any bound is exceeded in any seed, "
            "on counted train rows; 0 within 1e-9. *Drawn*: decisions by chance are permitted, "
            "and violations are those of expected decisions.",
            "",
            *(text for found in local for text in bounds_table(found)),
            "LoGoFair (Zhang et al., AAAI 2025) reports Adult with five clients, sex dealt by "
            "Dirichlet(.5), logistic regression and 70 % train rows, half of which fit its rule; "
            "deal, seeds and encoding are others. Its measure is the gap between the two groups "
            "(*demographic parity difference*), at the clients in the mean over them. Ours on "
            "such deals with 70 % train rows; where a client was dealt few women, its gap is "
            "mostly chance, as the floor says, so the local columns cannot be compared closely:",
            "",
            *published(beside),
            "## Time",
            "",
            "60 fits: 20 tolerances of each of three notions. Seconds by the clock and of one "
            "processor; load is that of a machine of two processors at the time.",
            "",
            *table(("work", "drawn", "seconds", "of the processor", "load"), list(times(adult))),
        ]
    )  # fmt: skip


# ------------------------------------------------------------------ alternatives, on folds


def replaced(name: str, by: Any) -> Callable[[], AbstractContextManager[Any]]:
    """Have a part of the package replaced while a rule is fitted."""
    return partial(patch.object, fitting, name, by)


def only(version: int) -> Any:
    """Bound the counted rows alone (0), or the expected ones (1)."""
    gaps = fitting._gaps

    def of_one(counts: Any, constraints: Any, tolerance: float, _: int, client: Any = None) -> Any:
        there = min(version, len(counts.rows) - 1)  # the rule for strangers has counted rows only
        return gaps(counts, constraints, tolerance, there, client)

    return of_one


def shrinking() -> Iterator[Question]:
    """Yield how much clients may be shrunk, and which rows bounds may be about."""
    yield asked("group")
    for strength in (0.0, 1.0, 2.0, 4.0, 8.0, 16.0):
        demand = Demand(by="both", tolerance=TOLERANCE, shrinkage=strength)
        yield Question(name=f"strength {strength:g}", demand=demand)
    for rows in (5.0, 10.0, 50.0, 400.0):
        # The strength itself is the number of rows, whether clients are alike or not.
        ones = replaced("_alike", lambda counts: np.ones(counts.shape[1]))
        demand = Demand(by="both", tolerance=TOLERANCE, shrinkage=rows)
        yield Question(name=f"{rows:g} rows", demand=demand, instead=ones)
    for version, kind in enumerate(("counted", "expected")):
        demand = Demand(by="both", tolerance=TOLERANCE)
        bounds = replaced("_gaps", only(version))
        name = f"strength 4, bounds on {kind} rows alone"
        yield Question(name=name, demand=demand, instead=bounds)


def within() -> list[Question]:
    """Return rules with bounds at each client."""
    return [
        asked("group"),
        asked("both"),
        *(asked("both", local_tolerance=x) for x in (0.05, 0.03, 0.02, 0.01, 0.005)),
    ]


def for_the_worst() -> Iterator[Question]:
    """Yield how much of the worst client's accuracy may be left to everyone's."""
    yield asked("group")
    for share in (0.0, 0.0005, 0.001, 0.002, 0.004):
        name, left = f"{share:g} left", replaced("_AS_GOOD", share)
        yield Question(name=name, demand=WORST.demand, instead=left)


def folds(options: argparse.Namespace) -> Iterator[str]:
    """Yield tables of the alternatives, measured on folds of train rows."""
    splits = {"COMPAS, Dirichlet .5": COMPAS, "Adult, high": ADULT}
    for rows in (100_000, 50_000):
        splits[f"ACSIncome, {rows:,} rows"] = states(options.file, rows, options.runs)
    book = Book(options.runs)
    runs = {name: configurations(split, FOLD_SEEDS, folds=5) for name, split in splits.items()}
    for title, questions in (
        ("How clients are shrunk: accuracy at violation", list(shrinking())),
        ("Bounds at each client: accuracy at violation, mean local violation less its floor",
         within()),
    ):  # fmt: skip
        found = {name: book.rows(part, questions) for name, part in runs.items()}
        lines = []
        for question in questions:
            means = [part.loc[question.name].mean() for part in found.values()]
            local = title.startswith("Bounds")
            lines.append([question.name, *(
                f"{m.accuracy:.4f} at {m.violation:.4f}"
                + (f", {m.local - m.local_floor:+.4f}" if local else "")
                for m in means
            )])  # fmt: skip
        yield from (title, "", *table(("", *found), lines))
    yield from ("The worst client maximised, Adult, high", "")
    yield from compared(book.rows(runs["Adult, high"], list(for_the_worst())))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="a Parquet file of the ACSIncome task")
    parser.add_argument("--label", default="ACSIncome by state", help="what the page calls it")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--folds", action="store_true", help="print the alternatives, on folds")
    parser.add_argument("--runs", type=Path, default=Path("runs/personal"))
    parser.add_argument("--out", type=Path, default=Path("results/personal.md"))
    options = parser.parse_args()
    if options.folds:
        print("\n".join(folds(options)))
        return
    options.out.write_text(page(options), encoding="utf-8")
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
