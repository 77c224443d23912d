"""What got worse from one model's decisions to another's on the same rows, beyond chance.

Compared are the violation of every notion between the groups of each attribute, and accuracy and
true positive rate of each group and each client. Each number is max_j a_j·h: h the shares of wrong
(or favourable) decisions by (cell, label), a_j weights that follow from the rows and are therefore
the same for both models. So far the comparison is paired. Which rows both models decided alike is
not stored: within a cell and label their decisions are taken for independent, which is cautious
as long as they tend to coincide.

* max_j a_j·h rose if for some j and every k: a_j·h_after > a_k·h_before. That is tested by the
  normal distribution: over k the largest p-value counts, over j it is multiplied by their number.
* Where a_j and a_k have opposite signs, coinciding decisions add to the variance of the
  difference: there it is that of decisions that coincide as often as the shares allow.
* Shares are smoothed as by Agresti and Coull, by z² pseudo-rows at the corrected level: groups of
  a few rows show little, rather than too much.
* Holm's correction over all that is compared: the probability that anything is named which did
  not get worse is at most 1 − level.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from mfairfl.data.values import DocumentedModel
from mfairfl.errors import DataError
from mfairfl.fairness.cells import Grouping
from mfairfl.fairness.notions import Notion
from mfairfl.fairness.rates import decision_notions, reported_groupings
from mfairfl.fairness.tally import Tally
from mfairfl.fairness.uncertainty import holm

Floats = NDArray[np.float64]
_LABELS = {"accuracy": (0, 1), "true_positive_rate": (1,)}
"""The shares that are compared of groups and clients, and the labels of their rows."""


class Worsened(DocumentedModel):
    """A number that got worse by more than chance explains.

    Examples
    --------
    >>> where = {"part": "group", "attribute": "sex", "whom": "Male"}
    >>> print(Worsened(**where, number="true_positive_rate", before=0.66, after=0.5, p_holm=0.001))
    true positive rate of sex Male: 66.0 to 50.0 %
    """

    part: Literal["attribute", "group", "client"]
    """`attribute`: the violation of a notion between its groups."""
    attribute: str = ""
    """Of a violation or a group; several crossed are joined by ×."""
    whom: str = ""
    """The group or the client."""
    number: str
    """The number's name."""
    before: float
    after: float
    p_holm: float
    """Probability of such a change by chance, corrected for all numbers that were compared."""

    @property
    def loss(self) -> float:
        """By how much it got worse."""
        return abs(self.after - self.before)

    def __str__(self) -> str:
        name = self.number.replace("_", " ")
        shares = [100 * self.before, 100 * self.after]
        digits = 1 if f"{shares[0]:.1f}" != f"{shares[1]:.1f}" else 2
        change = " to ".join(f"{share:.{digits}f}" for share in shares)
        if self.part == "attribute":
            return f"{name} between groups of {self.attribute}: {change} points"
        return f"{name} of {f'{self.attribute} {self.whom}'.strip()}: {change} %"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Number:
    """A number max_j a_j·h of two models.

    Attributes
    ----------
    place
        part, attribute, whom and name.
    values
        The number before and after.
    weights
        The a_j, (J, S).
    shares
        h before and after, (2, S).
    rows
        Of each cell and label, (S,).
    held
        Of each cell and label: the rows of the smallest group that holds it, (S,).
    sizes
        Of each a_j: the rows of its group, (J,).
    """

    place: tuple[str, str, str, str]
    values: list[float]
    weights: Floats
    shares: Floats
    rows: Floats
    held: Floats
    sizes: Floats

    def chance(self, level: float) -> float:
        """Return the probability of seeming to rise as much without having risen.

        `level` is that at which it will be judged: it says how much is smoothed.
        """
        used = (self.rows > 0) & (self.weights != 0).any(axis=0)
        a, rows, held, h = (
            x[..., used] for x in (self.weights, self.rows, self.held, self.shares)
        )
        pseudo = float(ndtri((1.0 - level) / len(a))) ** 2
        smooth = (h * held + pseudo / 2) / (held + pseudo)
        before, after = smooth * (1 - smooth)
        both = smooth.min(axis=0) - smooth.prod(axis=0)
        scaled = a / np.sqrt(rows * (1 + pseudo / held))
        variance = (scaled**2 @ after)[:, None] + scaled**2 @ before
        variance += 2 * np.maximum(-scaled[:, None] * scaled, 0) @ both
        rise = (a @ h[1])[:, None] - a @ h[0]
        shrunk = self.sizes / (self.sizes + pseudo)
        z = rise * np.minimum(shrunk[:, None], shrunk) / np.sqrt(variance)
        return min(1.0, len(a) * float(ndtr(-z).max(axis=1).min()))


