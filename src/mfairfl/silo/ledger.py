"""Every answer that a silo gave, and every refusal: ledger.jsonl in its state folder.

One line an exchange, appended and on the disk before the answer leaves. Each line carries the
SHA-256 of the one before, so that a line that was changed, moved or taken out shows when the
file is read. What no chain shows is that lines are missing at the end: the SHA-256 of the last
line, noted elsewhere, does.

A process that is killed while it writes leaves a piece of a line. Its answer never left. The next
line takes the place of the piece, and says how many bytes were dropped; lines that are whole stay.
A writer must have the silo's turn (`Usage.turn`): two writers would break the chain.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple

import numpy as np
from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from mfairfl.data.values import DocumentedModel
from mfairfl.errors import LedgerError, MessageError, first_problem
from mfairfl.files import make_private_folder, naming
from mfairfl.text import one_line
from mfairfl.wire.packing import Packet

LEDGER = "ledger.jsonl"
"""Name of the file."""

_FIRST = "0" * 64  # what the first line carries in place of the SHA-256 of one before
_NAME, _REASON = 100, 500  # characters
_LONGEST = 1 << 17  # bytes of a line: all of the above, each character at its longest
_LARGEST = 1 << 30  # bytes of the file

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class RowSetFacts:
    """Sets of rows of one kind that an answer was about.

    Parameters
    ----------
    what : str
        In words, for example ``groups and labels of train rows``.
    sets : int
        How many sets were counted.
    smallest : int
        Rows of the smallest of them.
    rows : int
        Rows of all of them.

    Examples
    --------
    >>> RowSetFacts("groups and labels of train rows", sets=4, smallest=12, rows=96).smallest
    12
    """

    what: str
    sets: Count
    smallest: Count
    rows: Count


class LedgerEntry(DocumentedModel):
    """The record of one exchange: an answer, or the reason why there was none.

    Examples
    --------
    >>> entry = LedgerEntry(run="run-1", kind="train", request_sha256="a" * 64,
    ...                     policy_sha256="b" * 64, refusal="300 epochs in a job")
    >>> entry.refused, entry.answer_bytes
    (True, 0)
    """

    run: str
    """Name of the run that the request belongs to."""
    kind: str
    """What was asked for: profile, sums, cuts, encode, measure, score, train, audit-groups or
    audit; empty if the request could not be read."""
    request_sha256: Sha256
    """SHA-256 of the request, its text and its arrays (`packet_sha256`)."""
    models: Count = 0
    """Models in the request; each member of an ensemble or a mixture is one."""
    jobs: Count = 0
    """Jobs in the request."""
    round: Count | None = None
    """The round that was to be trained, from 0."""
    row_sets: tuple[RowSetFacts, ...] = ()
    """The sets of rows that the answer is about."""
    policy_sha256: Sha256
    """SHA-256 of what the silo's policy said about disclosure (`policy_sha256`)."""
    answer_sha256: Sha256 | None = None
    """SHA-256 of the answer; null for a refusal."""
    answer_bytes: Count = 0
    """Bytes of the answer."""
    refusal: str | None = None
    """Why there is no answer; null if there is one."""

    @property
    def refused(self) -> bool:
        """Whether there was no answer."""
        return self.refusal is not None


class LedgerLine(LedgerEntry):
    """An exchange as it stands in the file."""

    time: str
    """When the line was written, in UTC."""
    torn: Count = 0
    """Bytes of a line before this one that was never completed, and was dropped."""
    before: Sha256
    """SHA-256 of the line before, without its line end; zeros in the first line."""


class Chain(NamedTuple):
    """A whole ledger whose chain holds.

    Parameters
    ----------
    lines : tuple of LedgerLine
        All that is complete.
    head : str
        SHA-256 of the last line: note it elsewhere, and nothing before it can change unnoticed.
    torn : int
        Bytes of a piece of a line at the end; the next line will take its place.
    """

    lines: tuple[LedgerLine, ...]
    head: str
    torn: int


