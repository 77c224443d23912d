"""Bits are promised on one thread; how fast the machine is must never decide a test."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)
