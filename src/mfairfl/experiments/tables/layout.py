"""What a table shows: its rows, its columns, and which numbers of a run they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mfairfl.errors import require_known

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

    def __post_init__(self) -> None:
        require_known("reference", [self.reference], self.strategies, where=self.name)

    @property
    def models(self) -> tuple[str, ...]:
        """The notions; one empty name if there are none."""
        return self.notions or ("",)

    @property
    def rows(self) -> tuple[str, ...]:
        """The strategies, then the pooled references."""
        return (*self.strategies, *self.pooled_references)

    def named_attributes(self, data: str) -> tuple[str, ...]:
        """Return the attributes that have a violation each; none if there is only one."""
        found = self.attributes.get(data, ())
        return found if len(found) > 1 else ()

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
