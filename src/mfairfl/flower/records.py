"""What messages hold, as Flower's records: packets, a model's arrays, plans and measurements.

Nothing is trusted. Whatever does not fit what was asked for is refused in one line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from pydantic import TypeAdapter, ValidationError

from mfairfl.data import SPLITS, Split
from mfairfl.errors import ConfigError, MessageError, first_problem
from mfairfl.fairness.cells import SUMS, Statistics
from mfairfl.training.plan import GLOBAL, Job, Plan
from mfairfl.wire.packing import Packet, require
from mfairfl.wire.run_messages import check_statistics

PLAN = "plan"
"""The record of a training message that holds the plan."""

_CLIENT = "client"  # the record of an evaluation's reply that holds the client's name
_TEXT, _ARRAYS, _KEY, _RUN = "text", "arrays", "json", "run"
_DTYPES = ("float32", "float64", "int64")
_LONGEST = 100  # characters of a client's name


# ------------------------------------------------------------------ packets and arrays


def to_records(packet: Packet, run: str) -> RecordDict:
    """Return a message's content: the packet, and the run it belongs to."""
    text = ConfigRecord({_KEY: packet.text, _RUN: run})
    arrays = ArrayRecord({name: Array(np.asarray(a)) for name, a in packet.arrays.items()})
    return RecordDict({_TEXT: text, _ARRAYS: arrays})


def from_records(content: RecordDict) -> tuple[str, Packet]:
    """Return the run and the packet; anything but one text and plain arrays is refused.

    Nothing is copied: the packet's arrays lie in the message. The receiver knows what was
    asked for: it compares names, types and shapes, and then uses or drops them.
    """
    texts, records = content.config_records, content.array_records
    if set(texts) != {_TEXT} or set(records) != {_ARRAYS} or content.metric_records:
        raise MessageError("a message with other parts than text and arrays; is it mfairfl's?")
    text, run = texts[_TEXT].get(_KEY), texts[_TEXT].get(_RUN)
    if not isinstance(text, str) or not isinstance(run, str):
        raise MessageError("a message without its text or its run")
    return run, Packet(text, {name: _numbers(name, a) for name, a in records[_ARRAYS].items()})


def _numbers(name: str, array: Array) -> np.ndarray:
    """Return an array's numbers, where they lie; what is not a plain array is refused."""
    plain = array.dtype in _DTYPES and array.stype == "numpy.ndarray"
    require(plain, f"array '{name}' is {array.dtype} ({array.stype}), not plain numbers")
    try:
        numbers = read_npy(array.data)
    except MessageError as error:
        raise MessageError(f"array '{name}' cannot be read: {error}") from None
    declared = (str(numbers.dtype), numbers.shape) == (array.dtype, tuple(array.shape))
    require(declared, f"array '{name}' is not what it says it is")
    return numbers


# ------------------------------------------------------------------ arrays as numpy writes them

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

    The numbers are not copied: the array is read-only and lies in `data`. Numpy's own reader is
    not used: it parses the header of a file as Python source, which an untrusted sender can make
    raise nearly anything, and may take the file for a zip archive or a pickle. Here a header is
    exactly what ``numpy.save`` writes for plain numbers, or it is refused.

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
    begins = len(data) >= first and data.startswith(_MAGIC)
    require(begins, "it does not begin as an array of numpy does")
    start = first + int.from_bytes(data[len(_MAGIC) : first], "little")
    aligned = start <= LONGEST_HEADER and start % _ALIGNED == 0
    require(aligned, f"its header has {start} bytes")
    header = _HEADER.fullmatch(data[first:start])
    if header is None:
        raise MessageError("its header is not that of plain numbers")
    dtype = np.dtype(header[1].decode())
    shape = tuple(int(size) for size in header[3].replace(b",", b" ").split())
    count, size = math.prod(shape), len(data) - start
    require(size == count * dtype.itemsize, f"it has {size} bytes for {dtype} {shape}")
    numbers = np.frombuffer(data, dtype, offset=start) if count else np.empty(0, dtype)
    try:
        return numbers.reshape(shape, order="F" if header[2] == b"True" else "C")
    except ValueError:  # nothing, but in more dimensions than fit into memory
        raise MessageError(f"no array can have shape {shape}") from None


