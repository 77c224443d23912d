"""What the server does about answers that may be lies: robust rules, and clients' standing.

Before the strategy combines updates, a rule replaces them by the updates that the strategy is to
see, each a mixture of those that were sent: a matrix R, so that the Gram matrix of what it sees
is R M Rᵀ and coefficients c on it are Rᵀ c on the originals. Every strategy works with every rule,
and an auditor still reads how much each client counted.

- `none`: everything as it was sent.
- `clip`: no update longer than the median of the round.
- `nnm-gm`: each update replaced by the mean of its nearest, and weighted as in the geometric
  median of these.
- `multi-krum`: those nearest to their neighbours are kept.
- `centred-clip`: what is farther from a moving centre than the median counts less.
- `auto`: a client that works against an agreement of the others is set aside, and no update is
  longer than `SPREAD` times the median.

Rules of the literature assume that a share `LIARS` of the clients lies. A client that is unlike
the others counts less, and in a federation of unlike clients that costs accuracy and fairness
without any attack (results/attacks.md). `auto` therefore acts only where there is an agreement to
work against. With u_k = g_k/|g_k|, it first takes out of u what the clients' shares of favourable
labels explain (a ridge regression over clients: one with mostly unfavourable cases has good
reasons to pull the other way). Then, as long as there is one, the client is set aside whose cosine
with the sum of the others is lowest and below `AGAINST`, if the rest agree: their median cosine
with the sum of their others is at least `AGREEMENT`. Always fewer than half are set aside.

A client of which an answer was refused in a round has a strike. After `STRIKES` such rounds in a
row it is suspended: it is asked nothing for `TERM` rounds. Then it takes part again, on probation:
one more strike suspends it for twice as long as the last time. A round in which it trained and
nothing was refused clears its strikes. Never are half of the clients suspended.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mfairfl.errors import ConfigError, require_known
from mfairfl.geometry import robust
from mfairfl.geometry.conflicts import cosines
from mfairfl.geometry.gram import Floats
from mfairfl.strategies.base import Card, Step

LIARS = 0.2
"""The share of clients that rules of the literature assume to lie."""

AGREEMENT, AGAINST = 0.3, -0.3
"""Cosines from which clients agree, and below which one works against them."""

SPREAD = 2.0
"""Times the median norm that `auto` leaves an update."""

EXPLAINED = 0.1
"""How far shares of favourable labels must differ before `auto` lets them explain directions."""

TYPICAL = 5.0
"""A loss this many times the median, or this small a part of it, does not order clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Updates:
    """What a rule sees of a round's updates.

    Parameters
    ----------
    clients : sequence of str
        Who sent them.
    gram : ndarray (K, K)
        Their inner products.
    weights : ndarray (K,)
        The clients' shares of the rows.
    counts : sequence of ndarray (C, 2)
        Each client's train rows per (cell, label).
    """

    clients: Sequence[str]
    gram: Floats
    weights: Floats
    counts: Sequence[Floats]

    @property
    def favourable(self) -> Floats:
        """Share of favourable labels in each client's train rows."""
        return np.array([rows[:, 1].sum() / rows.sum() for rows in self.counts])


@dataclass(frozen=True, slots=True, kw_only=True)
class Defended:
    """What the strategy is to see.

    Parameters
    ----------
    seen : list of int
        Places of the clients that it sees.
    sent : ndarray (K, K)
        The Gram matrix of the updates as they were sent.
    rows : ndarray (K, K), optional
        R: what takes the place of each update, in terms of the originals; None leaves all K as
        they are.
    reasons : dict of str to str
        Why the others are set aside.
    accused : dict of str to str
        Those of `reasons` that count against the clients: none where a rule always leaves some
        out.
    clipped : dict of str to float
        By which factor an update was shortened or weighted, where it was.
    """

    seen: list[int]
    sent: Floats
    rows: Floats | None = None
    reasons: dict[str, str] = field(default_factory=dict)
    accused: dict[str, str] = field(default_factory=dict)
    clipped: dict[str, float] = field(default_factory=dict)

    @property
    def gram(self) -> Floats:
        """The Gram matrix of what the strategy sees."""
        if self.rows is None:
            return self.sent
        return robust.mixed_gram(self.sent, self.rows)[np.ix_(self.seen, self.seen)]

    def on_originals(self, step: Step) -> Step:
        """Return a step on what the strategy saw as one on what was sent."""
        if self.rows is None:
            return step
        sent = np.eye(len(self.rows))[self.seen].T  # control changes are not mixed
        return replace(
            step,
            coefficients=self.rows[self.seen].T @ step.coefficients,
            vectors={name: np.asarray(sent @ c) for name, c in step.vectors.items()},
        )

    def log(self, rule: str) -> dict[str, Any]:
        """Return what a rule did, for the round's log."""
        if rule == "none":
            return {}
        return {"robust": {"rule": rule, "set_aside": self.reasons, "clipped": self.clipped}}


