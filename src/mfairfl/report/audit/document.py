"""audit.json as a typed model: everything that an audit says, before any layout.

The page, the tables and the summary in the terminal are written from this document alone.
docs/audit.md describes it in words, docs/audit.schema.json as a JSON schema.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from mfairfl.data.values import DocumentedModel
from mfairfl.errors import DataError, MfairflError, first_problem
from mfairfl.fairness.results import Bounds, Measured, Number, Numbers, Section, Slice
from mfairfl.files import read_regular_file
from mfairfl.report.audit.stored_counts import StoredCounts
from mfairfl.report.audit_settings import AuditSettings, AuditSource
from mfairfl.report.document import Definition, Judgement
from mfairfl.runs.record import schema_text
from mfairfl.strict_json import parse_json
from mfairfl.text import one_line

SCHEMA_VERSION = 1

NOTICE = "This is not an independent bias audit, and not legal advice."


class AuditHeadline(DocumentedModel):
    """The first screen."""

    title: str
    what: str
    """First sentence: whose decisions, on how many rows, between which groups."""
    verdict: str
    """Second: the tolerance, and whether it is met; or that none was set."""
    unknown: str
    """Third: on how many rows something is not known, and what that could change; or empty."""
    judgements: list[Judgement]
    """Of each chosen notion, its violation held against the tolerance."""
    warnings: list[str]
    """What makes the numbers doubtful, the worst first."""


class RowFacts(DocumentedModel):
    """How many rows there are, and what is known of them."""

    counted: int
    """Rows behind the numbers."""
    labelled: int
    """Of these, rows whose label is known."""
    unknown_group: dict[str, int]
    """By attribute: counted rows of which the group is not known."""
    withheld: dict[str, int]
    """By client: rows that it did not tell, at most; in no number but the bounds."""
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
    """People whom silos did not tell, at most; in no row."""
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


class AuditDocument(DocumentedModel):
    """audit.json.

    `print(document)` shows the summary, `document.write(folder)` writes the files.

    Examples
    --------
    >>> from mfairfl.report.audit.document import AuditDocument
    >>> earlier = AuditDocument.read("audits/2026-01")  # doctest: +SKIP
    >>> earlier.headline.judgements[0].outcome  # doctest: +SKIP
    'met'
    """

    schema_version: Literal[1] = 1
    kind: Literal["audit"] = "audit"
    mfairfl: str
    """The version that wrote it."""
    notice: str = NOTICE
    settings: AuditSettings
    """With the facts to be printed, the columns and what their values stand for."""
    sources: list[AuditSource]
    headline: AuditHeadline
    rows: RowFacts
    overall: list[Measured]
    """Numbers of all rows, and of all groups and clients together."""
    constant_classifier: Numbers
    """The numbers of giving everyone the commoner label; empty without labels."""
    sections: list[Section]
    """The groups of each attribute, and of all crossed."""
    clients: list[Slice]
    """With each client's own violations; empty if there is one only."""
    bias_tables: list[BiasTable]
    """Empty unless columns for sex or race/ethnicity were named."""
    sweep: Sweep | None = None
    drift: Drift | None = None
    definitions: list[Definition]
    """Of every number that occurs."""
    counts: StoredCounts
    """The counts that every other number was computed from."""

    @classmethod
    def read(cls, path: str | Path) -> AuditDocument:
        """Read audit.json; `path` is the file or its folder."""
        return read_audit(Path(path))

    def with_warnings(self, lines: Sequence[str]) -> AuditDocument:
        """Return the document with these warnings before its own."""
        warned = self.headline.model_copy(update={"warnings": [*lines, *self.headline.warnings]})
        return self.model_copy(update={"headline": warned})

    def to_json(self) -> str:
        """Return the text of audit.json; nan has no place in it."""
        plain = self.model_dump(mode="json")
        return json.dumps(plain, indent=2, allow_nan=False, ensure_ascii=False) + "\n"

    def write(self, folder: str | Path) -> list[Path]:
        """Write audit.json, the page and the tables into a folder; return the files."""
        from mfairfl.report.audit.write import write_audit  # noqa: PLC0415 - it writes this

        return write_audit(self, Path(folder))

    def __str__(self) -> str:
        from mfairfl.report.audit.summary import summary  # noqa: PLC0415 - it describes this

        return summary(self)


def read_audit(path: Path) -> AuditDocument:
    """Read audit.json, the file or its folder; what is none is refused in one line."""
    file = path / "audit.json" if path.is_dir() else path
    try:
        plain = parse_json(read_regular_file(file))
    except FileNotFoundError:
        raise DataError(f"{file}: no such file; give the --out folder of an audit") from None
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise DataError(f"{file}: not readable JSON ({one_line(str(error))})") from None
    if not isinstance(plain, dict) or plain.get("kind") != "audit":
        raise DataError(f"{file}: not an audit; give the audit.json of `mfairfl audit`")
    if plain.get("schema_version") != SCHEMA_VERSION:
        said = one_line(repr(plain.get("schema_version")), 40)
        raise DataError(f"{file}: schema_version is {said}; this version reads {SCHEMA_VERSION}")
    try:
        return AuditDocument.model_validate(plain)
    except ValidationError as error:
        problem = first_problem(error, AuditDocument)
    except MfairflError as error:
        problem = str(error)
    raise DataError(f"{file}: {one_line(problem)}; the file was altered: audit again")


def json_schema() -> str:
    """Return the JSON schema of audit.json, as it is in docs/audit.schema.json."""
    return schema_text("audit.json", AuditDocument.model_json_schema(mode="serialization"))
