"""Step rules against `torch.optim`, step by step, row by row."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from training_naive import make_optimizer

from mfairfl.models import Workspace
from mfairfl.training.plan import Optimizer
from mfairfl.training.trainer import STEP_RULES

WIDTH, STEPS = 64, 25
ADAMW = [
    Optimizer(lr=2e-3, weight_decay=3.0),
    Optimizer(lr=5e-5, weight_decay=0.0),
    Optimizer(lr=1e-1, weight_decay=0.5),
]
SGD = [
    Optimizer(name="sgd", lr=0.1, weight_decay=0.0, momentum=0.9),
    Optimizer(name="sgd", lr=0.01, weight_decay=0.3, momentum=0.9),
]
PLAIN = [
    Optimizer(name="sgd", lr=0.5, weight_decay=0.0),
    Optimizer(name="sgd", lr=0.01, weight_decay=1e-3),
]
OTHER_BETAS = [Optimizer(lr=1e-2, weight_decay=0.1, beta1=0.5, beta2=0.9, eps=1e-3)]
EACH = [*ADAMW, *SGD, *PLAIN, *OTHER_BETAS]


def random_gradients(rows):
    """Gradients of very different sizes; one coordinate never moves, one sometimes rests."""
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(STEPS, rows, WIDTH)) * 10.0 ** rng.integers(-6, 1, size=WIDTH)
    gradients[:, :, 0] = 0
    gradients[::2, :, 1] = 0
    return torch.tensor(gradients, dtype=torch.float32)


def rule_for(settings, rows=1, width=WIDTH):
    return STEP_RULES[settings.name](settings, (rows, width), Workspace())


def update_of(rule, row, start, end):
    out = np.full(len(end), np.nan, np.float32)
    rule.update(row, start, end, out)
    return out


@pytest.mark.parametrize("settings", EACH, ids=str)
def test_equals_torch_at_every_step(settings):
    gradients = random_gradients(2)
    start = torch.tensor(np.random.default_rng(1).normal(size=(2, WIDTH)))
    weights = start.float()
    rule = rule_for(settings, rows=2)
    theirs = [row.clone().requires_grad_() for row in start]
    optimizers = [make_optimizer(settings, parameter) for parameter in theirs]
    for step in range(STEPS):
        rule.step(weights, gradients[step].clone(), step + 1)
        for i, (parameter, optimizer) in enumerate(zip(theirs, optimizers, strict=True)):
            parameter.grad = gradients[step, i].double()
            optimizer.step()
            torch.testing.assert_close(
                weights[i].double(), parameter.detach(), rtol=1e-5, atol=1e-6
            )
    for i, (row, end) in enumerate(zip(start.float().numpy(), weights.numpy(), strict=True)):
        assert np.array_equal(update_of(rule, i, row, end), row - end)


def test_adamw_without_gradient_only_decays():
    # w ← (1 − lr·wd)·w: after 3 steps of lr·wd = ¼ a weight of 64 is 64·(¾)³ = 27.
    weights, gradient = torch.full((1, 32), 64.0), torch.zeros(1, 32)
    rule = rule_for(Optimizer(lr=0.125, weight_decay=2.0), width=32)
    for count in (1, 2, 3):
        rule.step(weights, gradient, count)
    assert weights.tolist() == [[27.0] * 32]


def test_the_first_adamw_step_is_the_rate_in_the_sign_of_the_gradient():
    weights, gradient = torch.zeros(1, 32), torch.full((1, 32), -1e-3)
    rule_for(Optimizer(lr=0.01, weight_decay=3.0), width=32).step(weights, gradient, 1)
    # lr · g/(|g| + eps)
    np.testing.assert_allclose(weights.numpy(), 0.01 * 1e-3 / (1e-3 + 1e-8), rtol=1e-6)


@pytest.mark.parametrize("settings", [ADAMW[0], SGD[1]], ids=str)
def test_rows_that_are_done_rest_and_do_not_disturb_the_others(settings):
    gradients = random_gradients(3)
    weights = torch.ones(3, WIDTH)
    rule = rule_for(settings, rows=3)
    alone, first = torch.ones(1, WIDTH), rule_for(settings)
    rested = []
    for step in range(STEPS):
        active = 3 if step < 5 else 1
        rule.step(weights[:active], gradients[step, :active].clone(), step + 1)
        first.step(alone, gradients[step, :1].clone(), step + 1)
        rested.append(weights[1:].clone())
    assert torch.equal(weights[:1], alone)
    assert torch.equal(rested[4], rested[-1])
    assert not torch.equal(rested[3], rested[4])


def test_gradient_takes_no_step_and_adds_up():
    start = torch.ones(2, 32)
    weights = start.clone()
    rule = rule_for(Optimizer(name="gradient"), rows=2, width=32)
    rule.step(weights, torch.full((2, 32), 0.25), 1)
    rule.step(weights[:1], torch.full((1, 32), 0.5), 2)
    assert torch.equal(weights, start)
    for i, total in enumerate((0.75, 0.25)):
        assert update_of(rule, i, start[i].numpy(), weights[i].numpy()).tolist() == [total] * 32
