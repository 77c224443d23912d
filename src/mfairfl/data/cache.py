"""Keep a fetched data set's needed columns, with a manifest that says where they came from.

The raw file is reduced in memory: nothing else of it reaches the disk.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import filelock
import platformdirs

from mfairfl.data.entries import Entry
from mfairfl.data.fetch import fetch
from mfairfl.errors import DataError
from mfairfl.files import write_atomically

__all__ = ["Cached", "cache_folder", "obtain", "read_cache"]

_LOCK_TIMEOUT = 900.0
# Raised when the same source would give another reduced table: old caches are then replaced.
_REDUCTION = 1
_TABLE, _MANIFEST = "table.csv", "manifest.json"


@dataclass(frozen=True, slots=True)
class Cached:
    """A reduced table (CSV bytes) and what its manifest says about it."""

    csv: bytes
    source: str
    sha256: str
    expected: str


def cache_folder(data_home: str | Path | None = None) -> Path:
    """Folder of the cached tables: the argument, else MFAIRFL_DATA_HOME, else the platform's.

    Examples
    --------
    >>> cache_folder("data").as_posix()
    'data'
    """
    if data_home is not None:
        return Path(data_home)
    told = os.environ.get("MFAIRFL_DATA_HOME")
    return Path(told) if told else platformdirs.user_cache_path("mfairfl")


def read_cache(entry: Entry, folder: Path) -> Cached | None:
    """Return the reduced table kept in `folder`; None if there is none of this version."""
    path = folder / _MANIFEST
    if not path.is_file():
        return None
    remedy = f"delete the folder {folder} and load {entry.name} again"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        current = manifest["reduction"] == _REDUCTION and manifest["columns"] == list(
            entry.columns
        )
        sums, source, expected = manifest["files"], manifest["source"], manifest["table_sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error!r}): {remedy}") from error
    if not current or sums != {file.name: file.sha256 for file in entry.files}:
        return None
    table = folder / _TABLE
    if not table.is_file():
        raise DataError(f"{table} is missing: {remedy}")
    csv = table.read_bytes()
    return Cached(csv, str(source), hashlib.sha256(csv).hexdigest(), str(expected))


def obtain(
    entry: Entry, reduce: Callable[[Mapping[str, bytes]], bytes], folder: Path, *, offline: bool
) -> Cached:
    """Return the cached table; if there is none, fetch, reduce in memory and cache it."""
    cached = read_cache(entry, folder)
    if cached is None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with filelock.FileLock(folder / ".lock", timeout=_LOCK_TIMEOUT):
                cached = read_cache(entry, folder) or _fill(entry, reduce, folder, offline)
        except filelock.Timeout as error:
            raise DataError(
                f"{folder} is locked by another process: wait for it to end"
            ) from error
        except OSError as error:
            raise DataError(f"cannot write {folder} ({error}): set MFAIRFL_DATA_HOME") from error
    if cached.sha256 != cached.expected:
        raise DataError(
            f"{folder / _TABLE} has sha256 {cached.sha256}, expected {cached.expected}: "
            f"delete the folder {folder} and load {entry.name} again"
        )
    return cached


def _fill(
    entry: Entry, reduce: Callable[[Mapping[str, bytes]], bytes], folder: Path, offline: bool
) -> Cached:
    raw, source = fetch(entry, offline=offline)
    csv = reduce(raw)
    total = hashlib.sha256(csv).hexdigest()
    manifest = {
        "name": entry.name,
        "reduction": _REDUCTION,
        "source": source,
        "files": {file.name: file.sha256 for file in entry.files},
        "columns": list(entry.columns),
        "table_sha256": total,
    }
    # The manifest goes last: it alone makes the table count as cached.
    write_atomically(folder / _TABLE, csv)
    write_atomically(folder / _MANIFEST, json.dumps(manifest, indent=1).encode())
    return Cached(csv, source, total, total)
