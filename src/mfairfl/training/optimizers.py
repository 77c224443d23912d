"""Step rules on a stack of weights: rates differ from row to row, everything else is shared.

Written out in place rather than taken from `torch.optim`, which knows one rate per tensor and
would need a parameter group per client. The tests compare with `torch.optim` step by step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from mfairfl.training.plan import Optimizer

__all__ = ["StepRule", "make_rule"]

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
