"""Measured numbers in the one form that run, audit, report and terminal share.

A `Measured` is a number with what is needed to read it: interval, noise floor, bounds, or the
reason why it is undefined. A `MetricTable` holds all of them: of all rows, of each group, of each
client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

from mfairfl.data.values import DocumentedModel
from mfairfl.errors import require_known

if TYPE_CHECKING:  # what measures builds on these types
    from mfairfl.fairness.notions import Notion
    from mfairfl.fairness.scores import ScoreSums
    from mfairfl.fairness.tally import Tally

Number = int | float | None
"""None where a number is undefined, for example the accuracy of a client without rows."""
Numbers = dict[str, Number]
Bounds = tuple[float, float] | None
"""The lower and upper end of an interval."""

_NUMBERS = ("value", "lower", "upper", "noise_floor", "bound_lower", "bound_upper")
_LESS_IS_BETTER = ("loss", "expected_calibration_error", "false_positive_rate")


class Measured(DocumentedModel):
    """One number, with what is needed to read it.

    Examples
    --------
    >>> number = Measured(name="accuracy", value=0.8, interval=(0.7, 0.9))
    >>> number.value, number.interval, number.noise_floor
    (0.8, (0.7, 0.9), None)
    """

    name: str
    """Its name, as in run.json."""
    value: Number
    """None if it is undefined."""
    interval: Bounds = None
    """Lower and upper end, if it has an interval."""
    noise_floor: Number = None
    """Its mean on as many rows if decisions were exactly fair."""
    bounds: Bounds = None
    """Between which it is, whatever is true of rows whose group or label is not known; an audit
    has them where there are such rows."""
    undefined: str = ""
    """Why there is no value."""


NumbersByName = dict[str, Measured]
Place = tuple[str, ...]
"""Where numbers are of, as in `MetricTable.places`."""


class Slice(DocumentedModel):
    """The rows of one group or of one client.

    Examples
    --------
    >>> accuracy = Measured(name="accuracy", value=0.8)
    >>> women = Slice(name="women", rows=50, numbers={"accuracy": accuracy})
    >>> women["accuracy"].value
    0.8
    """

    name: str
    rows: int
    numbers: dict[str, Measured]
    """accuracy, selection_rate, true_positive_rate, …, by name."""

    def __getitem__(self, name: str) -> Measured:
        return self.numbers[name]

    def get(self, name: str) -> Measured:
        """Return a number; an undefined one if it was not measured."""
        return self.numbers.get(name) or absent(name)


class Section(DocumentedModel):
    """The groups of one attribute, or of all attributes crossed.

    Examples
    --------
    >>> sex = ["f", "m", "f", "m"]
    >>> table = MetricTable.from_predictions([1, 0, 1, 0], [1, 0, 0, 0], sensitive_features=sex)
    >>> section = table.sections[0]
    >>> [(group.name, group["accuracy"].value) for group in section.groups]
    [('f', 0.5), ('m', 1.0)]
    """

    attribute: str
    groups: list[Slice]
    measures: list[Measured]
    """Violation, difference and ratio of every notion on these groups."""

    def led_by(self, notions: Sequence[str]) -> Section:
        """Return the section with the measures of these notions first."""
        measures = sorted(
            self.measures, key=lambda number: number.name.rpartition("_")[0] not in notions
        )
        return self.model_copy(update={"measures": measures})


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricTable:
    """Every number of one model's decisions: of all rows, by group and by client.

    The idea is that of fairlearn's ``MetricFrame``; each entry is a `Measured`, with its interval
    and its noise floor.

    Parameters
    ----------
    level : float
        Confidence level of the intervals.
    overall : dict of str to Measured
        The numbers of all rows together, by name. Of several attributes a violation is the worst,
        a difference or ratio that of all of them crossed.
    sections : list of Section
        The groups of each attribute, of several also of all crossed, with the measures that
        compare them.
    clients : list of Slice
        Each client's rows.
    constant_classifier : dict of str to number
        The numbers of giving every row the more frequent label.

    Examples
    --------
    >>> accuracy = {name: Measured(name="accuracy", value=v) for name, v in [("F", 0.9), ("M", 1)]}
    >>> groups = [Slice(name=n, rows=10, numbers={"accuracy": a}) for n, a in accuracy.items()]
    >>> table = MetricTable(
    ...     level=0.95,
    ...     overall={"accuracy": Measured(name="accuracy", value=0.95)},
    ...     sections=[Section(attribute="sex", groups=groups, measures=[])],
    ... )
    >>> table["accuracy"].value, table.by_group["sex"]["M"]["accuracy"].value
    (0.95, 1)
    >>> table.worst("accuracy").name
    'F'
    """

    level: float
    overall: dict[str, Measured]
    sections: list[Section] = field(default_factory=list)
    clients: list[Slice] = field(default_factory=list)
    constant_classifier: Numbers = field(default_factory=dict)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_pred: Any,
        *,
        sensitive_features: Any = None,
        clients: Any = None,
        probabilities: Any = None,
        notions: Sequence[Notion] | None = None,
        level: float = 0.95,
        draws: int = 2000,
        seed: int = 0,
    ) -> MetricTable:
        """Measure predictions of any model.

        Parameters
        ----------
        y_true, y_pred : array (n,)
            Labels and decisions, 0 or 1 (1 = favourable).
        sensitive_features : array, frame or dict, optional
            One column of groups, or several; ``?`` or a missing value is a group not recorded.
        clients : array (n,), optional
            The client of each row; without it all rows are one client's, called ``all``.
        probabilities : array (n,), optional
            Of y = 1; without them there is no ROC-AUC, log-loss or calibration error.
        notions, level, draws, seed
            As in `from_tally`.

        Examples
        --------
        >>> table = MetricTable.from_predictions(
        ...     [1, 0, 1, 0], [1, 0, 0, 0], sensitive_features={"sex": ["F", "F", "M", "M"]}
        ... )
        >>> table["demographic_parity_difference"].value
        0.5
        >>> table.worst("accuracy", "sex").name
        'M'
        """
        from mfairfl.fairness.measuring import count_predictions  # noqa: PLC0415 - as below

        features = {} if sensitive_features is None else sensitive_features
        tally, scores = count_predictions(y_true, y_pred, features, clients, probabilities)
        return cls.from_tally(
            tally, scores=scores, notions=notions, level=level, draws=draws, seed=seed
        )

    @classmethod
    def from_tally(
        cls,
        tally: Tally,
        *,
        scores: Mapping[str, ScoreSums] | None = None,
        randomised: bool = False,
        majority: Tally | None = None,
        notions: Sequence[Notion] | None = None,
        level: float = 0.95,
        draws: int = 2000,
        seed: int = 0,
    ) -> MetricTable:
        """Measure everything that follows from counts of decisions, and from sums of scores.

        Parameters
        ----------
        tally : Tally
            The counts. Expected counts of a randomised predictor are treated as if its decisions
            had been drawn once, which only widens the intervals.
        scores : mapping of str to ScoreSums, optional
            Each client's scores on the same rows; without them there is no ROC-AUC, log-loss or
            calibration error.
        randomised : bool
            Whether a score is the chance of a favourable decision of a model that is drawn.
        majority : Tally, optional
            The (training) rows whose more frequent label the constant classifier answers; by
            default those of `tally` itself.
        notions : sequence of Notion, optional
            The notions that are measured; by default every registered one.
        level : float
            The confidence level. Every number but differences, ratios, losses and calibration
            errors has an interval (see `mfairfl.fairness.uncertainty`).
        draws : int
            Resampled tallies behind intervals and noise floors; a quarter as many for each
            client's violations.
        seed : int
            Seed of the resampling; the same seed gives the same intervals.

        Examples
        --------
        >>> from mfairfl.fairness import Tally
        >>> tally = Tally.from_predictions(
        ...     [1, 0] * 50, [1, 0] * 50, sensitive_features=["a", "a", "b", "b"] * 25
        ... )
        >>> accuracy = MetricTable.from_tally(tally)["accuracy"]
        >>> accuracy.value, round(accuracy.interval[0], 3)
        (1.0, 0.963)
        """
        from mfairfl.fairness.measuring import measure_tally  # noqa: PLC0415 - it makes tables

        return measure_tally(
            tally,
            scores=scores,
            randomised=randomised,
            majority=majority,
            notions=notions,
            level=level,
            draws=draws,
            seed=seed,
        )

    @classmethod
    def of_places(
        cls,
        numbers: Mapping[Place, NumbersByName],
        rows: Mapping[Place, int],
        *,
        level: float,
        constant_classifier: Numbers,
    ) -> MetricTable:
        """Put a table together from the numbers at each place, and the rows of its slices.

        Examples
        --------
        >>> accuracy = {"accuracy": Measured(name="accuracy", value=0.9)}
        >>> numbers = {("overall",): accuracy, ("client", "north"): accuracy}
        >>> table = MetricTable.of_places(
        ...     numbers, {("client", "north"): 10}, level=0.95, constant_classifier={}
        ... )
        >>> table.rows, table.by_client["north"]["accuracy"].value
        (10, 0.9)
        """

        def slices(*scope: str) -> list[Slice]:
            return [
                Slice(name=place[-1], rows=rows[place], numbers=dict(part))
                for place, part in numbers.items()
                if place[:-1] == scope
            ]

        return cls(
            level=level,
            overall=numbers["overall",],
            sections=[
                Section(
                    attribute=place[1],
                    groups=slices("group", place[1]),
                    measures=list(part.values()),
                )
                for place, part in numbers.items()
                if place[0] == "attribute"
            ],
            clients=slices("client"),
            constant_classifier=constant_classifier,
        )

    def __getitem__(self, name: str) -> Measured:
        require_known("number", [name], self.overall)
        return self.overall[name]

    def get(self, name: str) -> Measured:
        """Return a number of all rows; an undefined one if the table does not have it.

        Examples
        --------
        >>> MetricTable(level=0.95, overall={}).get("roc_auc").undefined
        'not measured'
        """
        return self.overall.get(name) or absent(name)

    @property
    def rows(self) -> int:
        """The number of rows, those of all clients."""
        return sum(client.rows for client in self.clients)

    @property
    def by_group(self) -> dict[str, dict[str, Slice]]:
        """The groups by attribute and name."""
        return {
            section.attribute: {group.name: group for group in section.groups}
            for section in self.sections
        }

    @property
    def by_client(self) -> dict[str, Slice]:
        """The clients by name."""
        return {client.name: client for client in self.clients}

    def measures(self, attribute: str) -> dict[str, Measured]:
        """Return violation, difference and ratio of every notion on one attribute's groups.

        Examples
        --------
        >>> gap = Measured(name="demographic_parity_difference", value=0.1)
        >>> sex = Section(attribute="sex", groups=[], measures=[gap])
        >>> table = MetricTable(level=0.95, overall={}, sections=[sex])
        >>> table.measures("sex")["demographic_parity_difference"].value
        0.1
        """
        sections = {section.attribute: section for section in self.sections}
        require_known("attribute", [attribute], sections)
        return {number.name: number for number in sections[attribute].measures}

    def worst(self, name: str, among: str | None = None) -> Slice | None:
        """Return the worst-off group or client by one number; None if it is undefined for all.

        Parameters
        ----------
        name : str
            The number. Low is bad, but for loss, calibration error, false positive rate and
            violations.
        among : str, optional
            An attribute, or ``clients``; by default the groups of all attributes.

        Examples
        --------
        >>> parts = [
        ...     Slice(name=n, rows=9, numbers={"loss": Measured(name="loss", value=v)})
        ...     for n, v in [("north", 0.3), ("south", 0.7)]
        ... ]
        >>> worst = MetricTable(level=0.95, overall={}, clients=parts).worst("loss", "clients")
        >>> worst.name, worst["loss"].value
        ('south', 0.7)
        """
        slices_of = {section.attribute: section.groups for section in self.sections}
        slices = [group for groups in slices_of.values() for group in groups]
        if among is not None:
            slices_of["clients"] = self.clients
            require_known("attribute", [among], slices_of)
            slices = slices_of[among]
        sign = -1 if name in _LESS_IS_BETTER or name.endswith("_violation") else 1
        values = [(part.get(name).value, part) for part in slices]
        measured = [(sign * value, part) for value, part in values if value is not None]
        return min(measured, key=lambda pair: pair[0])[1] if measured else None

    def to_frame(self) -> pd.DataFrame:
        """Return a tidy frame, one row for each number.

        Columns: ``scope`` (overall, attribute, group or client), ``attribute``, ``slice`` (the
        group's or client's name), ``rows``, ``number``, ``value``, ``lower``, ``upper``,
        ``noise_floor``, ``bound_lower``, ``bound_upper``, ``undefined``.

        Examples
        --------
        >>> table = MetricTable(
        ...     level=0.95,
        ...     overall={"accuracy": Measured(name="accuracy", value=0.9, interval=(0.8, 0.95))},
        ... )
        >>> table.to_frame()[["scope", "number", "value", "lower"]].values.tolist()
        [['overall', 'accuracy', 0.9, 0.8]]
        """
        no_ends = (None, None)
        lines = []
        for (scope, *names), rows, numbers in self.places():
            attribute = "" if scope == "client" else names[0] if names else ""
            name = names[-1] if scope in ("group", "client") else ""
            for number in numbers.values():
                lower, upper = number.interval or no_ends
                least, most = number.bounds or no_ends
                line = (scope, attribute, name, rows, number.name, number.value, lower, upper)
                lines.append((*line, number.noise_floor, least, most, number.undefined))
        head = ("scope", "attribute", "slice", "rows", "number", *_NUMBERS, "undefined")
        frame = pd.DataFrame(lines, columns=head)
        return frame.astype(dict.fromkeys(_NUMBERS, float))

    def __str__(self) -> str:
        """Return the numbers of all rows, and the values of each group and client."""
        frame = self.to_frame()
        overall = frame[frame["scope"] == "overall"].set_index("number")
        slices = frame[frame["scope"].isin(["group", "client"])]
        by_slice = slices.pivot_table(
            "value", ["scope", "attribute", "slice"], "number", sort=False
        )
        parts = (overall[["value", "lower", "upper", "noise_floor"]], by_slice)
        return "\n\n".join(
            part.to_string(float_format="{:.4f}".format, na_rep="") for part in parts if len(part)
        )

    def places(self) -> Iterator[tuple[Place, int, NumbersByName]]:
        """Yield each place, its rows and its numbers by name.

        A place is ``("overall",)``, ``("attribute", attribute)``, ``("group", attribute, group)``
        or ``("client", client)``.
        """
        yield ("overall",), self.rows, self.overall
        for section in self.sections:
            rows, attribute = sum(group.rows for group in section.groups), section.attribute
            yield ("attribute", attribute), rows, self.measures(attribute)
            for group in section.groups:
                yield ("group", attribute, group.name), group.rows, group.numbers
        for client in self.clients:
            yield ("client", client.name), client.rows, client.numbers


def absent(name: str) -> Measured:
    """Return what stands for a number that was not measured."""
    return Measured(name=name, value=None, undefined="not measured")


def compares_groups(name: str) -> bool:
    """Return whether a number is a violation, difference or ratio of a notion.

    Examples
    --------
    >>> compares_groups("equalized_odds_ratio"), compares_groups("client_accuracy_gap")
    (True, False)
    """
    return name.rpartition("_")[2] in ("violation", "difference", "ratio")
