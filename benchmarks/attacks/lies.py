"""What clients that lie do: to their rows, to what they measure, to what they send.

Liars are at their best: they know the server's rules and state and every honest update, and agree
with each other. ByzFL 0.0.11 has the attacks on updates by the same names: sign flipping, inner
product manipulation (IPM), A Little Is Enough (ALIE), both also with the strength that does most
harm to *our* step, mimic, Gaussian and infinite updates.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from mfairfl.data import Client, Federation, Shard
from mfairfl.engine.loop import federate
from mfairfl.engine.state import (
    Answer,
    Ask,
    Measure,
    Measures,
    Replies,
    RunState,
    Setup,
    Train,
)
from mfairfl.fairness.cells import Statistics
from mfairfl.randomness import stream
from mfairfl.training.plan import Report

STRENGTHS = (0.1, 0.3, 1.0, 1.5, 2.0, 3.0, 10.0)
"""Strengths that an optimal attack tries, with either sign."""


@dataclass
class Scene:
    """What a liar sees when it has to send something.

    Parameters
    ----------
    own : ndarray (m,)
        Its honest update.
    honest : ndarray (H, m)
        The updates of the honest clients.
    round, rounds : int
        This round, from 0, and their number.
    rng : Generator
        Random stream of this client and round.
    harm : callable
        How far the server's step moves from the honest ones' if all liars send a vector.
    """

    own: np.ndarray
    honest: np.ndarray
    round: int
    rounds: int
    rng: np.random.Generator
    harm: Callable[[np.ndarray], float]

    @cached_property
    def mean(self) -> np.ndarray:
        """The honest mean."""
        return np.asarray(self.honest.mean(axis=0))

    @cached_property
    def spread(self) -> np.ndarray:
        """The honest standard deviation, number by number."""
        return np.asarray(self.honest.std(axis=0))


Forge = Callable[[Scene], np.ndarray]
Say = Callable[[Statistics], Statistics]
Poison = Callable[[Shard, int], Shard]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One way to lie; what is None stays honest.

    Parameters
    ----------
    title : str
        For tables.
    forge : callable, optional
        The update that is sent.
    say : callable, optional
        The measurement that is sent.
    report : callable, optional
        Anything else in a report.
    poison : callable, optional
        The train rows, given the number of cells.
    strategy : mapping
        Hyper-parameters without which the attack has nothing to lie about; where a strategy
        lacks them it is left out.
    together : bool
        Whether all liars send what the first one forges.
    bounded : bool
        Whether `robust = "auto"` is meant to make it harmless.
    """

    title: str
    forge: Forge | None = None
    say: Say | None = None
    report: Callable[[Report], Report] | None = None
    poison: Poison | None = None
    strategy: Mapping[str, Any] = field(default_factory=dict)
    together: bool = False
    bounded: bool = True

    @property
    def honest(self) -> bool:
        """Whether nobody lies."""
        return not any((self.forge, self.say, self.report, self.poison))


# ------------------------------------------------------------------ updates


def _times(factor: float) -> Forge:
    return lambda scene: factor * scene.own


def _against_the_mean(strength: float) -> Forge:
    return lambda scene: -strength * scene.mean


def _a_little(strength: float) -> Forge:
    return lambda scene: scene.mean + strength * scene.spread


def _later(scene: Scene) -> np.ndarray:
    """Behave for half of the rounds, then send the opposite."""
    return scene.own if 2 * scene.round < scene.rounds else -scene.own


def _gaussian(scene: Scene) -> np.ndarray:
    return scene.rng.standard_normal(len(scene.own))


def _infinite(scene: Scene) -> np.ndarray:
    return np.full_like(scene.own, np.inf)


def _mimic(scene: Scene) -> np.ndarray:
    """Send what one honest client sends: it then counts several times."""
    return np.asarray(scene.honest[0])


def _worst(family: Callable[[float], Forge]) -> Forge:
    """Take the strength that moves the server's step farthest from the honest clients'."""

    def forge(scene: Scene) -> np.ndarray:
        tried = [family(sign * s)(scene) for s in STRENGTHS for sign in (1.0, -1.0)]
        return max(tried, key=scene.harm)

    return forge


# ------------------------------------------------------------------ measurements, reports, rows


