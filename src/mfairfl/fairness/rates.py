"""Numbers from counts[…, client, cell, y, ŷ]: the arithmetic behind metrics and intervals.

What takes an array is vectorised over leading axes (resampled tallies), and nan where a rate has
no rows. Violations and client spreads are a seminorm N of a vector v of rates, from which their
intervals follow (`mfairfl.fairness.uncertainty`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mfairfl.errors import ConfigError, require_known
from mfairfl.fairness.cells import Cells, Grouping
from mfairfl.fairness.notions import Event, Notion, available_notions
from mfairfl.fairness.results import Place
from mfairfl.fairness.tally import Tally

Floats = NDArray[np.float64]
Kind = Literal["violation", "difference", "ratio"]
Method = Literal["between_groups", "to_overall"]
Aggregate = Literal["worst_case", "mean"]
KINDS: tuple[Kind, ...] = ("violation", "difference", "ratio")


def divide(successes: Any, trials: Any) -> Floats:
    """Return successes / trials, nan where there are no trials.

    Examples
    --------
    >>> divide([1, 0], [4, 0]).tolist()
    [0.25, nan]
    """
    top, bottom = np.broadcast_arrays(np.asarray(successes, float), np.asarray(trials, float))
    share: Floats = np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom > 0)
    return share


def pooled_table(counts: NDArray[Any]) -> Floats:
    """Return the (…, 2, 2) table of label × decision over all clients and cells."""
    return np.asarray(counts.sum(axis=(-4, -3)), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Proportion:
    """A share of rows: successes and trials from a (…, 2, 2) table of label × decision."""

    counts: Callable[[Floats], tuple[Floats, Floats]]
    needs: str

    def value(self, table: Floats) -> Floats:
        """Return the share; nan without trials."""
        return divide(*self.counts(table))


_ROWS = "there are no rows"
PROPORTIONS: dict[str, Proportion] = {
    "accuracy": Proportion(lambda t: (t[..., 0, 0] + t[..., 1, 1], t.sum(axis=(-2, -1))), _ROWS),
    "selection_rate": Proportion(lambda t: (t[..., 1].sum(axis=-1), t.sum(axis=(-2, -1))), _ROWS),
    "true_positive_rate": Proportion(
        lambda t: (t[..., 1, 1], t[..., 1, :].sum(axis=-1)), "no row has y = 1"
    ),
    "false_positive_rate": Proportion(
        lambda t: (t[..., 0, 1], t[..., 0, :].sum(axis=-1)), "no row has y = 0"
    ),
    "base_rate": Proportion(lambda t: (t[..., 1, :].sum(axis=-1), t.sum(axis=(-2, -1))), _ROWS),
    # F1 = 2J / (1 + J), with J the share of true positives among rows that are not true negatives.
    "jaccard": Proportion(
        lambda t: (t[..., 1, 1], t.sum(axis=(-2, -1)) - t[..., 0, 0]),
        "no label and no decision is 1",
    ),
}

TABLE_NUMBERS = tuple(name for name in PROPORTIONS if name != "jaccard")
"""The shares that are measured of each client and of each group."""

OVERALL_NUMBERS = (
    "accuracy",
    "balanced_accuracy",
    "f1",
    "true_positive_rate",
    "false_positive_rate",
    "selection_rate",
)


def performance(name: str, table: NDArray[np.float64]) -> tuple[float, str]:
    """Return one of `OVERALL_NUMBERS` on a (2, 2) table, and why it would be undefined."""
    if name == "f1":
        share = float(PROPORTIONS["jaccard"].value(table))
        return 2.0 * share / (1.0 + share), PROPORTIONS["jaccard"].needs
    if name == "balanced_accuracy":
        sensitivity, miss = PROPORTIONS["true_positive_rate"], PROPORTIONS["false_positive_rate"]
        value = float(sensitivity.value(table) + 1.0 - miss.value(table)) / 2.0
        return value, miss.needs if table[1].sum() else sensitivity.needs
    return float(PROPORTIONS[name].value(table)), PROPORTIONS[name].needs


def client_accuracies(counts: NDArray[Any]) -> Floats:
    """Return each client's accuracy, shape (…, K)."""
    return PROPORTIONS["accuracy"].value(counts.sum(axis=-3).astype(np.float64))


