"""Whether the group-fair methods lower the violation they are meant to lower, and at what price.

Adult, split high, defaults (40 rounds × 5 epochs), five fresh seeds, one model per notion. The
last part sets the centralised fair line against an independent implementation: fairlearn's
reductions on the same rows (`reductions.py`). Runs are kept (and resumed) below --runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress
from scipy.stats import t as student

import reductions
from mfairfl.fairness import Tally
from mfairfl.fairness.rates import overall_numbers
from mfairfl.runs.config import Config, make_config
from mfairfl.runs.record import RunRecord
from mfairfl.runs.workers import run_many
from version_02 import ENCODER, MODEL, TRAINING

SEEDS = range(100, 105)
METHODS = (
    "fedavg",
    "fedavg-threshold",
    "fedavg-f",
    "indfair",
    "cenfair",
    "fedfb",
    "fpfl",
    "fairfed",
    "mfairfl",
    "constant",
)
UNAWARE = {"fedavg", "constant"}  # train alike whatever the notion
METRIC = {
    "dp": "demographic_parity_violation",
    "eo": "equalized_odds_violation",
    "ap": "accuracy_parity_violation",
}
TITLE = {"dp": "Demographic parity", "eo": "Equalized odds", "ap": "Accuracy parity"}
AIM = 3.0  # times below FedAvg's violation
LOGISTIC: dict[str, dict[str, Any]] = {
    "cenfair": {"model": {"kind": "logistic"}},
    "undecayed": {"model": {"kind": "logistic"}, "training": {"weight_decay": 0.0}},
}
# Read off the final states of the kept runs; look again when the runs change.
STATES = {
    ("ap", "fedfb"): "λ of the women ended at 0 in all five runs: no weight is left to move.",
    ("ap", "fairfed"): "At three of five clients λ of the women ended at 0 in all five runs.",
}
HEAD = (
    "method",
    "accuracy",
    "violation, train",
    "violation, test",
    "× below FedAvg",
    "within clients",
    "client std",
    "TPR",
)
INTRODUCTION = (
    "# Group-fair methods on Adult",
    "",
    "Made by `make group-fair`: Adult, split high, defaults (40 rounds × 5 epochs), one model",
    f"per notion, seeds {SEEDS[0]} to {SEEDS[-1]}; test rows unless stated otherwise, mean ± half",
    "a 95 % interval. Violation: largest deviation of a group's rate from the overall rate.",
    "Within clients: mean of the clients' own violations on their training rows. Client std:",
    "standard deviation of the clients' accuracies. TPR: true positive rate.",
)


def config(method: str, notion: str, seed: int, **sections: Any) -> Config:
    return make_config(
        {
            "seed": seed,
            "data": {"name": "adult"},
            "clients": {"scheme": "high"},
            "encoder": ENCODER,
            "model": MODEL,
            "training": TRAINING,
            "fairness": {"notion": notion},
            "strategy": {"name": method},
            **sections,
        }
    )


def runs(
    configs: dict[str, list[Config]], folder: Path, processes: int | None
) -> dict[str, list[RunRecord]]:
    """Carry out a named list of runs each, side by side, with a bar."""
    jobs = [(c, folder / name / str(c.seed)) for name, found in configs.items() for c in found]
    with Progress() as bar:
        task = bar.add_task(folder.name, total=sum(c.training.rounds for c, _ in jobs))
        done: dict[str, int] = {}

        def tell(out: str, finished: int, _: int) -> None:
            done[out] = finished
            bar.update(task, completed=sum(done.values()))

        records = iter(run_many(jobs, processes=processes, progress=tell))
    return {name: [next(records) for _ in found] for name, found in configs.items()}


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and half the width of its 95 % interval."""
    half = student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return float(np.mean(values)), float(half)


def of(found: Sequence[RunRecord], part: str, name: str) -> list[float]:
    return [record.metrics[part][name] for record in found]


def within_clients(found: Sequence[RunRecord], metric: str) -> float:
    """Return the mean over seeds and clients of a client's own violation on its training rows."""
    values = []
    for record in found:
        tally = record.tallies["train"]
        for k, client in enumerate(tally.clients):
            own = Tally(tally.counts[k : k + 1], (client,), tally.attributes)
            values.append(overall_numbers(own)[metric][0])
    return float(np.nanmean(values))


def line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def row(method: str, found: Sequence[RunRecord], metric: str, reference: float) -> str:
    violation, half = spread(of(found, "test", metric))
    return line(
        [
            method,
            "{:.4f} ± {:.4f}".format(*spread(of(found, "test", "accuracy"))),
            f"{np.mean(of(found, 'train', metric)):.4f}",
            f"{violation:.4f} ± {half:.4f}",
            f"{reference / violation:.1f}" if violation > 0 else "-",
            f"{within_clients(found, metric):.4f}",
            "{:.4f} ± {:.4f}".format(*spread(of(found, "test", "client_accuracy_std"))),
            f"{np.mean(of(found, 'test', 'true_positive_rate')):.2f}",
        ]
    )


