"""Thresholds of groups and clients: what they give where clients differ, and where they are alike.

FedAvg is trained once for each split and seed; every rule is then fitted to the counts of its
train rows, and measured on its test rows. Nothing is chosen on these seeds. With --folds, the
alternatives that decision 0032 weighs are compared on folds of other seeds' train rows. What was
trained and measured is kept (and read again) below --runs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd

from acs_silos import DRAW, drawn
from mfairfl.data import Attribute
from mfairfl.fairness import fitting, notion, programme, thresholds
from mfairfl.fairness.constraints import Constraints
from mfairfl.fairness.fitting import Demand, fit_thresholds
from mfairfl.fairness.histogram import ScoreHistogram
from mfairfl.fairness.thresholds import Thresholds
from model_quality import table
from personal_page import (
    BOTH,
    GROUP,
    TOLERANCE,
    aims,
    bounds_table,
    compared,
    published,
)
from personal_runs import Scored, decisions, numbers, scored_runs

SEEDS, ACS_SEEDS, FOLD_SEEDS = range(70, 80), range(70, 75), range(5)
HALF = Thresholds([[0.0]], [[1.0]])

ADULT = {"data": {"name": "adult"}, "clients": {"scheme": "high"}}
COMPAS = {
    "data": {"name": "compas"},
    "clients": {"scheme": "dirichlet", "count": 10, "options": {"concentration": 0.5}},
}
BY_SEX = {"scheme": "dirichlet", "count": 5, "options": {"concentration": 0.5, "on": "group"}}
ALIKE: dict[str, dict[str, Any]] = {
    "Adult, high": ADULT,
    "Adult, low": {"data": {"name": "adult"}, "clients": {"scheme": "low"}},
    "Bank, high": {"data": {"name": "bank"}, "clients": {"scheme": "high"}},
}
LOCAL = {"demographic_parity": (0.01, 0.02, 0.03), "equalized_odds": (0.02, 0.03, 0.05)}
GLOBAL = {"demographic_parity": (0.005, 0.01), "equalized_odds": (0.01, 0.02)}
NOTIONS = ("demographic_parity", "equalized_odds", "accuracy_parity")


def configurations(
    split: Mapping[str, Any], seeds: range, method: str = "fedavg", *, folds: int | None = None
) -> list[dict[str, Any]]:
    """Return a run's configuration for each seed; of folds, the seed says which one measures."""
    clients = [
        split.get("clients", {})
        | ({} if folds is None else {"folds": folds, "fold": seed % folds})
        for seed in seeds
    ]
    return [
        {**split, "clients": part, "strategy": {"name": method}, "seed": seed}
        for seed, part in zip(seeds, clients, strict=True)
    ]


def states(file: Path, rows: int, folder: Path) -> dict[str, Any]:
    """Return a draw of the rows of ACSIncome, as a run's configuration names them."""
    config, _ = drawn(file, rows, folder / f"acs-{rows}")
    return tomllib.loads(config.read_text(encoding="utf-8"))


# ------------------------------------------------------------------ fit and measure


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A rule to fit to every run of a split; without a demand, score ½ decides."""

    name: str
    demand: Demand | None
    notion: str = "demographic_parity"
    instead: Callable[[], AbstractContextManager[Any]] = nullcontext
    """What replaces a part of the package, in a comparison of alternatives."""

    @property
    def key(self) -> str:
        """What tells answers apart in the book."""
        return json.dumps([self.name, repr(self.demand), self.notion])


class Book:
    """Numbers of rules by run and question, kept in a file as they come."""

    def __init__(self, folder: Path) -> None:
        sources = [Path(module.__file__) for module in (fitting, programme, thresholds)]
        code = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
        self._folder, self._path = folder, folder / f"numbers-{code}.jsonl"
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        self._known: dict[str, Any] = dict(map(json.loads, lines))

    def rows(
        self, settings: Sequence[dict[str, Any]], questions: Sequence[Question]
    ) -> pd.DataFrame:
        """Return a row for each question and run, indexed by the question's name and the seed."""
        rows, scored = [], scored_runs(settings, self._folder)
        for setting, (name, run) in zip(settings, scored, strict=True):
            seed, method = setting["seed"], setting["strategy"]["name"]
            for question in questions:
                key = json.dumps([name, question.key])
                if key not in self._known:
                    self._known[key] = answer(run, question)
                    with self._path.open("a") as file:
                        file.write(json.dumps([key, self._known[key]]) + "\n")
                rows.append({"rule": question.name, "seed": seed, **self._known[key]})
            print(f"measured {method}, seed {seed}, {len(questions)} rules", flush=True)
        return pd.DataFrame(rows).set_index(["rule", "seed"])


