"""Answers that a broken or hostile client might send, made from valid ones.

Everything is decided by a `random.Random`, so that a number names a case.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from mfairfl.flower.records import to_records
from mfairfl.wire.packing import Packet

HUGE = bytes(1 << 25)  # of an array beside those that were asked for
VALUES: tuple[Callable[[random.Random], Any], ...] = (
    lambda rng: None,
    lambda rng: rng.choice([True, False]),
    lambda rng: rng.choice([0, -1, 1, 2**31, 2**53, 2**62, 2**64, -(2**63), 10**30]),
    lambda rng: rng.choice([0.0, -0.0, 0.5, -1.5, 1e-320, 1e30, 1e300, 1.7e308, -1e308]),
    lambda rng: rng.choice([float("nan"), float("inf"), -float("inf")]),
    lambda rng: rng.choice(
        ["", "1", "1.0", "NaN", "a" * 5000, "\x00\x1b[2J\n", "\u202e", "\ud800"]
    ),
    lambda rng: "".join(rng.choices(string.printable, k=rng.randrange(30))),
    lambda rng: [],
    lambda rng: {},
    lambda rng: [0.0] * rng.choice([1, 10, 1000, 20_000]),
    lambda rng: {str(i): i for i in range(rng.choice([1, 50, 5000]))},
    lambda rng: _nested(rng.choice([3, 40, 200])),
)


def _nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


# ------------------------------------------------------------------ text


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value inside a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, item in inner:
        found.append((*at, key))
        if isinstance(item, (dict, list)):
            found += _places(item, (*at, key))
    return found


def _changed_json(rng: random.Random, text: str) -> str:
    """Replace, delete, double or add a value somewhere."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):  # damaged already
        return text[::-1]
    if not isinstance(said, (dict, list)):
        return text * 2
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        places = _places(said)
        if not places:
            break
        *path, key = rng.choice(places)
        holder = said
        for step in path:
            holder = holder[step]
        what = rng.randrange(5)
        if what == 0:
            del holder[key]
        elif what == 1 and isinstance(holder, list):
            holder.insert(key, holder[rng.randrange(len(holder))])
        elif what == 1:
            holder[f"{key}2"] = holder[key]
        elif what == 2 and type(holder[key]) in (int, float):
            holder[key] = holder[key] * rng.choice([-1, 0, 2, 1e6, 1e300, 10**20]) + rng.choice(
                [0, 1]
            )
        elif what == 3:
            other = rng.choice(places)
            value = said
            for step in other:
                value = value[step] if _has(value, step) else None
            holder[key] = json.loads(json.dumps(value))
        else:
            holder[key] = rng.choice(VALUES)(rng)
    return json.dumps(said)


def _has(value: Any, step: Any) -> bool:
    if isinstance(value, dict):
        return step in value
    return isinstance(value, list) and isinstance(step, int) and step < len(value)


def _doubled_key(rng: random.Random, text: str) -> str:
    at = text.find('"', rng.randrange(len(text)))
    end = text.find(",", at)
    return text if at < 0 or end < 0 else text[:end] + "," + text[at:end] + text[end:]


def _damaged(rng: random.Random, data: bytes) -> bytes:
    """Flip, cut, insert or repeat bytes."""
    for _ in range(rng.choice([1, 1, 3])):
        at, what = rng.randrange(len(data) + 1), rng.randrange(5)
        if what == 0 and at < len(data):
            data = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        elif what == 1:
            data = data[:at]
        elif what == 2:
            data = data[:at] + rng.randbytes(rng.choice([1, 8, 200])) + data[at:]
        elif what == 3:
            data = data[:at] + data[at + rng.choice([1, 8]) :]
        else:
            data += data[at : at + 64]
    return data


def _changed_text(rng: random.Random, text: str) -> str:
    what = rng.randrange(8)
    if what < 4:
        return _changed_json(rng, text)
    if what == 4:
        return _damaged(rng, text.encode()).decode("utf-8", "replace")
    if what == 5:
        return _doubled_key(rng, text)
    if what == 6:
        return text.replace(
            rng.choice("0123456789"), rng.choice(["NaN", "-Infinity", "1e400", "1" * 5000]), 1
        )
    return rng.choice(
        ["", "[" * 100_000, '{"a":' * 100_000, "0", "[]" * 9, text * 2, text + " " * 10**6]
    )


