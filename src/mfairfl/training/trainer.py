"""The one training loop: executes any plans, stacked over clients, seeds and trials.

A stack is a set of jobs whose batches have one shape and whose plans use the same parts. Its
weights form one tensor and advance together; jobs with fewer steps are sorted last and leave the
stack early. What a job computes does not depend on the stack it is in (bit for bit on one
thread), so any split into stacks, threads or processes gives the same result.

Per row i with cell c, label y, logit z and p = σ(z) the objective is A[c, y]·CE + B[c, y]·p, so
∂/∂z = A[c, y]·(p − y) + B[c, y]·p(1 − p): the only formula a method can change.
"""

import operator
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mfairfl.fairness.cells import Statistics
from mfairfl.models import Model, Workspace
from mfairfl.training.batches import Deck, RowStore, whole_lanes
from mfairfl.training.controller import Multipliers
from mfairfl.training.execution import check_time
from mfairfl.training.measure import Probe, measure
from mfairfl.training.plan import Optimizer, Plan, Table2


class StepRule:
    """Moves the first rows of a stack; rows that are done are simply left out."""

    def __init__(self, settings: Optimizer, shape: tuple[int, int], workspace: Workspace) -> None:
        raise NotImplementedError

    def step(self, weights: Tensor, gradient: Tensor, count: int) -> None:
        """Take step number `count` (from 1) on rows 0 … len(weights) − 1."""
        raise NotImplementedError

    def update(self, row: int, start: np.ndarray, end: np.ndarray, out: np.ndarray) -> None:
        """Write a row's update after its last step."""
        del row
        np.subtract(start, end, out=out)


class _AdamW(StepRule):
    """Loshchilov & Hutter (2019), decoupled decay: w ← (1 − lr·wd)·w − lr·m̂/(√v̂ + eps)."""

    def __init__(self, settings: Optimizer, shape: tuple[int, int], workspace: Workspace) -> None:
        self._settings = settings
        self._mean = workspace.buffer(("mean", 0), shape).zero_()
        self._square = workspace.buffer(("square", 0), shape).zero_()

    def step(self, weights: Tensor, gradient: Tensor, count: int) -> None:
        rows, o = len(weights), self._settings
        # One pass over the stack. `torch.optim.AdamW(fused=True)` takes the same, but cannot let
        # rows leave.
        torch._fused_adamw_(
            [weights],
            [gradient],
            [self._mean[:rows]],
            [self._square[:rows]],
            [],
            [torch.tensor(float(count))],
            lr=o.lr,
            beta1=o.beta1,
            beta2=o.beta2,
            weight_decay=o.weight_decay,
            eps=o.eps,
            amsgrad=False,
            maximize=False,
        )


class _SGD(StepRule):
    """Heavy ball with coupled decay, as `torch.optim.SGD`: v ← μv + g + wd·w, w ← w − lr·v."""

    def __init__(self, settings: Optimizer, shape: tuple[int, int], workspace: Workspace) -> None:
        self._momentum = settings.momentum
        self._rate = torch.tensor(-settings.lr, dtype=torch.float32)
        self._decay = torch.tensor(settings.weight_decay, dtype=torch.float32)
        self._velocity = workspace.buffer(("mean", 0), shape).zero_()

    def step(self, weights: Tensor, gradient: Tensor, count: int) -> None:
        del count
        velocity = self._velocity[: len(weights)]
        velocity.mul_(self._momentum).add_(gradient).addcmul_(weights, self._decay)
        weights.addcmul_(velocity, self._rate)


class _Gradient(StepRule):
    """Weights stay where they are; the update is the sum of the batches' gradients."""

    def __init__(self, settings: Optimizer, shape: tuple[int, int], workspace: Workspace) -> None:
        del settings, workspace
        self._total = torch.zeros(shape, dtype=torch.float64)

    def step(self, weights: Tensor, gradient: Tensor, count: int) -> None:
        del count
        self._total[: len(weights)].add_(gradient)

    def update(self, row: int, start: np.ndarray, end: np.ndarray, out: np.ndarray) -> None:
        del start
        out[:] = self._total.numpy()[row, : len(end)]


STEP_RULES: dict[str, type[StepRule]] = {"adamw": _AdamW, "sgd": _SGD, "gradient": _Gradient}


_CHUNK = 32  # steps whose row numbers are laid out at once: bounds memory, costs nothing
_MAX_STACK = 32  # beyond this a wider stack only leaves the caches,
_MAX_ROWS = 4096  # and with large batches before


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

    @property
    def steps(self) -> int:
        """The number of optimiser steps."""
        return self.plan.steps(len(self.rows))

    @property
    def priced(self) -> bool:
        """Whether rows have weights and prices by (cell, label)."""
        sources = self.plan.loss_table, self.plan.score_table, self.multipliers
        return any(source is not None for source in sources)


