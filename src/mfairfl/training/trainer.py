"""The one training loop: executes any plans, stacked over clients, seeds and trials.

A stack is a set of jobs whose batches have one shape and whose plans use the same parts. Its
weights form one tensor and advance together; jobs with fewer steps are sorted last and leave the
stack early. What a job computes does not depend on the stack it is in (bit for bit on one
thread), so any split into stacks, threads or processes gives the same result.

Per row i with cell c, label y, logit z and p = σ(z) the objective is A[c, y]·CE + B[c, y]·p, so
∂/∂z = A[c, y]·(p − y) + B[c, y]·p(1 − p): the only formula a method can change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from mfairfl.models import Model, Workspace
from mfairfl.training.batches import LANES, Deck, Pool
from mfairfl.training.controller import Multipliers
from mfairfl.training.deadline import check_time
from mfairfl.training.plan import Optimizer, Plan, Table2

__all__ = ["Outcome", "StepRule", "Work", "make_rule", "run_works"]

_TINY = 1e-36  # far below eps², so it changes nothing but 0/0


class StepRule(Protocol):
    """Moves the first rows of a stack; rows that are done are simply left out."""

    def step(self, weights: Tensor, gradient: Tensor, count: int) -> None:
        """Take step number `count` (from 1) on rows 0 … len(weights) − 1."""

    def updates(self, start: Tensor, weights: Tensor) -> Tensor:
        """Return the whole stack's updates after the last step."""


def _column(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).to(torch.float32).unsqueeze(1)


class _AdamW:
    """Loshchilov & Hutter (2019), decoupled decay: w ← (1 − lr·wd)·w − lr·m̂/(√v̂ + eps)."""

    def __init__(self, settings: list[Optimizer], width: int) -> None:
        first = settings[0]
        self._beta1, self._beta2, self._eps = first.beta1, first.beta2, first.eps
        self._lr = torch.tensor([[s.lr] for s in settings], dtype=torch.float64)
        self._keep = _column([1 - s.lr * s.weight_decay for s in settings])
        self._mean = torch.zeros(len(settings), width)
        self._square = torch.zeros(len(settings), width)
        self._scratch = torch.empty(len(settings), width)

    def step(self, weights: Tensor, gradient: Tensor, count: int) -> None:
        rows = weights.shape[0]
        mean, square, scratch = self._mean[:rows], self._square[:rows], self._scratch[:rows]
        mean.lerp_(gradient, 1 - self._beta1)
        square.mul_(self._beta2).addcmul_(gradient, gradient, value=1 - self._beta2)
        # Both bias corrections are folded into the rate and eps: one pass over the stack less.
        root = (1 - self._beta2**count) ** 0.5
        # √v as v·(1/√(v + tiny)): the square root alone is up to ten times slower at zeros.
        torch.add(square, _TINY, out=scratch).rsqrt_().mul_(square).add_(self._eps * root)
        torch.div(mean, scratch, out=scratch)
        rate = (self._lr[:rows] * (-root / (1 - self._beta1**count))).to(torch.float32)
        weights.mul_(self._keep[:rows]).addcmul_(scratch, rate)

    def updates(self, start: Tensor, weights: Tensor) -> Tensor:
        return start - weights


class _SGD:
    """Heavy ball with coupled decay, as `torch.optim.SGD`: v ← μv + g + wd·w, w ← w − lr·v."""

    def __init__(self, settings: list[Optimizer], width: int) -> None:
        self._momentum = settings[0].momentum
        self._rate = _column([-s.lr for s in settings])
        self._decay = _column([s.weight_decay for s in settings])
        self._velocity = torch.zeros(len(settings), width)

    def step(self, weights: Tensor, gradient: Tensor, count: int) -> None:
        del count
        rows = weights.shape[0]
        velocity = self._velocity[:rows]
        velocity.mul_(self._momentum).add_(gradient).addcmul_(weights, self._decay[:rows])
        weights.addcmul_(velocity, self._rate[:rows])

    def updates(self, start: Tensor, weights: Tensor) -> Tensor:
        return start - weights


class _Gradient:
    """Weights stay where they are; the update is the sum of the batches' gradients."""

    def __init__(self, settings: list[Optimizer], width: int) -> None:
        self._total = torch.zeros(len(settings), width, dtype=torch.float64)

    def step(self, weights: Tensor, gradient: Tensor, count: int) -> None:
        del count
        self._total[: weights.shape[0]].add_(gradient)

    def updates(self, start: Tensor, weights: Tensor) -> Tensor:
        del start, weights
        return self._total.to(torch.float32)