# ------------------------------------------------------------------ arrays


def _changed_numbers(rng: random.Random, array: Array) -> Array:
    """Put other numbers, another type or another shape into an honest array."""
    try:
        numbers = np.atleast_1d(array.numpy()).copy()
    except Exception:  # damaged already, and numpy's reader raises nearly anything
        return array
    what = rng.randrange(7)
    with np.errstate(all="ignore"):
        if what == 0 and numbers.size:
            bad = rng.choice(
                [np.nan, np.inf, -np.inf, 1e30, -1e38, 1e308, -1.0, 0.0, 0.5, 2.0**62]
            )
            places = rng.sample(range(numbers.size), k=min(numbers.size, rng.choice([1, 1, 10])))
            numbers.flat[places] = np.float64(bad).astype(numbers.dtype)
        elif what == 1:
            factor = rng.choice([-1.0, 0.0, 10.0, 1e6, 1e30, 1e-30, 2.0**40])
            numbers = (numbers.astype(np.float64) * factor).astype(numbers.dtype)
        elif what == 2:
            kinds = [
                np.float16,
                np.float32,
                np.float64,
                np.int32,
                np.int64,
                np.uint64,
                complex,
                bool,
            ]
            numbers = numbers.astype(rng.choice(kinds))
        elif what == 3:
            numbers = rng.choice(
                [numbers[..., None], numbers.reshape(-1), numbers[:0], numbers[:-1]]
            )
        elif what == 4:
            numbers = np.concatenate([numbers, numbers])
        elif what == 5:
            numbers = np.asfortranarray(numbers[::-1])
        else:
            numbers = np.roll(numbers, 1)
    return Array(np.asarray(numbers))


def _changed_array(rng: random.Random, array: Array) -> Array:
    what = rng.randrange(-2, 6)
    parts = {"dtype": array.dtype, "shape": array.shape, "stype": array.stype, "data": array.data}
    if what < 2:
        return _changed_numbers(rng, array)
    if what == 2:
        parts["data"] = _damaged(rng, array.data)
    elif what == 3:
        head, tail = array.data[:128], array.data[128:]
        parts["data"] = _damaged(rng, head) + tail
    elif what == 4:
        parts["shape"] = rng.choice([(), (0,), (-1, -1), (10**11,), (2**62, 2**62), (1,) * 40])
        if rng.random() < 0.5:
            claimed = str(parts["shape"]).encode()
            parts["data"] = array.data.replace(str(array.shape).encode(), claimed)
    else:
        parts[rng.choice(["dtype", "stype"])] = rng.choice(
            ["float32", "object", "|O", "pickle", ""]
        )
    return Array(**parts)