def _losses_times(factor: float) -> Say:
    return lambda sums: replace(sums, losses=factor * sums.losses)


def _losses_of(loss: float) -> Say:
    return lambda sums: replace(sums, losses=loss * sums.counts)


def _perfect(sums: Statistics) -> Statistics:
    """Claim the best measurement there can be: all decisions right, at certain scores."""
    right = np.stack([np.zeros(len(sums.counts)), sums.counts[:, 1]], axis=1)
    return replace(sums, positives=right, scores=right, losses=np.zeros_like(right))


def _counts_times(factor: float) -> Say:
    return lambda sums: Statistics(
        counts=factor * sums.counts,
        positives=factor * sums.positives,
        scores=factor * sums.scores,
        losses=factor * sums.losses,
    )


def _opposite_multipliers(report: Report) -> Report:
    multipliers, gaps = (tuple(-x for x in said) for said in (report.multipliers, report.gaps))
    return replace(report, multipliers=multipliers, gaps=gaps)


def _absurd_multipliers(report: Report) -> Report:
    return replace(report, multipliers=tuple(1e6 for _ in report.multipliers))


def _wrong_labels(shard: Shard, cells: int) -> Shard:
    del cells
    return replace(shard, y=(1 - shard.y).astype(shard.y.dtype))


def _wrong_groups(shard: Shard, cells: int) -> Shard:
    return replace(shard, cells=(cells - 1 - shard.cells).astype(shard.cells.dtype))


def _ten_times(shard: Shard, cells: int) -> Shard:
    """Enrol every row ten times, with the wrong label."""
    ten = np.repeat(np.arange(len(shard)), 10)
    return _wrong_labels(shard[ten], cells)


_FLIP = _times(-1.0)
_IN_ROUND = {"every": 1}

ATTACKS: dict[str, Attack] = {
    "none": Attack(title="no attack"),
    "none-in-round": Attack(title="no attack, multipliers move inside rounds", strategy=_IN_ROUND),
    "sign-flip": Attack(title="sign flip", forge=_FLIP),
    "sign-flip-10": Attack(title="sign flip × 10", forge=_times(-10.0)),
    "scale-100": Attack(title="own update × 100", forge=_times(100.0)),
    "scale-1e6": Attack(title="own update × 1e6", forge=_times(1e6)),
    "ipm-0.5": Attack(title="IPM × 0.5", forge=_against_the_mean(0.5)),
    "ipm-10": Attack(title="IPM × 10", forge=_against_the_mean(10.0)),
    "ipm-optimal": Attack(title="optimal IPM", forge=_worst(_against_the_mean), together=True),
    "alie": Attack(title="ALIE, 1.5 deviations", forge=_a_little(1.5)),
    "alie-optimal": Attack(title="optimal ALIE", forge=_worst(_a_little), together=True),
    "flip-later": Attack(title="behaves, then flips", forge=_later),
    "gaussian": Attack(title="Gaussian noise", forge=_gaussian),
    "infinite": Attack(title="infinite update", forge=_infinite),
    "mimic": Attack(title="mimic of one client", forge=_mimic),
    "loss-0": Attack(title="flip, loss 0", forge=_FLIP, say=_losses_of(0.0)),
    "loss-perfect": Attack(title="flip, perfect measurement", forge=_FLIP, say=_perfect),
    "loss-high": Attack(title="flip, loss × 1.5", forge=_FLIP, say=_losses_times(1.5)),
    "loss-1e9": Attack(title="flip, loss 1e9", forge=_FLIP, say=_losses_of(1e9)),
    "counts-1e6": Attack(title="flip, counts × 1e6", forge=_FLIP, say=_counts_times(1e6)),
    "multipliers": Attack(
        title="opposite multipliers",
        report=_opposite_multipliers,
        strategy=_IN_ROUND,
        bounded=False,
    ),
    "multipliers-1e6": Attack(
        title="multipliers of 1e6", report=_absurd_multipliers, strategy=_IN_ROUND
    ),
    "label-flip": Attack(title="wrong labels", poison=_wrong_labels, bounded=False),
    "padded-labels": Attack(
        title="wrong labels, rows enrolled tenfold", poison=_ten_times, bounded=False
    ),
    "group-liar": Attack(title="wrong groups", poison=_wrong_groups, bounded=False),
}
"""The attacks by name."""


