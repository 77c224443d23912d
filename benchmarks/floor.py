"""What the default policy of silos costs: mFairFL with and without a floor, seed by seed.

Every seed splits the rows of a data set among five clients and into train and test rows, once for
both runs; they differ in what clients tell. Prints paired differences with 95 % intervals.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from scipy import stats

import mfairfl
from mfairfl.remote.policy import Disclosure, Policy
from mfairfl.runs.record import RunRecord

VIOLATION = "demographic_parity_violation"


def main() -> None:
    """Run all pairs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=["adult", "bank", "compas"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--strategy", default="mfairfl")
    options = parser.parse_args()
    print(f"{options.strategy}, demographic parity, high heterogeneity, {options.seeds} seeds;")
    print("with a floor of 10 rows minus without, test rows: mean and 95 % interval\n")
    heads = ("accuracy", 10), ("difference", 26), ("violation", 12), ("difference", 26)
    print("data".ljust(8) + "".join(name.rjust(width) for name, width in heads) + "  withheld")
    for data in options.data:
        print(_line(data, options.strategy, options.seeds), flush=True)


def _line(data: str, strategy: str, seeds: int) -> str:
    plain, floored = ([_run(data, strategy, s, f) for s in range(seeds)] for f in (1, 10))
    text = f"{data:8}"
    for name, width in (("accuracy", 10), (VIOLATION, 12)):
        before, after = (np.array([r.metrics.test[name] for r in rs]) for rs in (plain, floored))
        text += f"{before.mean():{width}.4f}{_interval(after - before):>26}"
    return f"{text}  {_withheld(floored)}"


def _run(data: str, strategy: str, seed: int, floor: int) -> RunRecord:
    options = {"heterogeneity": "high", "strategy": strategy, "seed": seed}
    policy = Policy(disclosure=Disclosure(min_rows=floor, split_seed=seed))
    with tempfile.TemporaryDirectory() as folder:
        return mfairfl.train(data, out=Path(folder, "run"), policy=policy, **options).record


def _interval(differences: np.ndarray) -> str:
    half = stats.t.ppf(0.975, len(differences) - 1) * stats.sem(differences)
    return f"{differences.mean():+.4f} ± {half:.4f}"


def _withheld(records: list[RunRecord]) -> str:
    clients = [own for record in records for own in record.federation.disclosure.values()]
    rows = sum(rows for own in clients for rows in own.rows_withheld.values())
    pairs = sum(len(own.withheld) for own in clients)
    return f"{pairs / len(records):.1f} groups and labels, {rows / len(records):.1f} rows a run"


if __name__ == "__main__":
    main()