class Ledger:
    """The ledger of one silo.

    Parameters
    ----------
    state : Path
        The silo's state folder.
    now : callable
        Tells the time.

    Examples
    --------
    >>> import tempfile
    >>> ledger = Ledger(Path(tempfile.mkdtemp()))
    >>> ledger.add(LedgerEntry(run="run-1", kind="profile", request_sha256="a" * 64,
    ...                        policy_sha256="b" * 64, answer_sha256="c" * 64, answer_bytes=90))
    >>> [(line.kind, line.answer_bytes) for line in ledger.entries()]
    [('profile', 90)]
    >>> ledger.verify() is None
    True
    """

    def __init__(
        self, state: Path, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._path, self._now = state / LEDGER, now

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._path

    def add(self, entry: LedgerEntry) -> None:
        """Append a line; when this returns, it is on the disk."""
        make_private_folder(self._path.parent)
        opened = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with naming(self._path), os.fdopen(opened, "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            end, before = self._last(file, size)
            line = LedgerLine(
                **dict(_bounded(entry)),
                time=self._now().isoformat(timespec="milliseconds"),
                torn=size - end,
                before=before,
            )
            data = line.model_dump_json().encode() + b"\n"
            if end + len(data) > _LARGEST:
                raise LedgerError(
                    f"{self._path}: full, with {end:,} bytes; move it to an archive, and the silo "
                    "answers again"
                )
            file.seek(end)  # over what is torn: a second death leaves a torn line again
            file.write(data)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        if size == 0:
            _sync_folder(self._path.parent)

    def _last(self, file: IO[bytes], size: int) -> tuple[int, str]:
        """Return where the complete lines end, and the SHA-256 of the last of them."""
        # Two lines may be longest, of which the second is torn.
        start = max(0, size - 2 * _LONGEST)
        file.seek(start)
        tail = file.read()
        end = tail.rfind(b"\n")
        if end < 0:
            if start > 0:
                raise LedgerError(f"{self._path}: damaged, it has no end of a line; move it away")
            return 0, _FIRST
        begin = tail.rfind(b"\n", 0, end)
        if begin < 0 and start > 0:
            raise LedgerError(f"{self._path}: damaged, its last line is too long; move it away")
        return start + end + 1, _sha256(tail[begin + 1 : end])

    def entries(self) -> tuple[LedgerLine, ...]:
        """Return all complete lines; a broken chain is a `LedgerError`."""
        return self.read().lines

    def verify(self) -> int | None:
        """Return the number of the line at which the chain is broken, from 1; None if it holds."""
        try:
            self.read()
        except LedgerError as error:
            return error.line
        return None

    def read(self) -> Chain:
        """Return the ledger if its chain holds; else raise a `LedgerError` that names the line."""
        lines: list[LedgerLine] = []
        head, torn = _FIRST, 0
        for number, raw in enumerate(self._raw_lines(), start=1):
            if len(raw) > _LONGEST:
                raise self._broken(number, "it is too long for a line of a ledger")
            if not raw.endswith(b"\n"):
                torn = len(raw)
                break
            line = self._parsed(number, raw[:-1])
            if line.before != head:
                raise self._broken(number, _follows_nothing(number))
            lines.append(line)
            head = _sha256(raw[:-1])
        return Chain(tuple(lines), head, torn)

    def _raw_lines(self) -> Iterator[bytes]:
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return
        with file:
            while raw := file.readline(_LONGEST + 1):
                yield raw

    def _parsed(self, number: int, raw: bytes) -> LedgerLine:
        try:
            return LedgerLine.model_validate_json(raw)
        except ValidationError as error:
            problem = one_line(first_problem(error))
        raise self._broken(number, f"it is not a line of a ledger ({problem})")

    def _broken(self, number: int, why: str) -> LedgerError:
        return LedgerError(
            f"{self._path}, line {number}: the chain is broken: {why}; restore the file from a "
            "copy",
            line=number,
        )


def _follows_nothing(number: int) -> str:
    if number == 1:
        return "the lines before it are gone"
    return (
        f"it was not written after line {number - 1} as that is now, so a line was changed, moved "
        "or taken out"
    )


def _bounded(entry: LedgerEntry) -> LedgerEntry:
    """Cut what is too long: names and reasons come from messages."""
    cut = {"run": one_line(entry.run, _NAME), "kind": one_line(entry.kind, _NAME)}
    if entry.refusal is not None:
        cut["refusal"] = one_line(entry.refusal, _REASON)
    return entry.model_copy(update=cut)


def about_request(run: str, packet: Packet) -> dict[str, Any]:
    """Return what an entry records of a request; nothing in it is trusted.

    Examples
    --------
    >>> from mfairfl.wire.packing import make_packet
    >>> packet = make_packet("measure", {}, {"model/0": np.zeros((3, 5)), "model/1": np.zeros(5)})
    >>> facts = about_request("run-1", packet)
    >>> facts["kind"], facts["models"], facts["jobs"]
    ('measure', 4, 0)
    """
    try:
        kind, fields = packet.request
    except MessageError:  # it cannot be read
        kind, fields = "", {}
    jobs, round_ = fields.get("jobs"), fields.get("round")
    # Of a model that is sent for an audit, the members, and not how much each of them counts.
    models = [
        array
        for name, array in packet.arrays.items()
        if name.startswith("model/") and name != "model/weights"
    ]
    return {
        "run": run,
        "kind": kind,
        "request_sha256": packet_sha256(packet),
        "models": sum(len(array) if array.ndim == 2 else 1 for array in models),
        "jobs": len(jobs) if isinstance(jobs, list) else 0,
        "round": round_ if type(round_) is int and round_ >= 0 else None,
    }


def packet_sha256(packet: Packet) -> str:
    """Return the SHA-256 of a message: of its text, and of its arrays in the order of their names.

    Every part comes with its length, so that no two messages are one text.

    Examples
    --------
    >>> packet_sha256(Packet("{}", {}))[:12]
    '7cf4b3ea3b7f'
    """
    digest = hashlib.sha256()
    parts = [packet.text.encode("utf-8", "surrogatepass")]
    for name in sorted(packet.arrays):
        array = packet.arrays[name]
        about = f"{name} {array.dtype.str} {array.shape}"
        parts += [about.encode("utf-8", "surrogatepass"), np.ascontiguousarray(array).tobytes()]
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


def packet_bytes(packet: Packet) -> int:
    """Return how many bytes a message has: its text and the numbers of its arrays.

    Examples
    --------
    >>> packet_bytes(Packet("{}", {"a": np.zeros(3)}))
    26
    """
    text = len(packet.text.encode("utf-8", "surrogatepass"))
    return text + sum(array.nbytes for array in packet.arrays.values())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
