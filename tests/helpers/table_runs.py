"""Runs with known numbers for tables, and the cells of what is written of them."""

from __future__ import annotations

import pandas as pd

from mfairfl.experiments.study_tables import TableLayout

DP = "demographic_parity_violation"
EO = "equalized_odds_violation"
PLAIN = {
    "accuracy": 0.8,
    "balanced_accuracy": 0.7,
    "roc_auc": 0.75,
    "loss": 0.5,
    "expected_calibration_error": 0.03,
    **{f"largest_client_{name}": 0.04 for name in (DP, EO)},
    "client_accuracy_std": 0.02,
    "client_accuracy_gap": 0.06,
    "floor_client_accuracy_std": 0.01,
    **{f"{part}{name}": 0.01 for part in ("", "train_", "floor_") for name in (DP, EO)},
    **{f"frontier_{name}": 0.95 for name in (DP, EO)},
}


def runs(strategy, notion="demographic_parity", *, seeds=3, first=0, **columns):
    """One run a seed; a column is one number for all seeds or a list."""
    place = {"data": "adult", "split": "high", "protocol": "10x20"}
    rows = []
    for i in range(seeds):
        own = {k: v[i] if isinstance(v, list) else v for k, v in {**place, **columns}.items()}
        rows.append({**PLAIN, **own, "strategy": strategy, "notion": notion, "seed": first + i})
    return rows


def layout(*strategies, **changes):
    facts = {
        "name": "table-1",
        "title": "Group fairness",
        "strategies": (*strategies, "mfairfl"),
        "notions": ("demographic_parity",),
        "data": ("adult",),
        "splits": ("high",),
        "protocols": ("10x20",),
    }
    return TableLayout(**{**facts, **changes})


def cells(markdown, strategy, table=0):
    """The cells of a strategy's line in the table-th table that has one."""
    lines = [line for line in markdown.splitlines() if line.startswith(f"| {strategy} |")]
    return [text.strip() for text in lines[table].split("|")[2:-1]]


def example_runs():
    """Differences in accuracy to mfairfl: .030 .031 .032; in violation: −.020 −.025 −.030."""
    return pd.DataFrame(
        [
            *runs("mfairfl", accuracy=[0.840, 0.841, 0.842], **{DP: [0.010, 0.005, 0.000]}),
            *runs("fedavg-f", accuracy=[0.810, 0.810, 0.810], **{DP: 0.030}),
        ]
    )
