"""Natural silos: five methods on ACSIncome by state, beside what one could fit with all rows.

Takes a table of the ACSIncome task (see `mfairfl data describe acs-income`); a fixed draw of its
rows is used if it is large. Shows accuracy and the violation of demographic parity overall, and
how both are spread over the clients. Runs are kept (and resumed) below --runs.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from model_quality import Found, Record, carried_out, line, values

METHODS = ("fedavg", "fedfb", "fpfl", "qffl", "mfairfl")
REFERENCES = ("boosting", "boosting-threshold", "logistic")
VIOLATION = "demographic_parity_violation"
HEAD = (
    "method",
    "accuracy",
    "AUC",
    "log-loss",
    "violation",
    "worst client's accuracy",
    "std of clients' accuracies",
    "median violation of a client",
    "largest violation of a client",
)
DRAW = 2018  # seed of the rows that are drawn


def drawn(file: Path, rows: int, folder: Path) -> tuple[Path, int]:
    """Write a configuration for a draw of the rows; return it and the number of all rows."""
    frame = pd.read_parquet(file)
    folder.mkdir(parents=True, exist_ok=True)
    if len(frame) > rows:
        chosen = np.random.default_rng(DRAW).choice(len(frame), rows, replace=False)
        part = folder / f"draw-{rows}.parquet"
        frame.iloc[np.sort(chosen)].to_parquet(part, index=False)
    else:
        part = file
    config = folder / "acs.toml"
    place = part.resolve().as_posix()
    config.write_text(
        f'[data]\nname = "acs-income"\npath = "{place}"\nsensitive = ["sex"]\n', encoding="utf-8"
    )
    return config, len(frame)


def by_client(records: Sequence[Record]) -> list[float]:
    """Return each seed's violations at the clients on whose test rows it can be measured."""
    return [
        value
        for record in records
        for client in record.table("test").clients
        if (value := client.get(VIOLATION).value) is not None
    ]


def row(name: str, records: Sequence[Record]) -> list[str]:
    plain = ("accuracy", "roc_auc", "loss", VIOLATION, "worst_client_accuracy")
    means = [values(records, metric).mean() for metric in (*plain, "client_accuracy_std")]
    clients = by_client(records)
    marked = f"{name} †" if name in REFERENCES else name
    return [marked, *(f"{x:.4f}" for x in [*means, np.median(clients), max(clients)])]


def states(methods: Mapping[str, Sequence[Record]]) -> Iterator[list[str]]:
    """Yield the clients with most test rows: accuracy and violation of FedAvg and mFairFL."""
    first = {name: methods[name][0].table("test").by_client for name in
             ("fedavg", "mfairfl")}  # fmt: skip
    sizes = {client: part.rows for client, part in first["fedavg"].items()}
    for client in sorted(sizes, key=lambda one: -sizes[one])[:10]:
        cells = [first[name][client] for name in first]
        numbers = [cell.get(key).value for key in ("accuracy", VIOLATION) for cell in cells]
        shown = ["-" if x is None else f"{x:.4f}" for x in numbers]
        yield [client, f"{sizes[client]:,}", *shown]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [line(head), "|" + " --- |" * len(head), *map(line, rows), ""]


def page(found: Found, options: argparse.Namespace, everything: int) -> str:
    (label, methods), *_ = found.items()
    record = methods["fedavg"][0]
    digest = hashlib.sha256(options.file.read_bytes()).hexdigest()
    floors = [one.table("test")[VIOLATION].noise_floor or 0.0 for one in methods["mfairfl"]]
    own = [client.rows for client in record.table("test").clients]
    seeds = ", ".join(map(str, options.seeds))
    return "\n".join(
        [
            "# Natural silos: income by state",
            "",
            f"**{label}**, SHA-256 of the file {digest}: not the published ACSIncome rows. "
            f"{record.data.rows:,} of {everything:,} rows (drawn with seed {DRAW}), "
            f"{len(own)} clients with {min(own):,} to {max(own):,} test rows each. Made by "
            f"`make acs FILE=…`, the defaults of a run, seeds {seeds}, test rows, means over "
            "seeds. Goal of the fair methods: demographic parity between women and men.",
            "",
            *table(HEAD, [row(name, records) for name, records in methods.items()]),
            "† pooled: sees all rows; a reference, not federated.",
            "",
            "A client's own violation is that of the shared model on its test rows alone. On a "
            "few hundred rows chance alone causes one of some hundredths; the noise floor of the "
            f"violation on all test rows is {np.mean(floors):.4f}. That all rows together are "
            "treated alike does not mean that each state's are.",
            "",
            "## The ten states with most rows",
            "",
            f"Seed {options.seeds[0]}.",
            "",
            *table(
                (
                    "client",
                    "test rows",
                    "accuracy, fedavg",
                    "accuracy, mfairfl",
                    "violation, fedavg",
                    "violation, mfairfl",
                ),
                list(states(methods)),
            ),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="a Parquet file of the ACSIncome task")
    parser.add_argument("--label", default="ACSIncome by state", help="what the page calls it")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--runs", type=Path, default=Path("runs/acs"))
    parser.add_argument("--out", type=Path, default=Path("results/acs.md"))
    parser.add_argument("--protocol")
    parser.add_argument("--processes", type=int)
    options = parser.parse_args()
    config, everything = drawn(options.file, options.rows, options.runs)
    options.data, options.own, options.methods = [], [f"{options.label}={config}"], METHODS
    options.out.write_text(page(carried_out(options), options, everything), encoding="utf-8")


if __name__ == "__main__":
    main()
