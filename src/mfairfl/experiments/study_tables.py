"""The tables of a study: what they show, and their text in Markdown, LaTeX and the terminal.

`tabulate` makes their numbers; the same numbers give the same bytes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pandas as pd

from mfairfl.display import Block, DisplayTable, Head
from mfairfl.display.tables import to_latex
from mfairfl.text import markdown_escaped

LEVEL = 0.05
POOLED = "†"  # marks a pooled reference
POOLED_NOTE = f"{POOLED} pooled: sees all rows; a reference, not federated"

_SHORT = {
    "demographic_parity": "DP",
    "equalized_odds": "EO",
    "equal_opportunity": "EOpp",
    "accuracy_parity": "AP",
    "": "-",
}


def short_name(notion: str) -> str:
    """Return a notion's abbreviation; its name if it has none, "-" for no notion.

    Examples
    --------
    >>> short_name("equalized_odds"), short_name("predictive_equality")
    ('EO', 'predictive_equality')
    """
    return _SHORT.get(notion, notion)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """What a table shows, and in which order.

    Parameters
    ----------
    name : str
        For example ``"table-1"``.
    title : str
        In words.
    strategies : tuple of str
        The rows.
    notions : tuple of str
        Each has its own models; empty for a table of client fairness alone.
    data, splits, protocols : tuple of str
        One table for each combination.
    reference : str
        The strategy against which the others are tested.
    attributes : mapping of str to tuple of str
        The sensitive attributes of each data set; where there are several, each has a violation.
    without_clients : tuple of str
        The strategies for which client fairness means nothing.
    pooled_references : tuple of str
        Rows below the strategies: models that saw all rows. They are marked and not tested.

    Examples
    --------
    >>> layout = TableLayout(
    ...     name="mine", title="Mine", strategies=("fedavg", "mfairfl"), notions=(),
    ...     data=("adult",), splits=("high",), protocols=("10x20",),
    ... )
    >>> layout.reference
    'mfairfl'
    """

    name: str
    title: str
    strategies: tuple[str, ...]
    notions: tuple[str, ...]
    data: tuple[str, ...]
    splits: tuple[str, ...]
    protocols: tuple[str, ...]
    reference: str = "mfairfl"
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    without_clients: tuple[str, ...] = ()
    pooled_references: tuple[str, ...] = ()

    @property
    def models(self) -> tuple[str, ...]:
        """The notions; one empty name if there are none."""
        return self.notions or ("",)

    def named_attributes(self, data: str) -> tuple[str, ...]:
        """Return the attributes that have a violation each; none if there is only one."""
        names = self.attributes.get(data, ())
        return names if len(names) > 1 else ()

    def applies(self, strategy: str, metric: str) -> bool:
        """Return whether the metric means anything for the strategy."""
        return not (strategy in self.without_clients and "client_accuracy" in metric)


@dataclass(frozen=True, slots=True)
class TableMeasure:
    """A number of a run, and the heading it stands below.

    Parameters
    ----------
    metric, attribute : str
        Name its column in the results; attribute is empty for the largest over attributes.
    better : {1, -1, 0}
        Higher is better, lower is better, not tested.
    main : bool
        Whether the paper shows it too.
    """

    heading: str
    metric: str
    attribute: str = ""
    better: int = 0
    main: bool = False

    @property
    def column(self) -> str:
        """Its column in the results."""
        return f"{self.metric}[{self.attribute}]" if self.attribute else self.metric


def measures(notion: str, attributes: Sequence[str] = ()) -> list[TableMeasure]:
    """Return the numbers of a model that was trained for `notion` (empty: for none).

    Examples
    --------
    >>> [measure.column for measure in measures("")]
    ['accuracy', 'client_accuracy_std', 'balanced_accuracy', 'roc_auc', 'loss', \
'expected_calibration_error', 'client_accuracy_gap', 'floor_client_accuracy_std']
    >>> [one.heading for one in measures("equalized_odds", ("sex", "age")) if one.main]
    ['accuracy', 'violation, sex', 'violation, age', 'CF std']
    """
    accuracy = TableMeasure("accuracy", "accuracy", better=1, main=True)
    others = [
        TableMeasure("CF std", "client_accuracy_std", better=-1, main=True),
        TableMeasure("balanced accuracy", "balanced_accuracy", better=1),
        # Not tested: further tests would weaken the correction of those above.
        TableMeasure("ROC-AUC", "roc_auc"),
        TableMeasure("log-loss", "loss"),
        TableMeasure("calibration error", "expected_calibration_error"),
        TableMeasure("CF gap", "client_accuracy_gap", better=-1),
        TableMeasure("CF std floor", "floor_client_accuracy_std"),
    ]
    if not notion:
        return [accuracy, *others]
    violation = f"{notion}_violation"
    main = [
        TableMeasure(f"violation, {name}" if name else "violation", violation, name, -1, main=True)
        for name in attributes or ("",)
    ]
    # The largest over attributes is one of them again: no further test.
    others += [TableMeasure("largest violation", violation)] * bool(attributes)
    return [
        *(accuracy, *main, *others),
        TableMeasure("train violation", f"train_{violation}", better=-1),
        TableMeasure("violation floor", f"floor_{violation}"),
        TableMeasure("largest violation at a client", f"largest_client_{violation}"),
        TableMeasure("frontier", f"frontier_{violation}"),
    ]


Place = tuple[str, str, str]
"""Protocol, data and split: one table."""

_MORE = (
    "Log-loss: mean cross-entropy in nats. Calibration error: mean gap between predicted and "
    "observed frequency, in 15 bins. CF gap: best less worst client's accuracy. Largest violation "
    "at a client: on its own test rows, of the clients that have every group; with few rows it is "
    "large by chance alone. Floor: what the test rows would show on average "
    "if the truth were exactly fair. Frontier: the best accuracy that any classifier could have "
    "on the test rows at this violation."
)


def number(value: float) -> str:
    """Write three decimals, without a zero before the point.

    Examples
    --------
    >>> number(0.7916), number(1.0)
    ('.792', '1.000')
    """
    return f"{value:.3f}".removeprefix("0")


def spread(row: Any) -> str:
    """Write mean ± std; the mean alone if there is one run."""
    return number(row.mean) + ("" if math.isnan(row.std) else f" ± {number(row.std)}")


class StudyNumbers:
    """The rows of a long frame, by protocol, data and split, strategy, notion and measure."""

    def __init__(self, long: pd.DataFrame) -> None:
        self._rows = {tuple(row[:7]): row for row in long.itertuples(index=False)}
        self._most = long.groupby(["protocol", "data", "split"])["n"].max().to_dict()

    def row(self, place: Place, strategy: str, notion: str, measure: TableMeasure) -> Any:
        """Return the row of a number; None if it does not apply."""
        return self._rows.get((*place, strategy, notion, measure.metric, measure.attribute))

    def text(self, place: Place, strategy: str, notion: str, measure: TableMeasure) -> str:
        """Write mean ± std, mark, published number, and n where it is lower than elsewhere."""
        row = self.row(place, strategy, notion, measure)
        if row is None:
            return "-"
        if row.n == 0:
            return "undefined" if row.runs else ""
        mark = "" if row.mark == POOLED else row.mark  # the method's name has it
        parts = [
            spread(row),
            mark * (2 if row.holm_p < LEVEL else 1),
            "" if math.isnan(row.published) else f"({number(row.published)})",
            f"n={row.n}" if row.n < self._most[place] else "",
        ]
        return " ".join(filter(None, parts))


def write_markdown(
    long: pd.DataFrame, layout: TableLayout, *, sections: Sequence[str] = ()
) -> str:
    r"""Write tables for each protocol, data and split.

    Parameters
    ----------
    long : DataFrame
        From `tabulate`, with the same layout.
    sections : sequence of str
        Paragraphs to put between the title and the tables.

    Examples
    --------
    >>> from mfairfl.experiments.tabulate import tabulate
    >>> layout = TableLayout(
    ...     name="mine", title="Mine", strategies=("mfairfl",), notions=(),
    ...     data=("adult",), splits=("high",), protocols=("10x20",),
    ... )
    >>> run = {"protocol": "10x20", "data": "adult", "split": "high", "strategy": "mfairfl"}
    >>> numbers = {measure.column: 0.25 for measure in measures("")}
    >>> frame = pd.DataFrame([{**run, "notion": "", "seed": seed, **numbers} for seed in (0, 1)])
    >>> print("\n".join(write_markdown(tabulate(frame, layout), layout).splitlines()[10:15]))
    ### adult, split high
    <BLANKLINE>
    | method | accuracy | CF std |
    | --- | --- | --- |
    | mfairfl | .250 ± .000 | .250 ± .000 |
    """
    numbers = StudyNumbers(long)
    parts = [f"# {markdown_escaped(layout.title)}", *sections]
    parts += ["## How to read the tables", markdown_escaped(_legend(long, layout)), _MORE]
    for protocol in layout.protocols:
        parts.append(f"## {markdown_escaped(protocol)} (rounds x local epochs)")
        for data, split in product(layout.data, layout.splits):
            place = (protocol, data, split)
            parts.append(f"### {markdown_escaped(f'{data}, split {split}')}")
            parts.append(_table(numbers, place, layout, layout.models).to_markdown())
            for notion in layout.models:
                parts.append(_table(numbers, place, layout, [notion], main=False).to_markdown())
    return "\n\n".join(parts) + "\n"


def write_text(long: pd.DataFrame, layout: TableLayout) -> str:
    """Write the main columns for a terminal: a table for each protocol, data, split and notion."""
    numbers, parts = StudyNumbers(long), [layout.title]
    for place in product(layout.protocols, layout.data, layout.splits):
        protocol, data, split = place
        for notion in layout.models:
            parts.append(f"\n{data}, split {split}, {protocol}")
            parts.append(_table(numbers, place, layout, [notion]).to_text())
    return "\n".join([*parts, "", _legend(long, layout)])


def write_latex(long: pd.DataFrame, layout: TableLayout) -> str:
    r"""Write a booktabs table for each protocol, data and split, one block of rows per notion.

    Parameters
    ----------
    long : DataFrame
        From `tabulate`, with the same layout.
    """
    numbers, legend, texts = StudyNumbers(long), _legend(long, layout), []
    for place in product(layout.protocols, layout.data, layout.splits):
        protocol, data, split = place
        title = f"{layout.title}: {data}, split {split}, {protocol} rounds x local epochs."
        tables = [
            _table(numbers, place, layout, [notion], short=False) for notion in layout.models
        ]
        label = f"tab:{'-'.join((layout.name, *place))}"
        texts.append(to_latex(tables, caption=f"{title} {legend}", label=label))
    return "\n".join(texts)


def _table(
    numbers: StudyNumbers,
    place: Place,
    layout: TableLayout,
    notions: Sequence[str],
    *,
    main: bool = True,
    short: bool = True,
) -> DisplayTable:
    """Return one row for each strategy, then the pooled references as a block of their own.

    A column is a number of the models of one notion, which its heading names if it is `short`;
    else the caption does.
    """
    attributes = layout.named_attributes(place[1])
    cells = [
        (notion, measure)
        for notion in notions
        for measure in measures(notion, attributes)
        if measure.main == main
    ]
    columns = [Head("method", numeric=False)]
    for notion, measure in cells:
        named = f"{short_name(notion)}: " if short and notion else ""
        columns.append(Head(named + measure.heading, numeric=False))

    def row(name: str, mark: str = "") -> list[str]:
        return [name + mark, *(numbers.text(place, name, *cell) for cell in cells)]

    rows: list[Sequence[str] | Block] = [row(name) for name in layout.strategies]
    if layout.pooled_references:
        rows.append(Block(f"pooled references {POOLED}"))
        rows += [row(name, f" {POOLED}") for name in layout.pooled_references]
    caption = "" if short else notions[0].replace("_", " ")
    return DisplayTable(caption=caption, columns=columns, rows=rows)


def _legend(long: pd.DataFrame, layout: TableLayout) -> str:
    """Explain a main table's cells."""
    parts = [
        "Mean ± standard deviation over seeds.",
        f"• / ∘: {layout.reference} is significantly better / worse than the method (paired "
        "t-test, 95 %); •• / ∘∘: also after Holm's correction over all tests of this protocol.",
        "In parentheses: the published number." if long["published"].notna().any() else "",
        "CF std: standard deviation of the clients' accuracies; -: not applicable.",
        f"{POOLED_NOTE}, and not tested." if layout.pooled_references else "",
    ]
    return " ".join(filter(None, parts))