_RULES: dict[str, Callable[[list[Optimizer], int], StepRule]] = {
    "adamw": _AdamW,
    "sgd": _SGD,
    "gradient": _Gradient,
}


def make_rule(settings: list[Optimizer], width: int) -> StepRule:
    """Return the rule for a stack whose rows have these settings (same name, own rates)."""
    return _RULES[settings[0].name](settings, width)


_CHUNK = 32  # steps whose row numbers are laid out at once: bounds memory, costs nothing
_MAX_STACK = 32  # beyond this a wider stack only leaves the caches


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One job made concrete: the engine has resolved slots, rows and the random stream."""

    plan: Plan
    start: np.ndarray
    rows: range
    rng: np.random.Generator
    centre: np.ndarray | None = None
    linear: np.ndarray | None = None
    multipliers: Multipliers | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a work ended in: its update (start − end, or the gradient) and number of steps."""

    update: np.ndarray
    steps: int
    multipliers: tuple[float, ...] = ()
    gaps: tuple[float, ...] = ()
    memory: np.ndarray | None = None


def run_works(works: Sequence[Work], model: Model, pool: Pool) -> list[Outcome]:
    """Train every work and return the outcomes in the same order."""
    outcomes: dict[int, Outcome] = {}
    stacks: dict[tuple[object, ...], list[tuple[int, Deck]]] = {}
    for i, work in enumerate(works):
        rng = None if work.plan.optimizer.name == "gradient" else work.rng
        deck = Deck(work.rows, work.plan.batch_size, rng)
        stacks.setdefault(_stack_key(work, deck), []).append((i, deck))
    for members in stacks.values():
        members.sort(key=lambda member: -_steps(works[member[0]]))
        for at in range(0, len(members), _MAX_STACK):
            part = members[at : at + _MAX_STACK]
            done = _Stack([(works[i], deck) for i, deck in part], model, pool).run()
            outcomes.update(zip((i for i, _ in part), done, strict=True))
    return [outcomes[i] for i in range(len(works))]


def _steps(work: Work) -> int:
    return work.plan.steps(len(work.rows))


def _stack_key(work: Work, deck: Deck) -> tuple[object, ...]:
    """Jobs share a stack only if the very same operations apply to each of them."""
    plan, o = work.plan, work.plan.optimizer
    return (
        deck.width,
        (o.name, o.momentum, o.beta1, o.beta2, o.eps),
        plan.loss_table is not None or work.multipliers is not None,
        plan.score_table is not None or work.multipliers is not None,
        plan.proximal > 0,
        work.linear is not None,
    )


def _padded(rows: Sequence[np.ndarray], width: int) -> Tensor:
    out = torch.zeros(len(rows), width)
    for i, row in enumerate(rows):
        out.numpy()[i, : len(row)] = row
    return out


def _flat(table: Table2 | None, cells: int, default: float) -> np.ndarray:
    if table is None:
        return np.full(2 * cells, default)
    flat = np.asarray(table, dtype=np.float64).reshape(-1)
    if flat.size != 2 * cells:
        raise ValueError(f"a (cell, label) table has {flat.size} numbers; {2 * cells} are needed")
    return flat


