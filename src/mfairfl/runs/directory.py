"""A run on disk: the lock that one process holds, what may be resumed, and the served model."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from filelock import FileLock, Timeout
from pydantic import ValidationError, model_validator
from safetensors.numpy import save as save_tensors

from mfairfl.data import Encoder
from mfairfl.data.values import StrictModel
from mfairfl.engine.checkpoint import Checkpoints, parse_tensors
from mfairfl.engine.output import Kind, Served
from mfairfl.errors import MfairflError, RunDirectoryError, first_problem
from mfairfl.files import write_atomically
from mfairfl.runs.options import dotted
from mfairfl.runs.record import RunRecord, StartedRecord, read_bytes, read_record
from mfairfl.runs.stored_scores import Scores, dump_scores, parse_scores
from mfairfl.wire.packing import Form, UpTo
from mfairfl.wire.run_messages import SentThresholds

BASELINE = "baseline"  # folder in that of a run: FedAvg on the same rows, a run of its own
SCORES = "scores.safetensors"
_MODEL_FILES = ("model.safetensors", "encoder.json")
# Files that may exist before a run does: its lock, and what a local deployment writes first.
_EXPECTED = {".lock", "deployment", "journal.jsonl", "silos"}
_RESTORE = "restore it or train again"
_HEADER = "served"  # key of the header in model.safetensors
_DTYPES = {"members": np.float32, "weights": np.float64}
_ANY = UpTo(1 << 40)  # numbers in a row
_ROUNDING = 1e-6


class RunDirectory:
    """The folder of one run.

    `run.json` exists from the start with ``status`` "running" and the run's identity, and ends
    with ``status`` "complete"; a run may be resumed only with the same identity.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.record_path = self.path / "run.json"

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

    @property
    def baseline(self) -> Path | None:
        """The folder of the finished run that was trained beside this one without a constraint."""
        folder = self.path / BASELINE
        if not (folder / "run.json").exists():
            return None
        return folder if isinstance(read_record(folder), RunRecord) else None

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

    def write_model(self, served: Served) -> dict[str, str]:
        """Write model.safetensors; return the SHA-256 of each file the model is read from."""
        write_atomically(self.path / "model.safetensors", dump_served(served))
        return {name: _sha256(content) for name, content in self._model_files().items()}

    def write_scores(self, scores: Scores) -> dict[str, str]:
        """Write scores.safetensors, unless there are none; return the file's SHA-256."""
        if not scores:
            return {}
        data = dump_scores(scores)
        write_atomically(self.path / SCORES, data)
        return {SCORES: _sha256(data)}

    def write_encoder(self, encoder: Encoder) -> None:
        """Write encoder.json."""
        write_atomically(self.path / "encoder.json", encoder.to_json().encode())

    def write_run(
        self, record: RunRecord, served: Served, encoder: Encoder, scores: Scores
    ) -> None:
        """Write a finished run that was kept in memory, of whose rounds nothing is kept."""
        self.require_empty()
        self.write_encoder(encoder)
        files = self.write_model(served) | self.write_scores(scores)
        record.model_copy(update={"files": files}).write(self.path)

    def read_model(self, digests: Mapping[str, str]) -> tuple[Served, Encoder]:
        """Read the model and its encoder; refuse files that the record was not written with."""
        data = self._model_files()
        for name, content in data.items():
            self._require_recorded(name, content, digests)
        model, encoder = (self.path / name for name in _MODEL_FILES)
        try:
            served = parse_served(data[model.name])
        except MfairflError as error:
            raise RunDirectoryError(f"{model}: {error}; {_RESTORE}") from None
        return served, Encoder.from_json(data[encoder.name], name=str(encoder))

    def read_scores(self, record: RunRecord) -> Scores:
        """Read the histograms of the scores that a finished run was measured by.

        A mixture has none, nor has a run of a version before 0.10.
        """
        if SCORES not in record.files:
            return {}
        path = self.path / SCORES
        data = read_bytes(path, _RESTORE)
        self._require_recorded(SCORES, data, record.files)
        try:
            scores = parse_scores(data)
        except RunDirectoryError as error:
            raise RunDirectoryError(f"{path}: {error}; {_RESTORE}") from None
        for split, clients in scores.items():
            tally = record.tallies.get(split)
            measured = {} if tally is None else dict(zip(tally.clients, tally.counts, strict=True))
            for name, histogram in clients.items():
                # Counts may be expected ones; their sums are rows.
                rows = np.rint(measured[name].sum(axis=2)) if name in measured else np.zeros(0)
                if not np.array_equal(histogram.rows, rows):
                    raise RunDirectoryError(
                        f"{path}: '{name}' has other {split} rows than in run.json; {_RESTORE}"
                    )
        return scores

    def _require_recorded(self, name: str, content: bytes, digests: Mapping[str, str]) -> None:
        """Refuse a file that the record was not written with."""
        if _sha256(content) != digests.get(name):
            raise RunDirectoryError(
                f"{self.path / name}: its SHA-256 is not the one in run.json: damaged or "
                f"replaced; {_RESTORE}"
            )

    def _model_files(self) -> dict[str, bytes]:
        """Return the contents of the files that the model is read from."""
        return {name: read_bytes(self.path / name, _RESTORE) for name in _MODEL_FILES}


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _difference(old: StartedRecord | RunRecord, new: StartedRecord) -> str:
    """Name the first setting in which two runs differ."""
    if old.data.sha256 != new.data.sha256:
        return "trained on other data"
    there, here = _settings(old), _settings(new)
    for key in [*here, *there]:
        if here.get(key) != there.get(key):
            return f"{key} is {there.get(key)} there and {here.get(key)} here"
    return "made by another version of mfairfl"


