"""Our reader of numpy's files, against numpy's."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from answers import one_line
from mfairfl.errors import MessageError
from mfairfl.flower.records import read_npy

ARRAYS = st.sampled_from(["<f4", "<f8", "<i8"]).flatmap(
    lambda dtype: stn.arrays(np.dtype(dtype), stn.array_shapes(min_dims=0, max_dims=5, min_side=0))
)


def saved(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@given(ARRAYS, st.booleans())
def test_what_numpy_writes_is_read_bit_by_bit(array, turned):
    array = np.asarray(array.T if turned else array)
    found = read_npy(saved(array))
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tobytes() == array.tobytes()


def test_nothing_is_copied():
    data = saved(np.arange(1000.0))
    found = read_npy(data)
    assert not found.flags.owndata
    assert not found.flags.writeable


GOOD = saved(np.arange(6.0).reshape(2, 3))


@settings(max_examples=300)
@given(st.integers(0, 10**9), st.integers(0, len(GOOD)), st.binary(max_size=3))
def test_damaged_files_give_an_array_or_one_line(seed, at, put):
    data = GOOD[:at] + put + GOOD[at + seed % 4 :]
    try:
        found = read_npy(data)
    except MessageError as error:
        said = str(error)
    else:  # numbers changed, or nothing did: numpy agrees on what it is
        expected = np.load(io.BytesIO(data))
        assert found.tobytes() == expected.tobytes()
        said = ""
    assert said.isprintable()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "does not begin"),
        (b"PK\x03\x04" + GOOD, "does not begin"),
        (b"\x80\x04K\x01." + GOOD, "does not begin"),  # a pickle
        (GOOD[:6] + b"\x02" + GOOD[7:], "does not begin"),  # version 2.0
        (GOOD[:9], "does not begin"),
        (GOOD[:60], "not that of plain numbers"),
        (GOOD[:8] + b"\xff\xff" + GOOD[10:], "its header has"),
        (GOOD.replace(b"<f8", b"|O8"), "not that of plain numbers"),
        (GOOD.replace(b"<f8", b">f8"), "not that of plain numbers"),
        (GOOD.replace(b"(2, 3)", b"(2,-3)"), "not that of plain numbers"),
        (GOOD.replace(b"(2, 3)", b"(3, 3)"), r"48 bytes for float64 \(3, 3\)"),
        (GOOD + b"\0", "49 bytes"),
        (GOOD[:-1], "47 bytes"),
        (
            GOOD[:128].replace(b"(2, 3), }" + b" " * 25, b"(0, 999999999999999999, 9), }     "),
            "no array can have shape",
        ),
    ],
)
def test_what_is_not_a_plain_array_is_refused(data, message):
    with pytest.raises(MessageError, match=message) as caught:
        read_npy(data)
    one_line(caught)
