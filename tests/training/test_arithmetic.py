"""One thread and no denormals inside, the caller's threads outside."""

from __future__ import annotations

import pytest
import torch

from mfairfl.training.arithmetic import steady_arithmetic


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
