"""What changed since an earlier audit, and which changes chance hardly explains.

A rate's change has Newcombe's interval, and Fisher's exact test of no change, corrected after Holm
for all rates that are compared. A violation's change has an interval from those of both
violations (square-and-add); it is beyond chance if the interval still excludes 0 at a level
corrected for all violations (Bonferroni). Differences and ratios of groups change without one.
"""

from collections.abc import Iterator, Sequence

from mfairfl.data.coding import spelling
from mfairfl.display.numbers import PLAIN
from mfairfl.errors import ConfigError
from mfairfl.fairness.audit_counts import AuditCounts
from mfairfl.fairness.audit_numbers import measured_notions, needs_label
from mfairfl.fairness.notions import Notion
from mfairfl.fairness.rates import PROPORTIONS
from mfairfl.fairness.results import Measured, MetricTable, compares_groups
from mfairfl.fairness.tally import Tally
from mfairfl.fairness.uncertainty import Interval, holm, share_change
from mfairfl.report.audit_settings import AuditMeaning
from mfairfl.report.document import Document, Drift, DriftRow
from mfairfl.report.significance import Place, Share, difference, fisher, mover, tables_by_place
from mfairfl.text import some_of

_RATES = ("selection_rate", "accuracy", "true_positive_rate", "false_positive_rate", "base_rate")
"""The rates that are followed; all but the first need labels."""


def drift_since(
    baseline: Document, counts: AuditCounts, meaning: AuditMeaning, level: float
) -> Drift:
    """Compare counts with those of an earlier audit.

    Only groups, clients and notions that both have are compared.
    """
    if baseline.counts is None or baseline.settings is None:
        raise ConfigError("--baseline: the report of a run has no counts; give an audit.json")
    earlier = baseline.counts.counts()
    _require_same_meaning(baseline.settings.meaning, meaning)
    names = [attribute.name for attribute in earlier.attributes]
    if set(names).isdisjoint(attribute.name for attribute in counts.attributes):
        raise ConfigError(
            f"--baseline: it is about other attributes ({', '.join(names)}); name one of them"
        )
    changes = [*_rate_changes(earlier, counts, level), *_measure_changes(earlier, counts, level)]
    before, after = _members(earlier), _members(counts)
    return Drift(
        title=baseline.headline.title,
        audit_date=baseline.settings.facts.audit_date,
        rows_before=int(earlier.rows.sum()),
        rows_after=int(counts.rows.sum()),
        sentence=_sentence(changes),
        changes=changes,
        appeared=[name for name in after if name not in before],
        vanished=[name for name in before if name not in after],
    )


def _require_same_meaning(earlier: AuditMeaning, now: AuditMeaning) -> None:
    for what, before, after in (
        ("label", earlier.label, now.label),
        ("favourable label", earlier.favourable, now.favourable),
        ("favourable decision", earlier.selected, now.selected),
    ):
        if before and after and spelling(before) != spelling(after):
            raise ConfigError(
                f"--baseline: its {what} is '{before}', here it is '{after}': compare audits of "
                "the same label and decisions"
            )


def _members(counts: AuditCounts) -> list[str]:
    """Return the groups and clients that have rows, as `attribute: group` and `client: name`."""
    rows = counts.rows.sum(axis=(0, 2))
    names = [
        f"{grouping.name}: {group}"
        for grouping in counts.cells.groupings()
        for group, n in zip(grouping.groups, grouping.membership @ rows, strict=True)
        if n
    ]
    if len(counts.clients) > 1:
        names += [f"client: {name}" for name in counts.clients]
    return names


def _tally(counts: AuditCounts, *, labelled: bool) -> Tally:
    """Return the rows with a label, or all."""
    return counts.tally() if labelled else counts.selections()


# ------------------------------------------------------------------ rates


