"""What other tolerances would cost: accuracy against violation, from the counts of a finished run.

A run keeps what its clients counted of the model's scores. For each tolerance a rule of thresholds
is fitted to the rows that choose (train, or validation if there are any) and counted on the rows
that only measure. Nothing is trained, and no row is read.

As in training, the rule aims below a tolerance, by the margin that so many rows ask for: a
tolerance is met if the whole interval of the violation lies within it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from mfairfl.data import Split
from mfairfl.data.values import DocumentedModel
from mfairfl.display import Block, DisplayTable, Head
from mfairfl.display.numbers import DECIMAL, Unit, unit_of
from mfairfl.display.tables import Entry
from mfairfl.errors import ConfigError, DataError, RunDirectoryError, first_problem
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.constraints import Goal
from mfairfl.fairness.fitting import By, Demand, fit_thresholds
from mfairfl.fairness.measuring import measured_overall, measured_violation
from mfairfl.fairness.notions import Notion, notion
from mfairfl.fairness.rates import constant_classifier, group_measure, violation_of
from mfairfl.fairness.results import Measured, Number
from mfairfl.fairness.rule_counts import tally_under
from mfairfl.fairness.tally import Tally
from mfairfl.fairness.thresholds import Thresholds
from mfairfl.fairness.uncertainty import Interval, Verdict, verdict
from mfairfl.files import write_atomically
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.record import RunRecord
from mfairfl.runs.reference_records import different_rows, distinct_names
from mfairfl.runs.stored_scores import Scores

if TYPE_CHECKING:  # which loads PyTorch
    from mfairfl.runs.execute import Run

Floats = NDArray[np.float64]

POINTS = 20
_DENSER = 1.5  # above 1, low tolerances are closer to one another than high ones
_DRAWS = 1000  # for the intervals of a point: enough for a curve, in half the time
_GOAL = TypeAdapter(Goal)


class TradeoffPoint(DocumentedModel):
    """Accuracy and violation of one rule on the rows that measure."""

    tolerance: Number
    """The largest acceptable violation; null of a rule that was not made for one."""
    allowed: Number = None
    """The violation that the rule was allowed on the rows that it was fitted to."""
    fitted: Number = None
    """The violation that it has there."""
    accuracy: Measured
    violation: Measured
    outcome: Verdict | None = None
    """Whether the tolerance is met: whether the interval of the violation lies within it."""
    client_accuracy_gap: Measured
    """Between the clients with the highest and the lowest accuracy."""
    local_violation: Number
    """The largest violation within one client's rows; large by chance where clients are small."""
    thresholds: dict[str, Any] | None = None
    """The rule, as `Thresholds.to_json` writes it, if it was made for a tolerance."""


class Curve(DocumentedModel):
    """The rules of one run for one notion, the strictest first."""

    run: str
    notion: str
    points: list[TradeoffPoint]
    served: TradeoffPoint
    """The model as it decides now."""
    constant: TradeoffPoint
    """The same decision for everyone."""

    @property
    def measure(self) -> str:
        """The violation's name, as in run.json."""
        return f"{self.notion}_violation"


