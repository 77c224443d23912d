"""The runs that a report is about, as their files have them, and what they were to achieve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from mfairfl.data import Split, Task
from mfairfl.errors import ConfigError, RunDirectoryError, first_problem
from mfairfl.fairness.measuring import measured_violation
from mfairfl.fairness.results import Measured, MetricTable
from mfairfl.fairness.tally import Tally
from mfairfl.report.wording import and_list, known_notion
from mfairfl.runs.record import RunRecord
from mfairfl.runs.reference_records import distinct_names
from mfairfl.strategies import Card
from mfairfl.strategies.registry import METHODS, describe
from mfairfl.text import one_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """Between which groups which notions were to hold.

    Parameters
    ----------
    notions, attributes : tuple of str
        Their names.
    intersections : bool
        Whether the attributes' intersections count as well.
    """

    notions: tuple[str, ...]
    attributes: tuple[str, ...]
    intersections: bool = False

    @property
    def measures(self) -> tuple[str, ...]:
        """The numbers that say how far a notion was missed."""
        return tuple(f"{name}_violation" for name in self.notions)

    @property
    def crossed(self) -> bool:
        """Whether combinations of attributes are compared."""
        return self.intersections and len(self.attributes) > 1

    @property
    def whom(self) -> str:
        """By what people are grouped, in words."""
        return and_list(self.attributes) + " and their combinations" * self.crossed

    def recorded_under(self, task: Task) -> str | None:
        """Return where a record of this task has the measures.

        Returns
        -------
        str or None
            An attribute's name, empty for all attributes together, None if it has them nowhere.
        """
        recorded = {attribute.name for attribute in task.attributes}
        if not self.crossed and set(self.attributes) == recorded:
            return ""
        return self.attributes[0] if len(self.attributes) == 1 else None

    def measured(self, task: Task, table: MetricTable, tally: Tally | None) -> dict[str, Measured]:
        """Return the measures on a task's rows; from the counts where a record lacks them."""
        lacking = set(self.attributes) - {attribute.name for attribute in task.attributes}
        if lacking:
            why = f"the rows have no attribute '{min(lacking)}'"
            return {n: Measured(name=n, value=None, undefined=why) for n in self.measures}
        place = self.recorded_under(task)
        if place is None:
            return {f"{n}_violation": self._counted(n, table, tally) for n in self.notions}
        numbers = table.measures(place) if place else table.overall
        absent = table.get("")
        return {
            name: numbers.get(name, absent.model_copy(update={"name": name}))
            for name in self.measures
        }

    def _counted(self, name: str, table: MetricTable, tally: Tally | None) -> Measured:
        item, measure = known_notion(name), f"{name}_violation"
        if item is None or tally is None or item.statistic == "loss":
            why = f"'{name}' is not recorded for these groups, and counts alone do not give it"
            return Measured(name=measure, value=None, undefined=why)
        groupings = tally.cells.groupings(self.attributes, self.intersections)
        return measured_violation(tally, item, groupings, level=table.level)


class FairnessAsked(BaseModel):
    """What the configuration in a record asks for, as far as a report judges it."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    notion: tuple[str, ...]
    sensitive: tuple[str, ...] | None = None
    intersections: bool = False
    verdict_tolerance: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedRun:
    """A finished run, read from its folder."""

    path: Path
    record: RunRecord
    name: str
    asked: FairnessAsked

    @property
    def split(self) -> Split:
        """The rows whose numbers are reported."""
        return self.record.reported

    @property
    def table(self) -> MetricTable:
        """Every number of the run on these rows."""
        return self.record.table(self.split)

    @property
    def tally(self) -> Tally | None:
        """The counts behind the numbers."""
        return self.record.tallies.get(self.split)

    @property
    def rows(self) -> int:
        """How many rows were measured."""
        return self.table.rows

    @property
    def aim(self) -> Aim:
        """What the run was asked for."""
        every = tuple(attribute.name for attribute in self.record.task.attributes)
        return Aim(
            notions=self.asked.notion if every else (),  # else nothing is compared
            attributes=self.asked.sensitive or every,
            intersections=self.asked.intersections,
        )

    @property
    def card(self) -> Card | None:
        """What is known of the method; None if it is not registered in this process."""
        name = self.record.strategy
        try:
            METHODS.get(name)  # which, unlike `describe`, imports nothing that a record names
            return describe(name)
        except ConfigError:
            return None

    @property
    def constrained(self) -> bool:
        """Whether training or the decision rule gives up accuracy for groups."""
        served = self.record.served
        by_rule = served.rule not in ("last", "average") or served.thresholds is not None
        return by_rule or (self.card is not None and self.card.constrained)


def read_runs(runs: Sequence[str | Path]) -> list[ReportedRun]:
    """Read finished runs; the first is the one to be judged."""
    if not runs:
        raise ConfigError("report: needs a run; give the --out folder of `mfairfl train`")
    paths = [Path(run) for run in runs]
    records = [RunRecord.read(path) for path in paths]
    folders = [path.parent if path.name == "run.json" else path for path in paths]
    for i, folder in enumerate(folders):
        if folder.resolve() in [other.resolve() for other in folders[:i]]:
            raise ConfigError(f"{folder}: given twice; give each run once")
    names = distinct_names(folders, records)
    return [
        ReportedRun(path=folder, record=record, name=name, asked=_asked(folder, record))
        for folder, record, name in zip(folders, records, names, strict=True)
    ]


def _asked(folder: Path, record: RunRecord) -> FairnessAsked:
    """Read what was asked for; a record that contradicts itself is refused."""
    try:
        record.table(record.reported)
        return FairnessAsked.model_validate(record.config["fairness"])
    except ValidationError as error:
        problem = f"config.fairness: {first_problem(error, FairnessAsked)}"
    except (KeyError, StopIteration):
        problem = "lacks the numbers of a split that it names"
    raise RunDirectoryError(
        f"{folder / 'run.json'}: {one_line(problem)}; the file was altered: restore it or train "
        "again"
    )