def section(notion: str, found: dict[str, list[RunRecord]]) -> Iterator[str]:
    metric = METRIC[notion]
    reference = float(np.mean(of(found["fedavg"], "test", metric)))
    floor = np.mean([record.noise_floor["test"][metric] for record in found["mfairfl"]])
    yield from ("", f"## {TITLE[notion]}", "")
    yield (f"Noise floor of the test rows {floor:.4f}: the mean of an exactly fair model.")
    yield ""
    yield line(HEAD)
    yield "|" + " --- |" * len(HEAD)
    for method in METHODS:
        yield row(method, found[method], metric, reference)
    yield ""
    for method in METHODS:
        if method not in UNAWARE and np.mean(of(found[method], "test", metric)) > reference / AIM:
            yield f"- `{method}` is not {AIM:g}× below FedAvg. {why(notion, method, found, floor)}"


def why(notion: str, method: str, found: dict[str, list[RunRecord]], floor: float) -> str:
    """Say what keeps a method's violation up: the test rows' noise, or what the method can do."""
    ours, plain = (
        [float(np.mean(of(found[name], part, METRIC[notion]))) for part in ("train", "test")]
        for name in (method, "fedavg")
    )
    if ours[0] <= plain[0] / AIM:
        return (
            f"On the training rows it is {plain[0] / ours[0]:.1f}× below ({ours[0]:.4f} of "
            f"{plain[0]:.4f}); on the test rows an exactly fair model would show {floor:.4f}, "
            f"{plain[1] / floor:.1f}× below FedAvg's {plain[1]:.4f}."
        )
    names = (method, "fedavg", "cenfair")
    rates = "; ".join(f"{name} {by_group(found[name])}" for name in names)
    said = STATES.get((notion, method), "")
    return (
        f"On the training rows it stays at {ours[0]:.4f} of {plain[0]:.4f}. {said} "
        f"Accuracy of each group there: {rates}."
    )


def by_group(found: Sequence[RunRecord]) -> str:
    """Return the groups' mean accuracies on the training rows."""
    groups = [record.metrics["train"].by_group["sex"] for record in found]
    return ", ".join(
        f"{name} {np.mean([one[name]['accuracy'] for one in groups]):.3f}" for name in groups[0]
    )


def independent(found: dict[str, dict[str, list[RunRecord]]], options: Any) -> Iterator[str]:
    """Compare the centralised fair line with fairlearn's reductions on the same rows."""
    folder = options.runs / "reductions"
    yield from ("", "## Against fairlearn's reductions", "")
    yield "The same encoded rows, pooled; `ExponentiatedGradient` over logistic regressions with"
    yield "a difference bound of .005 (EO .01), the tolerance with which `cenfair` selects. Its"
    yield "result is a random mixture of classifiers (expected counts), ours is one model."
    yield "scikit-learn's regression is nearly unregularised; the shared recipe's weight decay was"
    yield "chosen for the MLP and holds a linear model back: `cenfair` is also shown without it."
    yield ""
    yield line(("notion", "implementation", "accuracy", "violation, train", "violation, test"))
    yield "|" + " --- |" * 5
    for notion in (name for name in reductions.BOUND if name in found):
        logistic = runs(
            {
                name: [config("cenfair", notion, seed, **changes) for seed in SEEDS]
                for name, changes in LOGISTIC.items()
            },
            options.runs / f"logistic-{notion}",
            options.processes,
        )
        rows = {
            "scikit-learn, logistic, unconstrained": reductions.records(None, SEEDS, folder),
            "fairlearn, logistic": reductions.records(notion, SEEDS, folder),
            "`cenfair`, logistic, no weight decay": logistic["undecayed"],
            "`cenfair`, logistic, shared recipe": logistic["cenfair"],
            "`cenfair`, MLP (default)": found[notion]["cenfair"],
        }
        for name, records in rows.items():
            metric = METRIC[notion]
            yield line(
                [
                    notion,
                    name,
                    "{:.4f} ± {:.4f}".format(*spread(of(records, "test", "accuracy"))),
                    f"{np.mean(of(records, 'train', metric)):.4f}",
                    "{:.4f} ± {:.4f}".format(*spread(of(records, "test", metric))),
                ]
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/group-fair"))
    parser.add_argument("--out", type=Path, default=Path("results/group-fair.md"))
    parser.add_argument("--notions", nargs="+", choices=METRIC, default=list(METRIC))
    parser.add_argument("--processes", type=int, help="default: one for each processor")
    options = parser.parse_args()
    found: dict[str, dict[str, list[RunRecord]]] = {}
    unaware = runs(
        {m: [config(m, "dp", seed) for seed in SEEDS] for m in sorted(UNAWARE)},
        options.runs / "dp",
        options.processes,
    )
    for notion in options.notions:
        names = [m for m in METHODS if m not in UNAWARE]
        configs = {m: [config(m, notion, seed) for seed in SEEDS] for m in names}
        found[notion] = unaware | runs(configs, options.runs / notion, options.processes)
    lines = [
        *INTRODUCTION,
        *(text for notion in options.notions for text in section(notion, found[notion])),
        *independent(found, options),
    ]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
