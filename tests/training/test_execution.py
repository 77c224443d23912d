"""Steady arithmetic, time limits, and work on threads: the same bits, in order."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import federations as fed
from mfairfl.engine.clients import LocalClients
from mfairfl.engine.embedded import Member, run_all
from mfairfl.engine.state import Measure, Train
from mfairfl.errors import TimeLimitError
from mfairfl.models import ModuleModel
from mfairfl.strategies import available
from mfairfl.training.execution import (
    ThreadExecutor,
    balanced_parts,
    check_time,
    steady_arithmetic,
    time_limit,
)
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
        (report,) = clients().answer(train(3))[0]["east"]
    assert report.steps == 27
    before = next(ticks)
    with pytest.raises(TimeLimitError), time_limit(5):
        clients().answer(train(10**9))
    assert next(ticks) - before <= 8


def test_measuring_stops_between_blocks_of_rows(ticks):
    ask = {0: Measure((WEIGHTS,) * 500, ("train",))}
    before = next(ticks)
    assert len(clients().answer(ask)[0]["east"]) == 500
    looks = next(ticks) - before - 1
    assert looks > 2
    with time_limit(looks + 1):
        clients().answer(ask)
    with pytest.raises(TimeLimitError), time_limit(looks):
        clients().answer(ask)


def test_a_limit_that_is_not_reached_changes_no_bit():
    (free,) = clients().answer(train(3))[0]["east"]
    with time_limit(3600):
        (limited,) = clients().answer(train(3))[0]["east"]
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


def denormal():
    """A quarter of 2⁻¹²⁶, the smallest normal float32."""
    return float(torch.full((64,), 2.0**-126).mul(0.25)[0])


def test_denormals_are_flushed_inside_and_kept_outside():
    assert denormal() == 2.0**-128
    with steady_arithmetic():
        assert denormal() == 0.0
    assert denormal() == 2.0**-128


def fail_inside():
    with steady_arithmetic():
        raise RuntimeError(f"{torch.get_num_threads()} thread")


def test_threads_come_back_even_after_an_error():
    torch.set_num_threads(2)
    try:
        with pytest.raises(RuntimeError, match="1 thread"):
            fail_inside()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert denormal() == 2.0**-128


@given(sizes=st.lists(st.floats(0, 1e9), min_size=1, max_size=40), workers=st.integers(1, 6))
def test_every_place_is_in_one_part_and_no_part_waits_long(sizes, workers):
    parts = balanced_parts(sizes, workers)
    assert sorted(place for part in parts for place in part) == list(range(len(sizes)))
    assert len(parts) == min(workers, len(sizes))
    loads = [sum(sizes[i] for i in part) for part in parts]
    # Graham (1969): the last to be given out went to the lightest part.
    assert max(loads) <= sum(sizes) / len(parts) + max(sizes) + 1e-3


@given(words=st.lists(st.text(), max_size=20), workers=st.integers(1, 4))
def test_results_come_in_the_order_of_the_work(words, workers):
    with ThreadExecutor(workers) as executor:
        found = executor.run(lambda some: [word * 2 for word in some], words, [1.0] * len(words))
    assert found == [word * 2 for word in words]


def test_parts_are_carried_out_at_the_same_time():
    both = threading.Barrier(2, timeout=30)  # passed only if two threads are there at once
    with ThreadExecutor(2) as executor:
        assert executor.run(lambda some: [both.wait() < 2 for _ in some], ["a", "b"], [1, 1])


def test_an_error_in_a_thread_is_the_callers_and_the_others_stop():
    begun = threading.Event()

    def work(some):
        if "bad" in some:
            assert begun.wait(30)
            raise ValueError("bad work")
        begun.set()
        while True:  # ends because its result is no longer needed
            check_time()

    with pytest.raises(ValueError, match="bad work"), ThreadExecutor(2) as executor:
        executor.run(work, ["bad", "endless"], [1, 1])


def test_a_time_limit_holds_in_threads():
    def forever(some):
        while True:
            check_time()

    with pytest.raises(TimeLimitError), ThreadExecutor(2) as executor, time_limit(0.01):
        executor.run(forever, ["a", "b"], [1, 1])


def test_no_thread_is_left():
    before = threading.active_count()
    with ThreadExecutor(3) as executor:
        executor.run(list, [1, 2, 3], [1, 1, 1])
    assert threading.active_count() == before


@pytest.mark.parametrize("name", available())
def test_any_number_of_workers_gives_the_same_bits(name):
    federation = fed.people_federation()
    setup = fed.setup_for(federation, name, rounds=2)
    alone, *others = (
        run_all([fed.member_of(setup, federation)], workers=workers)[0] for workers in (1, 2, 3)
    )
    for other in others:
        assert fed.bits(other) == fed.bits(alone)


@pytest.mark.slow
def test_a_module_of_ones_own_has_the_same_bits_on_any_number_of_threads():
    """While a module is called it holds one model's weights: threads must not share it."""
    federation = fed.people_federation()
    model = ModuleModel(
        lambda inputs: nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, 1)),
        inputs=federation.pool.inputs.width,
    )
    setup = replace(fed.setup_for(federation, "fedavg", rounds=6), size=model.size)
    found = {
        workers: fed.bits(
            run_all([Member(setup=setup, model=model, federation=federation)], workers=workers)[0]
        )
        for workers in (1, 2, 4)
    }
    assert found[1] == found[2] == found[4]