def check_robust(name: str, card: Card) -> None:
    """Refuse a rule that does not exist, or one for a method that averages no updates."""
    require_known("value of robust", [name], list(ROBUST))
    if name != "none" and (why := _obstacle(card)):
        raise ConfigError(f"robust = '{name}': {why} in this strategy; use robust = 'none'")


def recommended(card: Card) -> str:
    """Return the rule for clients that could lie: `auto`, wherever updates are averaged."""
    return "none" if _obstacle(card) else "auto"


def _obstacle(card: Card) -> str:
    if card.serves == "ensemble":
        return "every client's update moves a model of its own"
    return "one trainer has all rows" if card.trains_on == "pooled" else ""


def defend(rule: str, updates: Updates) -> Defended:
    """Apply a rule to a round's updates.

    Examples
    --------
    Nine clients agree, and one sends the opposite:

    >>> signs = np.array([1.0] * 9 + [-1.0])
    >>> gram = np.outer(signs, signs) + np.eye(10)
    >>> names, counts = list("abcdefghij"), [np.array([[60.0, 40.0]])] * 10
    >>> sent = Updates(clients=names, gram=gram, weights=np.full(10, 0.1), counts=counts)
    >>> defend("auto", sent).reasons
    {'j': "its update works against the others' (cosine -0.67, they agree by 0.67)"}
    """
    return ROBUST[rule](updates)


def _none(sent: Updates) -> Defended:
    return Defended(seen=list(range(len(sent.clients))), sent=sent.gram)


def _shortened(sent: Updates, factors: Floats, rows: Floats | None = None) -> Defended:
    """Multiply every update by a factor; one that is 0 leaves its client out."""
    seen = np.flatnonzero(factors > 0).tolist()
    return Defended(
        seen=seen,
        sent=sent.gram,
        rows=factors[:, None] * (np.eye(len(factors)) if rows is None else rows),
        reasons={
            sent.clients[i]: "the robust rule gives its update no weight"
            for i in np.flatnonzero(factors <= 0).tolist()
        },
        clipped={sent.clients[i]: float(factors[i]) for i in seen if factors[i] != 1},
    )


def _nnm_gm(sent: Updates) -> Defended:
    mixing = robust.nearest_neighbour_mixing(sent.gram, _liars(sent))
    weights = robust.geometric_median(robust.mixed_gram(sent.gram, mixing), sent.weights)
    return _shortened(sent, weights / sent.weights, mixing)


def _multi_krum(sent: Updates) -> Defended:
    return _shortened(sent, np.sign(robust.multi_krum(sent.gram, _liars(sent))))


def _centred_clip(sent: Updates) -> Defended:
    tau = robust.lower_median(np.sqrt(np.diag(sent.gram)))
    if tau <= 0:
        return _shortened(sent, np.ones(len(sent.clients)))
    return _shortened(sent, len(sent.clients) * robust.centred_clipping(sent.gram, tau, rounds=3))


