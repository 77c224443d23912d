"""run.json as a typed model: what was run, on what, and every number of the result.

The models here are the only readers and writers of the file: `StartedRecord` while a run is
going on, `RunRecord` once it has finished. docs/run-record.md describes the file in words,
docs/run.schema.json as a JSON schema.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Container
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import pydantic
from pydantic import Field

from mfairfl.data import Federation, Split, Task
from mfairfl.data.coding import TreatmentKind
from mfairfl.data.values import DocumentedModel
from mfairfl.engine.output import Kind, Rule
from mfairfl.errors import MfairflError, RunDirectoryError, first_problem
from mfairfl.fairness import results
from mfairfl.fairness.fitting import By, Demand, FittedThresholds, Objective
from mfairfl.fairness.measuring import has_interval, has_noise_floor
from mfairfl.fairness.rates import PROPORTIONS
from mfairfl.fairness.results import MetricTable, Numbers
from mfairfl.fairness.tally import Tally
from mfairfl.files import read_regular_file, write_atomically
from mfairfl.strict_json import parse_json
from mfairfl.text import one_line

Model = TypeVar("Model", bound=pydantic.BaseModel)

_SLICES = ("group", "client")
_SHOWN = 300  # characters of a problem in a message


def _tally(value: Any) -> Tally:
    try:
        return value if isinstance(value, Tally) else Tally.from_json(value)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not the counts of a tally ({error})") from None


StoredTally = Annotated[
    Tally,
    pydantic.PlainValidator(_tally),
    pydantic.PlainSerializer(Tally.to_json),
    pydantic.WithJsonSchema(
        {
            "type": "object",
            "description": "`counts` by client, cell of the attributes' groups, label and "
            "decision.",
            "required": ["clients", "attributes", "counts"],
        }
    ),
]


class DataFacts(DocumentedModel):
    """The rows."""

    name: str
    """Data set of the catalogue, name of the table, or `silos`."""
    sha256: str
    """SHA-256 of the rows."""
    rows: int
    """Number of rows of all clients and splits."""

    @classmethod
    def of(cls, federation: FederationFacts) -> DataFacts:
        """Return what is known of a federation's rows."""
        rows = sum(client.rows or 0 for client in federation.clients)
        return cls(name=federation.table, sha256=federation.sha256, rows=rows)


class ClientFacts(DocumentedModel):
    """What one client holds; only its sizes are known if its rows are elsewhere."""

    name: str
    """The client's name."""
    train: int
    """Rows it trains on."""
    validation: int
    """Rows that choose between models."""
    test: int
    """Rows that only measure."""
    rows: int | None = None
    """All its rows."""
    share: float | None = None
    """1, as for the groups below."""
    favourable: int | None = None
    """Rows with the favourable label."""
    base_rate: float | None = None
    """Their share of the rows."""
    attributes: dict[str, dict[str, Numbers]] = Field(default_factory=dict)
    """The same counts for each group of each attribute."""


class TreatedFacts(DocumentedModel):
    """One line about what was done to the rows, or about what a feature gives away."""

    kind: TreatmentKind
    """dropped, filled, merged, or proxy: a feature that reveals the group."""
    line: str
    """The same in words."""


class WithheldCell(DocumentedModel):
    """Rows of one combination of groups and one label that a silo does not count."""

    split: Split
    """The split that they are in."""
    cell: dict[str, str]
    """The group of each sensitive attribute."""
    label: Literal[0, 1]
    """1 is the favourable one."""


class DisclosureFacts(DocumentedModel):
    """What one silo kept back, and by which rules.

    Examples
    --------
    >>> DisclosureFacts(policy_sha256="a" * 64, min_rows=10).withheld
    []
    """

    policy_sha256: str = Field(pattern="^[0-9a-f]{64}$")
    """SHA-256 of the section `disclosure` of the silo's policy, as its ledger has it."""
    min_rows: pydantic.PositiveInt
    """The silo's floor: groups and labels of fewer rows are not counted by themselves."""
    withheld: list[WithheldCell] = Field(default_factory=list)
    """The sets of rows that it withheld."""
    rows_withheld: dict[Split, pydantic.NonNegativeInt] = Field(default_factory=dict)
    """By split: the rows in these sets, as the silo states them."""


