"""Which of several models to train, from what folds of the train rows showed.

A candidate is a method with an output rule. All were measured on the same held-out rows, so
differences are paired, fold by fold. Where the best cannot be told apart from a simpler one, and
is hardly better (by .01 in accuracy, .002 in violation), the simpler one is picked: first one that
does not read the group, then FedAvg, then in the order given.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats

from mfairfl.engine.output import Rule
from mfairfl.errors import DataError
from mfairfl.experiments.search.trials import USEFUL
from mfairfl.fairness.fitting import By

BASELINE = "fedavg"
_HARDLY = 0.002  # of violation
_ROUNDING = 1e-12
_THRESHOLDS: dict[By | None, str] = {
    "none": " with one threshold",
    "group": " with a threshold for each group",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A method with an output rule.

    Parameters
    ----------
    tolerance : float, optional
        What training or thresholds are asked for; None of what knows no tolerance.

    Examples
    --------
    >>> print(Contender(strategy="fedavg", rule="thresholds", by="none", tolerance=0.05))
    fedavg with one threshold at 0.05
    """

    strategy: str
    rule: Rule
    by: By | None = None
    tolerance: float | None = None

    @property
    def reads_group(self) -> bool:
        """Whether a decision needs to know a person's group."""
        return self.by == "group"

    def __str__(self) -> str:
        at = "" if self.tolerance is None else f" at {self.tolerance:g}"
        return f"{self.strategy}{_THRESHOLDS.get(self.by, '')}{at}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldNumbers:
    """What a candidate showed on rows that it was not trained on.

    Parameters
    ----------
    accuracies, violations : tuple of float
        Of each fold; a violation is the largest of all notions.
    violation : float
        Of the rows of all folds together.
    constant_accuracy : float
        That of the same decision for everyone.
    """

    candidate: Contender
    accuracies: tuple[float, ...]
    violations: tuple[float, ...]
    violation: float
    constant_accuracy: float

    @property
    def accuracy(self) -> float:
        """The mean over the folds."""
        return float(np.mean(self.accuracies))

    @property
    def useful(self) -> bool:
        """Whether it is at least .01 more accurate than a constant."""
        return self.accuracy - self.constant_accuracy >= USEFUL - _ROUNDING


class FoldDifference(NamedTuple):
    """A mean paired difference over folds, and half its 95 % interval.

    Folds share most of their train rows, so Student's t is widened as Nadeau and Bengio (2003) do:
    the variance of the mean is s² (1/K + 1/(K − 1)).

    Examples
    --------
    >>> FoldDifference.of([0.86, 0.85, 0.84], [0.84, 0.85, 0.83]).tells
    False
    """

    mean: float
    half: float

    @classmethod
    def of(cls, first: Sequence[float], other: Sequence[float]) -> "FoldDifference":
        """Return first − other."""
        d = np.subtract(first, other)
        k, quantile = len(d), float(stats.t.ppf(0.975, len(d) - 1))
        return cls(
            float(d.mean()), quantile * float(d.std(ddof=1)) * math.sqrt(1 / k + 1 / (k - 1))
        )

    @property
    def tells(self) -> bool:
        """Whether the interval leaves 0 out."""
        return abs(self.mean) > self.half + _ROUNDING

    def __str__(self) -> str:
        return f"{self.mean:+.4f} ± {self.half:.4f}"


class Pick(NamedTuple):
    """What was picked.

    Attributes
    ----------
    chosen
        Its position.
    alike
        Positions of those that it cannot be told apart from.
    reason
        Why, in one sentence.
    """

    chosen: int
    alike: tuple[int, ...]
    reason: str


