"""Histories of runs, round by round: their curves, and the epochs that a method needs."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mfairfl.colours import MUTED
from mfairfl.display import DisplayTable
from mfairfl.errors import RunDirectoryError
from mfairfl.experiments.figures import DPI, STYLE, MethodStyle, legend_below, method_styles
from mfairfl.runs.history import number_in, read_rows
from mfairfl.runs.record import RunRecord

NUMBERS = ("accuracy", "client_accuracy_std")

_RUN = ("protocol", "data", "strategy", "seed")
_WITHIN = 0.005  # of a run's best
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
    multipliers = []
    for row in read_rows(path):
        log = json.loads(row["log"]) if row.get("log") else {}
        if "multipliers" in log:
            pairs = zip(log["constraints"], log["multipliers"], strict=True)
            multipliers += [(int(row["round"]), cell, float(value)) for cell, value in pairs]
    return pd.DataFrame(multipliers, columns=["round", "cell", "value"])


def epochs_to_best(history: pd.DataFrame) -> pd.DataFrame:
    """Return how many epochs each method needs to get close to its best.

    For every run, the first epoch at which accuracy is at most .005 below the run's highest, and
    at which the clients' standard deviation is at most .005 above the run's lowest. The model
    before training (epoch 0) does not count.

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
    >>> epochs = epochs_to_best(history).iloc[0]
    >>> float(epochs["accuracy_epochs"]), float(epochs["client_accuracy_std_epochs"])
    (10.0, 5.0)
    """
    trained = history[history["epoch"] > 0].sort_values("epoch", kind="stable")
    firsts = []
    for key, run in trained.groupby([*_RUN], sort=False):
        behind = run["accuracy"].max() - run["accuracy"]
        above = run["client_accuracy_std"] - run["client_accuracy_std"].min()
        near = [gap <= _WITHIN + _ROUNDING for gap in (behind, above)]
        # nan where nothing is defined
        firsts.append((*key, *(run["epoch"][good].min() for good in near)))
    lines = []
    by_method = pd.DataFrame(firsts, columns=[*_RUN, *NUMBERS]).groupby([*_RUN[:-1]], sort=False)
    for key, runs in by_method:
        line = dict(zip(_RUN, key, strict=False)) | {"runs": len(runs), "within": _WITHIN}
        for name in NUMBERS:
            line[f"{name}_epochs"] = runs[name].mean(skipna=False)
            line[f"{name}_epochs_std"] = runs[name].std(skipna=False)
        lines.append(line)
    return pd.DataFrame(lines)


def write_epochs_markdown(frame: pd.DataFrame) -> str:
    """Return the result of `epochs_to_best` as Markdown, a table for each protocol.

    Examples
    --------
    >>> print(write_epochs_markdown(epochs))  # doctest: +SKIP
    """
    parts = [
        f"First epoch within {_WITHIN} of the run's best: mean ± standard deviation over seeds. "
        "Accuracy counts from its highest, the standard deviation of the clients' accuracies from "
        "its lowest value after training began."
    ]
    for protocol, rows in frame.groupby("protocol", sort=False):
        data = list(dict.fromkeys(rows["data"]))
        heads = [f"{label}: {what}" for label in data for what in ("accuracy", "client std")]
        most = rows.groupby("data")["runs"].max()
        lines = []
        for strategy in dict.fromkeys(rows["strategy"]):
            by_data = rows[rows["strategy"] == strategy].set_index("data")
            cells = [
                _cell(by_data.loc[label], name, most[label]) if label in by_data.index else ""
                for label in data
                for name in NUMBERS
            ]
            lines.append([strategy, *cells])
        table = DisplayTable.of([str(protocol), *heads], lines, numeric=range(1, 1 + len(heads)))
        parts.append(table.to_markdown())
    return "\n\n".join(parts) + "\n"


def _cell(row: pd.Series, name: str, most: int) -> str:
    mean, std = row[f"{name}_epochs"], row[f"{name}_epochs_std"]
    if np.isnan(mean):
        return "undefined"
    spread = "" if np.isnan(std) else f" ± {std:.1f}"
    return f"{mean:.1f}{spread}" + (f" (n={row['runs']})" if row["runs"] < most else "")


@rc_context(STYLE)
def plot_convergence(history: pd.DataFrame, *, data: Sequence[str], protocol: str) -> Figure:
    """Draw accuracy and the clients' spread over epochs, one column per data set.

    Lines are means over seeds and end where a seed has no more rounds; bands reach from the lowest
    to the highest seed. The frame may cut bands in the first tenth of the epochs, never a line.

    Parameters
    ----------
    history : DataFrame
        As for `epochs_to_best`: test numbers of every round of every run.

    Examples
    --------
    >>> plot_convergence(history, data=["adult"], protocol="40x5")  # doctest: +SKIP
    """
    trained = history[(history["epoch"] > 0) & (history["protocol"] == protocol)]
    styles = method_styles(history["strategy"])
    size = max(6.5, 1 + 3.6 * len(data)), 7.6
    figure = Figure(figsize=size, layout="constrained", dpi=DPI)
    panels = figure.subplots(2, len(data), sharex="col", squeeze=False)
    for column, label in zip(panels.T, data, strict=True):
        rows = trained[trained["data"] == label]
        for panel, name in zip(column, NUMBERS, strict=True):
            _plot_history(panel, rows, name, styles)
        column[0].set_title(label)
        column[1].set_xlabel("epoch")
    panels[0, 0].set_ylabel("accuracy")
    panels[1, 0].set_ylabel("client accuracy std")
    legend_below(figure, styles)
    return figure


def _plot_history(
    panel: Axes, rows: pd.DataFrame, name: str, styles: Mapping[str, MethodStyle]
) -> None:
    later = 0.1 * float(rows["epoch"].max())
    alpha = min(0.15, 0.4 / rows["strategy"].nunique())  # many bands on one another stay light
    shown: list[float] = []
    for i, (method, style) in enumerate(styles.items()):
        runs = rows[rows["strategy"] == method]
        if runs.empty:
            continue
        seeds = runs.pivot_table(index="epoch", columns="seed", values=name, dropna=False)
        mean, low, high = (
            getattr(seeds, reduce)(axis=1, skipna=False) for reduce in ("mean", "min", "max")
        )
        # Marks of different methods stand at different epochs, so that none hides another.
        step = max(1, len(seeds) // 6)
        panel.plot(
            seeds.index, mean, label=method, color=style.colour, linestyle=style.dashes,
            linewidth=2.0 if style.marker == "*" else 1.3, marker=style.marker,
            markersize=0.75 * style.size, markerfacecolor=style.fill, markevery=(i % step, step),
            zorder=4 if style.marker == "*" else 3,
        )  # fmt: skip
        if seeds.shape[1] > 1:
            panel.fill_between(seeds.index, low, high, color=style.colour, alpha=alpha, lw=0)
        shown += [*mean, *low[low.index > later], *high[high.index > later]]
    ends = [value for value in shown if not math.isnan(value)]
    if not ends:
        panel.text(0.5, 0.5, "undefined", transform=panel.transAxes, ha="center", va="center")
        return
    # One bad seed of the first rounds would leave no room for the rest: its band is cut.
    pad = 0.05 * (max(ends) - min(ends)) or 0.01
    panel.set_ylim(min(ends) - pad, max(ends) + pad)
    panel.grid()


@rc_context(STYLE)
def plot_multipliers(rounds: pd.DataFrame) -> Figure:
    """Draw multipliers over rounds.

    Parameters
    ----------
    rounds : DataFrame
        Columns round, cell, value as of `multiplier_history`, and run: a panel for each name.

    Examples
    --------
    >>> rounds = multiplier_history("runs/adult").assign(run="adult")  # doctest: +SKIP
    >>> plot_multipliers(rounds)  # doctest: +SKIP
    """
    runs = {str(name): rows for name, rows in rounds.groupby("run", sort=False)}
    figure = Figure(figsize=(8, 0.8 + 2.4 * len(runs)), layout="constrained", dpi=DPI)
    panels = figure.subplots(len(runs), 1, sharex=True, squeeze=False)[:, 0]
    for panel, (name, rows) in zip(panels, runs.items(), strict=True):
        cells = rows.groupby("cell", sort=False)
        for (cell, curve), style in zip(
            cells, method_styles(map(str, cells.groups)).values(), strict=True
        ):
            step = max(1, len(curve) // 8)
            panel.plot(
                curve["round"], curve["value"], label=str(cell).replace("_", " "),
                color=style.colour, linestyle=style.dashes, linewidth=1.4, marker=style.marker,
                markersize=5, markerfacecolor=style.fill, markevery=step,
            )  # fmt: skip
        panel.axhline(0.0, color=MUTED, linewidth=0.8, zorder=0)
        panel.set_title(name)
        panel.set_ylabel("multiplier")
        panel.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=4)
    panels[-1].set_xlabel("round")
    panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure
