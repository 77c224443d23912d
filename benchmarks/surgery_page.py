"""The page and the figure of `surgery.py`, from the records of its runs."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import t as student
from scipy.stats import ttest_rel, wilcoxon

from mfairfl.files import write_atomically
from mfairfl.runs.record import RunRecord

__all__ = ["Finished", "draw", "write_page"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Finished:
    """A finished run, and how much client 5 counted in it."""

    record: RunRecord
    counted: float


Records = Sequence[Finished]
Found = Mapping[str, Mapping[str, Records]]

SIZE, UNIFORM, OURS = "size-weighted average", "uniform average", "β = .8"
SKEWED = "client-5"
TEXT = (Path(__file__).parent / "surgery_template.md").read_text(encoding="utf-8")


def metric(name: str) -> Callable[[Records], Floats]:
    return lambda records: np.array([run.record.metrics["test"][name] for run in records])


accuracy, worst = metric("accuracy"), metric("worst_client_accuracy")
spread, violation = metric("client_accuracy_std"), metric("demographic_parity_violation")


def client(records: Records, *, skewed: bool) -> Floats:
    """Return the accuracy of client 5, or the mean over the others, for every seed."""
    tables = [run.record.metrics["test"].by_client for run in records]
    return np.array(
        [np.mean([c["accuracy"] for k, c in t.items() if (k == SKEWED) == skewed]) for t in tables]
    )


def mean(values: Floats) -> str:
    """Write the mean and half the width of its 95 % interval."""
    half = student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.3f} ± {half:.3f}"


def difference(ours: Floats, base: Floats) -> tuple[str, str]:
    """Write the paired difference with its 95 % t-interval, and p of t and Wilcoxon tests."""
    if np.array_equal(ours, base):
        return "-", "-"
    test = ttest_rel(ours, base)
    low, high = test.confidence_interval(0.95)
    rank = wilcoxon(ours - base).pvalue
    shown = f"{np.mean(ours - base):+.3f} ({low:+.3f} to {high:+.3f})"
    return shown, f"{_p(test.pvalue)}, {_p(rank)}"


def _p(value: float) -> str:
    return "< .001" if value < 0.001 else f"{value:.3f}".lstrip("0")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def skew_table(variants: Mapping[str, Records]) -> str:
    rows = []
    for name, records in variants.items():
        by_size = difference(worst(records), worst(variants[SIZE]))
        by_uniform = difference(worst(records), worst(variants[UNIFORM]))
        rows.append(
            [
                name,
                mean(accuracy(records)),
                mean(worst(records)),
                f"{client(records, skewed=True).mean():.3f}",
                f"{client(records, skewed=False).mean():.3f}",
                f"{np.mean([run.counted for run in records]):.2f}",
                mean(spread(records)),
                *by_size,
                *by_uniform,
            ]
        )
    head = ["rule", "accuracy", "worst client", "client 5", "clients 1–4", "client 5 counts"]
    head += ["client std", "worst − size-weighted", "p", "worst − uniform", "p"]
    return table(head, rows)


def budget_table(found: Found, names: Sequence[str]) -> str:
    rows = []
    for name in names:
        for rule, records in found[name].items():
            shown, p = difference(worst(records), worst(found[name][SIZE]))
            numbers = [mean(f(records)) for f in (accuracy, worst, spread)]
            rows.append([name, rule, *numbers, shown, p])
    head = ["rounds × epochs", "rule", "accuracy", "worst client", "client std"]
    return table([*head, "worst − size-weighted", "p"], rows)


def split_table(found: Found, names: Sequence[str]) -> str:
    rows = []
    for name in names:
        for rule, records in found[name].items():
            base = found[name][SIZE]
            numbers = [mean(f(records)) for f in (accuracy, violation, worst, spread)]
            shown, p = difference(worst(records), worst(base))
            cost, _ = difference(accuracy(records), accuracy(base))
            rows.append([name, rule, *numbers, shown, p, cost])
    head = ["setting", "rule", "accuracy", "DP violation", "worst client", "client std"]
    return table([*head, "worst − size-weighted", "p", "accuracy − size-weighted"], rows)


@rc_context({"svg.hashsalt": "mfairfl"})
def draw(found: Found, path: Path) -> None:
    """Draw the worst client's accuracy of every seed, joined from rule to rule."""
    figure = Figure(figsize=(2.9 * len(found), 3.6), layout="constrained")
    rules = (SIZE, UNIFORM, OURS)
    for panel, (name, variants) in zip(
        figure.subplots(1, len(found), sharey=True), found.items(), strict=True
    ):
        values = np.array([worst(variants[rule]) for rule in rules])
        panel.plot(values, color="0.6", linewidth=0.8, zorder=1)
        for at, seeds in enumerate(values):
            fill = "black" if rules[at] == OURS else "white"
            panel.scatter([at] * len(seeds), seeds, s=28, c=fill, edgecolors="black", zorder=2)
            panel.hlines(seeds.mean(), at - 0.22, at + 0.22, color="black", linewidth=2.5)
        panel.set_title(f"{name} ({values.shape[1]} seeds)", fontsize="medium")
        panel.set_xticks(range(len(rules)), ["size-\nweighted", "uniform", "mFairFL\nβ = .8"])
        panel.set_xlim(-0.5, len(rules) - 0.5)
        panel.grid(axis="y", color="0.85", linewidth=0.6)
        panel.set_axisbelow(True)
    figure.axes[0].set_ylabel("worst client's test accuracy")
    data = io.BytesIO()
    figure.savefig(data, format="svg", metadata={"Date": None})
    write_atomically(path, data.getvalue())


def short(value: float) -> str:
    return f"{value:.3f}".replace("0.", ".", 1)


def arrow(before: Floats, after: Floats) -> str:
    return f"{short(before.mean())} → {short(after.mean())}"


def write_page(found: Found) -> str:
    skews = [name for name in found if "β = 1" in found[name]]
    budgets = [name for name in found if " × " in name]
    splits = [name for name in found if name not in (*skews, *budgets)]
    lifts = {name: arrow(worst(found[name][SIZE]), worst(found[name][OURS])) for name in skews}
    others = {
        name: arrow(*(client(found[name][rule], skewed=False) for rule in (SIZE, OURS)))
        for name in skews
    }
    gains = [worst(found[name][OURS]) - worst(found[name][UNIFORM]) for name in skews]
    small = found["40 × 1, batch 64"]
    return TEXT.format(
        compas=lifts["COMPAS"],
        mirrored=lifts["COMPAS mirrored"],
        bank=lifts["Bank"],
        over_uniform=", ".join(short(gain.mean()) for gain in gains),
        largest=short(largest_difference(found, splits)),
        batch=short(worst(small[SIZE]).mean()),
        epochs=short(worst(found["40 × 5"][SIZE]).mean()),
        loss=short((worst(small[SIZE]) - worst(small[OURS])).mean()),
        compas_others=others["COMPAS"],
        bank_others=others["Bank"],
        figure="surgery.svg",
        skew_tables="\n\n".join(f"### {name}\n\n{skew_table(found[name])}" for name in skews),
        budget_table=budget_table(found, budgets),
        split_table=split_table(found, splits),
    )


def largest_difference(found: Found, names: Sequence[str]) -> float:
    """Return the largest mean difference of accuracy or of the worst client's, either way."""
    return max(
        abs((numbers(records) - numbers(found[name][SIZE])).mean())
        for name in names
        for records in found[name].values()
        for numbers in (accuracy, worst)
    )