def run_works(works: Sequence[Work], model: Model, store: RowStore) -> list[np.ndarray]:
    """Train every work; return the updates (start − end, or the gradient) in the same order.

    The multipliers of a work end where its training left them.
    """
    # One piece of memory for all updates: many small ones cost more than what is written there.
    updates = np.empty((len(works), model.size), np.float32)
    workspace = Workspace()
    stacks: dict[tuple[object, ...], list[tuple[int, Deck]]] = {}
    for i, work in enumerate(works):
        rng = None if work.plan.optimizer.name == "gradient" else work.rng
        deck = Deck(work.rows, work.plan.batch_size, rng)
        stacks.setdefault(_stack_key(work, deck), []).append((i, deck))
    for members in stacks.values():
        members.sort(key=lambda member: -works[member[0]].steps)
        for part in _evenly(members, min(_MAX_STACK, _MAX_ROWS // members[0][1].width or 1)):
            stack = _Stack([(works[i], deck) for i, deck in part], model, store, workspace)
            stack.run()
            for row, (i, _) in enumerate(part):
                stack.write_update(row, updates[i])
    return list(updates)


def _evenly(members: list[tuple[int, Deck]], most: int) -> Iterator[list[tuple[int, Deck]]]:
    """Yield as few parts as hold at most so many members each, of about one size."""
    parts = -(-len(members) // most)
    for i in range(parts):
        yield members[i * len(members) // parts : (i + 1) * len(members) // parts]


def _stack_key(work: Work, deck: Deck) -> tuple[object, ...]:
    """Jobs share a stack only if the very same operations apply to each of them."""
    plan = work.plan
    return (
        deck.width,
        plan.optimizer,
        work.priced,
        plan.proximal > 0,
        work.linear is not None,
    )


def _padded(rows: Sequence[np.ndarray], width: int) -> Tensor:
    out = torch.zeros(len(rows), width)
    for i, row in enumerate(rows):
        out.numpy()[i, : len(row)] = row
    return out


def _flat(table: Table2 | np.ndarray | None, cells: int, default: float) -> np.ndarray:
    """Return a number for each (cell, label), and the default for rows that no price is put on."""
    if table is None:
        return np.full(2 * cells + 2, default)
    flat = np.asarray(table, dtype=np.float64).reshape(-1)
    if flat.size != 2 * cells:
        raise ValueError(f"a (cell, label) table has {flat.size} numbers; {2 * cells} are needed")
    return np.append(flat, (default, default))


class _Stack:
    """Jobs that advance together, most steps first."""

    def __init__(
        self, members: list[tuple[Work, Deck]], model: Model, store: RowStore, workspace: Workspace
    ) -> None:
        self._works = [work for work, _ in members]
        self._decks = [deck for _, deck in members]
        self._model, self._store, self._workspace = model, store, workspace
        self._steps = [work.steps for work in self._works]
        shape = len(members), whole_lanes(model.size)
        self._weights = workspace.buffer(("weights", 0), shape).zero_()
        for row, work in zip(self._weights.numpy(), self._works, strict=True):
            row[: model.size] = work.start
        self._gradient = workspace.buffer(("slopes", 0), shape).zero_()
        self._now = self._weights, self._gradient  # of the jobs that still take steps
        optimizer = self._works[0].plan.optimizer
        self._rule = STEP_RULES[optimizer.name](optimizer, shape, workspace)
        self._optional_terms(shape[1])

    def _optional_terms(self, width: int) -> None:
        """Set up the terms the whole stack uses; None where no job does (see `_stack_key`)."""
        works, first, cells = self._works, self._works[0], self._store.cells
        self._moving = {i: w.multipliers for i, w in enumerate(works) if w.multipliers is not None}
        self._prices = self._proximal = self._linear = None
        if first.priced:
            loss = [_flat(work.plan.loss_table, cells, 1.0) for work in works]
            score = [_flat(work.plan.score_table, cells, 0.0) for work in works]
            self._prices = _padded(loss, len(loss[0])), _padded(score, len(score[0]))
        # `gradient` adds up the batches of an epoch: each brings its share of a per-step term.
        split = first.plan.optimizer.name == "gradient"
        shares = [1 / max(1, deck.batches) if split else 1.0 for deck in self._decks]
        if first.plan.proximal > 0:
            centres = [w.start if w.centre is None else w.centre for w in works]
            pulls = [[w.plan.proximal * share] for w, share in zip(works, shares, strict=True)]
            self._proximal = _padded(centres, width), torch.tensor(pulls, dtype=torch.float32)
        if first.linear is not None:
            self._linear = _padded([w.linear for w in works if w.linear is not None], width)
            self._linear.mul_(torch.tensor(shares).unsqueeze(1))
        relative = [i for i, moving in self._moving.items() if moving.setting.relative]
        measured = dict(zip(relative, self._measured(relative), strict=True))
        for i, multipliers in self._moving.items():
            multipliers.begin(self._store.counts(works[i].rows), measured.get(i))
            self._reprice(i)

    @torch.no_grad()
    def run(self) -> None:
        """Take all steps; a chunk lays out the rows of its steps beforehand."""
        for first in range(0, self._steps[0], _CHUNK):
            last = min(first + _CHUNK, self._steps[0])
            for step, batch in enumerate(self._lay_out(first, last), start=first):
                check_time()
                self._step(step, *batch)
                self._end_of_epoch(step, len(batch[0]))

    def _active(self, step: int) -> int:
        """Return how many jobs take this step; they come first."""
        return bisect_left(self._steps, -step, key=operator.neg)

    def _lay_out(self, first: int, last: int) -> Iterator[list[Tensor]]:
        """Yield steps first … last − 1: numbers of rows, weights, labels, strata if priced."""
        shape = last - first, self._active(first), self._decks[0].width
        index, weight = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
        for i in range(shape[1]):
            count = min(last, self._steps[i]) - first
            self._decks[i].deal(index[:count, i], weight[:count, i])
        rows = torch.from_numpy(index)
        parts = [rows, torch.from_numpy(weight), self._store.y[rows]]
        if self._prices is not None:
            parts.append(self._store.strata[rows])
        for step, tensors in enumerate(zip(*(p.unbind() for p in parts), strict=True), first):
            active = self._active(step)
            yield [tensor[:active] for tensor in tensors]

    def _step(
        self, step: int, rows: Tensor, weight: Tensor, y: Tensor, strata: Tensor | None = None
    ) -> None:
        active = len(rows)
        if active < len(self._now[0]):
            self._now = self._weights[:active], self._gradient[:active]
        weights, gradient = self._now
        inputs, codes = self._store.take(rows, self._workspace), self._store.take_codes(rows)
        logits, pullback = self._model.forward(weights, inputs, self._workspace, codes)
        pullback(self._slope(logits, y, strata).mul_(weight), gradient)
        if self._proximal is not None:
            centre, pull = self._proximal
            gradient.add_((weights - centre[:active]).mul_(pull[:active]))
        if self._linear is not None:
            gradient.add_(self._linear[:active])
        self._rule.step(weights, gradient, step + 1)

    def _slope(self, logits: Tensor, y: Tensor, strata: Tensor | None) -> Tensor:
        """∂/∂z of one row's objective, times 1 (the batch weight comes later)."""
        p, active = torch.sigmoid(logits), len(logits)
        slope = p - y
        if strata is not None and self._prices is not None:
            loss, score = (table[:active].gather(1, strata) for table in self._prices)
            slope.mul_(loss).addcmul_(score, p * (1 - p))
        return slope

    def _end_of_epoch(self, step: int, active: int) -> None:
        """Move the multipliers of the jobs whose epoch count says so."""
        due = []
        for i, moving in self._moving.items():
            epoch, more = divmod(step + 1, self._decks[i].batches or 1)
            if i < active and not more and epoch % moving.setting.every == 0:
                due.append(i)
        if not due:
            return
        for i, sums in zip(due, self._measured(due), strict=True):
            self._moving[i].move(sums)
            self._reprice(i)

    def _measured(self, jobs: Sequence[int]) -> list[Statistics]:
        """Measure these jobs' present weights on their own rows."""
        weights = self._weights.numpy()[:, : self._model.size]
        probes = [Probe(weights[i], self._works[i].rows) for i in jobs]
        return measure(probes, self._model, self._store)

    def _reprice(self, i: int) -> None:
        plan, cells = self._works[i].plan, self._store.cells
        score, loss = (_flat(table, cells, 0.0) for table in self._moving[i].prices())
        if self._prices is not None:
            self._prices[0][i] = torch.from_numpy(_flat(plan.loss_table, cells, 1.0) + loss)
            self._prices[1][i] = torch.from_numpy(_flat(plan.score_table, cells, 0.0) + score)

    def write_update(self, i: int, update: np.ndarray) -> None:
        """Write a job's update to memory of the caller's."""
        start, end = self._works[i].start, self._weights.numpy()[i, : self._model.size]
        with np.errstate(over="ignore", invalid="ignore"):  # the server sees what is not finite
            self._rule.update(i, np.asarray(start, np.float32), end, out=update)