def answer(run: Scored, question: Question) -> dict[str, float]:
    """Fit a rule to the train rows; return its numbers, of the train rows as well."""
    item, found = notion(question.notion), fitting.FittedThresholds(thresholds=HALF)
    if question.demand is not None:
        with question.instead():
            found = fit_thresholds(run.train, Constraints(run.cells, item), question.demand)
    train, test = (
        numbers(decisions(found.thresholds, part), item, run.cells)
        for part in (run.train, run.test)
    )
    of_fit = {"excess": found.excess, "drawn": found.drawn, "otherwise": found.otherwise}
    return test | of_fit | {f"train_{name}": value for name, value in train.items()}


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
    *(asked("both", local_tolerance=x) for x in (0.05, 0.03, 0.02)),
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
    compas = book.rows(configurations(COMPAS, SEEDS), [SCORE_HALF, *PERSONAL, asked("client")])
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
            *aims(acs, compas, alike),
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
            "on counted train rows or on those that shrinking expects; 0 within 1e-9. *Drawn*: "
            "decisions by chance are permitted, and violations are those of expected decisions.",
            "",
            *(text for found in local for text in bounds_table(found)),
            "LoGoFair (Zhang et al., AAAI 2025) reports Adult with five clients, sex dealt by "
            "Dirichlet(.5), logistic regression, 70 % train rows, another seed and encoding. Its "
            "measure is the gap between the two groups (*demographic parity difference*), of a "
            "client's rows in the mean over clients. Ours on such a deal, with 80 % train rows:",
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


def fixed(counts: Any) -> Any:
    """Take the strength itself as the number of rows, whether clients are alike or not."""
    return np.ones(counts.shape[1])


def one_version(version: int) -> Callable[[], AbstractContextManager[Any]]:
    """Bound the counted rows alone (0), or the expected ones (1)."""
    gaps = fitting._gaps

    def only(counts: Any, constraints: Any, tolerance: float, _: int, client: Any = None) -> Any:
        return gaps(counts, constraints, tolerance, version, client)

    return lambda: patch.object(fitting, "_gaps", only)


def alternatives() -> Iterator[Question]:
    """Yield what is weighed: how much clients are shrunk, and which rows bounds are about."""
    yield asked("group")
    for strength in (0.0, 1.0, 2.0, 4.0, 8.0, 16.0):
        demand = Demand(by="both", tolerance=TOLERANCE, shrinkage=strength)
        yield Question(name=f"strength {strength:g}", demand=demand)
    for rows in (5.0, 10.0, 50.0, 400.0):
        demand = Demand(by="both", tolerance=TOLERANCE, shrinkage=rows)
        instead = partial(patch.object, fitting, "_alike", fixed)
        yield Question(name=f"{rows:g} rows", demand=demand, instead=instead)
    for version, name in enumerate(("counted", "expected")):
        demand = Demand(by="both", tolerance=TOLERANCE)
        yield Question(
            name=f"strength 4, bounds on {name} rows alone",
            demand=demand,
            instead=one_version(version),
        )


def folds(options: argparse.Namespace) -> Iterator[str]:
    """Yield a table of the alternatives: accuracy at the violation of folds of train rows."""
    splits = {"COMPAS, Dirichlet .5": COMPAS, "Adult, high": ADULT}
    for rows in (100_000, 50_000):
        splits[f"ACSIncome, {rows:,} rows"] = states(options.file, rows, options.runs)
    book = Book(options.runs)
    found = {
        name: book.rows(configurations(split, FOLD_SEEDS, folds=5), list(alternatives()))
        for name, split in splits.items()
    }
    rows = []
    for question in alternatives():
        means = [part.loc[question.name].mean() for part in found.values()]
        rows.append([question.name, *(f"{m.accuracy:.4f} at {m.violation:.4f}" for m in means)])
    yield from table(("", *found), rows)


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
