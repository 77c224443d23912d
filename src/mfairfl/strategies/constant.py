"""The constant classifier: everyone gets the training data's majority label.

No citation; the reference every fairness number must be read against. It violates neither
demographic parity nor equalized odds, and on skewed data its accuracy is high.

Symbols: π = share of favourable labels in the pooled training data.

Update: none. The model's logit is log(π/(1 − π)) for every input, so its decision is the majority
label and its score is the base rate.

Deviations: none.
"""

from dataclasses import dataclass

import numpy as np

from mfairfl.strategies.base import Card, Gram, Round, State, Step, Strategy
from mfairfl.training.plan import Job, Reports


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant(Strategy):
    """Predict the majority label for everyone."""

    card = Card(
        title="The commoner label for everyone",
        measures="none",
        starts="constant",
        steps="none",
    )

    def plan(self, state: State, round: Round) -> tuple[State, list[Job]]:
        """No client trains: the loop starts, and stays, at the base rate (see the card)."""
        return state, []

    def combine(self, state: State, round: Round, reports: Reports, gram: Gram) -> Step:
        """Nothing to combine."""
        return Step(np.zeros(0))