# ------------------------------------------------------------------ a model's arrays


@dataclass(frozen=True, slots=True)
class ModelLayout:
    """How the arrays of a model lie in one flat vector.

    Examples
    --------
    >>> arrays = ArrayRecord({"w": Array(np.ones((2, 3), np.float32))})
    >>> layout = ModelLayout.of(arrays)
    >>> layout.size, layout.record(layout.flat(arrays))["w"].shape
    (6, (2, 3))
    """

    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, arrays: ArrayRecord) -> ModelLayout:
        """Return the layout of a model's arrays; all must be float32 (running counts are not)."""
        for name, array in arrays.items():
            if array.dtype != "float32":
                raise ConfigError(
                    f"initial_arrays: '{name}' is {array.dtype}; give float32 weights (a layer "
                    "with running statistics, such as BatchNorm, has no agreed average)"
                )
        if not arrays:
            raise ConfigError("initial_arrays: the model has no arrays; give its state_dict")
        return cls({name: tuple(array.shape) for name, array in arrays.items()})

    @property
    def size(self) -> int:
        """Number of weights."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def flat(self, arrays: ArrayRecord) -> np.ndarray:
        """Return the weights as one float32 vector; arrays of another layout are refused."""
        if odd := sorted(set(arrays) ^ set(self.shapes)):
            where = "not in the model" if odd[0] in arrays else "missing"
            raise MessageError(f"array '{odd[0]}' is {where}; return the arrays that were sent")
        parts = []
        for name, shape in self.shapes.items():
            dtype, returned = arrays[name].dtype, tuple(arrays[name].shape)
            same, sent = (dtype, returned) == ("float32", shape), f"float32 {shape} was sent"
            require(same, f"array '{name}' is {dtype} {returned}; {sent}")
            numbers = _numbers(name, arrays[name])
            finite = np.isfinite(numbers).all()
            require(finite, f"array '{name}' holds a number that is not finite")
            parts.append(numbers.reshape(-1))
        return np.concatenate(parts)

    def record(self, flat: np.ndarray) -> ArrayRecord:
        """Return a vector as the model's arrays."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes.values()])
        parts = zip(self.shapes.items(), np.split(flat, ends[:-1]), strict=True)
        arrays = {name: part.reshape(shape) for (name, shape), part in parts}
        return ArrayRecord({name: Array(a.astype(np.float32)) for name, a in arrays.items()})


# ------------------------------------------------------------------ measurements


def sums_record(statistics: Statistics) -> MetricRecord:
    """Return sums and counts as a record: a list over (cell, label) for each."""
    return MetricRecord({name: getattr(statistics, name).reshape(-1).tolist() for name in SUMS})


def read_measurement(content: RecordDict, cells: int) -> tuple[str, dict[Split, Statistics]]:
    """Return a client's name, and the sums and counts of each split that it sent."""
    record = content.config_records.get(_CLIENT)
    name: Any = None if record is None else record.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST:
        raise MessageError(
            f'its reply does not name the client; add "{_CLIENT}": ConfigRecord({{"name": …}})'
        )
    require(name.isprintable(), "its name holds a character that cannot be printed")
    records = content.metric_records
    sums = {s: _read_sums(s, records[s], cells) for s in SPLITS if s in records}
    require("train" in sums, "its reply has no record 'train'; add a measurement_record")
    require(sums["train"].counts.any(), "it has no training rows")
    return name, sums


def _read_sums(split: str, record: MetricRecord, cells: int) -> Statistics:
    lists = [record.get(name) for name in SUMS]
    for name, numbers in zip(SUMS, lists, strict=True):
        if not isinstance(numbers, list) or len(numbers) != 2 * cells:
            raise MessageError(
                f"record '{split}': '{name}' is not a list of {2 * cells} numbers, two for each "
                f"of {cells} cells; use measurement_record with the server's sensitive attributes"
            )
        plain = {type(number) for number in numbers} <= {int, float}
        require(plain, f"record '{split}': '{name}' holds something other than numbers")
    table = np.array(lists, dtype=np.float64).reshape(len(SUMS), cells, 2)
    return check_statistics(table, f"record '{split}'")


