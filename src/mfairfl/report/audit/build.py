"""From counts to the document of an audit."""

from __future__ import annotations

from collections.abc import Sequence

from mfairfl.fairness.audit_counts import AuditCounts
from mfairfl.report.audit.document import AuditDocument
from mfairfl.report.audit.medians import AboveMedian
from mfairfl.report.audit.settings import AuditSettings, AuditSource

__all__ = ["build_audit"]


def build_audit(
    counts: AuditCounts,
    settings: AuditSettings,
    *,
    sources: Sequence[AuditSource] = (),
    above_median: AboveMedian | None = None,
    baseline: AuditDocument | None = None,
) -> AuditDocument:
    """Return everything that an audit says of these counts.

    Parameters
    ----------
    counts
        All rows, or those that silos told.
    settings
        What the numbers are held against, what columns and values stand for.
    sources
        Where the rows come from.
    above_median
        Rows above the exact median of the scores, where all rows are at hand; over silos the grid
        of scores gives it.
    baseline
        An earlier audit, to say what changed.
    """
    raise NotImplementedError