def _rate_changes(earlier: AuditCounts, now: AuditCounts, level: float) -> list[DriftRow]:
    old, new = (
        {(place, name): share for place, name, share in _shares(counts) if share.rows}
        for counts in (earlier, now)
    )
    common = [key for key in new if key in old]
    p_values = holm([fisher(old[key], new[key]) for key in common])
    rows = []
    for key, p_value in zip(common, p_values, strict=True):
        (part, attribute, whom), number = key
        before, after = old[key], new[key]
        rows.append(
            DriftRow(
                part=part,
                attribute=attribute,
                whom=whom,
                number=number,
                before=before.value,
                after=after.value,
                change=after.value - before.value,
                interval=share_change(before, after, level=level),
                p_holm=p_value,
                beyond_chance=None if p_value is None else p_value < 1.0 - level,
            )
        )
    return rows


def _shares(counts: AuditCounts) -> Iterator[tuple[Place, str, Share]]:
    """Yield every rate of everyone, of each group and of each client."""
    for name in _RATES:
        tally = _tally(counts, labelled=name != "selection_rate")
        for place, table in tables_by_place(tally).items() if tally.n else ():
            if place[0] != "client" or len(tally.clients) > 1:
                hits, rows = PROPORTIONS[name].counts(table)
                yield place, name, Share(int(hits), int(rows))


# ------------------------------------------------------------------ measures of groups


def _measure_changes(earlier: AuditCounts, now: AuditCounts, level: float) -> list[DriftRow]:
    """Compare violations, differences and ratios of all notions that both can have."""
    measured = measured_notions(earlier)
    notions = [notion for notion in measured_notions(now) if notion in measured]
    old, new = (_measures(counts, notions, level) for counts in (earlier, now))
    common = [place for place in new if place in old]
    violations = sum(number.endswith("_violation") for _, number in common)
    corrected = 1.0 - (1.0 - level) / max(violations, 1)
    wide_old, wide_new = (_measures(counts, notions, corrected) for counts in (earlier, now))
    rows = []
    for place in common:
        attribute, number = place
        before, after = old[place], new[place]
        wide = _change_interval(wide_old[place], wide_new[place])
        rows.append(
            DriftRow(
                part="attribute" if attribute else "all",
                attribute=attribute,
                number=number,
                before=before.value,
                after=after.value,
                change=difference(before.value, after.value),
                interval=_change_interval(before, after),
                beyond_chance=None if wide is None else not wide.lower <= 0.0 <= wide.upper,
            )
        )
    return rows


def _measures(
    counts: AuditCounts, notions: Sequence[Notion], level: float
) -> dict[tuple[str, str], Measured]:
    """Return what compares groups in one audit, by attribute (empty: all) and name."""
    measures: dict[tuple[str, str], Measured] = {}
    for labelled in (False, True):
        chosen = [notion for notion in notions if needs_label(notion) == labelled]
        if not chosen:
            continue
        tally = _tally(counts, labelled=labelled).pooled()
        table = MetricTable.from_tally(tally, level=level, notions=chosen)
        measures |= {("", n): number for n, number in table.overall.items() if compares_groups(n)}
        for section in table.sections if len(table.sections) > 1 else ():
            measures |= {(section.attribute, number.name): number for number in section.measures}
    return measures


def _change_interval(old: Measured, new: Measured) -> Interval | None:
    if old.value is None or old.interval is None or new.value is None or new.interval is None:
        return None
    return mover(old.value, Interval(*old.interval), new.value, Interval(*new.interval))


def _sentence(changes: Sequence[DriftRow]) -> str:
    """Summarise what changed beyond chance."""
    tested = [row for row in changes if row.beyond_chance is not None]
    beyond = [row for row in tested if row.beyond_chance]
    if not tested:
        return "Nothing could be compared."
    if not beyond:
        return f"Of {len(tested)} numbers none changed by more than chance explains."
    largest_first = sorted(beyond, key=lambda row: -abs(row.change or 0.0))
    described = [
        f"{row.number} of {row.whom or row.attribute or 'everyone'} "
        f"({PLAIN.one(row.before)} to {PLAIN.one(row.after)})"
        for row in largest_first
    ]
    return (
        f"{len(beyond)} of {len(tested)} numbers changed by more than chance explains: "
        f"{some_of(described)}."
    )