class _Stack:
    """Jobs that advance together, most steps first."""

    def __init__(self, members: list[tuple[Work, Deck]], model: Model, pool: Pool) -> None:
        self._works = [work for work, _ in members]
        self._decks = [deck for _, deck in members]
        self._model, self._pool = model, pool
        self._steps = [_steps(work) for work in self._works]
        width = -(-model.size // LANES) * LANES
        self._weights = _padded([work.start for work in self._works], width)
        self._start = self._weights.clone()
        self._gradient = torch.zeros_like(self._weights)
        self._rule = make_rule([work.plan.optimizer for work in self._works], width)
        self._workspace: Workspace = {}
        self._rows = pool.buffer(len(members) * self._decks[0].width)
        self._optional_terms(width)

    def _optional_terms(self, width: int) -> None:
        """Set up the terms the whole stack uses; None where no job does (see `_stack_key`)."""
        works, first, cells = self._works, self._works[0], self._pool.cells
        moving = first.multipliers is not None
        self._loss = self._score = self._centre = self._pull = self._linear = None
        if first.plan.loss_table is not None or moving:
            self._loss = _padded([_flat(w.plan.loss_table, cells, 1.0) for w in works], 2 * cells)
        if first.plan.score_table is not None or moving:
            self._score = _padded(
                [_flat(w.plan.score_table, cells, 0.0) for w in works], 2 * cells
            )
        # `gradient` adds up the batches of an epoch: each brings its share of a per-step term.
        split = first.plan.optimizer.name == "gradient"
        shares = [1 / max(1, deck.batches) if split else 1.0 for deck in self._decks]
        if first.plan.proximal > 0:
            centres = [w.start if w.centre is None else w.centre for w in works]
            self._centre = _padded(centres, width)
            pulls = [[w.plan.proximal * share] for w, share in zip(works, shares, strict=True)]
            self._pull = torch.tensor(pulls, dtype=torch.float32)
        if first.linear is not None:
            self._linear = _padded([w.linear for w in works if w.linear is not None], width)
            self._linear.mul_(torch.tensor(shares).unsqueeze(1))
        for i, work in enumerate(works):
            if work.multipliers is not None:
                work.multipliers.begin(work.start, self._model, self._pool)
                self._reprice(i)

    @torch.no_grad()
    def run(self) -> list[Outcome]:
        """Take all steps; a chunk lays out the row numbers of its steps beforehand."""
        for first in range(0, self._steps[0], _CHUNK):
            last = min(first + _CHUNK, self._steps[0])
            index, weight = self._lay_out(first, last)
            for step in range(first, last):
                check_time()
                active = sum(1 for steps in self._steps if steps > step)
                self._step(step, index[step - first, :active], weight[step - first, :active])
                self._end_of_epoch(step, active)
        updates = self._rule.updates(self._start, self._weights)[:, : self._model.size].numpy()
        return [self._outcome(i, updates[i].copy()) for i in range(len(self._works))]

    def _lay_out(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        """Row numbers and weights of steps first … last − 1, (steps, stack, batch)."""
        active = sum(1 for steps in self._steps if steps > first)
        shape = (last - first, active, self._decks[0].width)
        index, weight = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
        for i in range(active):
            count = min(last, self._steps[i]) - first
            index[:count, i], weight[:count, i] = self._decks[i].deal(count)
        return torch.from_numpy(index), torch.from_numpy(weight)

    def _step(self, step: int, index: Tensor, weight: Tensor) -> None:
        active = len(index)
        weights, gradient = self._weights[:active], self._gradient[:active]
        inputs, codes = self._pool.take(index, out=self._rows), self._pool.take_codes(index)
        logits, pullback = self._model.forward(weights, inputs, self._workspace, codes)
        dlogits = self._slope(logits, index, active).mul_(weight)
        pullback(dlogits, gradient)
        if self._centre is not None and self._pull is not None:
            gradient.add_((weights - self._centre[:active]).mul_(self._pull[:active]))
        if self._linear is not None:
            gradient.add_(self._linear[:active])
        self._rule.step(weights, gradient, step + 1)

    def _slope(self, logits: Tensor, index: Tensor, active: int) -> Tensor:
        """∂/∂z of one row's objective, times 1 (the batch weight comes later)."""
        p = torch.sigmoid(logits)
        slope = p - self._pool.y.index_select(0, index.view(-1)).view_as(p)
        if self._loss is None and self._score is None:
            return slope
        strata = self._pool.strata.index_select(0, index.view(-1)).view_as(index)
        if self._loss is not None:
            slope.mul_(self._loss[:active].gather(1, strata))
        if self._score is not None:
            slope.addcmul_(self._score[:active].gather(1, strata), p * (1 - p))
        return slope

    def _end_of_epoch(self, step: int, active: int) -> None:
        """Let a job's multipliers move when its epoch count says so."""
        for i in range(active):
            moving, batches = self._works[i].multipliers, self._decks[i].batches
            if moving is None or (step + 1) % batches:
                continue
            if moving.due((step + 1) // batches):
                moving.move(self._weights[i, : self._model.size], self._model, self._pool)
                self._reprice(i)

    def _reprice(self, i: int) -> None:
        moving = self._works[i].multipliers
        if moving is not None and self._loss is not None and self._score is not None:
            plan, cells = self._works[i].plan, self._pool.cells
            loss, score = moving.prices()
            base = _flat(plan.loss_table, cells, 1.0), _flat(plan.score_table, cells, 0.0)
            self._loss[i] = torch.from_numpy(base[0] + loss.reshape(-1))
            self._score[i] = torch.from_numpy(base[1] + score.reshape(-1))

    def _outcome(self, i: int, update: np.ndarray) -> Outcome:
        moving = self._works[i].multipliers
        return Outcome(
            update=update,
            steps=self._steps[i],
            multipliers=() if moving is None else moving.values,
            gaps=() if moving is None else moving.gaps,
            memory=None if moving is None else moving.memory,
        )
