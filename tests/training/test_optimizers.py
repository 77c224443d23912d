"""Step rules against `torch.optim`, step by step, row by row."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from training_naive import make_optimizer

from mfairfl.training.plan import Optimizer
from mfairfl.training.trainer import make_rule

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
ALL = {"adamw": ADAMW, "sgd+momentum": SGD, "sgd": PLAIN, "other betas": OTHER_BETAS}


def random_gradients(rows):
    """Gradients of very different sizes; one coordinate never moves, one sometimes rests."""
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(STEPS, rows, WIDTH)) * 10.0 ** rng.integers(-6, 1, size=WIDTH)
    gradients[:, :, 0] = 0
    gradients[::2, :, 1] = 0
    return torch.tensor(gradients, dtype=torch.float32)


@pytest.mark.parametrize("name", ALL)
def test_equals_torch_at_every_step(name):
    settings = ALL[name]
    gradients = random_gradients(len(settings))
    start = torch.tensor(np.random.default_rng(1).normal(size=(len(settings), WIDTH)))
    weights = start.float()
    rule = make_rule(settings, WIDTH)
    theirs = [row.clone().requires_grad_() for row in start]
    optimizers = [make_optimizer(s, p) for s, p in zip(settings, theirs, strict=True)]
    for step in range(STEPS):
        rule.step(weights, gradients[step].clone(), step + 1)
        for i, (parameter, optimizer) in enumerate(zip(theirs, optimizers, strict=True)):
            parameter.grad = gradients[step, i].double()
            optimizer.step()
            torch.testing.assert_close(
                weights[i].double(), parameter.detach(), rtol=1e-5, atol=1e-6
            )
    updates = rule.updates(start.float(), weights)
    assert torch.equal(updates, start.float() - weights)


def test_adamw_without_gradient_only_decays():
    # w ← (1 − lr·wd)·w: after 3 steps of lr·wd = ¼ a weight of 64 is 64·(¾)³ = 27.
    weights, gradient = torch.full((1, 32), 64.0), torch.zeros(1, 32)
    rule = make_rule([Optimizer(lr=0.125, weight_decay=2.0)], 32)
    for count in (1, 2, 3):
        rule.step(weights, gradient, count)
    assert weights.tolist() == [[27.0] * 32]


def test_the_first_adamw_step_is_the_rate_in_the_sign_of_the_gradient():
    weights, gradient = torch.zeros(1, 32), torch.full((1, 32), -1e-3)
    make_rule([Optimizer(lr=0.01, weight_decay=3.0)], 32).step(weights, gradient, 1)
    # lr · g/(|g| + eps)
    np.testing.assert_allclose(weights.numpy(), 0.01 * 1e-3 / (1e-3 + 1e-8), rtol=1e-6)


@pytest.mark.parametrize("name", ["adamw", "sgd+momentum"])
def test_rows_that_are_done_rest_and_do_not_disturb_the_others(name):
    settings = ALL[name]
    gradients = random_gradients(len(settings))
    weights = torch.ones(len(settings), WIDTH)
    rule = make_rule(settings, WIDTH)
    alone, first = torch.ones(1, WIDTH), make_rule(settings[:1], WIDTH)
    rested = []
    for step in range(STEPS):
        active = len(settings) if step < 5 else 1
        rule.step(weights[:active], gradients[step, :active].clone(), step + 1)
        first.step(alone, gradients[step, :1].clone(), step + 1)
        rested.append(weights[1:].clone())
    assert torch.equal(weights[:1], alone)
    assert torch.equal(rested[4], rested[-1])
    assert not torch.equal(rested[3], rested[4])


def test_gradient_takes_no_step_and_adds_up():
    start = torch.ones(2, 32)
    weights = start.clone()
    rule = make_rule([Optimizer(name="gradient"), Optimizer(name="gradient")], 32)
    rule.step(weights, torch.full((2, 32), 0.25), 1)
    rule.step(weights[:1], torch.full((1, 32), 0.5), 2)
    assert torch.equal(weights, start)
    assert rule.updates(start, weights).tolist() == [[0.75] * 32, [0.25] * 32]