def _settings(record: StartedRecord | RunRecord) -> dict[str, Any]:
    """Return what decides a run, by dotted keys: the configuration, then how rows were given."""
    plain = record.model_dump(mode="json", include={"config", "federation", "task"})
    split = {key: plain["federation"][key] for key in ("scheme", "seed", "options")}
    return dotted(plain["config"]) | dotted({"federation": split, "task": plain["task"]})


# ------------------------------------------------------------------ model.safetensors


class _ServedFile(StrictModel):
    """What the file holds: the arrays, and all else in its header."""

    kind: Kind
    names: tuple[str, ...]
    clients: tuple[str, ...] = ()
    thresholds: SentThresholds | None = None
    members: Annotated[np.ndarray, Form(np.float32, (_ANY, _ANY))]
    weights: Annotated[np.ndarray, Form(np.float64, (_ANY,))]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """Refuse a number, owners or shares of members that contradict the kind of model."""
        kind, count, owners = self.kind, len(self.members), len(self.clients)
        named = len(self.names) == len(self.weights) == count and (kind != "single" or count == 1)
        owned = owners == count or (owners == 0 and kind != "personal")
        shares = (self.weights >= 0).all() and abs(self.weights.sum() - 1) <= _ROUNDING
        rules = (
            (named, f"{count} members, {len(self.names)} names, '{kind}'"),
            (owned, f"{count} members of {owners} clients"),
            (len(set(self.clients)) == owners, "two members belong to one client"),
            (shares or kind in ("single", "personal"), "weights must be 0 or more and sum to 1"),
            (self.thresholds is None or kind == "single", f"thresholds of a '{kind}'"),
        )
        for holds, problem in rules:
            if not holds:
                raise ValueError(problem)
        return self


def dump_served(served: Served) -> bytes:
    """Return the file of a served model."""
    fields = {name: getattr(served, name) for name in _ServedFile.model_fields}
    header = _ServedFile.model_construct(**fields).model_dump(exclude={*_DTYPES})
    arrays = {
        name: np.ascontiguousarray(fields[name], dtype=dtype) for name, dtype in _DTYPES.items()
    }
    # One key only: the order of several would differ from one writing to the next.
    data: bytes = save_tensors(arrays, metadata={_HEADER: json.dumps(header)})
    return data


def parse_served(data: bytes) -> Served:
    """Return the served model of a file from an untrusted source.

    Raises
    ------
    MfairflError
        If it is not what `dump_served` writes of a model that can answer.
    """
    try:
        arrays, header = parse_tensors(data, _HEADER)
        file = _ServedFile.model_validate({**header, **arrays}, context={})
    except ValidationError as error:
        raise RunDirectoryError(first_problem(error, _ServedFile)) from None
    except (AttributeError, TypeError, ValueError) as error:
        raise RunDirectoryError(f"not a model of mfairfl ({error})") from None
    return Served(**dict(file))
