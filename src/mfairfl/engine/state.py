"""What a run is (fixed) and where it stands (moves from round to round)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from mfairfl.data import Split
from mfairfl.engine.defence import Standing, check_robust
from mfairfl.engine.output import RULES, Candidate, ClientSums, Output
from mfairfl.errors import ConfigError
from mfairfl.fairness.cells import Statistics
from mfairfl.fairness.fitting import refuse_losses
from mfairfl.fairness.scores import ScoreSums
from mfairfl.fairness.thresholds import Thresholds
from mfairfl.geometry.robust import lower_median
from mfairfl.strategies.base import State, Strategy, Summary
from mfairfl.training.plan import STRICT, Job, Recipe, Report

Scored = Mapping[Split, Mapping[str, ScoreSums]]
"""For each split, each client's sums and counts of a model's scores."""


# What a strategy serves other than one model, in words, and the output rules that fit.
_FITTING: dict[str, tuple[str, tuple[str, ...]]] = {
    "ensemble": ("an ensemble of the clients' models", ("last", "average", "select")),
    "personal": ("each client its own", ("last",)),
}
_FAIR = ("select", "mixture", "thresholds")  # rules that look at a violation


@dataclass(frozen=True, kw_only=True)
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
    evaluate_every : int
        All clients measure all splits every so many rounds, before the first and after the last;
        in between only what planning, the output rule and `patience` need is measured.
    enrolled : mapping of split to mapping of client to ndarray (C, 2)
        Rows per (cell, label) that clients were enrolled with; measurements must agree. By default
        the train rows of the summary.
    robust : str
        How updates of clients that may lie are combined: `none`, `auto` or a rule of
        `engine.defence`.
    margin : float
        How far below the tolerance training and the output rule aim, for the record.
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
    evaluate_every: int = 1
    margin: float = 0.0

    def __post_init__(self) -> None:
        check_robust(self.robust, self.strategy.card)
        serves, rule = self.strategy.card.serves, self.output.rule
        served, fitting = _FITTING.get(serves, ("one model", RULES))
        if rule not in fitting:
            raise ConfigError(
                f"output.rule = '{rule}' does not fit a strategy that serves "
                f"{served}; use one of: {', '.join(fitting)}"
            )
        if not self.summary.attributes and (self.strategy.card.constrained or rule in _FAIR):
            raise ConfigError(
                f"{type(self.strategy).__name__} with output rule '{rule}' compares groups, and "
                "there is no sensitive attribute: name one, or use fedavg with rule 'last'"
            )
        if rule == "thresholds":  # now, not when the last round is over
            refuse_losses(self.summary.constraints)
        if not self.enrolled and self.strategy.card.trains_on == "clients":
            object.__setattr__(self, "enrolled", {"train": self.summary.counts})

    # These two once, not in every round: most of thousands of clients may rest.
    @cached_property
    def trainers(self) -> tuple[str, ...]:
        """The clients with train rows, in name order."""
        return tuple(c for c in sorted(self.summary.counts) if self.summary.rows(c) > 0)

    @cached_property
    def usual_rows(self) -> float:
        """The lower median of the trainers' rows."""
        rows = [self.summary.rows(client) for client in self.trainers]
        return lower_median(rows) if rows else 0.0

    @property
    def held_out(self) -> Split:
        """The split that may choose between models: validation rows if there are any."""
        return "validation" if "validation" in self.splits else "train"

    @property
    def plans_from_measurements(self) -> bool:
        """Whether a round needs to know how its participants do at the server's weights."""
        return self.strategy.card.measures != "none" or self.robust != "none"


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
    longest : mapping of str to float
        The largest median norm of a round's updates and control changes so far, by their name.
    standing : Standing
        Which clients failed, and which are suspended.
    undone : int
        Rounds whose step was taken back, because it broke the model.
    last_good : LastGoodState, optional
        Where to go back to, while the present weights have not been measured.
    """

    __pydantic_config__: ClassVar[Any] = STRICT

    round: int
    weights: np.ndarray
    strategy: State
    vectors: Mapping[str, np.ndarray] = field(default_factory=dict)
    longest: Mapping[str, float] = field(default_factory=dict)
    slots: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    average: np.ndarray | None = None
    bank: list[Candidate] = field(default_factory=list)
    best_loss: float = float("inf")
    best_round: int = 0
    standing: Standing = field(default_factory=Standing)
    undone: int = 0
    last_good: LastGoodState | None = None

    def warnings(self) -> list[str]:
        """Return what went wrong so far."""
        diverged = (
            f"training diverged in {self.undone} of {self.round} rounds, and these steps were "
            "taken back; lower training.lr"
        )
        return [diverged] * (self.undone > 0) + self.standing.warnings()


@dataclass(frozen=True, slots=True, kw_only=True)
class LastGoodState:
    """What a round replaces in the state, as it was when clients could last measure the model."""

    round: int
    weights: np.ndarray
    strategy: State
    vectors: Mapping[str, np.ndarray]
    average: np.ndarray | None
    longest: Mapping[str, float]

    @classmethod
    def of(cls, state: RunState) -> LastGoodState:
        """Return what the next rounds may replace; they alter none of it in place."""
        return cls(**{f.name: getattr(state, f.name) for f in fields(cls)})

    def restore(self, state: RunState) -> None:
        """Take back the rounds since then; they count, and so do their strikes."""
        state.undone += state.round - self.round
        for f in fields(self):
            if f.name != "round":
                setattr(state, f.name, getattr(self, f.name))
        state.last_good = None


@dataclass(frozen=True, slots=True)
class Measure:
    """Request: evaluate models on these splits of clients.

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
        How scores become decisions, each client's by the rule that is its own; None decides at
        score ½.
    without : frozenset of str
        Clients that are not asked: those that are suspended.
    only : frozenset of str, optional
        The clients that are asked; None asks all.
    """

    weights: tuple[np.ndarray, ...]
    splits: tuple[Split, ...]
    shares: np.ndarray | None = None
    slot: str | None = None
    thresholds: Thresholds | None = None
    without: frozenset[str] = frozenset()
    only: frozenset[str] | None = None

    def asked(self, clients: Collection[str]) -> list[str]:
        """Return the clients that are asked, of these, which are in name order."""
        some = clients if self.only is None else [c for c in sorted(self.only) if c in clients]
        return [client for client in some if client not in self.without]


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
"""For each model, a client's sums and counts on the rows of each split."""