class FederationFacts(DocumentedModel):
    """How the rows were divided among clients and into splits."""

    table: str
    """Name of the table."""
    sha256: str
    """SHA-256 of the rows."""
    scheme: str
    """Partition scheme, or `silos`: each client has its own file."""
    seed: int
    """Seed of the partition and of the splits."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the scheme."""
    features: int
    """Number of encoded features."""
    notes: list[str]
    """What a reader of the numbers should know."""
    warnings: list[str]
    """What makes numbers doubtful."""
    treatment: list[TreatedFacts] = Field(default_factory=list)
    """What was dropped, filled in or made one before training; not in records before 0.5."""
    clients: list[ClientFacts]
    """Who holds what."""
    disclosure: dict[str, DisclosureFacts] = Field(default_factory=dict)
    """By client: what silos withheld; empty where all rows were in one place, and before 0.7."""

    @classmethod
    def of(cls, federation: Federation) -> FederationFacts:
        """Return the facts of clients whose rows are here."""
        return cls.model_validate(federation.summary())


class ModelFacts(DocumentedModel):
    """The model, as far as it is not code."""

    kind: Literal["mlp", "module"]
    """`module`: a `torch.nn.Module` as code."""
    inputs: pydantic.PositiveInt
    """Number of encoded features."""
    hidden: tuple[pydantic.PositiveInt, ...] = ()
    """Widths of hidden layers."""
    size: int | None = None
    """Number of weights."""


class ThresholdFit(DocumentedModel):
    """What thresholds were asked for, and what they reach on the rows they were fitted to."""

    by: By
    """Whose thresholds may differ: a decision reads the group, the client, both or neither."""
    local_tolerance: float | None
    """The violation that was allowed at each client; null bounds none."""
    maximise: Objective
    """The objective."""
    costs: tuple[float, float]
    """What a wrong favourable and a wrong unfavourable decision cost."""
    least_client_accuracy: float | None
    least_selection_rate: float | None
    least_true_positive_rate: float | None
    randomise: bool
    """Whether people may be decided by chance."""
    shrinkage: float
    """How far clients' thresholds were drawn towards everyone's."""
    excess: float
    """By how much the bound that is exceeded most is exceeded."""
    enlargement: float
    """By how much all bounds were enlarged so that they can be met."""
    drawn: float
    """Share of people who are decided by chance."""
    otherwise: float
    """Chance that another client, drawn at random, would decide a person otherwise."""

    @classmethod
    def of(cls, demand: Demand, fitted: FittedThresholds) -> ThresholdFit:
        """Return the facts of fitted thresholds."""
        facts = {**asdict(demand), **{f.name: getattr(fitted, f.name) for f in fields(fitted)}}
        return cls(**{name: facts[name] for name in cls.model_fields})


class ServedFacts(DocumentedModel):
    """Which weights are the model, and how their scores become decisions."""

    kind: Kind
    """One model, a random choice among several, the mean of several, or one for each client."""
    names: tuple[str, ...]
    """Where each member comes from: `round 37`."""
    clients: tuple[str, ...] = ()
    """Whose each member is, if anyone's."""
    weights: tuple[float, ...]
    """Probability or share of each member."""
    rule: Rule
    """The output rule."""
    tolerance: float
    """The violation that the rule allowed."""
    margin: float = 0.0
    """How far below the tolerance training and the rule aimed, for the number of rows measured."""
    dead_zone: float = 0.0
    """The violation that training left uncorrected."""
    note: str = ""
    """What the rule found, in words."""
    thresholds: dict[str, Any] | None = None
    """How scores become decisions, by cell and perhaps by client; null decides at score 1/2."""
    fit: ThresholdFit | None = None
    """How the thresholds were chosen; null without any, and in runs before 0.10."""

    @pydantic.field_validator("rule", mode="before")
    @classmethod
    def _renamed(cls, value: Any) -> Any:
        return "thresholds" if value == "threshold" else value  # before 0.10


class _Named(DocumentedModel):
    """Numbers by name, with tables beside them."""

    model_config = pydantic.ConfigDict(extra="allow")

    def __getitem__(self, name: str) -> Any:
        return self.at(("overall",))[name]

    def get(self, name: str) -> Any:
        """Return a number, or None if it is undefined or has no such entry."""
        return self.at(("overall",)).get(name)

    def at(self, place: results.Place) -> dict[str, Any]:
        """Return the numbers at a place of `MetricTable.places`; nothing if it has none."""
        scope, *names = place
        if scope == "overall":
            return self.model_extra or {}
        numbers: dict[str, Any] = getattr(self, f"by_{scope}", {})
        for name in names:
            numbers = numbers.get(name, {})
        return numbers


