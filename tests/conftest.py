"""Bits are promised on one thread."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)
