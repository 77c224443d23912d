"""A run on disk: who may write it, and the files of its model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from mfairfl.data import Encoder
from mfairfl.engine.checkpoint import Checkpoints
from mfairfl.engine.output import Served
from mfairfl.errors import MfairflError, RunDirectoryError
from mfairfl.files import read_regular_file, write_atomically
from mfairfl.runs.options import dotted
from mfairfl.runs.record import RunRecord, StartedRecord, read_record
from mfairfl.runs.served_file import dump_served, parse_served

_MODEL_FILES = ("model.safetensors", "encoder.json")
# Files that may exist before a run does: its lock, and what a local deployment writes first.
_EXPECTED = {".lock", "deployment", "journal.jsonl", "silos"}


class RunDirectory:
    """The folder of one run.

    `run.json` exists from the start with ``status`` "running" and the run's identity, and ends
    with ``status`` "complete"; a run may be resumed only with the same identity.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def record_path(self) -> Path:
        """Where the record is."""
        return self.path / "run.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this process; the lock ends with the process, however it ends."""
        lock = FileLock(self.path / ".lock")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
        except Timeout:
            raise RunDirectoryError(
                f"{self.path}: another process is using this run; wait for it or change --out"
            ) from None
        except OSError as error:
            raise RunDirectoryError(
                f"{self.path}: cannot be used as a folder ({error.strerror}); choose another --out"
            ) from None
        try:
            yield
        finally:
            lock.release()

    def checkpoints(self, identity: str) -> Checkpoints:
        """Return the checkpoint folder for a run of this identity."""
        return Checkpoints(self.path / "checkpoint", identity)

    def committed(self) -> int | None:
        """Return the last round whose checkpoint is on disk, without reading it."""
        files = (self.path / "checkpoint").glob("round-*.ckpt")
        return max((int(file.stem.removeprefix("round-")) for file in files), default=None)

    def claim(self, started: StartedRecord) -> RunRecord | None:
        """Start or resume the run that `started` describes.

        Returns the finished record if the run is already complete, else None.

        Raises
        ------
        RunDirectoryError
            If the folder holds another run, or files that do not belong to a run.
        """
        if self.record_path.exists():
            record = read_record(self.record_path)
            if record.identity != started.identity:
                raise RunDirectoryError(
                    f"{self.path}: holds another run ({_difference(record, started)}); choose "
                    "another --out or delete the folder"
                )
            if isinstance(record, RunRecord):
                return record
        else:
            self.require_empty()
            started.write(self.record_path)
        for leftover in self.path.glob(".*.tmp"):  # half written when a process was killed
            leftover.unlink()
        return None

    def require_empty(self) -> None:
        """Refuse a folder that holds files which are not of a run."""
        names = [path.name for path in self.path.iterdir() if not path.match(".*.tmp")]
        strangers = sorted({*names} - _EXPECTED)
        if strangers:
            raise RunDirectoryError(
                f"{self.path}: is not empty and does not hold a run (it has {strangers[0]}); "
                "choose another --out"
            )

    def write_model(self, served: Served) -> None:
        """Write model.safetensors: members and their weights."""
        write_atomically(self.path / "model.safetensors", dump_served(served))

    def write_encoder(self, encoder: Encoder) -> None:
        """Write encoder.json."""
        write_atomically(self.path / "encoder.json", encoder.to_json().encode())

    def write_run(self, record: RunRecord, served: Served, encoder: Encoder) -> None:
        """Write a finished run that was kept in memory, of whose rounds nothing is kept."""
        self.require_empty()
        self.write_model(served)
        self.write_encoder(encoder)
        record.model_copy(update={"files": self.digests()}).write(self.path)

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of each file that the served model is read from."""
        return {name: hashlib.sha256(self._read(name)).hexdigest() for name in _MODEL_FILES}

    def read_model(self, digests: Mapping[str, str]) -> tuple[Served, Encoder]:
        """Read the model and its encoder; refuse files that the record was not written with."""
        data = {name: self._read(name) for name in _MODEL_FILES}
        for name, content in data.items():
            if hashlib.sha256(content).hexdigest() != digests.get(name):
                raise RunDirectoryError(
                    f"{self.path / name}: its SHA-256 is not the one in run.json: damaged or "
                    "replaced; restore it or train again"
                )
        model, encoder = (self.path / name for name in _MODEL_FILES)
        try:
            served = parse_served(data[model.name])
        except MfairflError as error:
            raise RunDirectoryError(f"{model}: {error}; restore it or train again") from None
        return served, Encoder.from_json(data[encoder.name], name=str(encoder))

    def _read(self, name: str) -> bytes:
        path = self.path / name
        try:
            return read_regular_file(path)
        except FileNotFoundError:
            raise RunDirectoryError(f"{path}: not found; restore it or train again") from None
        except OSError as error:
            raise RunDirectoryError(
                f"{path}: cannot be read ({error.strerror}); restore it or train again"
            ) from None


def _difference(old: StartedRecord | RunRecord, new: StartedRecord) -> str:
    """Name the first setting in which two runs differ."""
    if old.data.sha256 != new.data.sha256:
        return "trained on other data"
    mine, theirs = _settings(new), _settings(old)
    for key in [*mine, *theirs]:
        if mine.get(key) != theirs.get(key):
            return f"{key} is {theirs.get(key)} there and {mine.get(key)} here"
    return "made by another version of mfairfl"


def _settings(record: StartedRecord | RunRecord) -> dict[str, Any]:
    """Return what decides a run, by dotted keys: the configuration, then how rows were given."""
    plain = record.model_dump(mode="json", include={"config", "federation", "task"})
    given = {key: plain["federation"][key] for key in ("scheme", "seed", "options")}
    return dotted(plain["config"]) | dotted({"federation": given, "task": plain["task"]})
