"""Fetch a file with care, and keep what was made of it: whatever the data set.

A download has a time limit, a size limit and the length the server promised. The cache is a folder
per data set; filling it is locked, and a file there is whole or not there.
"""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import filelock
import platformdirs

from mfairfl.errors import DataError

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
