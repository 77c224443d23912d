"""What a table shows: its rows, its columns, and which numbers of a run they need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mfairfl.errors import ConfigError, unknown
from mfairfl.experiments.tables.paper import PUBLISHED_METRICS, PUBLISHED_TABLES

__all__ = ["TableLayout", "TableMeasure", "applies", "measures"]

# As in the paper: IndFair serves an ensemble and CenFair has no clients.
_NO_CLIENT_FAIRNESS = ("indfair", "cenfair")


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
        One table each.
    reference : str
        The strategy against which the others are tested.
    attributes : mapping of str to tuple of str
        The sensitive attributes of the data that have more than one: a violation each.
    published, published_split : str, optional
        A table of the paper, and the split whose numbers it shows.

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
    published: str | None = None
    published_split: str | None = None

    def __post_init__(self) -> None:
        if self.reference not in self.strategies:
            raise ConfigError(
                f"{self.name}: {unknown('reference', self.reference, self.strategies)}"
            )
        if self.published is None:
            return
        if self.published not in PUBLISHED_TABLES:
            raise ConfigError(
                f"{self.name}: {unknown('published table', self.published, PUBLISHED_TABLES)}"
            )
        if self.published_split is None:
            raise ConfigError(
                f"{self.name}: published '{self.published}' needs published_split, the split "
                f"its numbers belong to (one of {', '.join(self.splits)})"
            )

    @property
    def models(self) -> tuple[str, ...]:
        """The notions; one empty name if there are none."""
        return self.notions or ("",)

    def named_attributes(self, data: str) -> tuple[str, ...]:
        """Return the attributes that have a violation each; none if there is only one."""
        found = self.attributes.get(data, ())
        return found if len(found) > 1 else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMeasure:
    """A number of a run.

    Parameters
    ----------
    metric, attribute : str
        Name its column in the results; attribute is empty for the largest over attributes.
    better : {1, -1, 0}
        Higher is better, lower is better, not tested.
    printed : str
        What the paper calls it; empty if it does not print it.
    number : int, optional
        1 or 2 for the paper's S₁ or S₂.
    """

    metric: str
    attribute: str = ""
    better: int = 0
    printed: str = ""
    number: int | None = None

    @property
    def column(self) -> str:
        """Its column in the results."""
        return f"{self.metric}[{self.attribute}]" if self.attribute else self.metric


def measures(notion: str, attributes: tuple[str, ...] = ()) -> list[TableMeasure]:
    """Return the numbers of a model that was trained for `notion` (empty: for none).

    Examples
    --------
    >>> [measure.column for measure in measures("")]
    ['accuracy', 'client_accuracy_std', 'client_accuracy_gap', 'balanced_accuracy', \
'floor_client_accuracy_std']
    """
    found = [
        TableMeasure(metric="accuracy", better=1, printed="accuracy"),
        TableMeasure(metric="client_accuracy_std", better=-1, printed="client_fairness"),
        TableMeasure(metric="client_accuracy_gap", better=-1),
        TableMeasure(metric="balanced_accuracy", better=1),
        TableMeasure(metric="floor_client_accuracy_std"),
    ]
    if not notion:
        return found
    violation = f"{notion}_difference"
    printed = notion if notion in PUBLISHED_METRICS else ""
    found += [
        TableMeasure(metric=violation, attribute=name, better=-1, printed=printed, number=number)
        for number, name in enumerate(attributes, 1)
    ]
    # The largest over attributes is one of them again: no further test.
    found.append(
        TableMeasure(metric=violation)
        if attributes
        else TableMeasure(metric=violation, better=-1, printed=printed)
    )
    found.append(TableMeasure(metric=f"train_{violation}", better=-1))
    return [
        *found,
        *(TableMeasure(metric=f"{part}_{violation}") for part in ("floor", "frontier")),
    ]


def applies(strategy: str, metric: str) -> bool:
    """Say whether the number means anything for the strategy.

    Examples
    --------
    >>> applies("indfair", "client_accuracy_std"), applies("indfair", "accuracy")
    (False, True)
    """
    return not (strategy in _NO_CLIENT_FAIRNESS and "client_accuracy" in metric)
