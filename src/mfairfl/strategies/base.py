"""What a method is: a plan for the clients and coefficients for the server.

A strategy is a frozen dataclass of hyper-parameters with three pure functions. Its state is a
plain mapping of names to numbers, strings and arrays, so checkpoints need no code of its own;
randomness comes in through the context. The server step is w' = w − scale · Σ c_k g_k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mfairfl.data import Attribute
from mfairfl.fairness.cells import Statistics
from mfairfl.fairness.goal import Goal
from mfairfl.training.plan import Job, Optimizer, Plan, Report

__all__ = [
    "Card",
    "Context",
    "Measurement",
    "State",
    "Step",
    "Strategy",
    "Summary",
    "shares",
    "trains_for_groups",
]

State = Mapping[str, Any]
"""Names to JSON values or numpy arrays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What a reader should know about a method before using it.

    Parameters
    ----------
    title, paper : str
        One line each.
    protects : str
        What the method is meant to make fair.
    needs : {"gram", "norms", "none"}
        What `combine` reads of the updates: the Gram matrix, its diagonal, or nothing.
    reveals : {"individual", "sums"}
        Whether the server must see single clients' updates or only their weighted sum.
    trains_on : {"clients", "pooled"}
        Federated, or a reference line that pools the rows.
    serves : {"global", "personal", "ensemble"}
        Whose model answers.
    starts : {"random", "constant"}
        Whether the first model is drawn, or answers the training data's base rate to everyone.
    constrained : bool
        Whether a fairness constraint is trained for.
    output : {"last", "average", "select", "threshold"}, optional
        Output rule unless another is asked for; None means `select` for a constrained method and
        `last` for any other.
    """

    title: str
    paper: str
    protects: str
    needs: Literal["gram", "norms", "none"] = "none"
    reveals: Literal["individual", "sums"] = "sums"
    trains_on: Literal["clients", "pooled"] = "clients"
    serves: Literal["global", "personal", "ensemble"] = "global"
    starts: Literal["random", "constant"] = "random"
    constrained: bool = False
    output: Literal["last", "average", "select", "threshold"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What is agreed before the first round.

    Parameters
    ----------
    counts : mapping of str to ndarray
        Training rows per (cell, label), (C, 2), for each client in name order; of all clients
        under one name, if a method trains on pooled rows.
    """

    counts: Mapping[str, NDArray[np.float64]]
    attributes: tuple[Attribute, ...]
    goal: Goal

    @property
    def pooled(self) -> NDArray[np.float64]:
        """Training rows per (cell, label) of the whole federation."""
        return np.asarray(np.sum(list(self.counts.values()), axis=0), dtype=np.float64)

    @property
    def base_logit(self) -> float:
        """Log-odds of the favourable label; half a row each keeps it finite."""
        negatives, positives = self.pooled.sum(axis=0)
        return float(np.log((positives + 0.5) / (negatives + 0.5)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Where in the run we are.

    Parameters
    ----------
    round, rounds : int
        This round, from 0, and their number.
    participants : tuple of str
        Clients taking part, in name order.
    plan : Plan
        The shared recipe's plan of this round; strategies change only what they must.
    decay : float
        This round's learning rate relative to the first round's: the shared schedule, for methods
        with a rate of their own.
    rng : Generator
        Random stream of this round's server decisions.
    summary : Summary
        What was agreed before the first round.
    vectors : mapping
        Named server vectors (SCAFFOLD's c).
    """

    round: int
    rounds: int
    participants: tuple[str, ...]
    plan: Plan
    rng: np.random.Generator
    summary: Summary
    decay: float = 1.0
    vectors: Mapping[str, np.ndarray] = field(default_factory=dict)

    def jobs(self, plan: Plan | None = None) -> list[Job]:
        """Return one job a participant, all with the same plan: the shared one, unless given."""
        return [Job(client=name, plan=plan or self.plan) for name in self.participants]

    def sgd(self, lr: float) -> Plan:
        """Return this round's plan with plain SGD that starts at rate `lr`.

        For methods whose mathematics divides updates by the local rate. Schedule and decay per
        step (rate · weight decay) stay those of the shared recipe.
        """
        shared, rate = self.plan.optimizer, lr * self.decay
        decay = shared.lr * shared.weight_decay / rate if rate else 0.0
        return replace(self.plan, optimizer=Optimizer(name="sgd", lr=rate, weight_decay=decay))


@dataclass(frozen=True, slots=True)
class Measurement:
    """One client's sums and counts on its training rows, under the model that would answer them.

    That is the server's; the whole ensemble, or the client's own, for methods that serve those.
    """

    client: str
    statistics: Statistics

    @property
    def rows(self) -> float:
        """Number of rows."""
        return float(self.statistics.counts.sum())

    @property
    def loss(self) -> float:
        """Mean cross-entropy."""
        return float(self.statistics.losses.sum() / self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The server's answer: w' = w − scale · Σ c_k g_k.

    Parameters
    ----------
    coefficients : ndarray (K,)
        c, aligned with the reports.
    state : mapping
        The strategy's new state.
    scale : float
        Common factor.
    vectors : mapping of str to ndarray (K,)
        For each named server vector, the coefficients of the reports' control changes added to it.
    log : mapping
        What an auditor may want to see of this round.
    """

    coefficients: NDArray[np.float64]
    state: State
    scale: float = 1.0
    vectors: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    log: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Strategy(Protocol):
    """A method. Frozen hyper-parameters, no hidden state."""

    card: ClassVar[Card]

    def start(self, summary: Summary) -> State:
        """Return the state before the first round."""

    def plan(
        self, state: State, context: Context, measurements: Sequence[Measurement]
    ) -> tuple[State, list[Job]]:
        """Say what each participant trains, given everyone's measurements."""

    def combine(
        self,
        state: State,
        context: Context,
        measurements: Sequence[Measurement],
        reports: Sequence[Report],
        gram: NDArray[np.float64] | None,
    ) -> Step:
        """Say how much each report counts."""


def trains_for_groups(strategy: Strategy) -> bool:
    """Say whether a group constraint is trained for: of this kind, and not switched off."""
    switched_off = not getattr(strategy, "constraint", True)
    for_clients = getattr(strategy, "parity", "group") == "client"
    return strategy.card.constrained and not switched_off and not for_clients


def shares(
    measurements: Sequence[Measurement],
    reports: Sequence[Report],
    weights: Literal["size", "uniform"],
) -> NDArray[np.float64]:
    """Return p_k of the reports: n_k/n over those who reported, or 1/K."""
    if weights == "uniform":
        return np.full(len(reports), 1 / len(reports))
    rows = {m.client: m.rows for m in measurements}
    sizes = np.array([rows[report.client] for report in reports], dtype=np.float64)
    return np.asarray(sizes / sizes.sum())