@dataclass(frozen=True, slots=True)
class Spread:
    """A number N(v), N a seminorm of a vector v of rates.

    Attributes
    ----------
    vector
        From counts to v, (…, J).
    norm
        From v to N(v).
    largest
        The largest value N can have.
    """

    vector: Callable[[NDArray[Any]], Floats]
    norm: Callable[[Floats], Floats]
    largest: float = 1.0

    def value(self, counts: NDArray[Any]) -> Floats:
        """Return N(v(counts))."""
        return self.norm(self.vector(counts))


CLIENT_SPREADS: dict[str, Spread] = {
    # Numbers in [0, 1] have a (population) standard deviation of .5 at most.
    "client_accuracy_std": Spread(client_accuracies, lambda v: np.asarray(v.std(axis=-1)), 0.5),
    "client_accuracy_gap": Spread(client_accuracies, lambda v: np.asarray(np.ptp(v, axis=-1))),
}


CLIENT_NUMBERS: dict[str, Callable[[Floats], Floats]] = {
    **{name: spread.norm for name, spread in CLIENT_SPREADS.items()},
    "worst_client_accuracy": lambda accuracies: np.asarray(accuracies.min()),
    "best_client_accuracy": lambda accuracies: np.asarray(accuracies.max()),
}


def client_number(name: str, tally: Tally) -> tuple[float, str]:
    """Return one of `CLIENT_NUMBERS`, and why it would be undefined."""
    if not tally.clients:
        return float("nan"), "there are no clients"
    accuracies = client_accuracies(tally.counts)
    empty = np.flatnonzero(np.isnan(accuracies))
    reason = f"client '{tally.clients[empty[0]]}' has no rows" if empty.size else ""
    return float(CLIENT_NUMBERS[name](accuracies)), reason


def violation_of(notion: Notion, groupings: Sequence[Grouping]) -> Spread:
    """Return the largest deviation of a group's rate from the overall one, over the events."""

    def deviations(counts: NDArray[Any]) -> Floats:
        pairs = [group_rates(notion, grouping, counts) for grouping in groupings]
        parts = [rates - overall for rates, overall in pairs]
        return np.concatenate([part.reshape(*part.shape[:-2], -1) for part in parts], axis=-1)

    return Spread(deviations, lambda v: np.asarray(np.abs(v).max(axis=-1)))


def group_rates(notion: Notion, grouping: Grouping, counts: NDArray[Any]) -> tuple[Floats, Floats]:
    """Return the rates (…, G, E) of the groups in each event, and (…, 1, E) over all of them."""
    cells = np.asarray(counts.sum(axis=-4), dtype=np.float64)
    member = grouping.membership.astype(np.float64)
    whole = compared_counts(cells, [grouping]).sum(axis=-3, keepdims=True)
    tables = np.einsum("gc,...cyp->...gyp", member, cells)
    shares = [event_share(notion, event) for event in notion.events]
    groups, overall = (
        np.stack([share.value(part) for share in shares], axis=-1) for part in (tables, whole)
    )
    return groups, overall