def pick_accurate(trials: Sequence[FoldNumbers], limit: float, *, by: By) -> Pick:
    """Pick the highest accuracy among the violations of at most `limit`.

    As in a search, candidates that are no better than the same decision for everyone are left out
    unless there is no other: those are exactly fair, and useless. If none is within the limit, the
    lowest violation is picked. Thresholds for groups are left out unless `by` is ``group``.

    Examples
    --------
    >>> fair, unfair = (
    ...     FoldNumbers(
    ...         candidate=Contender(strategy=name, rule="last"), accuracies=(accuracy,) * 2,
    ...         violations=(violation,) * 2, violation=violation, constant_accuracy=0.7,
    ...     )
    ...     for name, accuracy, violation in [("mfairfl", 0.8, 0.01), ("fedavg", 0.85, 0.2)]
    ... )
    >>> pick_accurate([unfair, fair], 0.03, by="none").chosen
    1
    """
    pool = _allowed(trials, by)
    within = [i for i in pool if trials[i].violation <= limit]
    if not within:
        why = f"has the lowest held-out violation; none is at most {limit:.4f}"
        return _pick_fairest(trials, pool, why)
    best = min(within, key=lambda i: (-trials[i].accuracy, trials[i].violation))
    why = f"is the most accurate of {len(within)} with a held-out violation of at most {limit:.4f}"
    return _simplest(trials, within, best, lambda trial: trial.accuracies, hardly=USEFUL, why=why)


def pick_fair(trials: Sequence[FoldNumbers], most_lost: float, *, by: By) -> Pick:
    """Pick the lowest violation among those that lose at most so much of the baseline's accuracy.

    The baseline is the candidate ``fedavg`` without thresholds.
    """
    (baseline,) = (t for t in trials if (t.candidate.strategy, t.candidate.by) == (BASELINE, None))
    least = baseline.accuracy - most_lost - _ROUNDING
    pool = [i for i in _allowed(trials, by) if trials[i].accuracy >= least]
    pool = pool or [trials.index(baseline)]
    why = f"has the lowest held-out violation of {len(pool)} that lose at most {most_lost:g}"
    return _pick_fairest(trials, pool, why)


def _allowed(trials: Sequence[FoldNumbers], by: By) -> list[int]:
    """Return the positions of candidates that may be picked."""
    pool = [i for i, t in enumerate(trials) if by == "group" or not t.candidate.reads_group]
    if not pool or any(math.isnan(trials[i].violation) for i in pool):
        raise DataError("choose: a violation is undefined on held-out rows: a group has none")
    return [i for i in pool if trials[i].useful] or pool


def _pick_fairest(trials: Sequence[FoldNumbers], pool: Sequence[int], why: str) -> Pick:
    best = min(pool, key=lambda i: (trials[i].violation, -trials[i].accuracy))
    return _simplest(trials, pool, best, lambda trial: trial.violations, hardly=_HARDLY, why=why)


def _simplest(
    trials: Sequence[FoldNumbers],
    pool: Sequence[int],
    best: int,
    numbers: Callable[[FoldNumbers], Sequence[float]],
    *,
    hardly: float,
    why: str,
) -> Pick:
    """Return the simplest of the best and those that cannot be told apart from it."""
    differences = {
        i: FoldDifference.of(numbers(trials[best]), numbers(trials[i])) for i in pool if i != best
    }
    near = [i for i, d in differences.items() if not d.tells and abs(d.mean) <= hardly]
    alike = [best, *near]

    def simplicity(i: int) -> tuple[bool, bool, int]:
        candidate = trials[i].candidate
        return candidate.reads_group, candidate.strategy != BASELINE, i

    chosen = min(alike, key=simplicity)
    others = tuple(i for i in alike if i != chosen)
    reason = f"{trials[best].candidate} {why}"
    if chosen != best:
        reason += (
            f"; the simpler {trials[chosen].candidate} cannot be told apart from it "
            f"({differences[chosen]}) and is chosen"
        )
    elif others:
        names = " and ".join(str(trials[i].candidate) for i in others)
        reason += f"; {names} cannot be told apart from it"
    return Pick(chosen, others, f"{reason}.")
