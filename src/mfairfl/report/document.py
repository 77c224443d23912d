"""report.json as a typed model: everything that the report of a run says, before any layout.

The page and the model card are written from this document alone. docs/report.md describes it in
words, docs/report.schema.json as a JSON schema.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import Field

from mfairfl.data.values import DocumentedModel
from mfairfl.fairness.results import Bounds, Measured, Number, Section, Slice
from mfairfl.fairness.uncertainty import Verdict
from mfairfl.runs.manifest import ManifestLine
from mfairfl.runs.record import schema_text

SCHEMA_VERSION = 1

Outcome = Verdict | Literal["no verdict"]
"""`no verdict`: no tolerance was set before training, or no rows were kept that only measure, or
the measure has no interval."""


class Definition(DocumentedModel):
    """What a number means, in plain words."""

    name: str
    """The number's name, as in run.json."""
    label: str
    """What a person calls it."""
    meaning: str
    """One or two sentences."""
    formula: str = ""


class Judgement(DocumentedModel):
    """One fairness goal held against the tolerance that was set before training."""

    measure: Measured
    tolerance: float | None
    """The largest acceptable violation; None if none was set."""
    outcome: Outcome
    sentence: str
    """The same in words."""
    caution: str = ""
    """Why a goal that is met is no good news, for example: everyone is decided alike."""


class Headline(DocumentedModel):
    """The first screen."""

    title: str
    what: str
    """First sentence: what was trained, for whom, on what."""
    verdict: str
    """Second: the tolerance, and whether it is met."""
    cost: str
    """Third: what fairness cost, and whom; or why that is not known."""
    judgements: list[Judgement]
    warnings: list[str]
    """What makes the numbers doubtful, the worst first."""


class ComparedModel(DocumentedModel):
    """Another model beside the one that is to be judged; the first is that one itself."""

    name: str
    kind: Literal["this", "run", "constant", "reference"]
    same_rows: bool
    """Whether it was measured on the same rows; if not, differences say little."""
    numbers: dict[str, Measured]
    """accuracy, the goal's violations, worst_client_accuracy, roc_auc, …, by name."""
    note: str = ""


class Change(DocumentedModel):
    """What became of somebody, from the baseline (FedAvg) to this model."""

    part: Literal["all", "group", "client"]
    whom: str
    number: str
    """The number's name."""
    before: Number
    after: Number
    change: Number
    interval: Bounds = None
    """Of the change, where it is one of two shares; too wide, since it ignores that the rows are
    the same."""


class TrainingCourse(DocumentedModel):
    """How training went, round by round."""

    rounds: list[int]
    served: list[int]
    """The rounds whose weights are the model."""
    curves: dict[str, list[Number]]
    """By name: test_accuracy, train_accuracy, test_violation, train_violation."""
    multipliers: dict[str, list[Number]]
    """Of each constraint, in words; empty for methods without."""
    conflicts: list[Number]
    """Pairs of clients whose updates pointed against each other; empty for methods without."""
    coefficients: dict[str, list[Number]]
    """Of each client: how much its update counted."""
    set_aside: list[str]
    """Whose answers were not used, and why."""


class DataTreatment(DocumentedModel):
    """What was done to the data before training."""

    rows: int
    clients: list[dict[str, Any]]
    """Each client's name, rows, train, validation, test and base_rate (None if unknown)."""
    dropped: list[str]
    filled: list[str]
    merged: list[str]
    """Categories that became one."""
    notes: list[str]
    """Whatever else a reader should know."""
    warnings: list[str]


class GroupUse(DocumentedModel):
    """Whether decisions read the group."""

    reads_group: bool
    sentence: str
    details: list[str]


class ServerView(DocumentedModel):
    """What the server saw of each client, or would have seen of clients elsewhere."""

    sentence: str
    """Where the rows were, and whether the method is known."""
    lines: list[ManifestLine] = Field(default_factory=list)
    """What crossed, and what clients kept."""


class Withheld(DocumentedModel):
    """What one silo kept back."""

    client: str
    min_rows: int
    """Its floor."""
    sets: list[str]
    """The sets of rows, in words."""
    rows: dict[str, int]
    """By split: rows in these sets."""
    policy_sha256: str
    """SHA-256 of its rules of disclosure."""


class Provenance(DocumentedModel):
    """Where the numbers come from."""

    run: str
    """The run's folder, by its last name."""
    identity: str
    strategy: str
    settings: dict[str, Any]
    """The configuration, by dotted key."""
    seed: int
    data: dict[str, Any]
    """name, sha256, rows."""
    files: dict[str, str]
    """SHA-256 of run.json, the model and the encoder, as the files are now."""
    versions: dict[str, str]
    machine: dict[str, str]


class RunReport(DocumentedModel):
    """report.json.

    Examples
    --------
    >>> from mfairfl.report import build_report
    >>> report = build_report(["runs/mfairfl", "runs/fedavg"])  # doctest: +SKIP
    >>> report.headline.judgements[0].outcome  # doctest: +SKIP
    'met'
    """

    schema_version: Literal[1] = 1
    mfairfl: str
    """The version that wrote it."""
    split: str
    """Which rows the numbers are of: test, unless there are none."""
    level: float
    """Confidence level of the intervals."""
    goal: list[str]
    """The violations that the run was asked to lower."""
    headline: Headline
    overall: list[Measured]
    sections: list[Section]
    clients: list[Slice]
    """With each client's own violations."""
    compared: list[ComparedModel]
    changes: list[Change]
    """Against the baseline; empty without one."""
    baseline: str = ""
    """Name of the baseline among `compared`."""
    training: TrainingCourse
    data: DataTreatment
    group_use: GroupUse
    server: ServerView
    withheld: list[Withheld] = Field(default_factory=list)
    """By silos; empty where all rows were in one place."""
    provenance: Provenance
    definitions: list[Definition] = Field(default_factory=list)
    """Of every number that occurs, in the order of appearance."""

    def to_json(self) -> str:
        """Return the text of report.json; nan has no place in it."""
        plain = self.model_dump(mode="json")
        return json.dumps(plain, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def json_schema() -> str:
    """Return the JSON schema of report.json, as it is in docs/report.schema.json."""
    return schema_text("report.json", RunReport.model_json_schema(mode="serialization"))
