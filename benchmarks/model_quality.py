"""How far the default model is behind what one would fit with all rows in one place.

FedAvg and mFairFL (demographic parity) with the defaults, beside the pooled references on the same
rows: the data sets of the catalogue with split high, and files of one's own (--own, a run's
configuration each, as `mfairfl init` writes it). Differences are paired by seed. Runs are kept
(and resumed) below --runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.progress import Progress
from scipy.stats import t as student

from mfairfl.experiments.study import (
    Study,
    Trial,
    load_study,
    reference_trials,
    trials,
)
from mfairfl.runs.config import Config
from mfairfl.runs.record import RunRecord
from mfairfl.runs.reference_records import ReferenceRecord, ReferenceRequest
from mfairfl.runs.workers import run_many

SEEDS = tuple(range(60, 65))
DATA = ("adult", "bank", "compas", "german")
METHODS = ("fedavg", "mfairfl")
REFERENCES = ("boosting", "boosting-threshold", "logistic")
VIOLATION = "demographic_parity_violation"
METRICS = {"accuracy": "accuracy", "roc_auc": "AUC", "loss": "log-loss", VIOLATION: "violation"}
PAIRS = (("fedavg", "boosting"), ("fedavg", "logistic"), ("mfairfl", "boosting-threshold"))
# FedAvg less boosting: accuracy behind by at most this; None: the 95 % interval reaches 0.
BEHIND: dict[str, float | None] = {"adult": 0.005, "bank": 0.003, "acs": 0.005, "compas": None}
LOSS_BEHIND = 0.010
FAIR = ("adult", 0.844, 0.008)  # mFairFL: accuracy at least, violation at most

Record = RunRecord | ReferenceRecord
Found = dict[str, dict[str, list[Record]]]
"""By data set and method: a record for each seed, in the order of the seeds."""


class Aim(NamedTuple):
    """Something to reach, and what was found."""

    data: str
    text: str
    found: str
    reached: bool


def defaults() -> str:
    training = Config().training
    return f"{training.rounds}x{training.local_epochs}"


def studies(options: argparse.Namespace) -> Iterator[Study]:
    """Yield the work of the catalogue's data sets, then that of one's own files."""
    common: dict[str, Any] = {
        "strategies": options.methods,
        "references": REFERENCES,
        "notions": ["demographic_parity"],
        "protocols": [options.protocol or defaults()],
        "seeds": options.seeds,
    }
    if options.data:
        yield load_study({"data": options.data, "splits": ["high"], **common})
    if options.own:
        yield load_study({"data": [own(text) for text in options.own], **common})


def own(text: str) -> dict[str, str]:
    """Read LABEL=FILE, or FILE alone."""
    label, _, path = text.rpartition("=")
    return {"label": label or Path(path).stem, "config": path}


def carried_out(options: argparse.Namespace) -> Found:
    """Carry everything out side by side, with a bar; nothing that is finished is repeated."""
    plans = list(studies(options))
    work = [trial for study in plans for trial in trials(study)]
    pooled = [trial for study in plans for trial in reference_trials(study)]
    requests = [
        ReferenceRequest(name=t.strategy, config=t.config, out=t.directory(options.runs))
        for t in pooled
    ]
    with Progress() as bar:
        task = bar.add_task("runs", total=len(work) + len(pooled))
        done: dict[str, float] = {}

        def tell(out: str, finished: int, of: int) -> None:
            done[out] = finished / of if of else 1.0
            bar.update(task, completed=sum(done.values()))

        runs = [(trial.config, trial.directory(options.runs)) for trial in work]
        records = run_many(runs, requests, processes=options.processes, progress=tell)
        fitted = [ReferenceRecord.read(request.out) for request in requests]
    found: Found = {}
    every: list[tuple[Trial, Record]] = [
        *zip(work, records, strict=True),
        *zip(pooled, fitted, strict=True),
    ]
    for trial, record in every:
        found.setdefault(trial.data, {}).setdefault(trial.strategy, []).append(record)
    return found


def values(records: Sequence[Record], metric: str) -> np.ndarray:
    """Return a number of the test rows, by seed; what is undefined is nan."""
    found = [record.table("test")[metric].value for record in records]
    return np.array([np.nan if value is None else value for value in found], dtype=np.float64)


def mean(numbers: np.ndarray) -> tuple[float, float]:
    """Return the mean and half the width of its 95 % t-interval; nan for one seed."""
    n = len(numbers)
    if n < 2:
        return float(numbers.mean()), float("nan")
    half = student.ppf(0.975, n - 1) * numbers.std(ddof=1) / np.sqrt(n)
    return float(numbers.mean()), float(half)


def line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [line(head), "|" + " --- |" * len(head), *map(line, rows), ""]


def spread(numbers: np.ndarray, sign: str = "") -> str:
    middle, half = mean(numbers)
    return f"{middle:{sign}.4f}" + ("" if np.isnan(half) else f" ± {half:.4f}")


def difference(methods: Mapping[str, Sequence[Record]], pair: tuple[str, str], metric: str) -> Any:
    first, second = (values(methods[name], metric) for name in pair)
    return first - second


def section(data: str, methods: Mapping[str, Sequence[Record]]) -> Iterator[str]:
    record = methods["fedavg"][0]
    clients = len(record.federation.clients)
    floor = [one.table("test")[VIOLATION].noise_floor for one in methods["mfairfl"]]
    yield f"## {data}"
    yield ""
    yield (
        f"{record.data.rows:,} rows, {clients} clients (scheme {record.federation.scheme}), "
        f"SHA-256 {record.data.sha256}. Noise floor of mFairFL's violation {np.mean(floor):.4f}."
    )
    yield ""
    marked = {name: f"{name} †" if name in REFERENCES else name for name in methods}
    yield from table(
        ["method", *METRICS.values()],
        [
            [marked[name], *(spread(values(records, metric)) for metric in METRICS)]
            for name, records in methods.items()
        ],
    )
    yield from table(
        ["difference, paired by seed", *METRICS.values()],
        [
            [
                f"{first} − {marked[second]}",
                *(spread(difference(methods, (first, second), m), "+") for m in METRICS),
            ]
            for first, second in PAIRS
        ],
    )


def aims(found: Found) -> Iterator[Aim]:
    """Yield what was set for these data sets, judged by means over seeds."""
    for data, methods in found.items():
        key = data.casefold().replace(",", " ").split()[0]
        if key in BEHIND:
            gaps = difference(methods, PAIRS[0], "accuracy")
            accuracy, half = mean(gaps)
            loss, _ = mean(difference(methods, PAIRS[0], "loss"))
            most, said = BEHIND[key], spread(gaps, "+")
            if most is None:
                text = "FedAvg − boosting, accuracy: the 95 % interval reaches 0"
                yield Aim(data, text, said, bool(accuracy + half >= 0))
            else:
                text = f"FedAvg − boosting, accuracy ≥ −{most:g}"
                yield Aim(data, text, said, accuracy >= -most)
            text = f"FedAvg − boosting, log-loss ≤ +{LOSS_BEHIND:g}"
            said = spread(difference(methods, PAIRS[0], "loss"), "+")
            yield Aim(data, text, said, loss <= LOSS_BEHIND)
        if key == FAIR[0]:
            _, least, most = FAIR
            accuracy, _ = mean(values(methods["mfairfl"], "accuracy"))
            violation, _ = mean(values(methods["mfairfl"], VIOLATION))
            text = f"mFairFL, demographic parity: accuracy ≥ {least:g} at a violation ≤ {most:g}"
            said = f"{accuracy:.4f} at {violation:.4f}"
            yield Aim(data, text, said, accuracy >= least and violation <= most)


def page(found: Found, options: argparse.Namespace) -> str:
    plain = Config().model_dump(mode="json", exclude={"seed", "data", "task", "clients"})
    seeds = ", ".join(map(str, options.seeds))
    protocol = options.protocol or defaults()
    judged = list(aims(found))
    lines = [
        "# How good is the model?",
        "",
        "Made by `make model-quality`: the defaults of a run,",
        f"{protocol} rounds x local epochs, seeds {seeds},",
        "test rows; mean ± half a 95 % t-interval over seeds. AUC: ROC-AUC. Violation: of",
        "demographic parity. The splits of one table overlap: a seed draws other clients and",
        "other test rows from the same people, so these intervals say how much the numbers depend",
        "on the draw, and are too narrow for new people.",
        "",
        "† pooled: sees all rows; a reference, not federated"
        " ([what they are](../docs/experiments.md)).",
        "",
        *(text for data, methods in found.items() for text in section(data, methods)),
        "## Aims",
        "",
        "Judged by the mean over seeds.",
        "",
        *table(
            ["data", "aim", "found", "reached"],
            [[a.data, a.text, a.found, "yes" if a.reached else "**no**"] for a in judged],
        ),
        "## Settings",
        "",
        "```json",
        json.dumps(plain, indent=1, sort_keys=True),
        "```",
    ]
    return "\n".join(lines) + "\n"


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/model-quality"))
    parser.add_argument("--out", type=Path, default=Path("results/model-quality.md"))
    parser.add_argument("--data", nargs="*", default=list(DATA), help="from the catalogue")
    parser.add_argument(
        "--own", nargs="*", default=[], metavar="LABEL=FILE.toml", help="configurations of runs"
    )
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--protocol", help="rounds x local epochs; default: those of a run")
    parser.add_argument("--processes", type=int, help="default: one for each processor")
    return parser.parse_args(given)


def main() -> None:
    options = arguments()
    text = page(carried_out(options), options)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
