"""What a server may ask a client to do, and what comes back: plain frozen data, no code.

Equal plans mean equal training. Every method's client half is a `Plan`; a strategy that needs
something no field can say is a reason to add a field here, not a second training loop.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import ConfigDict

from mfairfl.errors import ConfigError
from mfairfl.fairness.constraints import Constraints, Goal

Table2 = tuple[tuple[float, float], ...]
"""A number for each (cell, label): one pair (label 0, label 1) per cell."""


def as_table(values: np.ndarray) -> Table2:
    """Return a (C, 2) array as plain data."""
    return tuple((float(a), float(b)) for a, b in values)


GLOBAL = "global"
"""The start of a job that begins at the server's weights."""

STRICT: ConfigDict = {"extra": "forbid", "arbitrary_types_allowed": True}
"""How pydantic reads what follows from text."""

_GROWTH = 1.2  # Rprop's factors are ½ and 1.2 (Riedmiller & Braun, 1993)

PERSONAL = "personal"
"""The slot a client's own model is kept in, where each client is served its own."""


def _require(holds: bool, name: str, rule: str, value: object) -> None:
    if not holds:
        raise ConfigError(f"{name} must {rule}, not {value}")


def _require_count(name: str, value: float) -> None:
    _require(value >= 1 and value % 1 == 0, name, "be a whole number ≥ 1", value)


