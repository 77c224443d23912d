"""A report or an audit as one self-contained HTML file."""

from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from mfairfl.display.tables import fill
from mfairfl.report import figures, tables
from mfairfl.report.charts.drawing import chart_style
from mfairfl.report.document import Document, Headline, Outcome
from mfairfl.report.wording import Words


@dataclass(frozen=True, slots=True)
class Badge:
    """A verdict at a glance: in words, by a mark, and by a kind that has a colour."""

    words: str
    mark: str
    kind: Literal["good", "bad", "open", "none"]


_BADGES: dict[Outcome, Badge] = {  # the worst first
    "not met": Badge("Fairness goal not met", "✕", "bad"),
    "too few rows to tell": Badge("Too few rows to tell", "?", "open"),
    "no verdict": Badge("No verdict", "–", "none"),
    "met": Badge("Fairness goal met", "✓", "good"),
}
_CAUTION = Badge("Fairness goal met, but that is no good news", "!", "open")
_AT_A_PRICE = Badge("Fairness goal met, but something got worse", "!", "open")


def badge(headline: Headline) -> Badge:
    """Return the verdict on several goals together: that on the worst.

    A goal that is met for a bad reason, or while something else got worse, is not shown as good.

    Examples
    --------
    >>> badge(Headline(title="", what="", verdict="", judgements=[], warnings=[])).words
    'No verdict'
    """
    judgements = headline.judgements
    outcomes: list[Outcome] = [judgement.outcome for judgement in judgements] or ["no verdict"]
    worst = min(outcomes, key=list(_BADGES).index)
    if worst == "met" and any(judgement.caution for judgement in judgements):
        return _CAUTION
    if worst == "met" and headline.worsened:
        return _AT_A_PRICE
    return _BADGES[worst]


def render(document: Document) -> Markup:
    """Return the page of a document: one HTML file that loads nothing and runs nothing.

    Examples
    --------
    >>> from mfairfl.fairness.audit_counts import AuditCounts
    >>> from mfairfl.report.audit_document import build_audit
    >>> from mfairfl.report.audit_settings import AuditSettings
    >>> rows = AuditCounts.from_rows(None, [1, 0], sensitive_features={"sex": ["F", "M"]})
    >>> "not legal advice" in render(build_audit(rows, AuditSettings()))
    True
    """
    page = fill(
        "mfairfl.report",
        "page.html",
        document=document,
        words=Words(document.definitions),
        figures=figures,
        tables=tables,
        badge=badge(document.headline),
        chart_style=chart_style(),
    )
    return page.lstrip()
