"""What changed since an earlier audit, and which changes chance hardly explains.

A rate's change has Newcombe's interval, and Fisher's exact test of no change, corrected after Holm
for all rates that are compared. A violation's change has an interval from those of both
violations (square-and-add); it is beyond chance if the interval still excludes 0 at a level
corrected for all violations (Bonferroni). Differences and ratios of groups change without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mfairfl.data.coding import spelling
from mfairfl.errors import ConfigError
from mfairfl.fairness.audit_counts import AuditCounts
from mfairfl.fairness.audit_numbers import measured_notions, needs_label
from mfairfl.fairness.notions import Notion
from mfairfl.fairness.rates import PROPORTIONS, pooled_table, reported_groupings
from mfairfl.fairness.results import Measured, MetricTable, compares_groups
from mfairfl.fairness.tally import Tally
from mfairfl.fairness.uncertainty import Interval, holm, share_change
from mfairfl.report.audit_settings import AuditSettings
from mfairfl.report.document import Document, Drift, DriftRow
from mfairfl.report.significance import Share, fisher, mover
from mfairfl.text import some_of

_RATES = {
    "selection_rate": False,
    "accuracy": True,
    "true_positive_rate": True,
    "false_positive_rate": True,
    "base_rate": True,
}
"""The rates that are followed, and whether they need labels."""
_Place = tuple[Literal["all", "group", "client"], str, str, str]
"""Part, attribute, whom, name of the number."""


def drift_since(baseline: Document, counts: AuditCounts, settings: AuditSettings) -> Drift:
    """Compare counts with those of an earlier audit.

    Only groups, clients and notions that both have are compared.
    """
    if baseline.counts is None or baseline.settings is None:
        raise ConfigError("--baseline: the report of a run has no counts; give an audit.json")
    before, after = _Side.of(baseline.counts.counts()), _Side.of(counts)
    _same_meaning(baseline.settings, settings, before, after)
    rates = _rate_changes(before, after, settings.level)
    changes = [*rates, *_measure_changes(before, after, settings.level)]
    appeared, vanished = after.names - before.names, before.names - after.names
    return Drift(
        title=baseline.headline.title,
        audit_date=baseline.settings.facts.audit_date,
        rows_before=before.everyone.n,
        rows_after=after.everyone.n,
        sentence=_sentence(changes),
        changes=changes,
        appeared=[": ".join(name) for name in after.ordered if name in appeared],
        vanished=[": ".join(name) for name in before.ordered if name in vanished],
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """One audit: its rows, with and without those that lack a label."""

    counts: AuditCounts
    known: Tally
    everyone: Tally
    ordered: tuple[tuple[str, str], ...]
    """`attribute, group` and `client, name` of everyone who has rows."""

    @classmethod
    def of(cls, counts: AuditCounts) -> _Side:
        everyone = counts.selections()
        rows = everyone.counts.sum(axis=(0, 2, 3))
        names = [
            (grouping.name, group)
            for grouping in counts.cells.groupings()
            for group, n in zip(grouping.groups, grouping.membership @ rows, strict=True)
            if n
        ]
        if len(counts.clients) > 1:
            names += [("client", name) for name in counts.clients]
        return cls(counts, counts.tally(), everyone, tuple(names))

    @property
    def names(self) -> set[tuple[str, str]]:
        return set(self.ordered)

    def tally(self, needed: bool) -> Tally:
        """Return the rows with a label, if one is needed, or all."""
        return self.known if needed else self.everyone

    def shares(self) -> Iterator[tuple[_Place, Share]]:
        """Return every rate of everyone, of each group and of each client."""
        for name, needed in _RATES.items():
            tally = self.tally(needed)
            if not tally.n:
                continue
            yield ("all", "", "", name), _share(name, pooled_table(tally.counts))
            cells = tally.counts.sum(axis=0).astype(np.float64)
            for grouping in reported_groupings(tally.cells):
                for group, members in zip(grouping.groups, grouping.membership, strict=True):
                    table = cells[members].sum(axis=0)
                    yield ("group", grouping.name, group, name), _share(name, table)
            if len(tally.clients) > 1:
                for client, own in zip(tally.clients, tally.counts, strict=True):
                    yield ("client", "", client, name), _share(name, own.sum(axis=0))


def _share(name: str, table: NDArray[Any]) -> Share:
    hits, rows = PROPORTIONS[name].counts(np.asarray(table, dtype=np.float64))
    return Share(int(hits), int(rows))


def _same_meaning(earlier: AuditSettings, now: AuditSettings, before: _Side, after: _Side) -> None:
    """Refuse audits whose numbers are about different things."""
    old, new = earlier.meaning, now.meaning
    for what, was, is_ in (
        ("label", old.label, new.label),
        ("favourable label", old.favourable, new.favourable),
        ("favourable decision", old.selected, new.selected),
    ):
        if was and is_ and spelling(was) != spelling(is_):
            raise ConfigError(
                f"--baseline: its {what} is '{was}', here it is '{is_}': compare audits of the "
                "same label and decisions"
            )
    if not {a.name for a in before.counts.attributes} & {a.name for a in after.counts.attributes}:
        names = ", ".join(attribute.name for attribute in before.counts.attributes)
        raise ConfigError(f"--baseline: it is about other attributes ({names}); name one of them")


def _rate_changes(before: _Side, after: _Side, level: float) -> list[DriftRow]:
    old, new = dict(before.shares()), dict(after.shares())
    common = [place for place in new if place in old and old[place].rows and new[place].rows]
    tested = holm([fisher(old[place], new[place]) for place in common])
    rows = []
    for place, p in zip(common, tested, strict=True):
        part, attribute, whom, number = place
        one, other = old[place], new[place]
        rows.append(
            DriftRow(
                part=part,
                attribute=attribute,
                whom=whom,
                number=number,
                before=one.value,
                after=other.value,
                change=other.value - one.value,
                interval=share_change(one, other, level=level),
                p_holm=p,
                beyond_chance=None if p is None else p < 1.0 - level,
            )
        )
    return rows


def _measure_changes(before: _Side, after: _Side, level: float) -> list[DriftRow]:
    """Compare violations, differences and ratios of all notions that both can have."""
    known = measured_notions(before.counts)
    notions = [one for one in measured_notions(after.counts) if one in known]
    old, new = _measures(before, notions, level), _measures(after, notions, level)
    common = [place for place in new if place in old]
    violations = [place for place in common if place[1].endswith("_violation")]
    corrected = 1.0 - (1.0 - level) / max(len(violations), 1)
    wide_old, wide_new = (_measures(side, notions, corrected) for side in (before, after))
    rows = []
    for place in common:
        attribute, number = place
        was, now = old[place].value, new[place].value
        wide = _change_interval(wide_old[place], wide_new[place])
        rows.append(
            DriftRow(
                part="attribute" if attribute else "all",
                attribute=attribute,
                number=number,
                before=was,
                after=now,
                change=None if was is None or now is None else now - was,
                interval=_change_interval(old[place], new[place]),
                beyond_chance=None if wide is None else not wide.lower <= 0.0 <= wide.upper,
            )
        )
    return rows


def _measures(
    side: _Side, notions: Sequence[Notion], level: float
) -> dict[tuple[str, str], Measured]:
    """Return what compares groups in one audit, by attribute (empty: all) and name."""
    measures: dict[tuple[str, str], Measured] = {}
    for needed in (False, True):
        own = [item for item in notions if needs_label(item) == needed]
        if not own:
            continue
        table = MetricTable.from_tally(side.tally(needed).pooled(), level=level, notions=own)
        measures |= {("", n): number for n, number in table.overall.items() if compares_groups(n)}
        for section in table.sections if len(table.sections) > 1 else ():
            measures |= {(section.attribute, number.name): number for number in section.measures}
    return measures


def _change_interval(old: Measured, new: Measured) -> Interval | None:
    if old.value is None or old.interval is None or new.value is None or new.interval is None:
        return None
    return mover(old.value, Interval(*old.interval), new.value, Interval(*new.interval))


def _sentence(changes: Sequence[DriftRow]) -> str:
    """Say in words what changed beyond chance."""
    tested = [row for row in changes if row.beyond_chance is not None]
    beyond = [row for row in tested if row.beyond_chance]
    if not tested:
        return "Nothing could be compared."
    if not beyond:
        return f"Of {len(tested)} numbers none changed by more than chance explains."
    said = [
        f"{row.number} of {row.whom or row.attribute or 'everyone'} "
        f"({row.before:.3f} to {row.after:.3f})"
        for row in sorted(beyond, key=lambda row: -abs(row.change or 0.0))
    ]
    return f"{len(beyond)} of {len(tested)} numbers changed by more than chance explains: " + (
        f"{some_of(said)}."
    )