def _changed_arrays(rng: random.Random, arrays: dict[str, Array]) -> dict[str, Array]:
    found = dict(arrays)
    name = rng.choice(sorted(arrays)) if arrays else ""
    what = rng.randrange(12)
    if what == 0 or not arrays:
        found[rng.choice(["x", "update/9", "0/train2", "a" * 3000, "\x00"])] = Array(np.zeros(3))
    elif what == 1:
        found.pop(name)
    elif what == 2:
        found[f"{name}2"] = found.pop(name)
    elif what == 3 and rng.random() < 0.1:
        found["huge"] = Array("float32", (len(HUGE) // 4,), "numpy.ndarray", HUGE)
    elif what == 4:
        found[name] = found[rng.choice(sorted(arrays))]
    else:
        found[name] = _changed_array(rng, found[name])
    return found


# ------------------------------------------------------------------ messages


def mutated(rng: random.Random, packet: Packet, others: Mapping[str, Packet]) -> RecordDict:
    """Return the content of a message that is nearly, or not at all, this answer.

    Parameters
    ----------
    others
        Valid answers to other questions, or of other clients.
    """
    content = to_records(packet, "run")
    if rng.random() < 0.04:
        return to_records(others[rng.choice(sorted(others))], "run")
    if packet.arrays and rng.random() < 0.1:
        return to_records(_exaggerated(rng, packet), "run")
    text, arrays = packet.text, dict(content.array_records["arrays"])
    for _ in range(rng.choice([1, 1, 2])):
        if rng.random() < (0.4 if arrays else 0.9):
            text = _changed_text(rng, text) if text else text
        else:
            arrays = _changed_arrays(rng, arrays)
    made: dict[str, Any] = {
        "text": ConfigRecord({"json": _clean(text), "run": "run"}),
        "arrays": ArrayRecord(arrays),
    }
    if rng.random() < 0.06:
        made = _changed_records(rng, made)
    return RecordDict(made)


def _exaggerated(rng: random.Random, packet: Packet) -> Packet:
    """Multiply all numbers of all arrays, or of one, by a factor: their form stays valid."""
    factor = rng.choice([0, -1, 2, 1000, 1e6, 1e20])
    one = rng.choice([*sorted(packet.arrays), None, None])
    with np.errstate(all="ignore"):
        arrays = {
            name: (array * factor).astype(array.dtype) if one in (name, None) else array
            for name, array in packet.arrays.items()
        }
    return Packet(packet.text, arrays)


def _clean(text: str) -> str:
    """Return a text as it arrives: messages are UTF-8, which has no halves of characters."""
    return text.encode("utf-8", "replace").decode()


def _changed_records(rng: random.Random, made: dict[str, Any]) -> dict[str, Any]:
    strange = [
        ConfigRecord({"json": b"{}", "run": "run"}),
        ConfigRecord({"json": 3, "run": [1, 2]}),
        ConfigRecord({}),
        MetricRecord({"x": float("nan"), "y": [1, 2]}),
        ArrayRecord({}),
    ]
    key = rng.choice(["text", "arrays", "other"])
    if rng.random() < 0.3:
        return {k: v for k, v in made.items() if k != key}
    return made | {key: rng.choice(strange)}


def mutated_reply(rng: random.Random, content: RecordDict) -> RecordDict:
    """Return the content of a reply of somebody's own Flower app, changed."""
    made: dict[str, Any] = dict(content.items())
    for _ in range(rng.choice([1, 1, 2])):
        key = rng.choice(sorted(made)) if made else "x"
        what = rng.randrange(6)
        if what == 0:
            made.pop(key, None)
        elif what == 1:
            made[rng.choice(["x", "train", "arrays", "client"])] = rng.choice(_STRANGE)(rng)
        elif isinstance(made.get(key), ArrayRecord):
            made[key] = ArrayRecord(_changed_arrays(rng, dict(made[key])))
        elif isinstance(made.get(key), MetricRecord):
            made[key] = _changed_metrics(rng, made[key])
        else:
            made[key] = ConfigRecord(
                {"name": rng.choice(["", "b", "x" * 500, "a\n\x1b[2J", "z", 3, b"a"])}
            )
    return RecordDict(made)


_STRANGE: tuple[Callable[[random.Random], Any], ...] = (
    lambda rng: ConfigRecord({"name": rng.choice(["b", 1, 2.5, True, b"x", [1, 2], ["a"]])}),
    lambda rng: MetricRecord({"counts": rng.choice([1, 2.0, [1, 2], [0.0] * 9])}),
    lambda rng: ArrayRecord({"w": Array(np.zeros(2))}),
)


def _changed_metrics(rng: random.Random, record: MetricRecord) -> MetricRecord:
    values = {key: list(v) if isinstance(v, list) else v for key, v in record.items()}
    key = rng.choice(sorted(values)) if values else "counts"
    numbers = values.get(key)
    what = rng.randrange(6)
    if what == 0:
        values.pop(key, None)
    elif what == 1 and isinstance(numbers, list):
        values[key] = numbers[:-1] if rng.random() < 0.5 else numbers * 2
    elif what == 2 and isinstance(numbers, list):
        bad = rng.choice([float("nan"), float("inf"), -1.0, 1e308, 2.0**62, 0.5, 1e-320])
        values[key] = [bad if rng.random() < 0.5 else n for n in numbers]
    elif what == 3 and isinstance(numbers, list):
        factor = rng.choice([0.0, -1.0, 1e6, 1e300, 2.0])
        values[key] = [n * factor for n in numbers]
    elif what == 4 and isinstance(numbers, list):
        values[key] = [10 ** rng.choice([3, 18]) for _ in numbers]
    else:
        values[key] = rng.choice([1, 2.5, [], [1], [1.0] * 4000])
    return MetricRecord(values)
