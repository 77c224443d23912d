"""Every number of an audit, and between which it lies, whatever is true of unknown rows.

What needs a label is measured on the rows that have one, the rest on all rows.

A row of unknown group may be in any group that fits what is known of it, or in none. One of
unknown label may have either, or stay out. A row that a silo withheld may be in any of the
entries that the silo hid, with any decision, or not exist. So to a rate of s hits in n known rows,
`a` rows may be added as hits only, `b` as misses only, `c` as either:

    s / (n + b + c)  ≤  rate  ≤  (s + a + c) / (n + a + c).

Of numbers that compare groups the bounds follow from those of the rates. They contain the value in
every case; the largest difference of two groups' rates is attained when all that is unknown is the
group, others may be a little wide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mfairfl.data import MISSING
from mfairfl.fairness import rates
from mfairfl.fairness.audit_counts import AuditCounts
from mfairfl.fairness.cells import Cells, Grouping
from mfairfl.fairness.notions import Notion
from mfairfl.fairness.results import Measured, MetricTable, Numbers, NumbersByName, Place
from mfairfl.fairness.uncertainty import Interval, Limits

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def needs_label(notion: Notion) -> bool:
    """Return whether labels enter what a notion compares.

    Examples
    --------
    >>> from mfairfl.fairness import notion
    >>> needs_label(notion("dp")), needs_label(notion("eo"))
    (False, True)
    """
    all_labels = all(len(event.labels) == 2 for event in notion.events)
    return not (all_labels and notion.statistic == "selection")


def measured_notions(counts: AuditCounts) -> list[Notion]:
    """Return the notions of decisions that can be measured: without labels, not all."""
    labelled = counts.tally().n > 0
    return [item for item in rates.decision_notions() if labelled or not needs_label(item)]


def audit_table(counts: AuditCounts, *, level: float = 0.95) -> MetricTable:
    """Return every number of an audit, with bounds where groups or labels are unknown.

    Selection rates and notions that no label enters are of all rows. What needs a label is of the
    rows that have one, and absent if none has; then `labelled_rows` is among the numbers of each
    group and client.

    Examples
    --------
    >>> rows = AuditCounts.from_rows([1, None], [1, 0], sensitive_features=["F", "M"])
    >>> table = audit_table(rows)
    >>> table["selection_rate"].value, table["accuracy"].value
    (0.5, 1.0)
    >>> table["accuracy"].bounds
    (0.5, 1.0)
    """
    bounds = bounds_by_place(counts, measured_notions(counts))
    labelled, everyone, sums = counts.tally(), counts.selections(), counts.sums
    scores = None if sums is None else dict(zip(counts.clients, sums, strict=True))
    all_labelled = labelled.n == everyone.n
    table = MetricTable.from_tally(everyone, scores=scores if all_labelled else None, level=level)
    with_label: dict[Place, tuple[int, NumbersByName]] = {}
    constant: Numbers = table.constant_classifier if all_labelled else {}
    if labelled.n and not all_labelled:
        labelled_table = MetricTable.from_tally(labelled, scores=scores, level=level)
        constant = labelled_table.constant_classifier
        with_label = {place: (rows, part) for place, rows, part in labelled_table.places()}
    label_free = {"selection_rate"} | {
        f"{item.name}_{kind}"
        for item in rates.decision_notions()
        if not needs_label(item)
        for kind in rates.KINDS
    }

    def audited(place: Place, numbers: NumbersByName) -> NumbersByName:
        if not all_labelled:
            rows, others = with_label.get(place, (0, {}))
            numbers = {name: number for name, number in numbers.items() if name in label_free}
            numbers |= {name: number for name, number in others.items() if name not in label_free}
            if others and place[0] in ("group", "client"):
                numbers["labelled_rows"] = Measured(name="labelled_rows", value=rows)
        limits = {name: tuple(ends) for name, ends in bounds[place].items() if ends is not None}
        return {
            name: number.model_copy(update={"bounds": limits.get(name)})
            for name, number in numbers.items()
        }

    return MetricTable.of_places(
        {place: audited(place, numbers) for place, _, numbers in table.places()},
        {place: rows for place, rows, _ in table.places()},
        level=level,
        constant_classifier=constant,
    )


def bounds_by_place(counts: AuditCounts, notions: Sequence[Notion]) -> dict[Place, Limits]:
    """Bound every number, by the places of a `MetricTable`; None where nothing is unknown.

    Examples
    --------
    >>> rows = AuditCounts.from_rows([1, None], [1, 0], sensitive_features=["F", "M"])
    >>> bounds = bounds_by_place(rows, [])
    >>> bounds["overall",]["accuracy"], bounds["overall",]["selection_rate"]
    (Interval(lower=0.5, upper=1.0), None)
    """
    clients = [counts.of_client(k) for k in range(len(counts.clients))]
    client_shares = [_all_rows(client) for client in clients]
    compared = {kind: rates.measured_groupings(counts.cells, kind) for kind in rates.KINDS}
    overall = {
        **_overall_bounds(_all_rows(counts)),
        **_measure_bounds(counts, notions, compared),
        **_spread_bounds([shares["accuracy"] for shares in client_shares]),
    }
    bounds: dict[Place, Limits] = {("overall",): overall}
    groupings = rates.reported_groupings(counts.cells)
    for grouping in groupings:
        alone = {kind: [grouping] for kind in rates.KINDS}
        bounds["attribute", grouping.name] = (
            _measure_bounds(counts, notions, alone) if len(groupings) > 1 else overall
        )
        shares = _shares(counts, grouping.membership, fitting(counts.cells, grouping))
        for g, group in enumerate(grouping.groups):
            ends = {name: share.interval(g) for name, share in shares.items()}
            bounds["group", grouping.name, group] = ends
    for client, shares in zip(clients, client_shares, strict=True):
        bounds["client", client.clients[0]] = {
            **{name: share.interval() for name, share in shares.items()},
            **_measure_bounds(client, notions, {"violation": client.cells.groupings()}),
        }
    return bounds


def _all_rows(counts: AuditCounts) -> dict[str, RateBounds]:
    cells = np.ones((1, counts.cells.size), dtype=bool)
    return _shares(counts, cells, ~cells)


def _shares(counts: AuditCounts, sure: Bools, maybe: Bools) -> dict[str, RateBounds]:
    """Bound each share of the groups' rows, arguments as in `RateBounds.of`."""
    return {
        name: RateBounds.of(counts, Outcomes.of(share), sure, maybe)
        for name, share in rates.PROPORTIONS.items()
    }


