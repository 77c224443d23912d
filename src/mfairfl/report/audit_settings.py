"""What an audit is about: its columns, what is tested, what is printed, where rows come from."""

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from mfairfl.data import SPLITS
from mfairfl.data.predictions import PredictionColumns
from mfairfl.data.values import DocumentedModel, Text
from mfairfl.errors import ConfigError, first_problem, require_known
from mfairfl.fairness.audit_counts import ScoreGrid
from mfairfl.fairness.audit_numbers import needs_label
from mfairfl.fairness.notions import notion

NOT_STATED = "not stated"
ALL = "all"
"""Rows of every split, including those a model was trained on."""
_LONGEST = 2000  # characters of a typed text
_Model = TypeVar("_Model", bound=BaseModel)

Names = Annotated[
    tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)
]
"""One name, or several."""
Stated = Annotated[str, Field(max_length=_LONGEST)]
"""A text that the author of an audit typed."""


class AuditFacts(DocumentedModel):
    """What 6 RCNY §5-301 asks to be stated beside the tables, and only their author knows.

    Examples
    --------
    >>> AuditFacts(tool="ranker 2").data_source
    'not stated'
    """

    tool: Stated = NOT_STATED
    """The model or tool whose decisions these are."""
    audit_date: Stated = NOT_STATED
    """When the audit was made."""
    distribution_date: Stated = NOT_STATED
    """Since when the tool has been in use."""
    data_source: Stated = NOT_STATED
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


class AuditStandard(DocumentedModel):
    """What the numbers are held against, and what is printed beside them."""

    facts: AuditFacts = AuditFacts()
    notions: Annotated[Names, Field(min_length=1)] = ("demographic_parity",)
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

    @field_validator("notions")
    @classmethod
    def _of_decisions(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        chosen = [notion(name) for name in names]
        for each in chosen:
            if each.statistic == "loss":
                raise ConfigError(f"notion '{each.name}' compares losses, not decisions")
        return tuple(dict.fromkeys(each.name for each in chosen))

    @model_validator(mode="after")
    def _two_attributes(self) -> Self:
        if self.sex is not None and self.sex == self.race:
            raise ConfigError(f"'{self.sex}' is named as sex and as race: name two columns")
        return self


class AuditSettings(AuditStandard):
    """What a document was made with.

    Examples
    --------
    >>> AuditSettings(notions=("eo",), tolerance=0.05).notions
    ('equalized_odds',)
    """

    meaning: AuditMeaning = AuditMeaning()
    seed: int = Field(0, ge=0)
    """Seed of the resampling behind intervals and noise floors."""


class AuditOptions(AuditStandard):
    """What flags, keywords and the section ``[audit]`` of a file may set.

    Examples
    --------
    >>> options = AuditOptions(sensitive="sex", label="hired", prediction="decision")
    >>> options.columns().named
    ('sex', 'decision', 'hired')
    """

    sensitive: Names = ()
    """Columns whose groups are compared."""
    prediction: str | None = None
    """Column of decisions."""
    label: str | None = None
    """Column of what was true."""
    score: str | None = None
    """Column of scores."""
    favourable: Text | None = None
    """The label that is good for a person."""
    selected: Text | None = None
    """The decision that is good for a person, if it is written differently from labels."""
    threshold: float | None = None
    """Score above which a decision is favourable, without a column of decisions."""
    score_range: tuple[float, float] = (0.0, 1.0)
    """The lowest and the highest possible score."""

    @property
    def compared(self) -> tuple[str, ...]:
        """The columns whose groups are compared, including those of sex and race."""
        others = (name for name in (self.sex, self.race) if name is not None)
        return tuple(dict.fromkeys((*self.sensitive, *others)))

    def columns(self) -> PredictionColumns:
        """Return the columns to read, once enough of them are named."""
        if not self.compared:
            raise ConfigError(
                "fair for whom? Name the columns of groups: sensitive= (--sensitive)"
            )
        for name in self.notions:
            if self.label is None and needs_label(notion(name)):
                raise ConfigError(f"notion '{name}' needs labels: name their column (--label)")
        named = {
            name: getattr(self, name, None)
            for name in PredictionColumns.model_fields
            if name != "sensitive"
        }
        return validated(PredictionColumns, named | {"sensitive": self.compared})

    def grid(self) -> ScoreGrid:
        """Return the steps of the scores that are counted."""
        return ScoreGrid(*self.score_range)

    def settings(self, meaning: AuditMeaning, tool: str = NOT_STATED) -> AuditSettings:
        """Return what the document is made with; an audit without a date is of today.

        Parameters
        ----------
        tool : str
            What is audited, unless the facts say it.
        """
        defaults = {"tool": tool, "audit_date": date.today().isoformat()}
        missing = {k: v for k, v in defaults.items() if getattr(self.facts, k) == NOT_STATED}
        standard = {name: getattr(self, name) for name in AuditStandard.model_fields}
        standard["facts"] = self.facts.model_copy(update=missing)
        return AuditSettings(meaning=meaning, **standard)


class RowOptions(AuditOptions):
    """What an audit of rows on this machine may set in addition."""

    client: str | None = None
    """Column of the client of each row."""
    bins: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    """Cuts of columns of numbers: ``{"age": (40, 60)}`` makes three groups."""
    unknown: tuple[Text, ...] = ()
    """Values that mean "not known", in any column."""
    split: str | None = None
    """The rows to count where a column holds their split; without it train rows are refused."""

    @field_validator("split")
    @classmethod
    def _of_a_run(cls, split: str | None) -> str | None:
        if split is not None:
            require_known("split", [split], (*SPLITS, ALL))
        return split


def validated(model: type[_Model], values: Mapping[str, Any]) -> _Model:
    """Check the options of an audit; errors are one line that names the key.

    Examples
    --------
    >>> validated(AuditOptions, {"tolerance": 0.1}).tolerance
    0.1
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ConfigError(first_problem(error, model, prefix="audit")) from None
