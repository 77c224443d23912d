"""Every answer that a silo gave, and every refusal: ledger.jsonl in its state folder.

One line an exchange, appended and on the disk before the answer leaves. Each line carries the
SHA-256 of the one before, so that a line that was changed, moved or taken out shows when the
file is read. What no chain shows is that lines are missing at the end: the SHA-256 of the last
line, noted elsewhere, does.

A process that is killed while it writes leaves a piece of a line. Its answer never left. The next
line takes the place of the piece, and says how many bytes were dropped; lines that are whole stay.
A writer must have the silo's turn (`Usage.turn`): two writers would break the chain.
"""

import hashlib
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from mfairfl.data.values import DocumentedModel
from mfairfl.errors import LedgerError, MessageError, first_problem
from mfairfl.files import make_private_folder, naming, sync_folder
from mfairfl.text import one_line
from mfairfl.wire.packing import Packet, Sha256

_HEADLESS = "the lines before it are gone"
_UNCHAINED = (
    "it was not written after the line before as that is now, so a line was changed, moved or "
    "taken out"
)
_FIRST = "0" * 64  # what the first line carries in place of the SHA-256 of one before
_NAME, _REASON = 100, 500  # characters
_LONGEST = 1 << 17  # bytes of a line: all of the above, each character at its longest
_LARGEST = 1 << 30  # bytes of the file

Count = Annotated[int, Field(ge=0)]
_Name = Annotated[str, AfterValidator(lambda text: one_line(text, _NAME))]
_Reason = Annotated[str, AfterValidator(lambda text: one_line(text, _REASON))]


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


class LedgerLine(DocumentedModel):
    """One exchange: an answer, or the reason why there was none.

    Names and reasons come from messages, and are cut to a length.
    """

    run: _Name
    """Name of the run that the request belongs to."""
    kind: _Name
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
    refusal: _Reason | None = None
    """Why there is no answer; null if there is one."""
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
        Returns the time.

    Examples
    --------
    >>> import tempfile
    >>> ledger = Ledger(Path(tempfile.mkdtemp()))
    >>> ledger.add(run="run-1", kind="profile", request_sha256="a" * 64,
    ...            policy_sha256="b" * 64, answer_sha256="c" * 64, answer_bytes=90)
    >>> [(line.kind, line.answer_bytes) for line in ledger.read().lines]
    [('profile', 90)]
    """

    def __init__(
        self, state: Path, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.path, self._now = state / "ledger.jsonl", now

    def add(self, **exchange: Any) -> None:
        """Append a line with these fields of a `LedgerLine`; when this returns, it is on the disk.

        What comes before, what was torn and the time are added here.
        """
        make_private_folder(self.path.parent)
        opened = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with naming(self.path), os.fdopen(opened, "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            end, before = self._last(file, size)
            now = self._now().isoformat(timespec="milliseconds")
            line = LedgerLine(**exchange, time=now, torn=size - end, before=before)
            data = line.model_dump_json().encode() + b"\n"
            if end + len(data) > _LARGEST:
                raise LedgerError(
                    f"{self.path}: full, with {end:,} bytes; move it to an archive, and the silo "
                    "answers again"
                )
            file.seek(end)  # over what is torn: a second death leaves a torn line again
            file.write(data)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        if size == 0:
            sync_folder(self.path.parent)

    def _last(self, file: IO[bytes], size: int) -> tuple[int, str]:
        """Return where the complete lines end, and the SHA-256 of the last of them."""
        # Two lines may be longest, of which the second is torn.
        start = max(0, size - 2 * _LONGEST)
        file.seek(start)
        *lines, torn = file.read().split(b"\n")
        if start > 0 and len(lines) < 2:  # the first of them is the end of one
            raise LedgerError(
                f"{self.path}: damaged, its last lines are too long; move it to an archive"
            )
        return size - len(torn), _sha256(lines[-1]) if lines else _FIRST

    def read(self) -> Chain:
        """Return the ledger if its chain holds; else raise a `LedgerError` that names the line."""
        lines: list[LedgerLine] = []
        head = _FIRST
        if not self.path.exists():
            return Chain((), head, 0)
        with self.path.open("rb") as file:
            while raw := file.readline(_LONGEST + 1):
                if len(raw) > _LONGEST:
                    raise self._broken(len(lines) + 1, "it is too long for a line of a ledger")
                if not raw.endswith(b"\n"):
                    return Chain(tuple(lines), head, len(raw))
                try:
                    line = LedgerLine.model_validate_json(raw)
                except ValidationError as error:
                    problem = one_line(first_problem(error))
                    why = f"it is not a line of a ledger ({problem})"
                    raise self._broken(len(lines) + 1, why) from None
                if line.before != head:
                    raise self._broken(len(lines) + 1, _UNCHAINED if lines else _HEADLESS)
                lines.append(line)
                head = _sha256(raw[:-1])
        return Chain(tuple(lines), head, 0)

    def _broken(self, number: int, why: str) -> LedgerError:
        return LedgerError(
            f"{self.path}, line {number}: the chain is broken: {why}; restore the file from a "
            "copy",
            line=number,
        )


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