class Metrics(_Named):
    """Every number of the served model on one split, by name.

    `loss` is the log-loss: the mean cross-entropy in nats.

    Examples
    --------
    >>> Metrics(accuracy=0.8, loss=None)["accuracy"]
    0.8
    """

    __pydantic_extra__: dict[str, results.Number]

    by_attribute: dict[str, Numbers] = Field(default_factory=dict)
    """With several sensitive attributes: the group metrics of each."""
    by_client: dict[str, Numbers] = Field(default_factory=dict)
    """Rows (`n`), rates, ROC-AUC, log-loss, calibration error and violations of each client."""
    by_group: dict[str, dict[str, Numbers]] = Field(default_factory=dict)
    """Rows (`n`), rates, ROC-AUC, log-loss and calibration error of each attribute's groups."""
    undefined: dict[str, str] = Field(default_factory=dict)
    """Why a number is null, by its name."""


class MetricIntervals(_Named):
    """Confidence intervals under the names of the metrics."""

    __pydantic_extra__: dict[str, results.Bounds]

    level: float
    """Confidence level."""
    by_attribute: dict[str, dict[str, results.Bounds]] = Field(default_factory=dict)
    by_client: dict[str, dict[str, results.Bounds]] = Field(default_factory=dict)
    by_group: dict[str, dict[str, dict[str, results.Bounds]]] = Field(default_factory=dict)


class NoiseFloors(_Named):
    """What exactly fair decisions would show on as many rows, by the names of the metrics."""

    __pydantic_extra__: dict[str, results.Number]

    by_attribute: dict[str, Numbers] = Field(default_factory=dict)


class StoredTable(DocumentedModel):
    """The numbers of one set of rows, as files hold them: a `MetricTable` taken apart.

    Examples
    --------
    >>> table = MetricTable.from_predictions([1, 0], [1, 1], sensitive_features=["F", "M"])
    >>> StoredTable.of(table).metrics["accuracy"]
    0.5
    >>> StoredTable.of(table).table() == table
    True
    """

    metrics: Metrics
    intervals: MetricIntervals
    noise_floor: NoiseFloors
    constant_classifier: Numbers

    @classmethod
    def of(cls, table: MetricTable) -> StoredTable:
        """Take a table apart."""
        metrics: dict[str, Any] = {}
        limits: dict[str, Any] = {}
        floors: dict[str, Any] = {}
        undefined: dict[str, str] = {}
        for place, rows, numbers in table.places():
            if place[0] == "attribute" and len(table.sections) == 1:
                continue  # of one attribute the measures are those of all rows
            values = {name: number.value for name, number in numbers.items()}
            ends = {name: m.interval for name, m in numbers.items() if has_interval(name)}
            if place[0] in _SLICES:
                values = {"n": rows, **values}
            else:
                fair = {n: m.noise_floor for n, m in numbers.items() if has_noise_floor(n)}
                _put(fair, floors, place)
            _put(values, metrics, place)
            _put(ends, limits, place)
            undefined |= {
                _prefix(place) + name: number.undefined
                for name, number in numbers.items()
                if number.value is None and number.undefined != _standard_reason(place, name)
            }
        return cls(
            metrics=Metrics(**metrics, undefined=undefined),
            intervals=MetricIntervals(level=table.level, **limits),
            noise_floor=NoiseFloors(**floors),
            constant_classifier=table.constant_classifier,
        )

    def _numbers(self, *place: str) -> results.NumbersByName:
        values = {name: v for name, v in self.metrics.at(place).items() if name != "n"}
        limits, floors = self.intervals.at(place), self.noise_floor.at(place)
        reasons = {
            name: self.metrics.undefined.get(_prefix(place) + name)
            or _standard_reason(place, name)
            or "not recorded"
            for name, value in values.items()
            if value is None
        }
        return {
            name: results.Measured(
                name=name,
                value=value,
                interval=limits.get(name),
                noise_floor=floors.get(name),
                undefined=reasons.get(name, ""),
            )
            for name, value in values.items()
        }

    def _slice(self, *place: str) -> results.Slice:
        rows = int(self.metrics.at(place).get("n") or 0)
        return results.Slice(name=place[-1], rows=rows, numbers=self._numbers(*place))

    def table(self) -> MetricTable:
        """Put the table together again."""
        one_attribute = not self.metrics.by_attribute
        sections = []
        for attribute, names in self.metrics.by_group.items():
            place = ("overall",) if one_attribute else ("attribute", attribute)
            numbers = self._numbers(*place).values()
            groups = [self._slice("group", attribute, name) for name in names]
            measures = [number for number in numbers if results.compares_groups(number.name)]
            sections.append(results.Section(attribute=attribute, groups=groups, measures=measures))
        return MetricTable(
            level=self.intervals.level,
            overall=self._numbers("overall"),
            sections=sections,
            clients=[self._slice("client", name) for name in self.metrics.by_client],
            constant_classifier=self.constant_classifier,
        )


