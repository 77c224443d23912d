"""Which of the paper's claims held and which did not, counted from the tables' own numbers.

The input is the long frames of `tabulate`. A difference counts only if a paired t-test at 95 %
finds it; in brackets how many of those survive Holm's correction over their table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import pandas as pd

from mfairfl.experiments.tables.layout import short_name
from mfairfl.experiments.tables.tabulate import LEVEL
from mfairfl.experiments.tables.writers import markdown, number, spread
from mfairfl.paper.verdicts import SLACK, error_of, verdict

_GROUP_TABLES = ("table-1", "table-s2", "table-s3")
REFERENCE = "mfairfl"


def write_claims(tables: Mapping[str, pd.DataFrame]) -> str:
    """Return the page, for whatever tables there are (by their names, such as "table-1")."""
    parts = [
        "# Reproduction: what held and what did not",
        "Counted from the tables beside this page, budget by budget. *Held*: a paired t-test at "
        "95 % over seeds says so; in brackets how many of these survive Holm's correction over "
        "their table. One model was trained for each notion.",
    ]
    protocols = dict.fromkeys(p for long in tables.values() for p in long["protocol"])
    for protocol in protocols:
        rows = {name: long[long["protocol"] == protocol] for name, long in tables.items()}
        here = {name: long for name, long in rows.items() if len(long)}
        parts.append(f"## {protocol} (rounds x local epochs)")
        if absent := sorted(set(rows) - set(here)):
            parts.append(f"Not run with this budget: {', '.join(absent)}.")
        parts += [text for text in _sections(here) if text]
    return "\n\n".join(parts) + "\n"


def _sections(tables: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    group = {name: tables[name] for name in _GROUP_TABLES if name in tables}
    if group:
        yield "### mFairFL against its own published row"
        yield (
            "As low: at most the published number, or at most 1.3 noise floors of a violation and "
            "one of client std. Open: above, by no more than the 95 % interval of our mean."
        )
        yield markdown(_published(group))
        yield "### mFairFL against each method"
        yield (
            "Cells: better / no difference / worse, over data sets and tables; accuracy and "
            "client std over notions too. Published: in how many cells the paper has it better."
        )
        yield markdown(_against(group))
        yield "### Does any method dominate it?"
        yield _dominance(group)
    if "table-2" in tables:
        yield "### Client fairness without a group constraint (Table 2)"
        yield markdown(_clients(tables["table-2"]))
    if "table-3" in tables:
        yield "### Does the order matter? (Table 3)"
        yield markdown(_against({"table-3": tables["table-3"]}))
    if {"table-1", "table-s2"} <= set(tables):
        yield "### High against low heterogeneity"
        yield markdown(_heterogeneity(tables["table-1"], tables["table-s2"]))


def _published(tables: Mapping[str, pd.DataFrame]) -> list[list[str]]:
    """Count, for each table, where our row is as good as the published one."""
    head = ["table", "accuracy higher", "violation as low", "client std as low"]
    lines = [head]
    for name, long in tables.items():
        own = _where(long, strategy=REFERENCE)
        known = own[own["published"].notna()]
        accuracy, clients = (_where(known, metric=m) for m in ("accuracy", "client_accuracy_std"))
        violations = known[known["metric"] == known["notion"] + "_violation"]
        higher = (accuracy["mean"] > accuracy["published"]).sum()
        cells = [f"{higher} of {len(accuracy)}"]
        for part, slack in ((violations, SLACK), (clients, 1.0)):
            answers = [_verdict(own, row, slack) for row in part.itertuples()]
            held, still = sum(one.startswith("yes") for one in answers), answers.count("open")
            cells.append(f"{held} of {len(answers)}, {still} open")
        lines.append([name, *cells])
    return lines


def _where(long: pd.DataFrame, **values: str) -> pd.DataFrame:
    """Return the rows that have these values."""
    for column, value in values.items():
        long = long[long[column] == value]
    return long


def _verdict(own: pd.DataFrame, row: Any, slack: float) -> str:
    """Compare a number with the published one and with `slack` noise floors."""
    floors = _where(own, data=row.data, notion=row.notion, metric=f"floor_{row.metric}")["mean"]
    floor = slack * float(floors.iloc[0]) if len(floors) else 0.0
    return verdict(row.mean, row.published, floor, error_of(row.std, row.n))


def _against(tables: Mapping[str, pd.DataFrame]) -> list[list[str]]:
    """Count, for each method and measure, where the reference is better, and where worse."""
    long = pd.concat(tables.values(), keys=tables.keys(), names=["table", None]).reset_index(
        "table"
    )
    notions = [n for n in dict.fromkeys(long["notion"]) if n]
    measures = ["accuracy", *(f"{n}_violation" for n in notions), "client_accuracy_std"]
    heads = ["accuracy", *(f"{short_name(n)} violation" for n in notions), "client std"]
    lines = [["method", *heads]]
    for strategy in dict.fromkeys(long["strategy"]):
        if strategy == REFERENCE:
            continue
        own = _where(long, strategy=strategy)
        cells = [_count(long, _where(own, metric=measure)) for measure in measures]
        lines.append([strategy, *cells])
    return lines


def _count(long: pd.DataFrame, rows: pd.DataFrame) -> str:
    tested = rows[rows["t_p"].notna()]
    if tested.empty:
        return "-"
    better, worse = (tested["mark"] == "•").sum(), (tested["mark"] == "∘").sum()
    kept = tested[(tested["mark"] == "•") & (tested["holm_p"] < LEVEL)]
    published = _published_better(long, rows)
    text = f"{better} [{len(kept)}] / {len(tested) - better - worse} / {worse}"
    return text if published is None else f"{text}; published {published}"


def _published_better(long: pd.DataFrame, rows: pd.DataFrame) -> str | None:
    """Return in how many cells the published numbers have the reference ahead."""
    key = ["table", "data", "split", "notion", "metric", "attribute"]
    reference = _where(long, strategy=REFERENCE)
    both = rows.merge(reference, on=key, suffixes=("", "_ours"))
    both = both[both["published"].notna() & both["published_ours"].notna()]
    if both.empty:
        return None
    sign = 1 if both["metric"].iloc[0] == "accuracy" else -1
    ahead = (sign * (both["published_ours"] - both["published"]) > 0).sum()
    return f"{ahead} of {len(both)}"


def dominating(long: pd.DataFrame, data: str, notion: str) -> list[str]:
    """Return the methods that are at least as accurate and as fair, and significantly more of one.

    Significance is that of the paired t-test; a method that is significantly worse in the other
    number does not dominate.
    """
    here = _where(long, data=data, notion=notion, attribute="")
    ahead, worse = [], []
    for metric, sign in (("accuracy", 1), (f"{notion}_violation", -1)):
        rows = _where(here, metric=metric).set_index("strategy")
        ahead.append(sign * (rows["mean"] - rows["mean"][REFERENCE]) >= 0)
        worse.append(rows["mark"] == "∘")
    found = ahead[0] & ahead[1] & (worse[0] | worse[1])
    return [str(name) for name in found[found].index if name not in (REFERENCE, "constant")]


def _survives(long: pd.DataFrame, data: str, notion: str, strategy: str) -> bool:
    """Return whether what makes a method dominate also passes Holm's correction."""
    here = _where(long, data=data, notion=notion, strategy=strategy, attribute="", mark="∘")
    numbers = here["metric"].isin(["accuracy", f"{notion}_violation"])
    return bool((here["holm_p"][numbers] < LEVEL).any())


