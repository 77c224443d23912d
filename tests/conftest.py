"""Bits are promised on one thread; how fast the machine is must never decide a test."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, settings

from federations import people_federation

settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def federation():
    """Four sites, one without women and one without a favourable label."""
    return people_federation()