def _liars(sent: Updates) -> int:
    """Return f, the number of liars to expect: a fifth, but always short of one half."""
    count = len(sent.clients)
    return min(max(1, round(LIARS * count)), (count - 1) // 2)


def _auto(sent: Updates) -> Defended:
    against = _against(sent)
    seen = [i for i in range(len(sent.clients)) if i not in against]
    bound = SPREAD * robust.lower_median(np.sqrt(np.diag(sent.gram))[seen])
    factors = robust.norm_clipping(sent.gram, bound)
    reasons = {sent.clients[i]: reason for i, reason in sorted(against.items())}
    return Defended(
        seen=seen,
        sent=sent.gram,
        rows=np.diag(factors),
        reasons=reasons,
        accused=reasons,
        clipped={sent.clients[i]: float(factors[i]) for i in seen if factors[i] < 1},
    )


def _against(sent: Updates) -> dict[int, str]:
    """Return the clients that work against an agreement of the others, with the reason.

    The symbols are those at the top of the module.
    """
    U = _unexplained(np.nan_to_num(cosines(sent.gram)), sent.favourable)
    left = list(range(len(U)))
    against: dict[int, str] = {}
    while 2 * (len(against) + 1) < len(U):
        towards = _towards_others(U[np.ix_(left, left)])
        worst = int(np.argmin(towards))
        others = left[:worst] + left[worst + 1 :]
        agreement = float(np.median(_towards_others(U[np.ix_(others, others)])))
        if not (towards[worst] < AGAINST and agreement >= AGREEMENT):
            break
        against[left[worst]] = (
            f"its update works against the others' (cosine {towards[worst]:.2f}, they agree by "
            f"{agreement:.2f})"
        )
        left = others
    return against


def _unexplained(U: Floats, shares: Floats) -> Floats:
    """Return the Gram matrix of unit updates without what label shares explain of them."""
    z = shares - shares.mean()
    slope = z / (z @ z + len(z) * EXPLAINED**2)
    H = np.eye(len(z)) - np.outer(z, slope)
    return np.asarray(H @ U @ H.T)


def _towards_others(U: Floats) -> Floats:
    """Return each one's cosine with the sum of the others; 0 where one has no length."""
    squares, rows, total = np.diag(U), U.sum(axis=1), U.sum()
    inner, others = rows - squares, total - 2 * rows + squares
    length = np.sqrt(np.maximum(squares, 0) * np.maximum(others, 0))
    return np.asarray(np.divide(inner, length, out=np.zeros(len(U)), where=length > 1e-9))


ROBUST: dict[str, Callable[[Updates], Defended]] = {
    "none": _none,
    "auto": _auto,
    "clip": lambda sent: _shortened(sent, robust.norm_clipping(sent.gram)),
    "nnm-gm": _nnm_gm,
    "multi-krum": _multi_krum,
    "centred-clip": _centred_clip,
}
"""The rules by name."""


def doubted_losses(losses: dict[str, float]) -> dict[str, float]:
    """Return the losses to order clients by where one does not fit the others': the median.

    A loss far from the others' may be true, but it may not decide who gives way to whom.

    Examples
    --------
    >>> doubted_losses({"a": 0.4, "b": 0.5, "c": 0.6, "d": 9.0})
    {'d': 0.5}
    """
    if len(losses) < 3:
        return {}
    usual = robust.lower_median(list(losses.values()))
    low, high = usual / TYPICAL, TYPICAL * max(usual, float(np.log(2)))
    return {name: usual for name, loss in losses.items() if not low <= loss <= high}


# ------------------------------------------------------------------ standing


STRIKES = 3
"""Rounds in a row with a refused answer after which a client is suspended."""

TERM = 5
"""Rounds of a first suspension."""


@dataclass(slots=True, kw_only=True)
class Standing:
    """What the server remembers of its clients' answers; part of every checkpoint.

    Parameters
    ----------
    strikes : dict of str to int
        Rounds in a row in which an answer was refused.
    suspended : dict of str to int
        The first round (from 0) in which a suspended client takes part again.
    terms : dict of str to int
        How long each client's latest suspension was.
    rounds : dict of str to int
        In how many rounds an answer was refused.
    latest : dict of str to str
        The latest reason.

    Examples
    --------
    >>> standing = Standing()
    >>> for round_ in range(3):
    ...     standing.judge(round_, {"north", "south"}, {"south": "it lies"}, clients=4)
    >>> standing.suspended, sorted(standing.out(7)), sorted(standing.out(8))
    ({'south': 8}, ['south'], [])
    """

    strikes: dict[str, int] = field(default_factory=dict)
    suspended: dict[str, int] = field(default_factory=dict)
    terms: dict[str, int] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    latest: dict[str, str] = field(default_factory=dict)

    def out(self, round_: int) -> frozenset[str]:
        """Return the clients that are suspended in a round."""
        return frozenset(name for name, until in self.suspended.items() if round_ < until)

    def reasons(self, round_: int) -> dict[str, str]:
        """Return when each suspended client takes part again; rounds are counted from 1 here."""
        return {
            name: f"suspended until round {self.suspended[name] + 1}: its answers were refused"
            for name in sorted(self.out(round_))
        }

    def judge(
        self, round_: int, trained: Collection[str], refused: Mapping[str, str], *, clients: int
    ) -> None:
        """Count the answers refused in a round, and suspend clients that failed too often.

        Parameters
        ----------
        trained : collection of str
            The clients that were asked to train.
        refused : mapping of str to str
            The clients that failed, and why.
        clients : int
            How many there are.
        """
        for name in sorted(trained):
            if name not in refused:
                self.strikes.pop(name, None)
        for name, reason in sorted(refused.items()):
            self.strikes[name] = self.strikes.get(name, 0) + 1
            self.rounds[name] = self.rounds.get(name, 0) + 1
            self.latest[name] = reason
            spared = 2 * (len(self.out(round_ + 1)) + 1) >= clients
            if self.strikes[name] >= STRIKES and not spared:
                self.terms[name] = 2 * self.terms[name] if name in self.terms else TERM
                self.suspended[name] = round_ + 1 + self.terms[name]
                self.strikes[name] = STRIKES - 1  # on probation when it is back

    def warnings(self) -> list[str]:
        """Return how often each client's answers were refused, and the latest reason."""
        # Each suspension is twice as long as the one before it: this is their sum.
        away = {name: 2 * term - TERM for name, term in self.terms.items()}
        return [
            f"{name}: answers refused in {_rounds(count)}"
            f"{f', suspended for {_rounds(away[name])}' if name in away else ''} "
            f"({self.latest[name]})"
            for name, count in sorted(self.rounds.items())
        ]


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count} rounds"