Answer = Measures | dict[Split, ScoreSums] | list[Report]
"""One client's answer to a `Measure`, a `Score` or a `Train`."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a client's answer cannot be used: it counts against the client."""

    reason: str


@dataclass(frozen=True, slots=True)
class Absent:
    """Why a client could not be asked: it does not count against the client."""

    reason: str


Replies = Mapping[str, Answer | Refusal | Absent]
"""What a loop is sent: by client, its answer or why there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """What happened in one round, for histories and progress displays.

    Parameters
    ----------
    round : int
        1 for the first; 0 is the model before training.
    measured : mapping
        Sums and counts of the round's final weights, as far as they were measured.
    complete : tuple of str
        The splits that all clients were asked to measure, but for those that are suspended.
    coefficients, norms : mapping of str to float
        How much each client counted, and the length of its update.
    clipped : mapping of str to float
        The factor by which a robust rule shortened a client's update.
    set_aside : mapping of str to str
        Clients left out of the round, with the reason.
    numbers : dict of str to float
        What follows from the measurements, once `mfairfl.runs.history.round_numbers` has
        computed it.
    """

    round: int
    rounds: int
    lr: float
    measured: ClientSums
    complete: tuple[Split, ...]
    coefficients: Mapping[str, float] = field(default_factory=dict)
    norms: Mapping[str, float] = field(default_factory=dict)
    clipped: Mapping[str, float] = field(default_factory=dict)
    set_aside: Mapping[str, str] = field(default_factory=dict)
    log: Mapping[str, Any] = field(default_factory=dict)
    numbers: dict[str, float | None] = field(default_factory=dict, compare=False, repr=False)
