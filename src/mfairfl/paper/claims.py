"""Our numbers beside the published ones: a verdict on each, and which of the paper's claims held.

The input is the long frames of `tabulate`. A difference counts only if a paired t-test at 95 %
finds it; in brackets how many of those survive Holm's correction over their table.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from mfairfl.display import DisplayTable
from mfairfl.experiments.study_tables import (
    LEVEL,
    Place,
    StudyNumbers,
    TableLayout,
    TableMeasure,
    measures,
    number,
    short_name,
    spread,
)

_GROUP_TABLES = ("table-1", "table-s2", "table-s3")
REFERENCE = "mfairfl"
SLACK = 1.3


def verdict(ours: float, theirs: float, noise: float, error: float = 0.0) -> str:
    """Return whether a violation is at most the published one, or else no more than noise.

    Where our mean is above both by no more than its error, the seeds cannot decide: "open".

    Examples
    --------
    >>> verdict(0.010, 0.012, 0.005), verdict(0.010, 0.005, 0.011), verdict(0.020, 0.005, 0.011)
    ('yes', 'yes (noise)', 'no')
    >>> verdict(0.020, 0.005, 0.011, error=0.010)
    'open'
    """
    if ours <= theirs:
        return "yes"
    if ours <= noise:
        return "yes (noise)"
    return "open" if ours - error <= max(theirs, noise) else "no"


def error_of(std: float, n: int) -> float:
    """Return half the width of a mean's 95 % interval (Student's t); 0 for a single run.

    Examples
    --------
    >>> round(error_of(0.01, 5), 4)
    0.0124
    """
    return 0.0 if n < 2 else float(student.ppf(0.975, n - 1) * std / np.sqrt(n))


def write_verdicts(long: pd.DataFrame, layout: TableLayout) -> list[str]:
    """Return a heading, a table of the reference and its explanation; nothing if unpublished."""
    if long["published"].isna().all():
        return []
    cells, split = StudyNumbers(long), layout.splits[0]
    head = ["data", "protocol", "accuracy", "higher?"]
    if layout.notions:
        head = ["data", "protocol", "notion", *head[2:], "violation", "as low?"]
    lines = []
    for data, protocol, notion in product(layout.data, layout.protocols, layout.models):
        place = (protocol, data, split)
        named = [notion.replace("_", " ")] * bool(notion)
        lines.append([data, protocol, *named, *_claims(cells, layout, place, notion)])
    several = any(layout.named_attributes(data) for data in layout.data)
    notes = [
        f"{layout.reference}, split {split}: mean ± standard deviation over seeds (published).",
        "Floor: what exactly fair decisions would show on these test rows.",
        f"As low: at most the published number, or (noise) at most {SLACK} floors of a violation "
        "and one floor of CF std. Open: above, by no more than the 95 % interval of the mean.",
        "Of several attributes the largest violation counts." if several else "",
    ]
    table = _markdown([*head, "CF std", "as low?"], lines)
    return ["## At a glance", table, " ".join(filter(None, notes))]


def _claims(cells: StudyNumbers, layout: TableLayout, table: Place, notion: str) -> Iterator[str]:
    """Yield text and verdict of accuracy, violation and client fairness."""
    row_of = partial(cells.row, table, layout.reference, notion)
    shown = measures(notion, layout.named_attributes(table[1]))
    first, *violations, last = (measure for measure in shown if measure.main)
    row = row_of(first)
    if row.n == 0 or np.isnan(row.published):
        yield from ("", "")
    else:
        yield f"{spread(row)} ({number(row.published)})"
        yield "yes" if row.mean > row.published else "no"
    if violations:
        yield from _low(row_of, violations, SLACK)
    yield from _low(row_of, [last], 1.0)


def _low(
    row_of: Callable[[TableMeasure], Any], columns: list[TableMeasure], slack: float
) -> tuple[str, str]:
    """Return text and verdict of a number that should be low: the largest of the columns."""
    metric = columns[0].metric
    ours, floor = row_of(TableMeasure("", metric)), row_of(TableMeasure("", f"floor_{metric}"))
    if ours is None or ours.n == 0:
        return "", ""
    # Nan if one of them was not published.
    theirs = float(np.max([row_of(column).published for column in columns]))
    if np.isnan(theirs):
        return "", ""
    text = f"{spread(ours)} ({number(theirs)}), floor {number(floor.mean)}"
    error = error_of(ours.std, ours.n)
    return text, verdict(ours.mean, theirs, slack * floor.mean, error)


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
        yield _published(group)
        yield "### mFairFL against each method"
        yield (
            "Cells: better / no difference / worse, over data sets and tables; accuracy and "
            "client std over notions too. Published: in how many cells the paper has it better."
        )
        yield _against(group)
        yield "### Does any method dominate it?"
        yield _dominance(group)
    if "table-2" in tables:
        yield "### Client fairness without a group constraint (Table 2)"
        yield _clients(tables["table-2"])
    if "table-3" in tables:
        yield "### Does the order matter? (Table 3)"
        yield _against({"table-3": tables["table-3"]})
    if {"table-1", "table-s2"} <= set(tables):
        yield "### High against low heterogeneity"
        yield _heterogeneity(tables["table-1"], tables["table-s2"])


def _published(tables: Mapping[str, pd.DataFrame]) -> str:
    """Count, for each table, where our row is as good as the published one."""
    head = ["table", "accuracy higher", "violation as low", "client std as low"]
    lines = []
    for name, long in tables.items():
        ours = _where(long, strategy=REFERENCE)
        both = ours[ours["published"].notna()]
        accuracy, clients = (_where(both, metric=m) for m in ("accuracy", "client_accuracy_std"))
        violations = both[both["metric"] == both["notion"] + "_violation"]
        higher = (accuracy["mean"] > accuracy["published"]).sum()
        cells = [f"{higher} of {len(accuracy)}"]
        for part, slack in ((violations, SLACK), (clients, 1.0)):
            verdicts = [_verdict(ours, row, slack) for row in part.itertuples()]
            as_low = sum(text.startswith("yes") for text in verdicts)
            cells.append(f"{as_low} of {len(verdicts)}, {verdicts.count('open')} open")
        lines.append([name, *cells])
    return _markdown(head, lines)


def _where(long: pd.DataFrame, **values: str) -> pd.DataFrame:
    """Return the rows that have these values."""
    for column, value in values.items():
        long = long[long[column] == value]
    return long


def _verdict(ours: pd.DataFrame, row: Any, slack: float) -> str:
    """Compare a number with the published one and with `slack` noise floors."""
    floors = _where(ours, data=row.data, notion=row.notion, metric=f"floor_{row.metric}")["mean"]
    floor = slack * float(floors.iloc[0]) if len(floors) else 0.0
    return verdict(row.mean, row.published, floor, error_of(row.std, row.n))


def _against(tables: Mapping[str, pd.DataFrame]) -> str:
    """Count, for each method and measure, where the reference is better, and where worse."""
    long = pd.concat(tables.values(), keys=tables.keys(), names=["table", None]).reset_index(
        "table"
    )
    notions = [n for n in dict.fromkeys(long["notion"]) if n]
    metrics = ["accuracy", *(f"{n}_violation" for n in notions), "client_accuracy_std"]
    heads = ["accuracy", *(f"{short_name(n)} violation" for n in notions), "client std"]
    lines = []
    for strategy in dict.fromkeys(long["strategy"]):
        if strategy == REFERENCE:
            continue
        rows = _where(long, strategy=strategy)
        cells = [_count(long, _where(rows, metric=metric)) for metric in metrics]
        lines.append([strategy, *cells])
    return _markdown(["method", *heads], lines)


def _count(long: pd.DataFrame, rows: pd.DataFrame) -> str:
    tested = rows[rows["t_p"].notna()]
    if tested.empty:
        return "-"
    better, worse = (tested["mark"] == "•").sum(), (tested["mark"] == "∘").sum()
    surviving = tested[(tested["mark"] == "•") & (tested["holm_p"] < LEVEL)]
    published = _published_better(long, rows)
    text = f"{better} [{len(surviving)}] / {len(tested) - better - worse} / {worse}"
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


def dominating(long: pd.DataFrame, data: str, notion: str) -> dict[str, bool]:
    """Return the methods that are at least as accurate and as fair, and significantly more of one.

    Significance is that of the paired t-test, and the value whether it survives Holm's correction;
    a method that is significantly worse in the other number does not dominate.
    """
    here = _where(long, data=data, notion=notion, attribute="")
    ahead, significant, surviving = [], [], []
    for metric, sign in (("accuracy", 1), (f"{notion}_violation", -1)):
        rows = _where(here, metric=metric).set_index("strategy")
        ahead.append(sign * (rows["mean"] - rows["mean"][REFERENCE]) >= 0)
        significant.append(rows["mark"] == "∘")
        surviving.append(significant[-1] & (rows["holm_p"] < LEVEL))
    dominates = ahead[0] & ahead[1] & (significant[0] | significant[1])
    survives = surviving[0] | surviving[1]
    names = (name for name in dominates[dominates].index if name not in (REFERENCE, "constant"))
    return {str(name): bool(survives[name]) for name in names}


def _dominance(tables: Mapping[str, pd.DataFrame]) -> str:
    lines = []
    for name, long in tables.items():
        for data, notion in product(dict.fromkeys(long["data"]), dict.fromkeys(long["notion"])):
            if notion and (methods := dominating(long, data, notion)):
                texts = [m + " (not after Holm)" * (not ok) for m, ok in methods.items()]
                lines.append([name, data, short_name(notion), ", ".join(texts)])
    rule = (
        "A method dominates if its means of accuracy and violation are both at least as good and "
        "one of them significantly better."
    )
    heads = ["table", "data", "notion", "methods that dominate mfairfl"]
    return f"{rule}\n\n{_markdown(heads, lines)}" if lines else f"{rule} None does."


def _clients(long: pd.DataFrame) -> str:
    heads = ["split", "data", "method", "accuracy", "client std", "mfairfl better", "worse"]
    lines = []
    names = {"accuracy": "accuracy", "client_accuracy_std": "client std"}
    for place, rows in long.groupby(["split", "data", "strategy"], sort=False):
        by = {row.metric: row for row in rows.itertuples()}
        better, worse = (
            ", ".join(name for metric, name in names.items() if by[metric].mark == mark)
            for mark in ("•", "∘")
        )
        lines.append([*map(str, place), *(spread(by[metric]) for metric in names), better, worse])
    return _markdown(heads, lines)


def _heterogeneity(high: pd.DataFrame, low: pd.DataFrame) -> str:
    """Show the reference's row under both splits, means and published."""
    lines = []
    for data, notion in product(dict.fromkeys(high["data"]), dict.fromkeys(high["notion"])):
        for metric in ("accuracy", f"{notion}_violation", "client_accuracy_std"):
            place = {"data": data, "notion": notion, "metric": metric, "attribute": ""}
            cells = [_mean(_where(long, strategy=REFERENCE, **place)) for long in (high, low)]
            lines.append([data, short_name(notion), metric.replace("_", " "), *cells])
    heads = ["data", "notion", "measure", "high (published)", "low (published)"]
    return _markdown(heads, lines)


def _mean(rows: pd.DataFrame) -> str:
    if rows.empty:
        return ""
    row: Any = next(rows.itertuples())
    return spread(row) + ("" if pd.isna(row.published) else f" ({number(row.published)})")


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return DisplayTable.of(heads, rows).to_markdown()
