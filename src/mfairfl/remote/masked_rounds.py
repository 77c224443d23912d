"""A loop's questions under masks: every silo is asked, and sums over all of them are read.

The roster is always that of all enrolled silos: sums over changing rosters would tell single silos
apart, and silos refuse them. If one silo does not answer, what the others tell of themselves is
used, and the sum is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from mfairfl.engine.state import Ask, Measure, Reply, Score, Setup, Train
from mfairfl.errors import MfairflError
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.masked import EVERYBODY
from mfairfl.remote.codec import Packet, Shape, pack_ask
from mfairfl.remote.mask_keys import KeyStock
from mfairfl.remote.masked_forms import (
    mean_controllers,
    moved_controllers,
    open_measures,
    open_scores,
    read_measures,
    read_reports,
    read_scores,
)
from mfairfl.remote.masked_messages import Parts, with_roster
from mfairfl.remote.masking import Roster, opened
from mfairfl.remote.transport import Transport, ask_clients

__all__ = ["MaskedRounds"]

T = TypeVar("T")


class MaskedRounds:
    """Answers a loop's questions from sums over all silos.

    Parameters
    ----------
    minimum : int
        Silos that must answer each question.
    """

    def __init__(self, setup: Setup, transport: Transport, *, minimum: int) -> None:
        self._setup, self._transport, self._minimum = setup, transport, minimum
        self._names = sorted(setup.summary.counts)
        self._keys = KeyStock(transport, self._names)
        self._shape = Shape(setup.size, Cells(setup.summary.attributes).size)

    def ask(self, ask: Ask) -> Reply:
        """Ask, and return what was told and what could be summed."""
        if isinstance(ask, Train):
            return self._train(ask)
        return self._score(ask) if isinstance(ask, Score) else self._measure(ask)

    def _measure(self, ask: Measure) -> Reply:
        roster = self._keys.roster()
        found, faults, absent = self._exchange(
            ask,
            roster,
            lambda _, reply: read_measures(reply, ask, self._shape, summed=roster is not None),
        )
        lost = self._lost(roster, found, {**faults, **absent})
        total = None if lost else opened([found[name].words for name in self._names])
        return Reply(open_measures(ask, self._shape, found, total), faults, absent, lost)

    def _score(self, ask: Score) -> Reply:
        roster = self._keys.roster()
        found: dict[str, Parts] = {}
        faults: dict[str, str] = {}
        absent: dict[str, str] = {}
        if roster is not None:
            found, faults, absent = self._exchange(
                ask, roster, lambda _, reply: read_scores(reply, ask, self._shape)
            )
        lost = self._lost(roster, found, {**faults, **absent})
        if lost:
            return Reply({}, faults, absent, lost)
        total = opened([found[name].words for name in self._names])
        try:
            sums = open_scores(ask, self._shape, total, len(self._names))
        except MfairflError as error:  # one silo's lie, and nobody can say whose
            return Reply({}, faults, absent, f"the sum cannot be true ({error})")
        by_split = {split: {EVERYBODY: one} for split, one in sums.items()}
        return Reply(by_split, faults, absent)

    def _train(self, ask: Train) -> Reply:
        """Let silos train; multipliers that they moved are read as means over all of them."""
        count = moved_controllers(ask, self._names)
        roster = self._keys.roster() if count else None
        words = 2 * count if roster is not None else 0
        found, faults, absent = self._exchange(
            ask,
            roster,
            lambda name, reply: read_reports(reply, ask, name, self._shape, words),
        )
        reports = [report for _, own in found.values() for report in own]
        if not count:
            return Reply(reports, faults, absent)
        lost = self._lost(roster, found, {**faults, **absent})
        if not lost:
            total = opened([found[name][0].words for name in self._names])
            summary = self._setup.summary
            rows = sum(summary.rows(name) for name in summary.counts)
            reports = mean_controllers(reports, total, rows)
        return Reply(reports, faults, absent, lost)

    def _exchange(
        self, ask: Ask, roster: Roster | None, read: Callable[[str, Packet], T]
    ) -> tuple[dict[str, T], dict[str, str], dict[str, str]]:
        if isinstance(ask, Train):
            names = sorted({job.client for job in ask.jobs})
            asks = {name: with_roster(pack_ask(ask, name), roster) for name in names}
        else:  # the same for all, down to the last bit
            asks = dict.fromkeys(self._names, with_roster(pack_ask(ask, ""), roster))
        return ask_clients(self._transport, asks, read, minimum=self._minimum)

    def _lost(
        self, roster: Roster | None, found: Mapping[str, Any], reasons: Mapping[str, str]
    ) -> str:
        """Say why a sum cannot be read; empty if it can."""
        missing = reasons if roster is not None else self._keys.refused
        for name in self._names:
            if name not in found or (roster is None and name in missing):
                return f"{name}: {missing.get(name, 'it did not answer')}"
        return "" if roster is not None else "the silos' keys do not fit each other"
