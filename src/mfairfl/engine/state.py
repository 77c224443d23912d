"""What a run is (fixed) and where it stands (moves from round to round)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from mfairfl.data import Split
from mfairfl.engine.output import RULES, Candidate, Output
from mfairfl.errors import ConfigError
from mfairfl.fairness.cells import Statistics
from mfairfl.fairness.scores import ScoreSums
from mfairfl.fairness.thresholds import Thresholds, refuse_losses
from mfairfl.guard.defence import check_robust
from mfairfl.guard.standing import Standing
from mfairfl.strategies.base import State, Strategy, Summary
from mfairfl.training.plan import Job, Recipe, Report

__all__ = [
    "Answer",
    "Ask",
    "Measure",
    "Measured",
    "Measures",
    "Reply",
    "RoundRecord",
    "RunState",
    "Score",
    "Scored",
    "Setup",
    "Split",
    "Train",
]

Measured = Mapping[Split, Mapping[str, Statistics]]
"""For each split, each client's sums and counts under one weight vector."""

Scored = Mapping[Split, Mapping[str, ScoreSums]]
"""For each split, each client's sums and counts of the served model's scores."""


_FITTING: dict[str, tuple[str, ...]] = {
    "ensemble": ("last", "average", "select"),
    "personal": ("last",),
}
_FAIR = ("select", "mixture", "threshold")  # rules that look at a violation
_SERVED = {"ensemble": "an ensemble of the clients' models", "personal": "each client its own"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Everything that is decided before a run starts.

    Parameters
    ----------
    size : int
        Number of the model's weights: all the loop knows of a model.
    participation : float
        Share of clients drawn for each round, at least one.
    patience : int, optional
        Stop after so many rounds without a lower pooled loss (on validation rows, if any).
    splits : tuple
        The splits that exist.
    enrolled : mapping of split to mapping of client to ndarray (C, 2)
        Rows per (cell, label) that clients were enrolled with; measurements must agree. By default
        the train rows of the summary.
    robust : str
        How updates of clients that may lie are combined: `none`, `auto` or a rule of
        `guard.defence`.
    """

    strategy: Strategy
    size: int
    recipe: Recipe
    rounds: int
    seed: int
    summary: Summary
    output: Output = field(default_factory=Output)
    participation: float = 1.0
    patience: int | None = None
    splits: tuple[Split, ...] = ("train", "test")
    enrolled: Mapping[Split, Mapping[str, np.ndarray]] = field(default_factory=dict)
    robust: str = "none"

    def __post_init__(self) -> None:
        check_robust(self.robust, self.strategy.card)
        serves, rule = self.strategy.card.serves, self.output.rule
        fitting = _FITTING.get(serves, RULES)
        if rule not in fitting:
            raise ConfigError(
                f"output.rule = '{rule}' does not fit a strategy that serves "
                f"{_SERVED[serves]}; use one of: {', '.join(fitting)}"
            )
        if not self.summary.attributes and (self.strategy.card.constrained or rule in _FAIR):
            raise ConfigError(
                f"{type(self.strategy).__name__} with output rule '{rule}' compares groups, and "
                "there is no sensitive attribute: name one, or use fedavg with rule 'last'"
            )
        if rule == "threshold":  # now, not when the last round is over
            refuse_losses(self.summary.constraints)
        if not self.enrolled and self.strategy.card.trains_on == "clients":
            object.__setattr__(self, "enrolled", {"train": self.summary.counts})

    @property
    def held_out(self) -> Split:
        """The split that may choose between models: validation rows if there are any."""
        return "validation" if "validation" in self.splits else "train"


@dataclass(slots=True, kw_only=True)
class RunState:
    """Where a run stands after `round` rounds: all that a checkpoint holds.

    Parameters
    ----------
    weights : ndarray (m,) or (K, m)
        The server's model; one row per client, in name order, if an ensemble is served.
    slots : dict of client to dict of slot to ndarray
        What clients keep between rounds (the embedded engine holds it for them).
    best_loss, best_round
        Early stopping's memory.
    standing : Standing
        Which clients failed, and which are suspended.
    undone : int
        Rounds whose step was taken back, because it broke the model.
    """

    round: int
    weights: np.ndarray
    strategy: State
    vectors: dict[str, np.ndarray] = field(default_factory=dict)
    slots: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    average: np.ndarray | None = None
    bank: list[Candidate] = field(default_factory=list)
    best_loss: float = float("inf")
    best_round: int = 0
    standing: Standing = field(default_factory=Standing)
    undone: int = 0


@dataclass(frozen=True, slots=True)
class Measure:
    """Request: evaluate models on these splits of every client.

    Parameters
    ----------
    weights : tuple of ndarray
        The models: (m,) each, or (R, m) for an ensemble of R members.
    splits : tuple
        Which rows.
    shares : ndarray (R,), optional
        Weights of an ensemble's members.
    slot : str, optional
        Each client answers with the vector it holds under this name, while it holds one.
    thresholds : Thresholds, optional
        How scores become decisions; None decides at score ½.
    without : frozenset of str
        Clients that are not asked: those that are suspended.
    """

    weights: tuple[np.ndarray, ...]
    splits: tuple[Split, ...]
    shares: np.ndarray | None = None
    slot: str | None = None
    thresholds: Thresholds | None = None
    without: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Score:
    """Request: sums and counts of a model's scores on these splits of every client.

    Parameters
    ----------
    weights : ndarray (m,) or (R, m)
        One model, or R members.
    splits : tuple
        Which rows.
    shares : ndarray (R,), optional
        Weights of an ensemble's members, probabilities of a mixture's.
    slot : str, optional
        Each client answers with the vector it holds under this name, while it holds one.
    drawn : bool
        Whether one member is drawn for each decision. The score is then the probability of a
        favourable decision; else it is the mean of the members' probabilities.
    """

    weights: np.ndarray
    splits: tuple[Split, ...]
    shares: np.ndarray | None = None
    slot: str | None = None
    drawn: bool = False


@dataclass(frozen=True, slots=True)
class Train:
    """Request: carry out these jobs.

    Parameters
    ----------
    weights : mapping of str to ndarray (m,)
        The server's weights for each client that has a job.
    """

    round: int
    weights: Mapping[str, np.ndarray]
    jobs: tuple[Job, ...]


Ask = Measure | Score | Train
"""What a loop may ask of the clients."""

Measures = tuple[dict[Split, Statistics], ...]
Answer = Measures | dict[Split, ScoreSums] | list[Report]
"""One client's answer to a `Measure`, a `Score` or a `Train`."""


class Reply(NamedTuple):
    """What a loop is sent: the clients' answers, and why some have none.

    Parameters
    ----------
    found : Sequence of Measured, Scored, or list of Report
        The answers to a `Measure`, a `Score` or a `Train`.
    faults : mapping of str to str
        Clients whose answer could not be read, with the reason: it counts against them.
    absent : mapping of str to str
        Clients that could not be asked.
    """

    found: Any
    faults: Mapping[str, str] = {}
    absent: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """What happened in one round, for histories and progress displays.

    Parameters
    ----------
    round : int
        1 for the first; 0 is the model before training.
    measured : mapping
        Sums and counts of the round's final weights.
    coefficients, norms : mapping of str to float
        How much each client counted, and the length of its update.
    clipped : mapping of str to float
        The factor by which a robust rule shortened a client's update.
    set_aside : mapping of str to str
        Clients left out of the round, with the reason.
    """

    round: int
    rounds: int
    lr: float
    measured: Measured
    coefficients: Mapping[str, float] = field(default_factory=dict)
    norms: Mapping[str, float] = field(default_factory=dict)
    clipped: Mapping[str, float] = field(default_factory=dict)
    set_aside: Mapping[str, str] = field(default_factory=dict)
    log: Mapping[str, Any] = field(default_factory=dict)
