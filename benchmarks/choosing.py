"""How often what `mfairfl choose` chooses keeps its budget on test rows.

A seed draws clients, test rows, folds and first weights. Folds of the train rows choose; test rows
only report. Data: Adult, Bank, and files drawn by a fixed generator, one of them too small for its
budget, which has to be said beforehand.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import mfairfl
from mfairfl.experiments.choice import ChosenModel

BUDGET = 0.05
METHODS = ("fedfb", "mfairfl")  # beside FedAvg
ROUNDS = 15  # of two local epochs: fewer than by default, so that forty choices take minutes
ROWS = {"drawn, 40,000 rows": 40_000, "drawn, 3,000 rows": 3_000}


class Kept(NamedTuple):
    """What one choice showed on test rows."""

    candidate: str
    accuracy: float
    baseline: float
    violation: float
    within: bool
    verdict: str
    warned: bool

    @classmethod
    def of(cls, choice: ChosenModel) -> Kept:
        """Read the numbers of a choice."""
        record, base = choice.run.record, choice.baseline.record
        table, (measure,) = record.table("test"), record.goal
        violation = table[measure].value or 0.0
        return cls(
            candidate=str(choice.candidate).removesuffix(f" at {BUDGET:g}"),
            accuracy=table["accuracy"].value or 0.0,
            baseline=base.table("test")["accuracy"].value or 0.0,
            violation=violation,
            within=violation <= BUDGET,
            verdict=choice.verdict or "",
            warned=bool(choice.beforehand),
        )


def drawn(rows: int) -> pd.DataFrame:
    """Draw people of five sites; women have less of what the label depends on."""
    rng = np.random.default_rng(rows)
    man, site = rng.random(rows) < 0.6, rng.integers(0, 5, rows)
    years = rng.gamma(3.0, 3.0, rows) + 2.0 * man
    test = rng.normal(0.2 * site, 1.0)
    field = rng.choice(["art", "law", "science"], rows)
    score = 0.15 * (years - 10.0) + test + (field == "science") + 0.4 * man - 1.0
    hired = score + rng.logistic(0.0, 0.7, rows) > 0.0
    return pd.DataFrame(
        {
            "years": years.round(1),
            "test": test.round(2),
            "field": field,
            "sex": np.where(man, "m", "f"),
            "site": site,
            "hired": np.where(hired, "yes", "no"),
        }
    )


def sources(folder: Path) -> dict[str, dict[str, Any]]:
    """Write the drawn files; return the configuration of each data set."""
    configs: dict[str, dict[str, Any]] = {
        "Adult": {"data": {"name": "adult"}},
        "Bank": {"data": {"name": "bank"}},
    }
    roles = {"label": "hired", "favourable": "yes", "sensitive": ["sex"], "client": "site"}
    for name, rows in ROWS.items():
        path = folder / f"people-{rows}.csv"
        drawn(rows).to_csv(path, index=False)
        configs[name] = {"data": {"csv": str(path)}, "task": roles}
    return configs


def line(name: str, kept: list[Kept]) -> str:
    """Return a row of the table."""
    names = Counter(item.candidate for item in kept)
    chosen = ", ".join(f"{who} {times}" for who, times in names.most_common())
    means = [np.mean([getattr(item, key) for item in kept]) for key in Kept._fields[1:4]]
    counts = [
        sum(item.verdict != "not met" for item in kept),
        sum(item.within for item in kept),
        sum(item.verdict == "met" for item in kept),
        sum(item.warned for item in kept),
    ]
    cells = [name, chosen, *(f"{mean:.4f}" for mean in means), *map(str, counts)]
    return f"| {' | '.join(cells)} |"


def page(results: dict[str, list[Kept]], seconds: float) -> str:
    """Return the page."""
    seeds = len(next(iter(results.values())))
    return "\n".join(
        [
            f'# How often `mfairfl choose --at-most "dp {BUDGET:g}"` keeps its budget',
            "",
            f"Made by `make choosing` ({seconds / 60:.0f} minutes of one processor): {seeds} "
            f"seeds; FedAvg, {', '.join(METHODS)} and FedAvg with one threshold; 3 folds of the "
            f"train rows; {ROUNDS} rounds. Numbers are means over the seeds, of test rows; counts "
            "are seeds.",
            "",
            "- *not refuted*: the interval of the violation reaches down to the budget;",
            "- *point*: the violation itself is within the budget;",
            "- *shown*: the whole interval is within the budget (the verdict *met*);",
            "- *said beforehand*: that there are too few rows to show it.",
            "",
            "| data | chosen | accuracy | FedAvg's | violation | not refuted | point | shown "
            "| said beforehand |",
            "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
            *(line(name, kept) for name, kept in results.items()),
            "",
        ]
    )


def main() -> None:
    """Choose for every data set and seed, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=70)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("results/choosing.md"))
    options = parser.parse_args()
    results: dict[str, list[Kept]] = {}
    with TemporaryDirectory() as folder:
        every = range(options.first, options.first + options.seeds)
        for seed, (name, config) in product(every, sources(Path(folder)).items()):
            more = {"seed": seed, "training": {"rounds": ROUNDS}}
            choice = mfairfl.choose(
                {**config, **more}, at_most=f"dp {BUDGET:g}", methods=METHODS, workers=1
            )
            results.setdefault(name, []).append(Kept.of(choice))
            print(name, seed, *results[name][-1], flush=True)
    options.out.write_text(page(results, time.process_time()), encoding="utf-8")


if __name__ == "__main__":
    main()
