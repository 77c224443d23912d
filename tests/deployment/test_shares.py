"""What one key may have under way, and send over time."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from mfairfl.deployment.listener import Refused
from mfairfl.deployment.shares import MemoryShares


def test_one_key_cannot_take_the_room_of_the_others():
    shares = MemoryShares(total=100, each=60)
    with ExitStack() as stack:
        stack.enter_context(shares.hold("a", 60))
        with pytest.raises(Refused, match="too much under way"), shares.hold("a", 1):
            pass
        stack.enter_context(shares.hold("b", 40))
        with pytest.raises(Refused, match="too many bodies"), shares.hold("c", 1):
            pass
        assert shares.held == 100
    assert shares.held == 0


def test_a_key_has_few_requests_at_once_however_small():
    shares = MemoryShares(requests=2)
    with ExitStack() as stack:
        for key in "aab":
            stack.enter_context(shares.hold(key, 0))
        with pytest.raises(Refused, match="too much under way"), shares.hold("a", 0):
            pass
    with shares.hold("a", 0):
        pass


def test_room_is_given_back_when_a_request_fails():
    shares = MemoryShares()
    with pytest.raises(TimeoutError), shares.hold("a", 5):
        raise TimeoutError
    assert shares.held == 0


def test_an_allowance_is_renewed_after_ten_minutes():
    now = [0.0]
    shares = MemoryShares(allowance=100, clock=lambda: now[0])
    for _ in range(10):
        with shares.hold("a", 10):
            pass
    with pytest.raises(Refused, match="allowance"), shares.hold("a", 1):
        pass
    with shares.hold("b", 100):
        pass
    now[0] = 599.0
    with pytest.raises(Refused), shares.hold("a", 1):
        pass
    now[0] = 600.0
    with shares.hold("a", 100):
        pass