class Tradeoff(DocumentedModel):
    """Curves of accuracy against violation: `print` shows tables, `plot` draws them.

    Examples
    --------
    >>> import mfairfl
    >>> run = mfairfl.train("adult", heterogeneity="high")  # doctest: +SKIP
    >>> curves = run.tradeoff(["dp", "eo"])  # doctest: +SKIP
    >>> curves.plot("tradeoff.svg")  # doctest: +SKIP
    """

    title: str
    """Data, number of clients, and number of rows."""
    split: str
    """The rows that measure."""
    fitted_on: str
    """The rows that the rules were fitted to."""
    by: By
    """What thresholds depend on, beside the score."""
    local: bool
    """Whether tolerances are for each client's rows, in place of everyone's together: a violation
    is then that of the client with the largest, with its interval and its noise floor."""
    local_tolerance: Number
    """The largest violation allowed at each client beside the tolerance; null: any."""
    randomise: bool
    """Whether rules may decide some people by chance."""
    level: float
    """Confidence level of the intervals."""
    curves: list[Curve]

    def table(
        self, curve: Curve, *, most: int | None = None, unit: Unit | None = DECIMAL
    ) -> DisplayTable:
        """Return the points of a curve, then the model as it is served.

        Parameters
        ----------
        curve
            One of `curves`.
        most
            If given, so many points at even distances.
        unit
            How numbers are written; None: each as its name demands.
        """
        points, short = curve.points, unit or unit_of(curve.measure)
        if most is not None and len(points) > most:
            places = np.linspace(0, len(points) - 1, most).round().astype(int)
            points = [points[place] for place in places]
        violation = curve.measure.replace("_", " ") + " at one client" * self.local
        heads = [
            Head("Tolerance", numeric=False),
            Head("Accuracy", f"{self.level:.0%} interval"),
            Head(violation.capitalize(), f"{self.level:.0%} interval"),
            Head("Noise floor"),
            Head("Met?", numeric=False),
            Head("Gap between clients", "accuracy"),
            Head("Largest at one client", "violation"),
        ]
        rows: list[Sequence[Entry] | Block] = [
            _cells(short.one(point.tolerance), point, short) for point in points
        ]
        rows.append(_cells("as served", curve.served, short))
        rows.append(_cells("constant classifier", curve.constant, short))
        return DisplayTable(columns=heads, rows=rows, unit=unit)

    def __str__(self) -> str:
        parts = []
        for curve in self.curves:
            name = curve.notion.replace("_", " ")
            parts += [f"{curve.run}, {name}: {self.title}", self.table(curve).to_text(), ""]
        return "\n".join([*parts, self.explained])

    @property
    def explained(self) -> str:
        """How the numbers came about, in words."""
        reads = {
            "none": "one threshold for everyone",
            "group": "a threshold for each group",
            "client": "a threshold for each client",
            "both": "a threshold for each group at each client",
        }
        drawn = ", some people decided by chance" * self.randomise
        bound, also = self.local_tolerance, ""
        if bound is not None:
            also = f" At every client at most {bound:g} is allowed on the rows it is fitted to."
        if self.local:
            also = " A violation is that of the client with the largest."
        return (
            "The model's scores stay as they are; at each tolerance they meet other thresholds "
            f"({reads[self.by]}{drawn}), fitted to {self.fitted_on} rows and counted on "
            f"{self.split} rows. A rule aims below the tolerance by a margin for so many rows. "
            f"Met: the whole interval lies within it.{also}"
        )

    def write(self, folder: str | Path) -> list[Path]:
        """Write tradeoff.svg and tradeoff.json into a folder."""
        picture, numbers = (Path(folder) / f"tradeoff.{kind}" for kind in ("svg", "json"))
        picture.parent.mkdir(parents=True, exist_ok=True)
        self.plot(picture)
        write_atomically(numbers, self.model_dump_json(indent=1).encode() + b"\n")
        return [picture, numbers]

    def plot(self, path: str | Path) -> None:
        """Draw the curves into an SVG file."""
        from mfairfl.report.figures import draw_tradeoff  # noqa: PLC0415 - a layer above

        draw_tradeoff(self, path)


def _cells(label: str, point: TradeoffPoint, unit: Unit) -> list[Entry]:
    met = {"met": "yes", "not met": "no", None: ""}
    return [
        label,
        point.accuracy,
        point.violation,
        unit.one(point.violation.noise_floor),
        met.get(point.outcome, "too few rows"),
        unit.one(point.client_accuracy_gap.value),
        unit.one(point.local_violation),
    ]


class _ScoredRun(NamedTuple):
    """A finished run with what its clients counted of the model's scores."""

    record: RunRecord
    scores: Scores
    path: Path | None

    @classmethod
    def of(cls, run: Run | str | Path) -> _ScoredRun:
        if isinstance(run, str | Path):
            path = Path(run)
            record = RunRecord.read(path)
            folder = path.parent if path.name == "run.json" else path
            return cls(record, RunDirectory(folder).read_scores(record), folder)
        return cls(run.record, run.scores, run.path)


