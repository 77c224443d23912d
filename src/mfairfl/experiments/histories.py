"""Histories of runs, round by round, and the epochs that a method needs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

from mfairfl.errors import DataError, RunDirectoryError
from mfairfl.experiments.frames import require_columns, require_unique
from mfairfl.runs.history import number_in, read_rows
from mfairfl.runs.record import RunRecord
from mfairfl.text import markdown_escaped

NUMBERS = ("accuracy", "client_accuracy_std")

_RUN = ("protocol", "data", "strategy", "seed")
# Differences of rates carry rounding errors; no two rates of real rows are as near as this.
_ROUNDING = 1e-12


def read_history(run_directory: str | Path) -> pd.DataFrame:
    """Read a finished run's test numbers: columns round, epoch, accuracy, client_accuracy_std.

    Rounds after which not all were measured (`training.evaluate_every`) are left out. Round 0 is
    the model before training. The numbers are those of the round's plain model:
    thresholds by group and the choice of the served round come later.

    Examples
    --------
    >>> read_history("runs/adult")["epoch"].max()  # doctest: +SKIP
    200
    """
    path = Path(run_directory) / "rounds.csv"
    record = RunRecord.read(run_directory)
    rows = read_rows(path)
    for name in NUMBERS:
        if f"test_{name}" not in rows[0]:
            raise RunDirectoryError(f"{path}: lacks column 'test_{name}'; train with test rows")
    rows = [row for row in rows if row["test_accuracy"]]
    rounds = np.array([int(row["round"]) for row in rows], dtype=np.int64)
    numbers = {name: [number_in(row[f"test_{name}"]) for row in rows] for name in NUMBERS}
    return pd.DataFrame({"round": rounds, "epoch": rounds * record.epochs_per_round, **numbers})


def multiplier_history(run_directory: str | Path) -> pd.DataFrame:
    """Read the multipliers that each round trained under: columns round, cell, value.

    A run whose server has no multipliers has no rows.

    Examples
    --------
    >>> multiplier_history("runs/adult")["cell"].unique().tolist()  # doctest: +SKIP
    ['demographic_parity | all | sex | Female', 'demographic_parity | all | sex | Male']
    """
    path = Path(run_directory) / "rounds.csv"
    found = []
    for row in read_rows(path):
        log = json.loads(row["log"]) if row.get("log") else {}
        if "multipliers" in log:
            pairs = zip(log["constraints"], log["multipliers"], strict=True)
            found += [(int(row["round"]), cell, float(value)) for cell, value in pairs]
    return pd.DataFrame(found, columns=["round", "cell", "value"])


def epochs_to_best(history: pd.DataFrame, within: float = 0.005) -> pd.DataFrame:
    """Return how many epochs each method needs to get close to its best.

    For every run, the first epoch at which accuracy is at most `within` below the run's highest,
    and at which the clients' standard deviation is at most `within` above the run's lowest. The
    model before training (epoch 0) does not count.

    Parameters
    ----------
    history
        Columns protocol, data, strategy, seed, epoch, accuracy, client_accuracy_std; one row for
        each round of each run.

    Returns
    -------
    DataFrame
        A row for each protocol, data and strategy: runs, within, and for accuracy and
        client_accuracy_std the mean over seeds (`<name>_epochs`) and the standard deviation
        (`<name>_epochs_std`, nan for one seed). A run without a defined value makes them nan.

    Examples
    --------
    >>> history = pd.DataFrame({
    ...     "protocol": "3x5", "data": "adult", "strategy": "fedavg", "seed": 0,
    ...     "epoch": [5, 10, 15], "accuracy": [0.80, 0.84, 0.843],
    ...     "client_accuracy_std": [0.02, 0.03, 0.03]})
    >>> found = epochs_to_best(history).iloc[0]
    >>> float(found["accuracy_epochs"]), float(found["client_accuracy_std_epochs"])
    (10.0, 5.0)
    """
    if not within >= 0:
        raise DataError(f"within: must be 0 or more, not {within}")
    trained = trained_rounds(history).sort_values("epoch", kind="stable")
    rows = []
    for key, run in trained.groupby([*_RUN], sort=False):
        behind = run["accuracy"].max() - run["accuracy"]
        above = run["client_accuracy_std"] - run["client_accuracy_std"].min()
        near = [gap <= within + _ROUNDING for gap in (behind, above)]
        firsts = [run["epoch"][good].min() for good in near]  # nan where nothing is defined
        rows.append((*key, *firsts))
    firsts_of = pd.DataFrame(rows, columns=[*_RUN, *NUMBERS])
    found = []
    for key, runs in firsts_of.groupby([*_RUN[:-1]], sort=False):
        line = dict(zip(_RUN, key, strict=False)) | {"runs": len(runs), "within": within}
        for name in NUMBERS:
            line[f"{name}_epochs"] = runs[name].mean(skipna=False)
            line[f"{name}_epochs_std"] = runs[name].std(skipna=False)
        found.append(line)
    return pd.DataFrame(found)


def trained_rounds(history: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a history, checked, without the models before training (epoch 0)."""
    require_columns(history, [*_RUN, "epoch", *NUMBERS])
    require_unique(history, [*_RUN, "epoch"], "keep one split and one notion")
    trained = history[history["epoch"] > 0]
    if trained.empty:
        raise DataError("frame: has no rows after epoch 0; give runs with at least one round")
    return trained


def write_epochs_markdown(frame: pd.DataFrame) -> str:
    """Write the result of `epochs_to_best` as Markdown, a table for each protocol.

    Examples
    --------
    >>> print(write_epochs_markdown(epochs))  # doctest: +SKIP
    """
    within = " and ".join(f"{value:g}" for value in dict.fromkeys(frame["within"]))
    parts = [
        f"First epoch within {within} of the run's best: mean ± standard deviation over seeds. "
        "Accuracy counts from its highest, the standard deviation of the clients' accuracies from "
        "its lowest value after training began."
    ]
    for protocol, rows in frame.groupby("protocol", sort=False):
        data = list(dict.fromkeys(rows["data"]))
        heads = [f"{label}: {what}" for label in data for what in ("accuracy", "client std")]
        names = [markdown_escaped(head) for head in (str(protocol), *heads)]
        lines = [f"| {' | '.join(names)} |", "| --- |" + " ---: |" * len(heads)]
        most = rows.groupby("data")["runs"].max()
        for strategy in dict.fromkeys(rows["strategy"]):
            own = rows[rows["strategy"] == strategy].set_index("data")
            cells = [
                _cell(own.loc[label], name, most[label]) if label in own.index else ""
                for label in data
                for name in NUMBERS
            ]
            lines.append(f"| {markdown_escaped(strategy)} | {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _cell(row: pd.Series, name: str, most: int) -> str:
    mean, std = row[f"{name}_epochs"], row[f"{name}_epochs_std"]
    if np.isnan(mean):
        return "undefined"
    spread = "" if np.isnan(std) else f" ± {std:.1f}"
    return f"{mean:.1f}{spread}" + (f" (n={row['runs']})" if row["runs"] < most else "")