def _overall_bounds(shares: Mapping[str, RateBounds]) -> Limits:
    """Bound the numbers of all rows, from their shares."""
    bounds = {name: share.interval() for name, share in shares.items()}
    jaccard = bounds.pop("jaccard")
    bounds["f1"] = jaccard and Interval(*(2.0 * end / (1.0 + end) for end in jaccard))
    hit, miss = shares["true_positive_rate"], shares["false_positive_rate"]
    low, high = (hit.lower + 1.0 - miss.upper) / 2.0, (hit.upper + 1.0 - miss.lower) / 2.0
    certain = (hit.certain and miss.certain) or bool(np.isnan(low).any())
    bounds["balanced_accuracy"] = None if certain else Interval(low.item(), high.item())
    return bounds


def _measure_bounds(
    counts: AuditCounts,
    notions: Sequence[Notion],
    groupings: Mapping[rates.Kind, Sequence[Grouping]],
) -> Limits:
    """Bound violation, difference and ratio of each notion between groups."""
    return {
        f"{item.name}_{kind}": measure_bound(kind, item, counts, compared)
        for item in notions
        for kind, compared in groupings.items()
    }


def _spread_bounds(accuracies: Sequence[RateBounds]) -> Limits:
    """Bound what compares clients' accuracies; a client without any row has none."""
    if all(rate.certain for rate in accuracies) or any(rate.most[0] == 0 for rate in accuracies):
        return {}
    low = np.array([rate.lower[0] for rate in accuracies])
    high = np.array([rate.upper[0] for rate in accuracies])
    least, most = max(0.0, low.max() - high.min()), max(0.0, high.max() - low.min())
    if len(accuracies) == 1:
        least = most = 0.0
    # K numbers with this range have a standard deviation of √(1/2K) to 1/2 of it.
    ends = {
        "client_accuracy_gap": (least, most),
        "client_accuracy_std": (least / math.sqrt(2 * len(accuracies)), most / 2.0),
        "worst_client_accuracy": (low.min(), high.min()),
        "best_client_accuracy": (low.max(), high.max()),
    }
    return {name: Interval(float(a), float(b)) for name, (a, b) in ends.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """What a row is to a rate, by label (0, 1, unknown) and decision, (3, 2) each.

    Attributes
    ----------
    hit, miss
        Rows that count for certain: a success, a failure.
    may_hit, may_miss
        Rows that may count so if their label is this or that.

    Examples
    --------
    >>> from mfairfl.fairness.rates import PROPORTIONS
    >>> selected = Outcomes.of(PROPORTIONS["selection_rate"])
    >>> selected.hit.tolist()  # whatever the label
    [[False, True], [False, True], [False, True]]
    >>> Outcomes.of(PROPORTIONS["true_positive_rate"]).may_hit[2].tolist()
    [False, True]
    """

    hit: Bools
    miss: Bools
    may_hit: Bools
    may_miss: Bools

    @classmethod
    def of(cls, rate: rates.Proportion) -> Outcomes:
        """Return those of a share of rows."""
        units = np.eye(4).reshape(2, 2, 2, 2)  # a table of one row for each label and decision
        hits, rows = rate.counts(units)
        hit, miss = hits > 0, rows > hits
        # A row without a label is what it is under either.
        same_hit, same_miss = hit.all(axis=0), miss.all(axis=0)
        none = np.zeros((2, 2), dtype=bool)
        return cls(
            hit=np.vstack([hit, same_hit]),
            miss=np.vstack([miss, same_miss]),
            may_hit=np.vstack([none, hit.any(axis=0) & ~same_hit]),
            may_miss=np.vstack([none, miss.any(axis=0) & ~same_miss]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class RateBounds:
    """Bounds of the rates of G groups, and of the rows behind them, (G,) each; nan if undefined.

    Attributes
    ----------
    lower, upper
        Of the rate.
    least, most
        Of the number of rows.
    """

    lower: Floats
    upper: Floats
    least: Floats
    most: Floats

    @classmethod
    def of(cls, counts: AuditCounts, what: Outcomes, sure: Bools, maybe: Bools) -> RateBounds:
        """Bound the rates of groups.

        Parameters
        ----------
        counts
            The rows.
        what
            What a row is to the rate.
        sure, maybe
            Which cells are in a group, and which may be, (G, C) each.
        """
        rows = counts.decided.sum(axis=0).astype(np.float64)  # (C, 3, 2)
        only_hit, only_miss = what.may_hit & ~what.may_miss, what.may_miss & ~what.may_hit
        either = what.may_hit & what.may_miss

        def total(cells: Bools, kinds: Bools) -> Floats:
            return np.asarray(cells.astype(np.float64) @ (rows * kinds).sum(axis=(1, 2)))

        hits, misses = total(sure, what.hit), total(sure, what.miss)
        a = total(sure, only_hit) + total(maybe, what.hit | only_hit)
        b = total(sure, only_miss) + total(maybe, what.miss | only_miss)
        c = total(sure | maybe, either)
        as_hit = _withheld(counts, what.hit | what.may_hit, sure | maybe)
        as_miss = _withheld(counts, what.miss | what.may_miss, sure | maybe)
        withheld = counts.withheld.astype(np.float64)
        a += (as_hit & ~as_miss) @ withheld
        b += (as_miss & ~as_hit) @ withheld
        c += (as_hit & as_miss) @ withheld
        rows_known = hits + misses
        lower = rates.divide(hits, rows_known + b + c)
        upper = rates.divide(hits + a + c, rows_known + a + c)
        return cls(
            lower=np.where(np.isnan(lower) & (a > 0), 1.0, lower),
            upper=np.where(np.isnan(upper) & (b > 0), 0.0, upper),
            least=rows_known,
            most=rows_known + a + b + c,
        )

    @property
    def certain(self) -> bool:
        """Whether nothing is unknown."""
        return bool((self.least == self.most).all())

    def interval(self, group: int = 0) -> Interval | None:
        """Return a group's bounds; None if nothing is unknown, or there are no rows."""
        if self.least[group] == self.most[group]:
            return None
        return Interval(float(self.lower[group]), float(self.upper[group]))


def _withheld(counts: AuditCounts, kinds: Bools, cells: Bools) -> Bools:
    """Return whose hidden entries may hold rows of these kinds, (3, 2), in each group, (G, K)."""
    places = (counts.hidden & kinds.any(axis=1)).any(axis=2)  # (K, C)
    return np.asarray((cells[:, None, :] & places).any(axis=2))


def fitting(cells: Cells, grouping: Grouping) -> Bools:
    """Return which cells may be in a group although an attribute is not known there, (G, C).

    Examples
    --------
    >>> from mfairfl.data import Attribute
    >>> cells = Cells((Attribute("sex", ("F", "M", "?")),))
    >>> fitting(cells, cells.grouping("sex")).tolist()
    [[False, False, True], [False, False, True]]
    """
    codes = np.indices(cells.shape).reshape(len(cells.shape), -1)
    match = np.ones((cells.size, cells.size), dtype=bool)  # [a, b]: a may in truth be b
    for attribute, code in zip(cells.attributes, codes, strict=True):
        unknown = np.array([group == MISSING for group in attribute.groups])[code]
        match &= (code[:, None] == code) | unknown[:, None]
    # Counting matches is a product of matrices; a search would hold G × C × C truths.
    fits = grouping.membership.astype(np.float32) @ match.T.astype(np.float32) > 0
    return np.asarray(fits & ~grouping.compared)


@dataclass(frozen=True, slots=True, eq=False)
class _Compared:
    """The rates that one event of a notion compares: of groups, of the others, of everyone."""

    groups: RateBounds
    others: RateBounds
    everyone: RateBounds

    @classmethod
    def of(cls, counts: AuditCounts, what: Outcomes, grouping: Grouping) -> _Compared:
        sure, maybe = grouping.membership, fitting(counts.cells, grouping)
        unknown = np.broadcast_to(~grouping.compared, sure.shape)
        return cls(
            groups=RateBounds.of(counts, what, sure, maybe),
            others=RateBounds.of(counts, what, grouping.compared & ~sure, unknown),
            everyone=RateBounds.of(counts, what, grouping.compared[None], unknown[:1]),
        )

    @property
    def certain(self) -> bool:
        return self.groups.certain and self.everyone.certain

    def difference(self) -> tuple[float, float]:
        """Bound the largest difference between two groups."""
        low, high = self.groups.lower, self.groups.upper
        gaps = _off_diagonal(low[:, None] - high, -np.inf)
        wide = _off_diagonal(high[:, None] - low, 0.0)
        return max(0.0, float(gaps.max())), float(wide.max())

    def ratio(self, *, of_errors: bool) -> tuple[float, float]:
        """Bound the smallest ratio of two groups' rates, of errors that of accuracies."""
        low, high = self.groups.lower, self.groups.upper
        if of_errors:
            low, high = 1.0 - high, 1.0 - low
        # 0/0 is any ratio.
        least = np.where(low[:, None] == 0.0, 0.0, rates.divide(low[:, None], high))
        most = np.where(low == 0.0, 1.0, rates.divide(high[:, None], low))
        smallest = np.nanmin(_off_diagonal(least, 1.0))
        return min(1.0, float(smallest)), min(1.0, float(_off_diagonal(most, 1.0).min()))

    def violation(self) -> tuple[float, float]:
        """Bound the largest deviation of a group from everyone.

        Everyone is the group and the others, so the deviation is the others' share of the rows
        times the difference between the two; both that and the plain difference are bounds.
        """
        group, rest, whole = self.groups, self.others, self.everyone
        plain_low = np.maximum(group.lower - whole.upper, whole.lower - group.upper)
        plain_high = np.maximum(group.upper - whole.lower, whole.upper - group.lower)
        share_low = _share(rest.least, group.most)
        share_high = np.where(rest.most > 0, _share(rest.most, group.least), 0.0)
        apart_low = np.fmax(group.lower - rest.upper, rest.lower - group.upper)
        apart_high = np.fmax(group.upper - rest.lower, rest.upper - group.lower)
        low = np.fmax(plain_low, share_low * np.fmax(apart_low, 0.0))
        high = np.fmin(plain_high, np.where(share_high > 0, share_high * apart_high, 0.0))
        return max(0.0, float(low.max())), float(high.max())


def _share(part: Floats, rest: Floats) -> Floats:
    return np.nan_to_num(rates.divide(part, part + rest))


def _off_diagonal(pairs: Floats, itself: float) -> Floats:
    """Put `itself` where a group would be compared with itself."""
    return np.where(np.eye(len(pairs), dtype=bool), itself, pairs)


def measure_bound(
    kind: rates.Kind, notion: Notion, counts: AuditCounts, groupings: Sequence[Grouping]
) -> Interval | None:
    """Bound a number that compares groups, as `mfairfl.fairness.rates.group_measure` does.

    None if nothing is unknown, or if the number is undefined whatever the unknown rows are.

    Examples
    --------
    >>> from mfairfl.fairness.notions import notion
    >>> rows = AuditCounts.from_rows(
    ...     None, [1, 0, 1, 1, 1], sensitive_features=["F", "F", "M", "M", None]
    ... )
    >>> bound = measure_bound("difference", notion("dp"), rows, rows.cells.groupings())
    >>> round(bound.lower, 3), bound.upper  # the fifth person is a woman, or a man
    (0.333, 0.5)
    """
    compared = [
        _Compared.of(counts, Outcomes.of(rates.event_share(notion, event)), grouping)
        for grouping in groupings
        for event in notion.events
    ]
    empty = any((rate.groups.most == 0).any() for rate in compared)
    if empty or all(rate.certain for rate in compared):
        return None
    if kind == "ratio":
        of_errors = notion.statistic == "error"
        ends = np.array([rate.ratio(of_errors=of_errors) for rate in compared]).min(axis=0)
    else:
        ends = np.array([getattr(rate, kind)() for rate in compared]).max(axis=0)
    return Interval(*ends.tolist())