def event_share(notion: Notion, event: Event) -> Proportion:
    """Return the share that a notion compares in one of its events."""
    # Of label y, the decision that counts: 1, or the wrong one.
    decision = (1, 0) if notion.statistic == "error" else (1, 1)

    def counts(table: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        hits = [table[..., y, decision[y]] for y in event.labels]
        rows = [table[..., y, 0] + table[..., y, 1] for y in event.labels]
        return reduce(np.add, hits), reduce(np.add, rows)

    return Proportion(counts, f"no row is in event '{event.name}'")


def group_measure(
    kind: Kind,
    notion: Notion,
    counts: NDArray[Any],
    groupings: Sequence[Grouping],
    *,
    method: Method = "between_groups",
    agg: Aggregate = "worst_case",
) -> tuple[float, str]:
    """Return a number of the (K, C, 2, 2) counts, and why it would be undefined.

    Parameters
    ----------
    kind
        ``violation``: the largest deviation from the overall rate. ``difference``, ``ratio``: as
        fairlearn's functions of these names, accuracies and not errors for a ratio of errors.
    groupings
        The groups that are compared; of several groupings the worst counts.
    method, agg
        Of a difference or a ratio, as in fairlearn.
    """
    require_known("method", [method], get_args(Method))
    require_known("agg", [agg], get_args(Aggregate))
    if kind == "violation":
        value = float(violation_of(notion, groupings).value(counts))
    else:
        measure, worst = (_difference, np.max) if kind == "difference" else (_ratio, np.min)
        value = float(worst([measure(notion, counts, g, method, agg) for g in groupings]))
    if not np.isnan(value):
        return value, ""
    (why,) = why_each_undefined(notion, counts[None], groupings)
    right = "correct" if notion.statistic == "error" else "favourable"
    return value, why or f"no {right} decision in an event: the ratio is 0/0"


def _difference(
    notion: Notion, counts: NDArray[Any], grouping: Grouping, method: Method, agg: Aggregate
) -> float:
    rates, overall = group_rates(notion, grouping, counts)
    reference = overall if method == "to_overall" else rates.min(axis=0)
    by_event = np.abs(rates - reference).max(axis=0)
    return float(by_event.mean() if agg == "mean" else by_event.max())


def _ratio(
    notion: Notion, counts: NDArray[Any], grouping: Grouping, method: Method, agg: Aggregate
) -> float:
    """Return the smallest ratio, at most 1.

    As in fairlearn an event in which no group has a hit (0/0) is left out, but the worst case
    needs every event with y = 1: without a true positive equalized odds has no ratio.
    """
    rates, overall = group_rates(notion, grouping, counts)
    if notion.statistic == "error":  # a rate of 0 is the ideal there: compare accuracies
        rates, overall = 1.0 - rates, 1.0 - overall
    reference = overall if method == "to_overall" else rates.max(axis=0)
    low, high = np.minimum(rates, reference), np.maximum(rates, reference)
    by_event = divide(low, high).min(axis=0)
    defined = ~np.isnan(by_event)
    needed = [agg == "worst_case" and 1 in event.labels for event in notion.events]
    if np.isnan(rates).any() or not defined.any() or not defined[needed].all():
        return float("nan")
    return float(by_event[defined].mean() if agg == "mean" else by_event[defined].min())


def why_each_undefined(
    notion: Notion, counts: NDArray[Any], groupings: Sequence[Grouping]
) -> list[str]:
    """Name the first group without rows on each of the (B, K, C, 2, 2) counts, if there is one."""
    rows = counts.sum(axis=(1, 4))
    empty, reasons = [np.zeros((len(rows), 0), dtype=bool)], []
    for grouping in groupings:
        members = grouping.membership @ rows
        for event in notion.events:
            empty.append(members[..., list(event.labels)].sum(axis=-1) == 0)
            which = "" if len(event.labels) == 2 else f" with {event.name}"
            lacking = f"of '{grouping.name}' has no rows{which}"
            reasons += [f"group '{group}' {lacking}" for group in grouping.groups]
    first = np.concatenate([*empty, np.ones((len(rows), 1), dtype=bool)], axis=1).argmax(axis=1)
    return [[*reasons, ""][place] for place in first.tolist()]


def decision_notions(notions: Sequence[Notion] | None = None) -> list[Notion]:
    """Return those notions (of all that are registered) that compare decisions, not losses."""
    chosen = available_notions() if notions is None else notions
    return [item for item in chosen if item.statistic != "loss"]


def compared_counts(counts: NDArray[Any], groupings: Sequence[Grouping]) -> NDArray[Any]:
    """Return counts[…, cell, y, ŷ] with 0 in cells that none of these groupings compares."""
    compared = np.any([grouping.compared for grouping in groupings], axis=0)
    return np.where(compared[:, None, None], counts, 0)


def reported_groupings(cells: Cells) -> list[Grouping]:
    """Return the groupings whose groups are measured: each attribute, of several all crossed."""
    groupings = cells.groupings()
    if len(groupings) > 1:
        groupings.append(cells.grouping(*(attribute.name for attribute in cells.attributes)))
    return groupings


def measured_groupings(cells: Cells, kind: Kind, attribute: str | None = None) -> list[Grouping]:
    """Return the groupings that a number of this kind compares.

    Parameters
    ----------
    attribute
        One attribute's marginal, or the full ``intersection``. By default a violation is the worst
        over the marginals (the paper's); a difference or ratio is that of the attributes crossed,
        as fairlearn's is.
    """
    names = [item.name for item in cells.attributes]
    if not names:
        raise ConfigError("a group metric needs sensitive_features=; give one column or more")
    if attribute is None and kind == "violation":
        return cells.groupings()
    if attribute is None or (attribute == "intersection" and attribute not in names):
        return [cells.grouping(*names)]
    require_known("sensitive attribute", [attribute], [*names, "intersection"])
    return [cells.grouping(attribute)]


NamedValues = dict[str, tuple[float, str]]
"""Values by name, nan where undefined, each with the reason why it would be."""


def overall_numbers(tally: Tally, *, notions: Sequence[Notion] | None = None) -> NamedValues:
    """Return the numbers of all rows and of all clients together, without intervals.

    Examples
    --------
    >>> tally = Tally.from_predictions([1, 0, 1], [1, 1, 1], sensitive_features=list("abb"))
    >>> overall_numbers(tally)["selection_rate"][0]
    1.0
    """
    table = pooled_table(tally.counts)
    numbers = {name: performance(name, table) for name in OVERALL_NUMBERS}
    if tally.attributes:
        numbers |= group_numbers(tally, notions)
    return numbers | {name: client_number(name, tally) for name in CLIENT_NUMBERS}


def group_numbers(
    tally: Tally, notions: Sequence[Notion] | None = None, grouping: Grouping | None = None
) -> NamedValues:
    """Return violation, difference and ratio of each notion, of one grouping or of all."""
    by_kind = {
        kind: measured_groupings(tally.cells, kind) if grouping is None else [grouping]
        for kind in KINDS
    }
    return {
        f"{item.name}_{kind}": group_measure(kind, item, tally.counts, groupings)
        for item in decision_notions(notions)
        for kind, groupings in by_kind.items()
    }


def client_violations(tally: Tally, notions: Sequence[Notion]) -> list[NamedValues]:
    """Return every notion's violation on each client's own rows."""
    groupings, counts = tally.cells.groupings(), tally.counts[:, None]
    by_client: list[NamedValues] = [{} for _ in tally.clients]
    for item in notions:
        values = violation_of(item, groupings).value(counts).tolist()
        reasons = why_each_undefined(item, counts, groupings)
        for numbers, value, why in zip(by_client, values, reasons, strict=True):
            numbers[f"{item.name}_violation"] = value, why
    return by_client


def tables_by_place(tally: Tally) -> dict[Place, Floats]:
    """Return label × decision, (2, 2), of each group and each client.

    Examples
    --------
    >>> tally = Tally.from_predictions([1, 0, 1], [1, 1, 1], sensitive_features=list("abb"))
    >>> tables_by_place(tally)["client", "all"].tolist()
    [[0.0, 1.0], [0.0, 2.0]]
    """
    cells = tally.counts.sum(axis=0).astype(np.float64)
    tables: dict[Place, Floats] = {}
    for grouping in reported_groupings(tally.cells):
        for group, members in zip(grouping.groups, grouping.membership, strict=True):
            tables["group", grouping.name, group] = cells[members].sum(axis=0)
    by_client = tally.counts.sum(axis=1).astype(np.float64)
    for client, table in zip(tally.clients, by_client, strict=True):
        tables["client", client] = table
    return tables


def constant_classifier(tally: Tally, *, majority: int | Tally | None = None) -> Tally:
    """Return the tally of the classifier that decides one label for every row.

    Parameters
    ----------
    tally
        The rows it is evaluated on.
    majority
        The label, or a (training) tally whose more frequent label is taken, 0 on a tie; None takes
        that of `tally` itself.

    Examples
    --------
    >>> tally = Tally.from_predictions([1, 0, 0], [1, 1, 0], sensitive_features=list("abb"))
    >>> constant_classifier(tally).counts.sum(axis=(0, 1)).tolist()
    [[2, 0], [1, 0]]
    """
    if majority is None or isinstance(majority, Tally):
        labels = pooled_table((majority or tally).counts).sum(axis=1)
        majority = int(labels[1] > labels[0])
    if majority not in (0, 1):
        raise ConfigError(f"majority = {majority!r}; use 0, 1 or a tally")
    counts = np.zeros_like(tally.counts)
    counts[..., majority] = tally.counts.sum(axis=-1)
    return Tally(counts, tally.clients, tally.attributes)
