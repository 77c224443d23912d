"""One typed document for the report of a run and for an audit: what it says, before any layout.

report.json and audit.json are this document. The page, the model card, the tables and the summary
in the terminal are written from it alone. docs/report.md and docs/audit.md describe it in words,
docs/report.schema.json and docs/audit.schema.json as JSON schemas.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from mfairfl.data.values import DocumentedModel
from mfairfl.errors import DataError, RunDirectoryError
from mfairfl.experiments.tradeoff import Tradeoff
from mfairfl.fairness.audit_counts import StoredCounts
from mfairfl.fairness.results import Bounds, Measured, Number, Numbers, Section, Slice
from mfairfl.fairness.uncertainty import Verdict
from mfairfl.fairness.worsened import Worsened
from mfairfl.report.audit_settings import AuditSettings, AuditSource
from mfairfl.runs.manifest import ManifestLine
from mfairfl.runs.record import read_json, schema_text, validated
from mfairfl.text import one_line

SCHEMA_VERSION = 2

NOTICE = "This is not an independent bias audit, and not legal advice."

Outcome = Verdict | Literal["no verdict"]
"""`no verdict`: there is no tolerance, nothing to compare, or no number that may be judged."""


# ------------------------------------------------------------------ headline


class Judgement(DocumentedModel):
    """The violation of one notion against the tolerance."""

    measure: Measured
    tolerance: float | None
    """The largest acceptable violation; None if none was set."""
    outcome: Outcome
    sentence: str
    """The same in words."""
    caution: str = ""
    """Why a low number means little, for example: almost everyone gets the same decision."""


class Headline(DocumentedModel):
    """The first screen."""

    title: str
    what: str
    """What was trained or audited, for whom and on how many rows."""
    verdict: str
    """The tolerance, and whether it is met; or why there is no verdict."""
    cost: str = ""
    """What fairness cost, and whom, or why that is not known; empty in an audit."""
    worse: str = ""
    """What got worse than under the baseline, beyond chance; empty without one."""
    worsened: list[Worsened] = Field(default_factory=list)
    """The same as numbers, the largest change first."""
    unknown: str = ""
    """What is not known of how many rows of an audit, and what that could change; or empty."""
    judgements: list[Judgement]
    """Of each notion of the goal."""
    warnings: list[str]
    """What makes the numbers doubtful, the worst first."""


# ------------------------------------------------------------------ body


class Definition(DocumentedModel):
    """What a number means, in plain words."""

    name: str
    """The number's name, as in run.json."""
    label: str
    """What a person calls it."""
    meaning: str
    """One or two sentences."""
    formula: str = ""


# ------------------------------------------------------------------ parts of the report of a run


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
    """What changed for everyone, a group or a client, from the baseline (FedAvg) to this model."""

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


class TrainingHistory(DocumentedModel):
    """How training went, round by round; empty of a run that kept no history."""

    rounds: list[int] = Field(default_factory=list)
    served: list[int] = Field(default_factory=list)
    """The rounds whose weights are the model."""
    curves: dict[str, list[Number]] = Field(default_factory=dict)
    """By name: test_accuracy, train_accuracy, test_violation, train_violation."""
    multipliers: dict[str, list[Number]] = Field(default_factory=dict)
    """Of each constraint, in words; empty for methods without."""
    conflicts: list[Number] = Field(default_factory=list)
    """Pairs of clients whose updates pointed against each other; empty for methods without."""
    coefficients: dict[str, list[Number]] = Field(default_factory=dict)
    """Of each client: how much its update counted."""
    set_aside: list[str] = Field(default_factory=list)
    """The clients whose answers were not used, and why."""


class ClientRows(DocumentedModel):
    """The rows of one client."""

    name: str
    rows: int
    train: int
    validation: int
    test: int
    base_rate: Number
    """Share of the rows with the favourable label; None if unknown."""


class DataTreatment(DocumentedModel):
    """What was done to the data before training."""

    rows: int
    clients: list[ClientRows]
    dropped: list[str]
    filled: list[str]
    merged: list[str]
    """Categories that were merged into one."""
    notes: list[str]
    """Whatever else a reader should know."""
    warnings: list[str]


class GroupUse(DocumentedModel):
    """Whether decisions read the group, and the client."""

    reads_group: bool
    reads_client: bool = False
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


# ------------------------------------------------------------------ parts of an audit