def worsened(
    before: Tally, after: Tally, *, level: float = 0.95, notions: Sequence[Notion] | None = None
) -> list[Worsened]:
    """Return what got worse by more than chance explains, the largest change first.

    Parameters
    ----------
    before, after : Tally
        The counts of two models on the same rows, for example of FedAvg and of a fair model.
    level : float
        Probability that nothing is named which did not get worse.
    notions : sequence of Notion, optional
        The notions whose violations are compared; by default every one that compares decisions.

    Raises
    ------
    DataError
        If the counts are not of the same rows.

    Examples
    --------
    >>> y, sex = [1] * 100, {"sex": ["F", "M"] * 50}
    >>> fair = Tally.from_predictions(y, [1] * 90 + [0] * 10, sensitive_features=sex)
    >>> unfair = Tally.from_predictions(y, [1, 0] * 50, sensitive_features=sex)
    >>> for item in worsened(fair, unfair)[:2]:
    ...     print(item)
    accuracy of sex M: 90.0 to 0.0 %
    true positive rate of sex M: 90.0 to 0.0 %
    """
    if not same_rows(before, after):
        raise DataError("worsened: the two tallies are not of the same rows; measure both on them")
    counts = np.stack([before.counts, after.counts]).astype(np.float64)
    numbers = [*_of_groups(counts.sum(axis=1), before, decision_notions(notions))]
    if len(before.clients) > 1:
        for place, client in enumerate(before.clients):
            numbers += _shares(counts[:, place].sum(axis=1, keepdims=True), ("client", "", client))
    corrected = 1.0 - (1.0 - level) / max(1, len(numbers))
    p_values = holm([number.chance(corrected) for number in numbers])
    named = [
        _named(number, p)
        for number, p in zip(numbers, p_values, strict=True)
        if p is not None and p <= 1.0 - level
    ]
    return sorted(named, key=lambda item: -item.loss)


def same_rows(before: Tally, after: Tally) -> bool:
    """Return whether two tallies have the same clients, groups and rows.

    Examples
    --------
    >>> from mfairfl.fairness import constant_classifier
    >>> tally = Tally.from_predictions([1, 0, 1], [1, 1, 0], sensitive_features=list("abb"))
    >>> same_rows(tally, constant_classifier(tally)), same_rows(tally, tally + tally)
    (True, False)
    """
    same = before.clients == after.clients and before.attributes == after.attributes
    return same and np.allclose(before.counts.sum(axis=-1), after.counts.sum(axis=-1))


def _named(number: _Number, p_holm: float) -> Worsened:
    part, attribute, whom, name = number.place
    before, after = number.values
    where: dict[str, Any] = {"part": part, "attribute": attribute, "whom": whom, "number": name}
    return Worsened(**where, before=before, after=after, p_holm=p_holm)


def _of_groups(cells: Floats, tally: Tally, notions: Sequence[Notion]) -> Iterator[_Number]:
    """Yield the numbers of groups that are defined, from (2, C, 2, 2) counts."""
    for grouping in reported_groupings(tally.cells):
        for notion in notions:
            yield from _violation(cells, grouping, notion)
        for group, members in zip(grouping.groups, grouping.membership, strict=True):
            yield from _shares(cells[:, members], ("group", grouping.name, group))


def _shares(cells: Floats, where: tuple[str, str, str]) -> Iterator[_Number]:
    """Yield the shares of wrong decisions, whose rise is the fall of right ones."""
    rows = cells[0].sum(axis=-1)
    wrong = _ratio(np.stack([cells[..., 0, 1], cells[..., 1, 0]], axis=-1), rows)
    for name, labels in _LABELS.items():
        chosen = rows * np.isin([0, 1], labels)
        n = chosen.sum()
        if n:
            yield _Number(
                place=(*where, name),
                values=[1.0 - float((chosen * shares).sum() / n) for shares in wrong],
                weights=chosen.reshape(1, -1) / n,
                shares=wrong.reshape(2, -1),
                rows=rows.ravel(),
                held=np.full(rows.size, n),
                sizes=np.array([n]),
            )


def _violation(cells: Floats, grouping: Grouping, notion: Notion) -> Iterator[_Number]:
    """Yield the largest deviation of a group, unless a group has no row in an event."""
    rows, member = cells[0].sum(axis=-1), grouping.membership.astype(np.float64)
    decision = 0 if notion.statistic == "error" else 1
    shares = _ratio(np.stack([cells[..., 0, 1], cells[..., 1, decision]], axis=-1), rows)
    weights, sizes, held = [], [], np.full(rows.shape, np.inf)
    for event in notion.events:
        chosen = rows * np.isin([0, 1], event.labels)
        size = member @ chosen.sum(axis=-1)
        if len(size) < 2 or not size.all():
            return
        overall = chosen * grouping.compared[:, None] / size.sum()
        # Of two groups the larger never deviates more: it need not be tested.
        some = [int(size.argmin())] if len(size) == 2 else range(len(size))
        weights += [chosen * member[g][:, None] / size[g] - overall for g in some]
        sizes += [size[g] for g in some]
        held = np.where(chosen > 0, np.minimum(held, (size @ member)[:, None]), held)
    deviations = np.reshape(weights, (len(weights), -1))
    signed = np.concatenate([deviations, -deviations])
    yield _Number(
        place=("attribute", grouping.name, "", f"{notion.name}_violation"),
        values=(signed @ shares.reshape(2, -1).T).max(axis=0).tolist(),
        weights=signed,
        shares=shares.reshape(2, -1),
        rows=rows.ravel(),
        held=held.ravel(),
        sizes=np.array([*sizes, *sizes]),
    )


def _ratio(hits: Floats, rows: Floats) -> Floats:
    """Return the share of hits, 0 without rows."""
    return np.asarray(hits / np.where(rows > 0, rows, 1.0))