def _put(values: dict[str, Any], stored: dict[str, Any], place: results.Place) -> None:
    """Add values at a place of `MetricTable.places` to the parts of a stored table."""
    scope, *names = place
    for key in () if scope == "overall" else (f"by_{scope}", *names):
        stored = stored.setdefault(key, {})
    stored.update(values)


def _prefix(place: results.Place) -> str:
    """Return what stands before a number's name in `undefined`."""
    scope, *names = place
    return "".join(f"{part}." for part in ([f"by_{scope}"] if scope in _SLICES else []) + names)


def _standard_reason(place: results.Place, name: str) -> str:
    """Return why a share of a group's or client's rows is undefined, which is not stored."""
    return PROPORTIONS[name].needs if place[0] in _SLICES and name in PROPORTIONS else ""


class MetricsBySplit(DocumentedModel):
    """The metrics of each split; null for a split without rows."""

    train: Metrics | None = None
    validation: Metrics | None = None
    test: Metrics | None = None

    def __getitem__(self, split: Split) -> Metrics:
        metrics: Metrics | None = getattr(self, split)
        if metrics is None:
            raise KeyError(f"no {split} rows were kept")
        return metrics


class Timing(DocumentedModel):
    """How long it took; not the same from one machine to the next."""

    train_seconds: float
    """Wall-clock seconds of the rounds."""
    runs_at_once: int
    """Runs that shared them, side by side."""
    workers: int = 1
    """Threads that the clients were spread over."""


class MachineFacts(DocumentedModel):
    """Where it was run."""

    system: str
    machine: str

    @classmethod
    def here(cls) -> MachineFacts:
        """Return the facts of this machine."""
        return cls(system=platform.system(), machine=platform.machine())


class _Record(DocumentedModel):
    """What is known of a run before its first round."""

    schema_version: Literal[2] = 2
    """Version of this format."""
    status: Literal["running", "complete"]
    identity: str
    """Hash of everything that decides the result."""
    config: dict[str, Any]
    """The configuration with its defaults; read by people, never run as code."""
    seed: int
    """Seed of everything random."""
    versions: dict[str, str]
    """Python, mfairfl and the libraries it used."""
    data: DataFacts
    task: Task
    """Label, sensitive attributes and types of the columns."""
    federation: FederationFacts

    @pydantic.field_validator("config")
    @classmethod
    def _names_method_and_goal(cls, value: dict[str, Any]) -> dict[str, Any]:
        try:
            value["strategy"]["name"], value["fairness"]["notion"]
        except (KeyError, TypeError):
            raise ValueError("lacks strategy.name or fairness.notion") from None
        return value

    @property
    def strategy(self) -> str:
        """The name of the strategy."""
        return str(self.config["strategy"]["name"])

    @property
    def goal(self) -> tuple[str, ...]:
        """The metrics that the run was asked to lower, such as `demographic_parity_violation`.

        None without a sensitive attribute: no groups are compared.
        """
        if not self.task.sensitive:
            return ()
        return tuple(f"{name}_violation" for name in self.config["fairness"]["notion"])

    def to_json(self) -> str:
        """Return the text of run.json; nan has no place in it."""
        text = self.model_dump_json(indent=2)
        if "NaN" in text or "Infinity" in text:  # perhaps in a name: a number is refused here
            json.dumps(self.model_dump(mode="json"), allow_nan=False)
        return text + "\n"

    def write(self, path: str | Path) -> None:
        """Write run.json atomically; `path` is the file or the run directory."""
        write_atomically(_file(path), self.to_json().encode())


class StartedRecord(_Record):
    """run.json of a run that has not finished: who it is."""

    status: Literal["running"]


