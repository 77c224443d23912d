"""The runs that a report is about, as their files have them, and what they were to achieve."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

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


class Aim(BaseModel):
    """Between which groups which notions were to hold, as the configuration in a record says."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    notions: tuple[str, ...] = Field(alias="notion")
    attributes: tuple[str, ...] = Field((), alias="sensitive")
    intersections: bool = False
    stated: float | None = Field(None, alias="tolerance")
    verdict_tolerance: float | None = None

    @field_validator("attributes", mode="before")
    @classmethod
    def _all_if_none(cls, names: Any) -> Any:
        return () if names is None else names

    @property
    def tolerance(self) -> float | None:
        """The largest acceptable violation."""
        return self.stated if self.verdict_tolerance is None else self.verdict_tolerance

    @property
    def measures(self) -> tuple[str, ...]:
        """The numbers that say how far a notion was missed."""
        return tuple(f"{name}_violation" for name in self.notions)

    @property
    def _crossed(self) -> bool:
        return self.intersections and len(self.attributes) > 1

    @property
    def whom(self) -> str:
        """By what people are grouped, in words."""
        return and_list(self.attributes) + " and their combinations" * self._crossed

    def recorded_under(self, task: Task) -> str | None:
        """Return where a record of this task has the measures.

        Returns
        -------
        str or None
            An attribute's name, empty for all attributes together, None if it has them nowhere.
        """
        recorded = {attribute.name for attribute in task.attributes}
        if not self._crossed and set(self.attributes) == recorded:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedRun:
    """A finished run, read from its folder.

    Attributes
    ----------
    table
        Every number on the rows that are reported.
    """

    path: Path
    record: RunRecord
    name: str
    aim: Aim
    table: MetricTable

    @property
    def split(self) -> Split:
        """The rows whose numbers are reported."""
        return self.record.reported

    @property
    def tally(self) -> Tally | None:
        """The counts behind the numbers."""
        return self.record.tallies.get(self.split)

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
    folders = [folder_of(path) for path in paths]
    places = [folder.resolve() for folder in folders]
    if twice := [folder for folder in folders if places.count(folder.resolve()) > 1]:
        raise ConfigError(f"{twice[-1]}: given twice; give each run once")
    names = distinct_names(folders, records)
    return [_read(*run) for run in zip(folders, records, names, strict=True)]


def folder_of(run: Path) -> Path:
    """Return the folder of a run, which its run.json may stand for."""
    return run.parent if run.name == "run.json" else run


def _read(folder: Path, record: RunRecord, name: str) -> ReportedRun:
    """Read numbers and aim of a run; a record that contradicts itself is refused."""
    every = tuple(attribute.name for attribute in record.task.attributes)
    try:
        table = record.table(record.reported)
        aim = Aim.model_validate(record.config["fairness"])
    except ValidationError as error:
        problem = f"config.fairness: {first_problem(error, Aim)}"
    except (KeyError, StopIteration):
        problem = "lacks the numbers of a split that it names"
    else:
        whom = {"attributes": aim.attributes or every, "notions": aim.notions if every else ()}
        aim = aim.model_copy(update=whom)  # without an attribute nothing is compared
        return ReportedRun(path=folder, record=record, name=name, aim=aim, table=table)
    raise RunDirectoryError(
        f"{folder / 'run.json'}: {one_line(problem)}; the file was altered: restore it or train "
        "again"
    )
