"""A time limit ends a computation between two steps, and changes no number of one that ends."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

import federations as fed
from mfairfl.engine.clients import LocalClients
from mfairfl.engine.state import Measure, Train
from mfairfl.errors import TimeLimitError
from mfairfl.training.deadline import check_time, time_limit
from mfairfl.training.plan import Job, Plan

PEOPLE = fed.people_federation()
SETUP = fed.setup_for(PEOPLE, "fedavg")
WEIGHTS = np.zeros(SETUP.size, np.float32)


@pytest.fixture
def ticks(monkeypatch):
    """A clock that moves by one second whenever somebody looks at it."""
    clock = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    return clock


def clients() -> LocalClients:
    return fed.clients_and_state(SETUP, PEOPLE)[0]


def train(epochs):
    """90 rows of east, of which 72 are for training: 9 steps of 8 rows an epoch."""
    job = Job(client="east", plan=Plan(epochs=epochs, batch_size=8))
    return {0: Train(0, {"east": WEIGHTS}, (job,))}


def test_training_stops_between_steps(ticks):
    with time_limit(28):  # the clock has shown 0; 27 looks before 27 steps show 1 … 27
        (report,) = clients().answer(train(3))[0]
    assert report.steps == 27
    before = next(ticks)
    with pytest.raises(TimeLimitError), time_limit(5):
        clients().answer(train(10**9))
    assert next(ticks) - before <= 8


def test_measuring_stops_between_blocks_of_rows(ticks):
    ask = {0: Measure((WEIGHTS,) * 500, ("train",))}
    before = next(ticks)
    assert len(clients().answer(ask)[0]) == 500
    looks = next(ticks) - before - 1
    assert looks > 2
    with time_limit(looks + 1):
        clients().answer(ask)
    with pytest.raises(TimeLimitError), time_limit(looks):
        clients().answer(ask)


def test_a_limit_that_is_not_reached_changes_no_bit():
    (free,) = clients().answer(train(3))[0]
    with time_limit(3600):
        (limited,) = clients().answer(train(3))[0]
    assert free.update.tobytes() == limited.update.tobytes()


def test_the_nearer_of_two_limits_holds_and_ends_with_its_block(ticks):
    with time_limit(100):
        with time_limit(1), pytest.raises(TimeLimitError):
            check_time()
        check_time()
        for _ in range(100):
            next(ticks)
        with time_limit(10**9), pytest.raises(TimeLimitError):
            check_time()
    check_time()