def poisoned(federation: Federation, attack: Attack, liars: Sequence[str]) -> Federation:
    """Return the federation with the liars' train rows changed."""
    if attack.poison is None:
        return federation
    cells = int(np.prod([attribute.size for attribute in federation.attributes]))

    def own(client: Client) -> Client:
        if attack.poison is None or client.name not in liars:
            return client
        return replace(client, train=attack.poison(client.train, cells))

    return replace(federation, clients=tuple(map(own, federation.clients)))


# ------------------------------------------------------------------ on the way to the server


class Liars:
    """Changes what some clients send, on its way to the server (`Member.tamper`).

    Parameters
    ----------
    setup : Setup
        The run's.
    attack : Attack
        How they lie.
    names : sequence of str
        Who lies.
    """

    def __init__(self, setup: Setup, attack: Attack, names: Sequence[str]) -> None:
        self._setup, self._attack, self._names = setup, attack, frozenset(names)
        self._measured: Replies = {}

    def __call__(self, ask: Ask, answers: Mapping[str, Any], state: RunState) -> Replies:
        """Return what reaches the server."""
        if isinstance(ask, Measure):
            self._measured = {name: self._said(name, models) for name, models in answers.items()}
            return self._measured
        if isinstance(ask, Train):
            reports = [report for reports in answers.values() for report in reports]
            return _by_client(self._trained(reports, state))
        return answers

    def _said(self, name: str, models: Measures) -> Measures:
        say = self._attack.say
        if say is None or name not in self._names:
            return models
        return tuple({split: say(sums) for split, sums in model.items()} for model in models)

    def _trained(self, reports: Sequence[Report], state: RunState) -> list[Report]:
        if self._attack.report is not None:
            lie = self._attack.report
            reports = [lie(r) if r.client in self._names else r for r in reports]
        honest = [r for r in reports if r.client not in self._names]
        if self._attack.forge is None or not honest:
            return list(reports)
        updates = np.stack([r.update for r in honest]).astype(np.float64)
        harm = self._harm(honest, reports, state)
        lies: dict[str, np.ndarray] = {}
        for report in (r for r in reports if r.client in self._names):
            if lies and self._attack.together:
                lies[report.client] = next(iter(lies.values()))
                continue
            scene = Scene(
                own=report.update.astype(np.float64),
                honest=updates,
                round=state.round,
                rounds=self._setup.rounds,
                rng=stream(self._setup.seed, "liar", state.round, report.client),
                harm=harm,
            )
            lies[report.client] = self._attack.forge(scene)
        return [_with_update(r, lies) for r in reports]

    def _harm(
        self, honest: Sequence[Report], reports: Sequence[Report], state: RunState
    ) -> Callable[[np.ndarray], float]:
        """Return how far a vector moves the server's step from the honest clients'."""

        @cache
        def without() -> np.ndarray:
            return self._move(state, honest)

        def harm(vector: np.ndarray) -> float:
            lies = dict.fromkeys(self._names, vector)
            moved = self._move(state, [_with_update(r, lies) for r in reports])
            return float(np.linalg.norm(moved - without()))

        return harm

    def _move(self, state: RunState, reports: Sequence[Report]) -> np.ndarray:
        return rehearse(self._setup, state, self._measured, reports)


def rehearse(
    setup: Setup, state: RunState, measured: Replies, reports: Sequence[Report]
) -> np.ndarray:
    """Return how far the server's weights would move with these reports; `state` stays.

    Parameters
    ----------
    measured : mapping
        The clients' latest measurements, in case the strategy plans from them.
    """
    rehearsal = copy.deepcopy(state)
    loop = federate(setup, rehearsal)
    ask = next(loop)
    while isinstance(ask, Measure):
        ask = loop.send(measured)
    loop.send(_by_client(reports))
    return state.weights.astype(np.float64) - rehearsal.weights


def _by_client(reports: Sequence[Report]) -> dict[str, Answer]:
    return {report.client: [report] for report in reports}


def _with_update(report: Report, updates: Mapping[str, np.ndarray]) -> Report:
    """Return the report with the update under its client's name, if there is one."""
    if report.client not in updates:
        return report
    return replace(report, update=updates[report.client].astype(np.float32))