def tradeoff(
    runs: Sequence[Run | str | Path],
    notions: Sequence[str] = (),
    *,
    by: By | None = None,
    local_tolerance: float | Literal["none"] | None = None,
    local: bool = False,
    points: int = POINTS,
    randomise: bool = False,
) -> Tradeoff:
    """Return accuracy against violation over many tolerances, a curve for each notion and run.

    Parameters
    ----------
    runs : sequence of Run or path
        Runs in memory or run directories, all measured on the same rows.
    notions : sequence of str
        By default those that the first run was asked to meet.
    by : {"none", "group", "client", "both"}, optional
        What thresholds may depend on; by default the group, unless the first run is blind to it.
    local_tolerance : float or "none", optional
        The largest violation at each client, whatever the tolerance; must be stated where
        thresholds depend on the client.
    local : bool
        Whether tolerances are for the rows of each client, in place of everyone's together.
    points : int
        How many tolerances, from 0 to where the rule of highest accuracy is allowed.
    randomise : bool
        Whether a rule may decide some people by chance.

    Raises
    ------
    ConfigError
        If runs were measured on different rows, or a notion compares losses.
    RunDirectoryError
        If a run keeps no scores.
    """
    if points < 2:
        raise ConfigError(f"points = {points}; use 2 or more, such as {POINTS}")
    if not runs:
        raise ConfigError("tradeoff: needs a run; give the --out folder of `mfairfl train`")
    scored = [_ScoredRun.of(run) for run in runs]
    first, split = scored[0].record, scored[0].record.reported
    names = distinct_names([run.path for run in scored], [run.record for run in scored])
    for run, name in zip(scored, names, strict=True):
        _require_scores(run, name)
        if key := different_rows(first, run.record):
            raise ConfigError(
                f"{names[0]} and {name}: measured on different rows ({key} differs); train both "
                "on the same data, split and seed"
            )
    if not first.task.sensitive:
        raise ConfigError("tradeoff: no sensitive attribute was named, so there is no violation")
    wanted = notions or first.config["fairness"]["notion"]
    items = {item.name: item for item in map(notion, wanted)}
    blind = bool(first.config["fairness"].get("blind"))
    demand = _demand(by or ("none" if blind else "group"), local_tolerance, local=local)
    if blind and demand.reads_group:
        raise ConfigError(
            f"by = '{demand.by}' reads the group, to which the run is blind; use 'none'"
        )
    demand, table = replace(demand, randomise=randomise), first.table(split)
    return Tradeoff(
        title=f"{first.data.name}, {len(table.clients)} clients, {table.rows:,} {split} rows",
        split=split,
        fitted_on=_fitted_on(scored[0]),
        by=demand.by,
        local=local,
        local_tolerance=demand.local_tolerance,
        randomise=randomise,
        level=table.level,
        curves=[
            _Fit(run, name, item, demand, local=local).curve(points)
            for item in items.values()
            for run, name in zip(scored, names, strict=True)
        ],
    )


def _demand(by: By, local_tolerance: float | Literal["none"] | None, *, local: bool) -> Demand:
    """Return what rules are asked for, tolerance and chance apart."""
    bound = None if local_tolerance == "none" else local_tolerance
    demand = Demand(by=by, local_tolerance=bound)
    if local and bound is not None:
        raise ConfigError("local_tolerance: with local, the tolerances are those of each client")
    if demand.reads_client and local_tolerance is None and not local:
        raise ConfigError(
            f"by = '{by}': state local_tolerance, the largest violation at each client, such as "
            "0.05, or 'none': under a bound for everyone alone, one client may favour one group, "
            "and another client the other"
        )
    return demand


def _require_scores(run: _ScoredRun, name: str) -> None:
    where = run.path or name
    if run.record.served.kind == "mixture":
        raise RunDirectoryError(
            f"{where}: serves a mixture, whose score is a chance of a favourable decision and has "
            "no other thresholds; train with another output rule"
        )
    if run.record.reported not in run.scores:
        raise RunDirectoryError(
            f"{where}: keeps no scores, as runs before version 0.10; train again"
        )
    for split, clients in run.scores.items():
        if unscored := {*run.record.tallies[split].clients} - {*clients}:
            raise RunDirectoryError(
                f"{where}: the scores of client '{min(unscored)}' are missing; train again"
            )


def _fitted_on(run: _ScoredRun) -> Split:
    """Return the rows that choose."""
    choosing = "validation" in run.scores and run.record.reported != "validation"
    return "validation" if choosing else "train"


