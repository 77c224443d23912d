"""How clients stand after the answers they gave: strikes, suspensions, and how they end.

A client of which an answer was refused in a round has a strike. After `STRIKES` such rounds in a
row it is suspended: it is asked nothing for `TERM` rounds. Then it takes part again, on probation:
one more strike suspends it for twice as long as the last time. A round in which it trained and
nothing was refused clears its strikes. Never are half of the clients suspended.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

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
    longest : dict of str to float
        The largest median norm of a round's updates and control changes so far, by their name.

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
    longest: dict[str, float] = field(default_factory=dict)

    def out(self, round_: int) -> frozenset[str]:
        """Return the clients that are suspended in a round."""
        return frozenset(name for name, until in self.suspended.items() if round_ < until)

    def reasons(self, round_: int) -> dict[str, str]:
        """Say of each suspended client when it takes part again; rounds as people count them."""
        return {
            name: f"suspended until round {self.suspended[name] + 1}: its answers were refused"
            for name in sorted(self.out(round_))
        }

    def judge(
        self, round_: int, trained: Collection[str], refused: Mapping[str, str], *, clients: int
    ) -> None:
        """Note whose answers were refused in a round, and suspend who failed too often.

        Parameters
        ----------
        trained : collection of str
            Who was asked to train.
        refused : mapping of str to str
            Who failed, and why.
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
        """Say of each client whose answers were refused how often, and why at last."""
        return [
            f"{name}: answers refused in {_rounds(count)}"
            f"{f', suspended for {_rounds(self._served(name))}' if name in self.terms else ''} "
            f"({self.latest[name]})"
            for name, count in sorted(self.rounds.items())
        ]

    def _served(self, name: str) -> int:
        """Return the length of all suspensions together: each is twice the one before."""
        return 2 * self.terms[name] - TERM

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Return what `to_json` wrote; anything else is a ValueError."""
        kinds = {"latest": str, "longest": float}
        for key, values in plain.items():
            kind = kinds.get(key, int)
            if not all(isinstance(value, kind) for value in values.values()):
                raise ValueError(f"standing.{key} holds values of another type")
        return cls(**{key: dict(value) for key, value in plain.items()})


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count} rounds"
