"""Arrays on disk that notice damage: a safetensors document followed by its SHA-256.

Checkpoints, and what a silo keeps between messages, are such files. Only this user can read them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from mfairfl.errors import CheckpointError
from mfairfl.files import read_regular_file, write_atomically
from mfairfl.strict_json import parse_json

_DIGEST = 32
_KEY = "state"
# The last two: element types that numpy does not have.
_UNREADABLE = (SafetensorError, KeyError, TypeError, ValueError, AttributeError, ImportError)


def seal(arrays: Mapping[str, np.ndarray], header: Any = None) -> bytes:
    """Return arrays and a header of plain JSON as bytes that `unseal` checks.

    Examples
    --------
    >>> data = seal({"w": np.ones(2)}, {"round": 3})
    >>> arrays, header = unseal(data)
    >>> arrays["w"].tolist(), header
    ([1.0, 1.0], {'round': 3})
    >>> unseal(data[:-1])
    Traceback (most recent call last):
        ...
    mfairfl.errors.CheckpointError: its SHA-256 does not match: the file is damaged
    """
    # Not `ascontiguousarray`, which turns a scalar array into a vector.
    copies = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    body: bytes = save_tensors(copies, metadata={_KEY: json.dumps(header, allow_nan=False)})
    return body + hashlib.sha256(body).digest()


def unseal(data: bytes) -> tuple[dict[str, np.ndarray], Any]:
    """Return the arrays and the header, or refuse damaged or foreign bytes with a reason."""
    body, digest = data[:-_DIGEST], data[-_DIGEST:]
    if hashlib.sha256(body).digest() != digest:
        raise CheckpointError("its SHA-256 does not match: the file is damaged")
    try:
        return parse_tensors(body, _KEY)
    except ValueError as error:
        raise CheckpointError(f"it is not a file of mfairfl ({error})") from None


def parse_tensors(data: bytes, key: str) -> tuple[dict[str, np.ndarray], Any]:
    """Return the arrays of a safetensors document, and the JSON that its metadata hold.

    Parameters
    ----------
    key : str
        The metadata's key.

    Raises
    ------
    ValueError
        Whatever is wrong, in one line.
    """
    try:
        arrays: dict[str, np.ndarray] = load_tensors(data)
        length = int.from_bytes(data[:8], "little")
        header = parse_json(parse_json(data[8 : 8 + length])["__metadata__"][key])
    except _UNREADABLE as error:
        raise ValueError(" ".join(f"{type(error).__name__}: {error}".split())) from None
    return arrays, header


def write_sealed(path: Path, arrays: Mapping[str, np.ndarray], header: Any = None) -> None:
    """Write a sealed file, whole or not at all."""
    write_atomically(path, seal(arrays, header), private=True)


def read_sealed(path: Path, *, remedy: str) -> tuple[dict[str, np.ndarray], Any]:
    """Read a sealed file; an error names it and the remedy.

    Raises
    ------
    FileNotFoundError
        If there is none.
    CheckpointError
        If it is damaged, or cannot be read.
    """
    try:
        return unseal(read_regular_file(path))
    except FileNotFoundError:
        raise
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
    except CheckpointError as error:
        reason = str(error)
    raise CheckpointError(f"{path}: {reason}; {remedy}")