# ------------------------------------------------------------------ plans

# Of a plan and its optimiser, what a record says under the same names, with hyphens.
_NUMBERS = ("epochs", "batch_size", "proximal")
_OPTIMIZER = ("lr", "weight_decay", "momentum")
_TABLES = ("loss_table", "score_table")


def plan_record(job: Job) -> ConfigRecord:
    """Return a job's plan as plain values; a job that needs mfairfl's own clients is refused.

    Tables are lists (cell 0 label 0, cell 0 label 1, cell 1 label 0, …), absent where all rows
    count alike.

    Examples
    --------
    >>> table = ((0.5, 1.5), (1.0, 1.0))
    >>> record = plan_record(Job(client="a", plan=Plan(epochs=1, batch_size=32, loss_table=table)))
    >>> record["epochs"], record["optimizer"], record["loss-table"]
    (1, 'adamw', [0.5, 1.5, 1.0, 1.0])
    """
    plan, optimizer, controller = job.plan, job.plan.optimizer, job.plan.controller
    of_client = (job.keep, job.keep_control, plan.linear, plan.linear_slot)
    slot = controller and controller.slot
    stores = job.start != GLOBAL or any(name is not None for name in (*of_client, slot))
    obstacles = {
        "clients must keep something between rounds": stores,
        "multipliers move inside a round": controller is not None,
        "clients send full-batch gradients, not weights": optimizer.name == "gradient",
    }
    for obstacle, applies in obstacles.items():
        if applies:
            raise ConfigError(obstacle)
    values: dict[str, Any] = {name: getattr(plan, name) for name in _NUMBERS}
    values["optimizer"] = optimizer.name
    values |= {name: getattr(optimizer, name) for name in _OPTIMIZER}
    for name in _TABLES:
        if table := getattr(plan, name):
            values[name] = np.array(table, float).reshape(-1).tolist()
    return ConfigRecord({name.replace("_", "-"): value for name, value in values.items()})


def read_plan(message: Message) -> Plan:
    """Return what a `FairStrategy` asks this client to do in this round.

    Read from it `epochs`, `batch_size` and `optimizer` (`name`, `lr`, `weight_decay`,
    `momentum`); `fair_loss` reads the tables and `proximal_term` the pull. The round is
    ``message.content["config"]["server-round"]``.

    Examples
    --------
    In the client's `train` function of a Flower app:

    >>> plan = read_plan(message)  # doctest: +SKIP
    >>> optimizer = make_optimizer(plan, model.parameters())  # doctest: +SKIP
    """
    record = message.content.config_records.get(PLAN)
    if record is None:
        raise MessageError(
            "the message has no plan: only training messages of a FairStrategy have one"
        )
    values: dict[str, Any] = {key.replace("-", "_"): value for key, value in record.items()}
    for name in ("optimizer", *_NUMBERS, *_OPTIMIZER):
        lacking = f"the plan lacks '{name.replace('_', '-')}'"
        require(name in values, f"{lacking}; install the same mfairfl on server and client")
    plain = {name: values[name] for name in _NUMBERS}
    plain["optimizer"] = {name: values[name] for name in _OPTIMIZER}
    plain["optimizer"]["name"] = values["optimizer"]
    for name in values.keys() & set(_TABLES):
        numbers, key = values[name], name.replace("_", "-")
        pairs = isinstance(numbers, list) and len(numbers) % 2 == 0
        require(pairs, f"the plan: {key} is not a list of pairs, one for each cell")
        plain[name] = tuple(zip(numbers[::2], numbers[1::2], strict=True))
    try:
        return TypeAdapter(Plan).validate_python(plain)
    except ValidationError as error:
        raise MessageError(f"the plan: {first_problem(error)}") from None
