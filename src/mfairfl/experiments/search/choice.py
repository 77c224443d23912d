"""Which of several trials to keep: the most accurate one that is fair enough.

Never the fairest one: a model that gives everyone the same answer is exactly fair, and useless.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mfairfl.errors import ConfigError

FLOOR_FACTOR = 1.3  # a violation this close to its noise floor cannot be told from chance
USEFUL = 0.01  # accuracy a model must gain on the constant classifier to be of use


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What a trial showed on rows it was not trained on.

    Parameters
    ----------
    accuracy, violation : float
        Means over the folds; nan where undefined.
    floor : float
        Mean violation on the same rows if the decisions were exactly fair; nan where undefined.
    constant_accuracy : float
        Accuracy of the constant classifier on the same rows.
    """

    accuracy: float
    violation: float
    floor: float
    constant_accuracy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The position of the chosen trial, and why it was chosen, in one line."""

    index: int
    reason: str


def mean_of(values: Sequence[float | None]) -> float:
    """Return the mean over folds; nan if one of them has no value.

    Examples
    --------
    >>> mean_of([0.5, 0.75]), mean_of([0.5, None])
    (0.625, nan)
    """
    return float(np.array(values, dtype=np.float64).mean())


def allowed(trial: Scored, tolerance: float) -> float:
    """Return the largest acceptable violation: the tolerance, or 1.3 noise floors if that is more.

    Examples
    --------
    >>> allowed(Scored(accuracy=0.8, violation=0.12, floor=0.1, constant_accuracy=0.7), 0.01)
    0.13
    """
    noise = FLOOR_FACTOR * trial.floor
    return tolerance if math.isnan(noise) else max(tolerance, noise)


def choose(trials: Sequence[Scored], tolerance: float) -> Choice:
    """Choose the highest accuracy subject to violation ≤ max(tolerance, 1.3 × noise floor).

    Only trials at least .01 more accurate than the constant classifier count; if none of them is
    that fair, the one of lowest violation. If there is none of these, the most accurate. Of
    equals, the one that is better in the other number, then the first.

    Parameters
    ----------
    trials : sequence of Scored
        Complete trials. Those of undefined accuracy are never chosen, those of undefined violation
        only if there is no other.
    tolerance : float
        Largest violation that is acceptable.

    Examples
    --------
    >>> constant = Scored(accuracy=0.70, violation=0.0, floor=0.0, constant_accuracy=0.70)
    >>> fair = Scored(accuracy=0.80, violation=0.009, floor=0.006, constant_accuracy=0.70)
    >>> unfair = Scored(accuracy=0.85, violation=0.2, floor=0.006, constant_accuracy=0.70)
    >>> choose([constant, fair, unfair], tolerance=0.01).index
    1
    """
    if not 0 <= tolerance <= 1:
        raise ConfigError(f"tolerance: must be between 0 and 1, not {tolerance}")
    known = [i for i, trial in enumerate(trials) if not math.isnan(trial.accuracy)]
    if not known:
        raise ConfigError("no complete trial with a defined accuracy to choose from")
    defined = [i for i in known if not math.isnan(trials[i].violation)]
    useful = [i for i in defined if _useful(trials[i])]
    fair = [i for i in useful if trials[i].violation <= allowed(trials[i], tolerance)]
    bound = f"violation ≤ max({tolerance:g}, {FLOOR_FACTOR:g} × noise floor)"
    if fair:
        best = min(fair, key=lambda i: (-trials[i].accuracy, trials[i].violation))
        return Choice(index=best, reason=f"highest accuracy of the {len(fair)} with {bound}")
    if useful:
        best = min(useful, key=lambda i: (trials[i].violation, -trials[i].accuracy))
        why = f"lowest violation of the {len(useful)} clearly more accurate than a constant"
        return Choice(index=best, reason=f"no useful trial has {bound}; {why}")
    best = min(defined or known, key=lambda i: (-trials[i].accuracy, trials[i].violation))
    why = f"no trial is {USEFUL:g} more accurate than a constant classifier; highest accuracy"
    return Choice(index=best, reason=f"{why}: widen the search")


def _useful(trial: Scored) -> bool:
    # Both are shares of the same rows: a gain of exactly .01 must not fail by rounding.
    return round(trial.accuracy - trial.constant_accuracy, 12) >= USEFUL