class RowFacts(DocumentedModel):
    """How many rows there are, and what is known of them."""

    counted: int
    """Rows behind the numbers."""
    labelled: int
    """Of these, rows whose label is known."""
    unknown_group: dict[str, int]
    """By attribute: counted rows of which the group is not known."""
    withheld: dict[str, int]
    """By client: rows that it withheld, at most; in no number but the bounds."""
    left_out: dict[str, int]
    """Rows that could not be counted, by reason."""


class BiasRow(DocumentedModel):
    """One category in a table of 6 RCNY §5-301."""

    category: str
    """Name, for example `Female × White`."""
    groups: tuple[str, ...]
    """The same in parts: one group for each attribute of the table."""
    applicants: int
    selected: int
    """Number selected; of scores, the number above the sample's median."""
    share: float | None
    """Of all applicants, unknown categories included."""
    rate: Measured
    """Selection rate or scoring rate: name `selection_rate` or `scoring_rate`."""
    impact_ratio: Measured
    """Rate divided by the highest rate."""
    p_value: Number
    """Fisher's exact test against the highest category, two-sided; null for that category."""
    p_holm: Number
    """The same, corrected for the number of comparisons in the table."""
    highest: bool
    """Whether it has the highest rate; several may."""
    reference: bool
    """Whether it is the one of these that others are compared with: the largest."""
    small: bool
    """Whether it holds less than 2 % of the rows."""
    left_out: bool
    """Whether it is left out of the ratios, for the reason that the table gives."""


class BiasTable(DocumentedModel):
    """One table in the form of 6 RCNY §5-301."""

    name: Literal["sex", "race", "sex_race"]
    title: str
    """For example `Race/ethnicity: selection`."""
    attributes: tuple[str, ...]
    """The columns behind it: one, or sex and race/ethnicity."""
    measure: Literal["selection", "scoring"]
    """Whether people were selected, or given scores."""
    rows: list[BiasRow]
    unknown: int
    """People in unknown categories; in no row."""
    withheld: int
    """People whom silos withheld, at most; in no row."""
    median: Number = None
    """The median that scores were compared with."""
    median_kind: Literal["", "sample median", "edge of the score grid"] = ""
    """The exact median, or the lowest edge of the grid with half the rows at or below it."""
    justification: str = ""
    """Why small categories are left out."""
    notes: list[str]
    """How to read it."""


class SweepRow(DocumentedModel):
    """Everything at one threshold: scores above it are favourable decisions."""

    threshold: float
    selection_rate: Number
    accuracy: Number
    measures: Numbers
    """Violation, difference and ratio of the chosen notions, by name."""
    groups: dict[str, dict[str, Numbers]]
    """By attribute and group: selection_rate, true_positive_rate, false_positive_rate."""


class Sweep(DocumentedModel):
    """What other thresholds would give."""

    rows: list[SweepRow]
    """By threshold, upwards."""
    used: float | None
    """The threshold behind the audited decisions, if they were made from the scores here."""


class DriftRow(DocumentedModel):
    """What became of one number since the earlier audit."""

    part: Literal["all", "attribute", "group", "client"]
    attribute: str = ""
    """The attribute, of a group or of a number that compares groups."""
    whom: str = ""
    """The group or the client."""
    number: str
    """The number's name."""
    before: Number
    after: Number
    change: Number
    interval: Bounds = None
    """Of the change."""
    p_holm: Number = None
    """Of a rate: Fisher's exact test of no change, corrected for all rates compared."""
    beyond_chance: bool | None = None
    """Whether chance alone hardly explains the change; null where that is not tested."""


class Drift(DocumentedModel):
    """What changed since an earlier audit."""

    title: str
    """The earlier audit."""
    audit_date: str
    rows_before: int
    rows_after: int
    sentence: str
    """What changed beyond chance, in words."""
    changes: list[DriftRow]
    appeared: list[str]
    """Groups and clients that the earlier audit did not have, `attribute: group`."""
    vanished: list[str]
    """Those that only the earlier one had."""


# ------------------------------------------------------------------ the document


