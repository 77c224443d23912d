"""A run on disk: who may write it, what is in it, and how a finished one is recognised."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.numpy import load_file
from safetensors.numpy import save as save_tensors

from mfairfl.engine.checkpoint import Checkpoints, write_atomically
from mfairfl.engine.output import Served
from mfairfl.errors import RunDirectoryError

__all__ = ["SCHEMA_VERSION", "RunDirectory"]

SCHEMA_VERSION = 1


class RunDirectory:
    """The folder of one run.

    `run.json` exists from the start with ``status`` "running" and the run's identity, and ends
    with ``status`` "complete"; a run may be taken up again only with the same identity.
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
        if self.path.exists() and not self.path.is_dir():
            raise RunDirectoryError(f"{self.path}: is a file; choose a folder with --out")
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise RunDirectoryError(
                f"{self.path}: another process is using this run; wait for it or change --out"
            ) from None
        try:
            yield
        finally:
            lock.release()

    def checkpoints(self, identity: str) -> Checkpoints:
        """Return the checkpoint folder for a run of this identity."""
        return Checkpoints(self.path / "checkpoint", identity)

    def read_record(self) -> dict[str, Any]:
        """Read run.json."""
        try:
            record = json.loads(self.record_path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunDirectoryError(
                f"{self.record_path}: not found; give the --out folder of `mfairfl train`"
            ) from None
        except (ValueError, UnicodeDecodeError) as error:
            raise RunDirectoryError(f"{self.record_path}: not readable JSON ({error})") from None
        if not isinstance(record, dict) or record.get("schema_version") != SCHEMA_VERSION:
            found = record.get("schema_version") if isinstance(record, dict) else None
            raise RunDirectoryError(
                f"{self.record_path}: schema_version is {found!r}, this version reads "
                f"{SCHEMA_VERSION}"
            )
        return record

    def write_record(self, record: dict[str, Any]) -> None:
        """Write run.json atomically; nan has no place in it."""
        text = json.dumps(record, indent=2, allow_nan=False, ensure_ascii=False)
        write_atomically(self.record_path, text.encode() + b"\n")

    def claim(self, opening: dict[str, Any]) -> dict[str, Any] | None:
        """Start or take up the run that `opening` describes.

        Returns the finished record if the run is already complete, else None.

        Raises
        ------
        RunDirectoryError
            If the folder holds another run, or files that are no run.
        """
        if self.record_path.exists():
            record = self.read_record()
            if record["identity"] != opening["identity"]:
                raise RunDirectoryError(
                    f"{self.path}: holds another run ({_difference(record, opening)}); choose "
                    "another --out or delete the folder"
                )
            return record if record["status"] == "complete" else None
        others = [p.name for p in self.path.iterdir() if p.name != ".lock"]
        leftovers = [name for name in others if not name.endswith(".tmp")]
        if leftovers:
            raise RunDirectoryError(
                f"{self.path}: is not empty and holds no run ({sorted(leftovers)[0]} is there); "
                "choose another --out"
            )
        self.write_record(opening)
        return None

    def write_model(self, served: Served) -> None:
        """Write model.safetensors: members and their weights."""
        meta = {"kind": served.kind, "names": json.dumps(list(served.names))}
        arrays: dict[str, np.ndarray] = {
            "members": np.ascontiguousarray(served.members, dtype=np.float32),
            "weights": np.ascontiguousarray(served.weights, dtype=np.float64),
        }
        write_atomically(self.path / "model.safetensors", save_tensors(arrays, metadata=meta))

    def read_model(self) -> tuple[np.ndarray, np.ndarray]:
        """Read members (R, m) and weights (R,)."""
        path = self.path / "model.safetensors"
        try:
            arrays = load_file(path)
        except FileNotFoundError:
            raise RunDirectoryError(f"{path}: not found; the run is not finished") from None
        except SafetensorError as error:
            raise RunDirectoryError(f"{path}: damaged ({error})") from None
        members, weights = arrays.get("members"), arrays.get("weights")
        if members is None or weights is None or members.ndim != 2:
            raise RunDirectoryError(f"{path}: holds no model of mfairfl")
        if not (np.isfinite(members).all() and np.isfinite(weights).all()):
            raise RunDirectoryError(f"{path}: holds numbers that are not finite")
        return members, weights


def _difference(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Name the first setting in which two runs differ."""
    if old.get("data", {}).get("sha256") != new["data"]["sha256"]:
        return "trained on other data"
    mine, theirs = _flatten(new["config"]), _flatten(old.get("config", {}))
    for key in sorted({*mine, *theirs}):
        if mine.get(key) != theirs.get(key):
            return f"{key} is {theirs.get(key)} there and {mine.get(key)} here"
    return "made by another version of mfairfl"


def _flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        flat: dict[str, Any] = {}
        for key, inner in value.items():
            flat |= _flatten(inner, f"{prefix}.{key}" if prefix else str(key))
        return flat
    return {prefix: value}
