"""What one key may have under way, and send over time."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from mfairfl.deployment.admission import Quotas
from mfairfl.deployment.listener import Refused


def test_a_key_cannot_use_the_quota_of_others():
    quotas = Quotas(total=100, each=60)
    with ExitStack() as stack:
        stack.enter_context(quotas.reserve("a", 60))
        with pytest.raises(Refused, match="too much under way"), quotas.reserve("a", 1):
            pass
        stack.enter_context(quotas.reserve("b", 40))
        with pytest.raises(Refused, match="too many bodies"), quotas.reserve("c", 1):
            pass
        assert quotas.reserved == 100
    assert quotas.reserved == 0


def test_a_key_has_few_requests_at_once_however_small():
    quotas = Quotas(requests=2)
    with ExitStack() as stack:
        for key in "aab":
            stack.enter_context(quotas.reserve(key, 0))
        with pytest.raises(Refused, match="too much under way"), quotas.reserve("a", 0):
            pass
    with quotas.reserve("a", 0):
        pass


def test_room_is_given_back_when_a_request_fails():
    quotas = Quotas()
    with pytest.raises(TimeoutError), quotas.reserve("a", 5):
        raise TimeoutError
    assert quotas.reserved == 0


def test_an_allowance_is_renewed_after_ten_minutes():
    now = [0.0]
    quotas = Quotas(allowance=100, clock=lambda: now[0])
    for _ in range(10):
        with quotas.reserve("a", 10):
            pass
    with pytest.raises(Refused, match="allowance"), quotas.reserve("a", 1):
        pass
    with quotas.reserve("b", 100):
        pass
    now[0] = 599.0
    with pytest.raises(Refused), quotas.reserve("a", 1):
        pass
    now[0] = 600.0
    with quotas.reserve("a", 100):
        pass
