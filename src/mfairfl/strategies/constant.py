"""The constant classifier: everyone gets the training data's majority label.

No citation; the reference every fairness number must be read against. It violates neither
demographic parity nor equalized odds, and on skewed data its accuracy is high.

Symbols: π = share of favourable labels in the pooled training data.

Update: none. The model's logit is log(π/(1 − π)) for every input, so its decision is the majority
label and its score is the base rate.

Deviations: none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mfairfl.strategies.base import Card, Context, Measurement, State, Step, Summary
from mfairfl.training.plan import Job, Report

__all__ = ["Constant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """Predict the majority label for everyone."""

    card: ClassVar[Card] = Card(
        title="The commoner label for everyone",
        paper="none",
        protects="nothing",
        starts="constant",
    )

    def start(self, summary: Summary) -> State:
        """Nothing to remember: the loop starts, and stays, at the base rate (see the card)."""
        del summary
        return {}

    def plan(
        self, state: State, context: Context, measurements: Sequence[Measurement]
    ) -> tuple[State, list[Job]]:
        """Nobody trains."""
        del context, measurements
        return state, []

    def combine(
        self,
        state: State,
        context: Context,
        measurements: Sequence[Measurement],
        reports: Sequence[Report],
        gram: NDArray[np.float64] | None,
    ) -> Step:
        """Nothing to combine."""
        del context, measurements, reports, gram
        return Step(coefficients=np.zeros(0), state=state)
