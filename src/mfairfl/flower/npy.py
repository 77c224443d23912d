"""Arrays in numpy's file format, read without numpy's reader.

Numpy parses the header of a ``.npy`` file as Python source, which somebody who is not trusted can
make raise nearly anything, and may take the file for a zip archive or a pickle. Here a header is
exactly what ``numpy.save`` writes for plain numbers, or it is refused.
"""

from __future__ import annotations

import math
import re

import numpy as np

from mfairfl.errors import MessageError

LONGEST_HEADER = 1024
"""Bytes that a file may have beside its numbers."""

_MAGIC = b"\x93NUMPY\x01\x00"  # format 1.0
_ALIGNED = 16  # numpy pads headers to 64 bytes, before 1.14 to 16
_HEADER = re.compile(
    rb"\{'descr': '(<f4|<f8|<i8)', 'fortran_order': (False|True), "
    rb"'shape': \((|[0-9]{1,18},|[0-9]{1,18}(?:, [0-9]{1,18}){1,7})\), \} *\n"
)


def read_npy(data: bytes) -> np.ndarray:
    r"""Return the array in a file: float32, float64 or int64, up to eight dimensions.

    The numbers are not copied: the array is read-only and lies in `data`.

    Examples
    --------
    >>> from io import BytesIO
    >>> file = BytesIO()
    >>> np.save(file, np.array([[1.5], [2.0]]))
    >>> read_npy(file.getvalue()).tolist()
    [[1.5], [2.0]]
    >>> read_npy(b"PK\x03\x04")
    Traceback (most recent call last):
    ...
    mfairfl.errors.MessageError: it does not begin as an array of numpy does
    """
    first = len(_MAGIC) + 2
    if len(data) < first or not data.startswith(_MAGIC):
        raise MessageError("it does not begin as an array of numpy does")
    start = first + int.from_bytes(data[len(_MAGIC) : first], "little")
    if start > LONGEST_HEADER or start % _ALIGNED:
        raise MessageError(f"its header has {start} bytes")
    header = _HEADER.fullmatch(data[first:start])
    if header is None:
        raise MessageError("its header is not that of plain numbers")
    dtype = np.dtype(header[1].decode())
    shape = tuple(int(size) for size in header[3].replace(b",", b" ").split())
    if len(data) - start != math.prod(shape) * dtype.itemsize:
        raise MessageError(f"it has {len(data) - start} bytes for {dtype} {shape}")
    numbers = np.frombuffer(data, dtype, offset=start) if math.prod(shape) else np.empty(0, dtype)
    try:
        return numbers.reshape(shape, order="F" if header[2] == b"True" else "C")
    except ValueError:  # nothing, but in more dimensions than fit into memory
        raise MessageError(f"no array can have shape {shape}") from None
