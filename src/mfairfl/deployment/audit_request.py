"""What an audit over silos is about: ``[audit]`` of federation.toml, flags, and request.json."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError

from mfairfl.data.predictions import PredictionColumns
from mfairfl.data.values import DocumentedModel, Text
from mfairfl.errors import ConfigError, first_problem
from mfairfl.fairness.audit_counts import ScoreGrid
from mfairfl.fairness.notions import notion
from mfairfl.files import RelativePath
from mfairfl.report.audit.numbers import needs_label
from mfairfl.report.audit.settings import NOT_STATED, AuditFacts, AuditMeaning, AuditSettings

REQUEST = "request.json"
"""Name of the file in which the server app finds it."""

_AS_WRITTEN = "as each silo says"
_COLUMNS = ("label", "favourable", "prediction", "selected", "score", "threshold")


class AuditRequest(DocumentedModel):
    """Whose decisions are audited, and what the numbers are held against.

    Examples
    --------
    >>> request = AuditRequest(sensitive=("sex",), label="hired", prediction="decision")
    >>> request.columns().named
    ('sex', 'decision', 'hired')
    """

    run: RelativePath | None = None
    """Run folder whose model silos are sent, instead of predictions in their files."""
    sensitive: tuple[str, ...] = ()
    """Columns whose groups are compared; of a run's model all of its task by default."""
    label: str | None = None
    """Column of what was true."""
    favourable: Text | None = None
    """The label that is good for a person, where silos do not say it themselves."""
    prediction: str | None = None
    """Column of decisions."""
    selected: Text | None = None
    """The favourable decision, where silos do not say it themselves."""
    score: str | None = None
    """Column of scores."""
    score_range: tuple[float, float] = (0.0, 1.0)
    """The lowest and the highest possible score."""
    threshold: float | None = None
    """Score above which a decision is favourable, without a column of decisions."""
    notions: tuple[str, ...] = ("demographic_parity",)
    """The notions that the verdict is about; all are measured."""
    tolerance: float | None = None
    """The largest acceptable violation; none set, no verdict."""
    level: float = 0.95
    """Confidence level of intervals."""
    sex: str | None = None
    """The column that is the sex in tables of 6 RCNY §5-301."""
    race: str | None = None
    """The column that is race and ethnicity there."""
    small_categories: str | None = None
    """Why categories under 2 % of the rows are left out of ratios."""
    facts: AuditFacts = Field(default_factory=AuditFacts)
    """What is printed beside the tables: tool, dates, source of the data."""

    def overridden(self, flags: Mapping[str, Any]) -> Self:
        """Return the request with other values of these keys, checked.

        Examples
        --------
        >>> AuditRequest(label="hired").overridden({"tolerance": 0.1}).tolerance
        0.1
        """
        try:
            return type(self).model_validate(self.model_dump(exclude_unset=True) | dict(flags))
        except ValidationError as error:
            raise ConfigError(first_problem(error, type(self), prefix="audit")) from None

    @property
    def compared(self) -> tuple[str, ...]:
        """The columns whose groups are compared, those of sex and race among them."""
        others = (name for name in (self.sex, self.race) if name is not None)
        return tuple(dict.fromkeys((*self.sensitive, *others)))

    def columns(self) -> PredictionColumns:
        """Return the columns of silos' files; that enough are named is checked."""
        if not self.compared:
            raise ConfigError("fair for whom? Name the columns of groups (--sensitive)")
        for name in self.notions:
            if self.label is None and needs_label(notion(name)):
                raise ConfigError(f"notion '{name}' needs labels: name their column (--label)")
        named = {key: getattr(self, key) for key in _COLUMNS}
        return PredictionColumns(sensitive=self.compared, **named)

    def grid(self) -> ScoreGrid:
        """Return the steps of the scores that are counted."""
        return ScoreGrid(*self.score_range)

    def check(self) -> None:
        """Refuse what cannot be asked of silos."""
        self.settings()
        self.grid()
        if self.run is None:
            self.columns()
        elif given := [key for key in _COLUMNS if getattr(self, key) is not None]:
            raise ConfigError(
                f"audit.{given[0]}: a run's model is audited on its own label and scores; leave "
                f"{given[0]} or run out"
            )

    def settings(self, meaning: AuditMeaning | None = None, tool: str = "") -> AuditSettings:
        """Return what the document is built with.

        Parameters
        ----------
        meaning : AuditMeaning, optional
            Of a run's model; by default that of the columns.
        tool : str
            What is audited, unless the facts say it.
        """
        stated = {key: getattr(self, key) or "" for key in _COLUMNS if key != "threshold"}
        if self.label is not None:
            stated["favourable"] = self.favourable or _AS_WRITTEN
        if self.prediction is not None:
            stated["selected"] = self.selected or self.favourable or _AS_WRITTEN
        own = AuditMeaning(**stated, threshold=self.threshold, client="silos")
        known = {"tool": tool or NOT_STATED, "audit_date": date.today().isoformat()}
        missing = {k: v for k, v in known.items() if getattr(self.facts, k) == NOT_STATED}
        facts = self.facts.model_copy(update=missing)
        keys = ("notions", "tolerance", "level", "sex", "race", "small_categories")
        try:
            return AuditSettings(
                meaning=meaning or own, facts=facts, **{key: getattr(self, key) for key in keys}
            )
        except ValidationError as error:
            raise ConfigError(first_problem(error, AuditSettings, prefix="audit")) from None


def load_request(path: Path) -> AuditRequest:
    """Read the file that an audit was asked with."""
    try:
        return AuditRequest.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        why = first_problem(error) if isinstance(error, ValidationError) else error.strerror
        raise ConfigError(f"{path}: not a request for an audit ({why})") from None