class Document(DocumentedModel):
    """The report of a run (report.json) or an audit of decisions (audit.json).

    Both have a headline and a body: the numbers of all rows, of groups and of clients. The parts
    that only one of them can have are null or empty in the other.

    Examples
    --------
    >>> from mfairfl.report import build_report
    >>> report = build_report(["runs/mfairfl", "runs/fedavg"])  # doctest: +SKIP
    >>> report.headline.judgements[0].outcome  # doctest: +SKIP
    'met'
    >>> earlier = Document.read("audits/2026-01")  # doctest: +SKIP
    >>> print(earlier)  # the summary  # doctest: +SKIP
    """

    schema_version: Literal[2] = 2
    kind: Literal["report", "audit"]
    """Whether the numbers are of a run's model, or of decisions of any origin."""
    mfairfl: str
    """The version that wrote it."""
    notice: str = ""
    """What an audit is not."""
    level: float
    """Confidence level of the intervals."""
    goal: list[str]
    """The violations that are judged: those that the run or the audit was asked about."""
    headline: Headline
    overall: list[Measured]
    """Numbers of all rows, and of all groups and clients together."""
    sections: list[Section]
    """The groups of each attribute, and of all crossed."""
    clients: list[Slice]
    """With each client's own violations; empty in an audit of one client."""
    definitions: list[Definition] = Field(default_factory=list)
    """Of every number that occurs, in the order of appearance."""

    split: str = ""
    """Which rows of a run the numbers are of: test, unless there are none."""
    compared: list[ComparedModel] = Field(default_factory=list)
    """A run's model, other runs, the constant classifier, pooled references."""
    baseline: str = ""
    """Name of the baseline among `compared`."""
    changes: list[Change] = Field(default_factory=list)
    """From the baseline to this run; empty without one."""
    tradeoff: Tradeoff | None = None
    """What other tolerances would cost; null of a run that keeps no scores."""
    training: TrainingHistory | None = None
    data: DataTreatment | None = None
    group_use: GroupUse | None = None
    server: ServerView | None = None
    withheld: list[Withheld] = Field(default_factory=list)
    """By the silos of a run; empty where all rows were in one place."""
    provenance: Provenance | None = None

    constant_classifier: Numbers = Field(default_factory=dict)
    """Of an audit: the numbers of giving everyone the more common label; empty without labels. A
    report has them in `compared`."""
    settings: AuditSettings | None = None
    """Of an audit: the facts to be printed, the columns and what their values stand for."""
    sources: list[AuditSource] = Field(default_factory=list)
    """Where the rows of an audit come from."""
    rows: RowFacts | None = None
    bias_tables: list[BiasTable] = Field(default_factory=list)
    """Empty unless columns for sex or race/ethnicity were named."""
    sweep: Sweep | None = None
    drift: Drift | None = None
    counts: StoredCounts | None = None
    """Of an audit: the counts that every other number was computed from."""

    @classmethod
    def read(cls, path: str | Path) -> Document:
        """Read report.json or audit.json; a folder stands for the audit.json in it."""
        file = Path(path)
        file = file / "audit.json" if file.is_dir() else file
        try:
            plain = read_json(file, "give the --out folder of an audit")
            if not isinstance(plain, dict) or plain.get("kind") not in ("report", "audit"):
                raise DataError(f"{file}: not an audit; give the audit.json of `mfairfl audit`")
            if plain.get("schema_version") not in (1, SCHEMA_VERSION):
                version = one_line(repr(plain.get("schema_version")), 40)
                raise DataError(
                    f"{file}: schema_version is {version}; this version reads 1 and "
                    f"{SCHEMA_VERSION}"
                )
            remedy = "the file was altered: audit again"
            if plain["schema_version"] == 1:  # before mfairfl 0.9
                settings = validated(AuditSettings, plain.get("settings"), file, remedy)
                goal = [f"{name}_violation" for name in settings.notions]
                plain |= {"schema_version": SCHEMA_VERSION, "level": settings.level, "goal": goal}
            return validated(cls, plain, file, remedy)
        except RunDirectoryError as error:  # of files in general: an audit is data
            raise DataError(str(error)) from None

    def with_warnings(self, lines: Sequence[str]) -> Document:
        """Return the document with these warnings before its own."""
        warned = self.headline.model_copy(update={"warnings": [*lines, *self.headline.warnings]})
        return self.model_copy(update={"headline": warned})

    def to_json(self) -> str:
        """Return the text of report.json or audit.json, in which there is no nan."""
        plain = self.model_dump(mode="json")
        return json.dumps(plain, indent=2, allow_nan=False, ensure_ascii=False) + "\n"

    def write(self, folder: str | Path) -> list[Path]:
        """Write audit.json, the page and the tables into a folder; return the files."""
        from mfairfl.report.write import write_audit  # noqa: PLC0415 - it writes this

        return write_audit(self, Path(folder))

    def __str__(self) -> str:
        from mfairfl.report.audit_text import summary  # noqa: PLC0415 - it describes this

        return summary(self)


def json_schema(name: Literal["report.json", "audit.json"]) -> str:
    """Return the JSON schema of one of the files, as it is in docs/."""
    return schema_text(name, Document.model_json_schema(mode="serialization"))