class RunRecord(_Record):
    """run.json of a finished run.

    Examples
    --------
    >>> from mfairfl.runs.record import RunRecord
    >>> record = RunRecord.read("runs/adult")  # doctest: +SKIP
    >>> record.metrics["test"]["demographic_parity_violation"]  # doctest: +SKIP
    0.0123
    """

    status: Literal["complete"]
    rounds: int
    """Rounds that were carried out."""
    epochs_per_round: int
    """Local epochs of each round."""
    model: ModelFacts
    served: ServedFacts
    warnings: list[str]
    """What makes good fairness numbers worthless, the worst first."""
    metrics: MetricsBySplit
    intervals: dict[Split, MetricIntervals]
    """By split."""
    noise_floor: dict[Split, NoiseFloors]
    """By split."""
    constant_classifier: dict[Split, Numbers]
    """By split: the metrics of deciding the commoner train label for everyone."""
    tallies: dict[Split, StoredTally]
    """By split: the counts that every other number was computed from."""
    timing: Timing
    machine: MachineFacts
    files: dict[str, str] = Field(default_factory=dict)
    """SHA-256 of the files that the model and its scores are read from."""

    @classmethod
    def read(cls, path: str | Path) -> RunRecord:
        """Read run.json of a finished run; `path` is the file or the run directory."""
        record = read_record(path)
        if not isinstance(record, RunRecord):
            raise RunDirectoryError(
                f"{_file(path)}: the run is not finished; give its `mfairfl train` command again"
            )
        return record

    @property
    def reported(self) -> Split:
        """The split whose numbers are shown: test if it has rows, else validation, else train."""
        return reported(self.intervals)

    def table(self, split: Split) -> MetricTable:
        """Return every number of the served model on one split."""
        return StoredTable(
            metrics=self.metrics[split],
            intervals=self.intervals[split],
            noise_floor=self.noise_floor[split],
            constant_classifier=self.constant_classifier[split],
        ).table()


def reported(splits: Container[Split]) -> Split:
    """Return the split whose numbers are shown: test if it has rows, else validation, else train.

    Examples
    --------
    >>> reported(("train", "test"))
    'test'
    """
    order: tuple[Split, ...] = ("test", "validation", "train")
    return next(split for split in order if split in splits)


def _file(path: str | Path) -> Path:
    path = Path(path)
    return path if path.name == "run.json" else path / "run.json"


def read_bytes(file: Path, remedy: str) -> bytes:
    """Read a file of a run; `remedy` says what to do without it."""
    try:
        return read_regular_file(file)
    except (FileNotFoundError, NotADirectoryError):
        raise RunDirectoryError(f"{file}: not found; {remedy}") from None
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
        raise RunDirectoryError(f"{file}: {reason}; {remedy}") from None


def read_json(file: Path, missing: str) -> Any:
    """Read a JSON file from an untrusted source; `missing` says what to do without it."""
    try:
        return parse_json(read_bytes(file, missing))
    except ValueError as error:
        raise RunDirectoryError(f"{file}: not readable JSON ({one_line(str(error))})") from None


def validated(kind: type[Model], plain: Any, file: Path, remedy: str) -> Model:
    """Return the contents of a JSON file as a model; `remedy` says what to do with another."""
    try:
        return kind.model_validate(plain)
    except pydantic.ValidationError as error:
        problem = first_problem(error, kind)
    except MfairflError as error:  # a task or a tally that contradicts itself
        problem = str(error)
    # It may quote the file.
    raise RunDirectoryError(f"{file}: {one_line(problem, _SHOWN)}; {remedy}")


def read_record(path: str | Path) -> StartedRecord | RunRecord:
    """Read run.json, whether the run has finished or not; `path` is the file or the folder."""
    file = _file(path)
    plain = read_json(file, "give the --out folder of `mfairfl train`")
    version = plain.get("schema_version") if isinstance(plain, dict) else None
    if version != 2:
        shown = repr(version)[:_SHOWN]
        raise RunDirectoryError(f"{file}: schema_version is {shown}; this version reads 2")
    plain.pop("client_tallies", None)  # of runs of 0.7 under masks; no number is read from it
    remedy = "the file was altered: restore it or train again"
    if plain.get("status") == "running":
        return validated(StartedRecord, plain, file, remedy)
    return validated(RunRecord, plain, file, remedy)


def json_schema() -> str:
    """Return the JSON schema of run.json, as it is in docs/run.schema.json."""
    kinds: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(
        Annotated[RunRecord | StartedRecord, Field(discriminator="status")]
    )
    return schema_text("run.json", kinds.json_schema(mode="serialization"))


def schema_text(title: str, schema: dict[str, Any]) -> str:
    """Write a JSON schema for readers of any language."""
    plain = {**schema, "title": title}
    for part in [plain, *plain["$defs"].values()]:  # examples of Python are for readers of Python
        if "description" in part:
            part["description"] = part["description"].partition("\n\nExamples")[0]
    return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
