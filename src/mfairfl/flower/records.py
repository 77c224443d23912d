"""Packets as Flower's records, and back: one text, named arrays, nothing else."""

from __future__ import annotations

import math

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from mfairfl.errors import MessageError
from mfairfl.remote.codec import Packet

__all__ = ["from_records", "to_records"]

_TEXT, _ARRAYS, _KEY, _RUN = "text", "arrays", "json", "run"
_KINDS = ("float32", "float64", "int64")
_LARGEST = 1 << 30  # bytes of one message; a model of 10 million weights has 40 million


def to_records(packet: Packet, run: str) -> RecordDict:
    """Return a message's content: the packet, and the run it belongs to."""
    text = ConfigRecord({_KEY: packet.text, _RUN: run})
    arrays = ArrayRecord({name: Array(np.asarray(a)) for name, a in packet.arrays.items()})
    return RecordDict({_TEXT: text, _ARRAYS: arrays})


def from_records(content: RecordDict) -> tuple[str, Packet]:
    """Return the run and the packet; whatever is no plain array of numbers is refused.

    Sizes are compared with what is announced before anything is unpacked.
    """
    texts, records = content.config_records, content.array_records
    if set(texts) != {_TEXT} or set(records) != {_ARRAYS} or content.metric_records:
        raise MessageError("a message with other parts than text and arrays; is it mfairfl's?")
    text, run = texts[_TEXT].get(_KEY), texts[_TEXT].get(_RUN)
    if not isinstance(text, str) or not isinstance(run, str):
        raise MessageError("a message without its text or its run")
    total = sum(len(array.data) for array in records[_ARRAYS].values())
    if total > _LARGEST:
        raise MessageError(f"a message of {total} bytes; at most {_LARGEST} are read")
    return run, Packet(text, {name: _plain(name, a) for name, a in records[_ARRAYS].items()})


def _plain(name: str, array: Array) -> np.ndarray:
    if array.dtype not in _KINDS or array.stype != "numpy.ndarray":
        raise MessageError(f"array '{name}' is {array.dtype} ({array.stype}), not plain numbers")
    announced = math.prod(array.shape) * np.dtype(array.dtype).itemsize
    if not announced <= len(array.data) <= announced + 1024:  # the header of a .npy file
        raise MessageError(f"array '{name}' has {len(array.data)} bytes for shape {array.shape}")
    try:
        found: np.ndarray = array.numpy()
    except ValueError as error:
        raise MessageError(f"array '{name}' cannot be read ({error})") from None
    if found.shape != tuple(array.shape) or str(found.dtype) != array.dtype:
        raise MessageError(f"array '{name}' is not what it says it is")
    return found