class _Fit:
    """The rules of one run for one notion."""

    def __init__(
        self, run: _ScoredRun, name: str, item: Notion, demand: Demand, *, local: bool
    ) -> None:
        record = run.record
        self.name, self.item, self.demand, self.local = name, item, demand, local
        self.record, self.split = record, record.reported
        self.level = record.table(self.split).level
        self.attributes = record.tallies[self.split].attributes
        self.constraints = _goal(record, item.name).constraints(self.attributes)
        self.groupings = self.constraints.groupings
        every = [grouping.name for grouping in Cells(self.attributes).groupings()]
        self.marginal = [grouping.name for grouping in self.groupings] == every
        self.rows, self.measured = run.scores[_fitted_on(run)], run.scores[self.split]

    def curve(self, points: int) -> Curve:
        """Return the rules for so many tolerances."""
        tallies = self.record.tallies
        served = tallies[self.split]
        free = self._violation(tally_under(self._rule(1.0), self.rows, self.attributes))
        if np.isnan(free):
            _, why = group_measure("violation", self.item, served.counts, self.groupings)
            raise DataError(f"{self.name}: no {self.item.name} violation to bound: {why}")
        rows = served.counts.sum(axis=3)
        margin = max(map(self.constraints.margin, rows if self.local else [rows.sum(axis=0)]))
        shares = np.linspace(0.0, 1.0, points) ** _DENSER
        tolerances = np.unique(np.ceil(1e4 * (free + min(margin, free)) * shares) / 1e4).tolist()
        return Curve(
            run=self.name,
            notion=self.item.name,
            points=[self._point(t, t - min(margin, t / 2.0)) for t in tolerances],
            served=self._measure(served),
            constant=self._measure(constant_classifier(served, majority=tallies["train"])),
        )

    def _rule(self, allowed: float) -> Thresholds:
        bound = min(allowed, 1.0)
        demand = replace(self.demand, tolerance=bound)
        if self.local:
            demand = replace(self.demand, tolerance=1.0, local_tolerance=bound)
        return fit_thresholds(self.rows, self.constraints, demand).thresholds

    def _at_clients(self, tally: Tally) -> Floats:
        """Return the violation on each client's rows, nan where one has no rows of a group."""
        return violation_of(self.item, self.groupings).value(tally.counts[:, None])

    def _counted(self, tally: Tally) -> Tally:
        """Return the rows whose violation counts: all, or those of the client with the largest."""
        if not self.local:
            return tally
        worst = int(np.nan_to_num(self._at_clients(tally), nan=-1.0).argmax())
        return Tally(tally.counts[[worst]], (tally.clients[worst],), tally.attributes)

    def _violation(self, tally: Tally) -> float:
        counts = self._counted(tally).counts
        return float(violation_of(self.item, self.groupings).value(counts))

    def _point(self, tolerance: float, allowed: float) -> TradeoffPoint:
        rule = self._rule(allowed)
        point = self._measure(tally_under(rule, self.measured, self.attributes), _DRAWS)
        interval = point.violation.interval
        return point.model_copy(
            update={
                "tolerance": tolerance,
                "allowed": allowed,
                "fitted": self._violation(tally_under(rule, self.rows, self.attributes)),
                "thresholds": rule.to_json(),
                "outcome": verdict(interval and Interval(*interval), tolerance),
            }
        )

    def _measure(self, tally: Tally, draws: int = 2000) -> TradeoffPoint:
        numbers = measured_overall(tally, [self.item], level=self.level, draws=draws)
        violation = numbers[f"{self.item.name}_violation"]
        if self.local or not self.marginal:
            violation = measured_violation(
                self._counted(tally), self.item, self.groupings, level=self.level, draws=draws
            )
        at_each = self._at_clients(tally)
        defined = at_each[~np.isnan(at_each)]
        return TradeoffPoint(
            tolerance=None,
            accuracy=numbers["accuracy"],
            violation=violation,
            client_accuracy_gap=numbers["client_accuracy_gap"],
            local_violation=float(defined.max()) if defined.size else None,
        )


def _goal(record: RunRecord, name: str) -> Goal:
    """Return the goal of a run with this notion in place of its own."""
    said = record.config["fairness"]
    plain = {
        "notions": (name,),
        "attributes": said.get("sensitive"),
        "intersections": said.get("intersections", False),
    }
    try:
        return _GOAL.validate_python(plain)
    except ValidationError as error:
        raise RunDirectoryError(
            f"run.json: config.fairness: {first_problem(error)}; the file was altered: restore it"
        ) from None
