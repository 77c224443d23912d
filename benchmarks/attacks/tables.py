"""From the outcomes of attacked runs to lines of a table: means over seeds, harm, verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from attacks.lies import ATTACKS
from attacks.suite import AttackOutcome, Case

MEASURES = ("accuracy", "violation", "worst")
"""What honest clients get: accuracy, violation, accuracy of the worst of them."""

LEVEL = 0.95
"""Of intervals over seeds."""


class Setting(NamedTuple):
    """What lines of one table have in common."""

    data: str
    strategy: str
    robust: str
    liars: int
    clients: int
    split: str
    rounds: int

    @classmethod
    def of(cls, case: Case) -> Setting:
        """Return a case's."""
        return cls(*(getattr(case, name) for name in cls._fields))


class MeanChange(NamedTuple):
    """A mean difference over seeds, and half the width of its interval (nan for one seed)."""

    mean: float
    half: float

    @property
    def low(self) -> float:
        """The lower limit."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """The upper limit."""
        return self.mean + self.half

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "–"
        return f"{self.mean:+.3f}" + ("" if math.isnan(self.half) else f" ± {self.half:.3f}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackLine:
    """One attack in one setting.

    Parameters
    ----------
    means : mapping of str to float
        Each of `MEASURES`, over seeds.
    changes : mapping of str to MeanChange
        Each of `MEASURES` against the run of the same seed without attack and without defence.
    liars_out, honest_out : float
        Share of their rounds, and of the measurement before the first, in which liars, and honest
        clients, were set aside.
    ended : int
        Runs that did not reach their end.
    """

    setting: Setting
    attack: str
    seeds: int
    means: Mapping[str, float]
    changes: Mapping[str, MeanChange]
    liars_out: float
    honest_out: float
    ended: int

    def harmless(self, most: float = 0.03) -> bool:
        """Say whether accuracy fell and violation rose by at most so much, in the mean."""
        fell, rose = -self.changes["accuracy"].mean, self.changes["violation"].mean
        return not self.ended and fell <= most and rose <= most


def lines(outcomes: Sequence[AttackOutcome]) -> list[AttackLine]:
    """Return a line for every setting and attack, in the order of the outcomes."""
    by_case = {outcome.case: outcome for outcome in outcomes}
    keys = dict.fromkeys((Setting.of(o.case), o.case.attack) for o in outcomes)
    return [_line(setting, attack, by_case) for setting, attack in keys]


def _line(setting: Setting, attack: str, by_case: Mapping[Case, AttackOutcome]) -> AttackLine:
    found = [
        outcome
        for case, outcome in by_case.items()
        if Setting.of(case) == setting and case.attack == attack
    ]
    pairs = [(o, by_case.get(_reference(o.case))) for o in found]
    whole = [(o, ref) for o, ref in pairs if ref is not None and not o.error]
    return AttackLine(
        setting=setting,
        attack=attack,
        seeds=len(found),
        means={m: float(np.mean([getattr(o, m) for o in found])) for m in MEASURES},
        changes={
            m: change([getattr(o, m) - getattr(ref, m) for o, ref in whole]) for m in MEASURES
        },
        liars_out=_share([o.liars_out for o in found], (setting.rounds + 1) * setting.liars),
        honest_out=_share(
            [o.honest_out for o in found], (setting.rounds + 1) * (setting.clients - setting.liars)
        ),
        ended=sum(bool(o.error) for o in found),
    )


def _reference(case: Case) -> Case:
    """Return the run of the same seed without attack and without defence."""
    own = ATTACKS[case.attack].strategy
    plain = next(
        name for name, attack in ATTACKS.items() if attack.honest and attack.strategy == own
    )
    return case._replace(attack=plain, robust="none")


def change(differences: Sequence[float]) -> MeanChange:
    """Return the mean of differences with its t-interval.

    Examples
    --------
    >>> str(change([0.01, 0.03]))
    '+0.020 ± 0.127'
    """
    count = len(differences)
    if not count:
        return MeanChange(math.nan, math.nan)
    mean = float(np.mean(differences))
    if count < 2:
        return MeanChange(mean, math.nan)
    spread = float(np.std(differences, ddof=1)) / math.sqrt(count)
    return MeanChange(mean, float(student.ppf((1 + LEVEL) / 2, count - 1)) * spread)


def _share(counts: Sequence[int], most: int) -> float:
    return float(np.mean(counts)) / most if most else 0.0
