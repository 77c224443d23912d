"""What an audit is told beside the counts: what they mean, what to test, what to print."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from mfairfl.data.values import DocumentedModel
from mfairfl.errors import ConfigError
from mfairfl.fairness.notions import notion

NOT_STATED = "not stated"
_LONGEST = 2000  # characters of a text that somebody typed


class AuditFacts(DocumentedModel):
    """What 6 RCNY §5-301 asks to be said beside the tables, and only its author knows.

    Examples
    --------
    >>> AuditFacts(tool="ranker 2").data_source
    'not stated'
    """

    tool: str = Field(NOT_STATED, max_length=_LONGEST)
    """The model or tool whose decisions these are."""
    audit_date: str = Field(NOT_STATED, max_length=_LONGEST)
    """When the audit was made."""
    distribution_date: str = Field(NOT_STATED, max_length=_LONGEST)
    """Since when the tool has been in use."""
    data_source: str = Field(NOT_STATED, max_length=_LONGEST)
    """Where the data come from, and why these."""
    data_kind: Literal["historical", "test", "not stated"] = "not stated"
    """Whether the data are of people the tool was used on."""


class AuditMeaning(DocumentedModel):
    """Which columns were read, and what their values stand for; empty where there is none."""

    label: str = ""
    """Column of what was true; empty if unknown."""
    favourable: str = ""
    """The label that is good for a person."""
    prediction: str = ""
    """Column of decisions; empty if they are scores above the threshold."""
    selected: str = ""
    """The decision that is good for a person."""
    score: str = ""
    """Column of scores."""
    threshold: float | None = None
    """Score above which a decision is favourable, if decisions were made from scores."""
    client: str = ""
    """Column of clients, or `silos`."""


class AuditSource(DocumentedModel):
    """One file, frame or silo whose rows were counted."""

    name: str
    rows: int
    """Rows that it holds, counted or not."""
    sha256: str = ""
    """Of the file's bytes, where they were seen."""
    left_out: dict[str, int] = Field(default_factory=dict)
    """Rows that could not be counted, by reason."""
    notes: list[str] = Field(default_factory=list)
    """What was guessed on reading."""


class AuditSettings(DocumentedModel):
    """What the numbers are held against.

    Examples
    --------
    >>> AuditSettings(notions=("eo",), tolerance=0.05).notions
    ('equalized_odds',)
    """

    meaning: AuditMeaning = AuditMeaning()
    facts: AuditFacts = AuditFacts()
    notions: tuple[str, ...] = Field(("demographic_parity",), min_length=1)
    """The notions that the verdict, the sweep and the summary are about; all are measured."""
    tolerance: float | None = Field(None, ge=0, lt=1)
    """The largest acceptable violation; none set, no verdict."""
    level: float = Field(0.95, gt=0, lt=1)
    """Confidence level of intervals."""
    sex: str | None = None
    """The attribute that is the sex in tables of 6 RCNY §5-301."""
    race: str | None = None
    """The attribute that is race and ethnicity there."""
    small_categories: str | None = Field(None, min_length=1, max_length=_LONGEST)
    """Why categories under 2 % of the rows are left out of ratios; without a reason none is."""
    seed: int = Field(0, ge=0)
    """Seed of the resampling behind intervals and noise floors."""

    @field_validator("notions")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        chosen = [notion(name) for name in names]
        for one in chosen:
            if one.statistic == "loss":
                raise ConfigError(f"notion '{one.name}' compares losses, not decisions")
        return tuple(dict.fromkeys(one.name for one in chosen))

    @model_validator(mode="after")
    def _two_attributes(self) -> Self:
        if self.sex is not None and self.sex == self.race:
            raise ConfigError(f"'{self.sex}' is named as sex and as race: name two columns")
        return self
