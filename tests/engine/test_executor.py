"""Work on several threads: results in order, the same bits, no thread left behind."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import federations as fed
from mfairfl.engine.embedded import Member, run_all
from mfairfl.engine.executor import Crew, shared_out
from mfairfl.errors import TimeLimitError
from mfairfl.models import ModuleModel
from mfairfl.strategies import available
from mfairfl.training.deadline import check_time, time_limit


@given(sizes=st.lists(st.floats(0, 1e9), min_size=1, max_size=40), workers=st.integers(1, 6))
def test_every_place_is_in_one_part_and_no_part_waits_long(sizes, workers):
    parts = shared_out(sizes, workers)
    assert sorted(place for part in parts for place in part) == list(range(len(sizes)))
    assert len(parts) == min(workers, len(sizes))
    loads = [sum(sizes[i] for i in part) for part in parts]
    # Graham (1969): the last to be given out went to whoever had least.
    assert max(loads) <= sum(sizes) / len(parts) + max(sizes) + 1e-3


@given(words=st.lists(st.text(), max_size=20), workers=st.integers(1, 4))
def test_results_come_in_the_order_of_the_work(words, workers):
    with Crew(workers) as crew:
        found = crew.carry_out(lambda some: [word * 2 for word in some], words, [1.0] * len(words))
    assert found == [word * 2 for word in words]


def test_parts_are_carried_out_at_the_same_time():
    both = threading.Barrier(2, timeout=30)  # passed only if two threads are there at once
    with Crew(2) as crew:
        assert crew.carry_out(lambda some: [both.wait() < 2 for _ in some], ["a", "b"], [1, 1])


def test_an_error_in_a_thread_is_the_callers_and_the_others_stop():
    begun = threading.Event()

    def work(some):
        if "bad" in some:
            assert begun.wait(30)
            raise ValueError("bad work")
        begun.set()
        while True:  # ends because nobody needs it any more
            check_time()

    with pytest.raises(ValueError, match="bad work"), Crew(2) as crew:
        crew.carry_out(work, ["bad", "endless"], [1, 1])


def test_a_time_limit_holds_in_threads():
    def forever(some):
        while True:
            check_time()

    with pytest.raises(TimeLimitError), Crew(2) as crew, time_limit(0.01):
        crew.carry_out(forever, ["a", "b"], [1, 1])


def test_no_thread_is_left():
    before = threading.active_count()
    with Crew(3) as crew:
        crew.carry_out(list, [1, 2, 3], [1, 1, 1])
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