def _dominance(tables: Mapping[str, pd.DataFrame]) -> str:
    lines = [["table", "data", "notion", "methods that dominate mfairfl"]]
    for name, long in tables.items():
        notions = [n for n in dict.fromkeys(long["notion"]) if n]
        for data, notion in product(dict.fromkeys(long["data"]), notions):
            found = [
                method + ("" if _survives(long, data, notion, method) else " (not after Holm)")
                for method in dominating(long, data, notion)
            ]
            if found:
                lines.append([name, data, short_name(notion), ", ".join(found)])
    rule = (
        "A method dominates if its means of accuracy and violation are both at least as good and "
        "one of them significantly better."
    )
    return f"{rule}\n\n{markdown(lines)}" if len(lines) > 1 else f"{rule} None does."


def _clients(long: pd.DataFrame) -> list[list[str]]:
    lines = [["split", "data", "method", "accuracy", "client std", "mfairfl better", "worse"]]
    names = {"accuracy": "accuracy", "client_accuracy_std": "client std"}
    places = long[["split", "data", "strategy"]].drop_duplicates()
    for split, data, strategy in places.itertuples(index=False):
        chosen = _where(long, split=split, data=data, strategy=strategy)
        by = {row.metric: row for row in chosen.itertuples()}
        marks = {
            sign: ", ".join(name for metric, name in names.items() if by[metric].mark == sign)
            for sign in ("•", "∘")
        }
        means = [spread(by[metric]) for metric in names]
        lines.append([split, data, strategy, *means, marks["•"], marks["∘"]])
    return lines


def _heterogeneity(high: pd.DataFrame, low: pd.DataFrame) -> list[list[str]]:
    """Show the reference's row under both splits, means and published."""
    lines = [["data", "notion", "measure", "high (published)", "low (published)"]]
    for data, notion in product(dict.fromkeys(high["data"]), dict.fromkeys(high["notion"])):
        for metric in ("accuracy", f"{notion}_violation", "client_accuracy_std"):
            place = {"data": data, "notion": notion, "metric": metric, "attribute": ""}
            cells = [_mean(_where(long, strategy=REFERENCE, **place)) for long in (high, low)]
            lines.append([data, short_name(notion), metric, *cells])
    return lines


def _mean(rows: pd.DataFrame) -> str:
    if rows.empty:
        return ""
    row = rows.iloc[0]
    published = "" if pd.isna(row["published"]) else f" ({number(row['published'])})"
    return f"{number(row['mean'])} ± {number(row['std'])}{published}"