def _require_numbers(of: object, place: str, *names: str) -> None:
    for name in names:
        value = getattr(of, name)
        _require(0 <= value < math.inf, f"{place}.{name}", "be a number ≥ 0", value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """The client's optimiser; its state is fresh in every job.

    `gradient` takes no step: the job's update is the full-batch gradient itself, in row order
    (the literal reading of a server step).
    """

    __pydantic_config__: ClassVar[Any] = STRICT

    name: Literal["adamw", "sgd", "gradient"] = "adamw"
    lr: float = 4e-3
    weight_decay: float = 1.5
    momentum: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        _require_numbers(self, "optimizer", "lr", "weight_decay")  # a schedule may end at rate 0
        for name in ("momentum", "beta1", "beta2"):
            value = getattr(self, name)
            _require(0 <= value < 1, f"optimizer.{name}", "lie in [0, 1)", value)
        _require(0 < self.eps < math.inf, "optimizer.eps", "be a number > 0", self.eps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """How gaps drive multipliers, and how multipliers become prices on rows.

    Parameters
    ----------
    driven_by : {"hard", "smooth"}
        Whether thresholded or smooth rates move the multipliers; weights always follow the smooth.
    one_sided : bool
        Price only false positives where errors must rise.
    cap, counter_cap : float
        Bounds of prices that push rows towards their label, and away from it; signed multipliers
        of decisions stay within what a price may show.
    shared_cap : float
        Bound of what pushes both labels of a cell towards their labels: a weight on its rows.

    Examples
    --------
    >>> Prices(driven_by="smooth", cap=1.0).counter_cap
    5.0
    """

    __pydantic_config__: ClassVar[Any] = STRICT

    driven_by: Literal["hard", "smooth"] = "hard"
    one_sided: bool = True
    cap: float = 20.0
    counter_cap: float = 5.0
    shared_cap: float = 0.5

    def __post_init__(self) -> None:
        for name in ("cap", "counter_cap", "shared_cap"):
            value = getattr(self, name)
            _require(value >= 0, f"strategy.prices.{name}", "be at least 0", value)

    def tables(
        self,
        constraints: Constraints,
        signed: np.ndarray,
        counts: np.ndarray,
        scale: float = 1.0,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the prices on σ and on the loss per (cell, label), scaled, within the caps."""
        score, loss = constraints.prices(signed, counts, one_sided=self.one_sided)
        caps = self.cap, self.counter_cap, self.shared_cap
        return constraints.capped(scale * score, scale * loss, *caps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """Fairness multipliers that move inside a job, every `every` epochs, from the client's cells.

    With d the client's signed gaps F_e − F_{e,g} at its present weights and d₀ those at the start,
    μ ← [μ + gain · step · dead(offset + d − (d₀ if `relative`))],
    dead(x) = sign(x)·max(|x| − α, 0), clipped to what its group's price may show,
    ±prices.cap·n_{e,g}/n of `counts`. The gain of a constraint is multiplied by `shrink` whenever
    its gap changes sign and recovers by 1.2 a step, up to 1.
    `relative` with the pooled gap as offset follows the pooled constraint without communication;
    `relative=False`, offset 0 and own counts is purely local training. A client on which a gap is
    undefined leaves that multiplier where it is, but for the offset.

    Parameters
    ----------
    goal : Goal
        Which constraints, and the dead zone α.
    multipliers, step, offset : tuple of float
        One number per constraint.
    counts : tuple of pairs, optional
        Rows per (cell, label) the prices are computed with; None takes the client's own.
    prices : Prices
        Which rates move them, and what they cost.
    scale : float
        Factor on the prices: (n_k/n)/p_k, 1 under size weights.
    slot : str, optional
        Client-held slot that multipliers, gains and gaps are read from at the start, if it exists,
        and kept in.
    """

    __pydantic_config__: ClassVar[Any] = STRICT

    goal: Goal
    multipliers: tuple[float, ...]
    step: tuple[float, ...]
    offset: tuple[float, ...] | None = None
    every: int = 1
    relative: bool = False
    counts: Table2 | None = None
    prices: Prices = Prices()
    scale: float = 1.0
    shrink: float = 1.0
    slot: str | None = None

    def __post_init__(self) -> None:
        _require_count("controller.every", self.every)
        _require(0 <= self.shrink <= 1, "controller.shrink", "lie in [0, 1]", self.shrink)


def dead_zone(gaps: np.ndarray, width: float) -> np.ndarray:
    """Return sign(d)·max(|d| − α, 0): gaps within the tolerance move nothing.

    Examples
    --------
    >>> dead_zone(np.array([-0.5, 0.125, 0.25]), width=0.25).tolist()
    [-0.25, 0.0, 0.0]
    """
    return np.asarray(np.sign(gaps) * np.maximum(np.abs(gaps) - width, 0.0))


def adapted_gain(
    gain: np.ndarray, gaps: np.ndarray, before: np.ndarray, shrink: float
) -> np.ndarray:
    """Return each multiplier's gain: smaller where its gap changed sign, else larger, at most 1.

    A thresholded rate may jump when a price crosses a cliff; a fixed step then goes back and forth
    over it for ever.

    Examples
    --------
    >>> gain, gaps = np.array([1.0, 0.5]), np.array([0.1, 0.1])
    >>> adapted_gain(gain, gaps, np.array([-0.1, 0.2]), shrink=0.5).tolist()
    [0.5, 0.6]
    """
    return np.where(gaps * before < 0, gain * shrink, np.minimum(1.0, gain * _GROWTH))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to train: minimise the mean over rows of A[c, y]·CE + B[c, y]·σ(z) + extras.

    Parameters
    ----------
    epochs, batch_size : int
        Passes over the client's rows and rows per step.
    optimizer : Optimizer
        Step rule.
    loss_table, score_table : tuple of pairs, optional
        A (default all 1) and B (default all 0) over (cell, label).
    proximal : float
        λ of (λ/2)·|w − centre|², the centre being the server's weights.
    linear, linear_slot
        A vector added to every gradient, and the name of a client-held vector subtracted from it
        (SCAFFOLD's c and c_k).
    controller : Controller, optional
        Multipliers that move inside the job; its prices are added to A and B.

    Examples
    --------
    Rows of label 1 weigh double in both cells, and the model stays near the server's:

    >>> plan = Plan(epochs=2, batch_size=512, loss_table=((1, 2), (1, 2)), proximal=0.1)
    >>> plan.steps(rows=2_000)
    8
    """

    __pydantic_config__: ClassVar[Any] = STRICT

    epochs: int
    batch_size: int
    optimizer: Optimizer = field(default_factory=Optimizer)
    loss_table: Table2 | None = None
    score_table: Table2 | None = None
    proximal: float = 0.0
    linear: np.ndarray | None = None
    linear_slot: str | None = None
    controller: Controller | None = None

    def __post_init__(self) -> None:
        _require_count("plan.epochs", self.epochs)
        _require_count("plan.batch_size", self.batch_size)
        _require_numbers(self, "plan", "proximal")

    def steps(self, rows: float) -> int:
        """Return how many steps training on this many rows takes.

        Examples
        --------
        >>> Plan(epochs=3, batch_size=32).steps(rows=100)
        12
        """
        batches = math.ceil(rows / max(1, min(self.batch_size, rows)))
        return batches * (1 if self.optimizer.name == "gradient" else self.epochs)

    def by_gradient(self) -> Self:
        """Return the plan that takes the full-batch gradient and no step."""
        return replace(self, optimizer=replace(self.optimizer, name="gradient"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One piece of training for one client.

    Parameters
    ----------
    client : str
        Who.
    plan : Plan
        How.
    start : str
        `GLOBAL`, or the slot to start from (the server's weights while the slot is empty).
    keep : str, optional
        Slot that stores the trained weights.
    keep_control : str, optional
        Slot that stores c_k − c + (w_t − w_k)/(steps·lr), SCAFFOLD's control variate; the job
        then also sends its change.
    send : bool
        Whether the update goes to the server.

    Examples
    --------
    A client trains a model of its own and sends nothing (as in Ditto):

    >>> job = Job(client="north", plan=Plan(epochs=2, batch_size=512), start=PERSONAL, send=False)
    >>> job.start
    'personal'
    """

    __pydantic_config__: ClassVar[Any] = STRICT

    client: str
    plan: Plan
    start: str = GLOBAL
    keep: str | None = None
    keep_control: str | None = None
    send: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one job did.

    Parameters
    ----------
    update : ndarray, float32 (m,)
        start − end, or the full-batch gradient under the `gradient` optimiser.
    steps, lr
        Number of optimiser steps and their rate: what q-FFL and SCAFFOLD divide by.
    multipliers, gaps : tuple of float
        The controller's final state, multipliers and offset + relative gap, unless the client
        keeps them in a slot.
    control_change : ndarray, optional
        Change of the control variate, when the job keeps one.

    Examples
    --------
    >>> Report(client="north", update=np.zeros(3, np.float32), steps=8, lr=4e-3).steps
    8
    """

    __pydantic_config__: ClassVar[Any] = STRICT

    client: str
    update: np.ndarray
    steps: int
    lr: float
    multipliers: tuple[float, ...] = ()
    gaps: tuple[float, ...] = ()
    control_change: np.ndarray | None = None

    @property
    def vectors(self) -> dict[str, np.ndarray]:
        """What it sends that is as long as the model, under the names of messages."""
        vectors = {"update": self.update, "control change": self.control_change}
        return {name: vector for name, vector in vectors.items() if vector is not None}


Reports = Sequence[Report]
"""What the participants of a round sent, in name order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The training defaults every method shares (so that no comparison is rigged).

    The rate follows `schedule` over rounds: `cosine` from `lr` down to `lr_final` (never up: an
    `lr` below `lr_final` stays), or `constant`.

    Examples
    --------
    >>> Recipe(lr=2e-3, lr_final=5e-5).plan(0, 40).optimizer.lr
    0.002
    """

    local_epochs: int = 2
    batch_size: int = 512
    optimizer: Literal["adamw", "sgd", "gradient"] = "adamw"
    lr: float = 4e-3
    lr_final: float = 5e-5
    schedule: Literal["cosine", "constant"] = "cosine"
    weight_decay: float = 1.5
    momentum: float = 0.0

    def __post_init__(self) -> None:
        for name in ("local_epochs", "batch_size"):
            value = getattr(self, name)
            _require(value >= 1, f"training.{name}", "be at least 1", value)
        _require_numbers(self, "training", "lr", "lr_final", "weight_decay", "momentum")
        if self.optimizer == "adamw" and self.lr * self.weight_decay >= 1:
            raise ConfigError(
                f"training.lr · training.weight_decay = {self.lr * self.weight_decay:g} must stay "
                "below 1: every step would flip the sign of all weights"
            )

    def rate(self, round_: int, rounds: int) -> float:
        """Return the learning rate of a round, counted from 0."""
        if self.schedule == "constant" or rounds <= 1:
            return self.lr
        wave = (1 + np.cos(np.pi * round_ / (rounds - 1))) / 2
        low = min(self.lr_final, self.lr)
        return float(low + (self.lr - low) * wave)

    def decay(self, round_: int, rounds: int) -> float:
        """Return the rate of a round relative to the first round's."""
        first = self.rate(0, rounds)
        return self.rate(round_, rounds) / first if first else 1.0

    def plan(self, round_: int, rounds: int) -> Plan:
        """Return the plain plan of a round: cross-entropy, no extras."""
        optimizer = Optimizer(
            name=self.optimizer,
            lr=self.rate(round_, rounds),
            weight_decay=self.weight_decay,
            momentum=self.momentum,
        )
        return Plan(epochs=self.local_epochs, batch_size=self.batch_size, optimizer=optimizer)
