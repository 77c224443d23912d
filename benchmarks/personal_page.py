"""The page of `personal.py`: its tables, and what was to be reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from model_quality import mean, spread, table

TOLERANCE = 0.005  # on train rows, unless a rule says otherwise
GROUP, BOTH = "groups' thresholds", "clients' and groups'"
MAXIMISED = f"{BOTH}, 0.03 at each client, worst client maximised"
# Published: accuracy, gap between the groups, mean gap between the groups of a client.
LOGOFAIR = (0.8238, 0.0082, 0.0128)
HEAD = (
    "decided by",
    "accuracy (sd)",
    f"less {GROUP}",
    "violation",
    "its floor",
    "mean local violation",
    "its floor",
    "largest local violation",
    "worst client's accuracy",
    "sd of clients' accuracies",
    "decided otherwise elsewhere",
)


def compared(found: pd.DataFrame, base: str = GROUP) -> list[str]:
    """Return a table with a row for each rule; differences of accuracy are paired by seed."""
    rows = []
    for rule in found.index.unique("rule"):
        part, less = found.loc[rule], found.loc[rule].accuracy - found.loc[base].accuracy
        means = part.mean()
        plain = ("violation", "floor", "local", "local_floor", "largest", "worst", "std")
        rows.append(
            [
                rule,
                f"{means.accuracy:.4f} ({part.accuracy.std():.4f})",
                "" if rule == base else spread(less.to_numpy(), "+"),
                *(f"{means[name]:.4f}" for name in plain),
                f"{means.otherwise:.1%}" if means.otherwise else "",
            ]
        )
    return table(HEAD, rows)


def bounds_table(found: pd.DataFrame) -> list[str]:
    """Return a table of rules with bounds for everyone and for each client."""
    head = (
        "rule",
        "accuracy",
        "train: violation",
        "largest local",
        "largest excess",
        "test: violation (floor)",
        "mean local (floor)",
        "largest local (floor)",
        "drawn by chance",
    )
    rows = []
    for rule in found.index.unique("rule"):
        part = found.loc[rule]
        m = part.mean()
        pairs = (("violation", "floor"), ("local", "local_floor"), ("largest", "largest_floor"))
        shown = [f"{m[value]:.4f} ({m[floor]:.4f})" for value, floor in pairs]
        most = part.excess.max()
        over = f"{most:.4f}" if most >= 5e-5 else "below .0001" if most else "0"
        plain = [f"{m[name]:.4f}" for name in ("accuracy", "train_violation", "train_largest")]
        rows.append([rule, *plain, over, *shown, f"{m.drawn:.2%}"])
    return table(head, rows)


def published(found: Mapping[str, pd.DataFrame]) -> list[str]:
    """Return LoGoFair's row beside ours."""
    head = ("", "accuracy", "gap between the groups", "mean gap at a client", "its floor")
    rows = [["LoGoFair, published", *(f"{value:.4f}" for value in LOGOFAIR), ""]]
    for model, part in found.items():
        for rule in part.index.unique("rule"):
            m = part.loc[rule].mean()
            values = (
                m[name] for name in ("accuracy", "between", "local_between", "local_between_floor")
            )
            rows.append([f"{model}: {rule}", *(f"{value:.4f}" for value in values)])
    return table(head, rows)


def less(found: pd.DataFrame, rule: str, column: str = "accuracy") -> Any:
    """Return the differences to groups' thresholds, by seed."""
    return (found.loc[rule][column] - found.loc[GROUP][column]).to_numpy()


def about_states(acs: pd.DataFrame) -> list[str]:
    """Return what was to be reached by ACSIncome's clients, and what was, for each rule."""
    head = (
        "ACSIncome",
        "accuracy ≥ .003 above groups' thresholds",
        f"violation within a floor of {TOLERANCE}",
        "mean local violation above its floor, not more than under groups' thresholds",
    )
    rows = []
    for rule in [rule for rule in acs.index.unique("rule") if rule.startswith(BOTH)]:
        gain, m = less(acs, rule), acs.loc[rule].mean()
        local = less(acs, rule, "local") - less(acs, rule, "local_floor")
        reached = (
            gain.mean() >= 0.003 and np.subtract(*mean(gain)) > 0,
            m.violation <= TOLERANCE + m.floor,
            local.mean() <= 0,
        )
        found = (spread(gain, "+"), f"{m.violation:.4f} ({m.floor:.4f})", spread(local, "+"))
        pairs = zip(found, reached, strict=True)
        rows.append([rule, *(f"{text}: {said(good)}" for text, good in pairs)])
    return table(head, rows)


def said(reached: Any) -> str:
    return "reached" if reached else "**missed**"


def aims(compas: pd.DataFrame, alike: Mapping[str, pd.DataFrame]) -> list[str]:
    """Return what else was to be reached, and what was."""
    rows: list[list[str]] = []

    def aim(text: str, found: str, reached: Any) -> None:
        rows.append([text, found, said(reached)])

    part = compas.loc[BOTH]
    aim(
        f"COMPAS, {BOTH}: accuracy at least .84",
        f"{part.accuracy.mean():.4f} (sd {part.accuracy.std():.4f})",
        part.accuracy.mean() >= 0.84,
    )
    aim(
        f"COMPAS, {BOTH}: violation at most .02",
        f"{part.violation.mean():.4f}",
        part.violation.mean() <= 0.02,
    )
    for split, found in alike.items():
        gain = less(found, BOTH)
        aim(f"{split}, {BOTH}: no loss beyond .001", spread(gain, "+"), gain.mean() >= -0.001)
    found, rule = alike["Adult, high"], MAXIMISED
    narrower = found.loc[rule]["std"].mean() / found.loc[GROUP]["std"].mean() - 1.0
    aim(
        f"Adult, high, {rule}: sd of clients' accuracies 15 % lower",
        f"{narrower:+.1%}",
        narrower <= -0.15,
    )
    aim(
        f"Adult, high, {rule}: at most .001 of accuracy",
        spread(less(found, rule), "+"),
        less(found, rule).mean() >= -0.001,
    )
    return table(("aim", "found", ""), rows)
