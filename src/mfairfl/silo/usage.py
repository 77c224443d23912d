"""How much a silo has done so far: runs and requests, counted on its own disk, and the disk.

Every run's folder holds its count. It outlives the process, and goes with the folder.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import Field, ValidationError

from mfairfl.data.values import StrictModel
from mfairfl.errors import ConfigError, MessageError
from mfairfl.files import make_private_folder, write_atomically
from mfairfl.silo.policy import POLICY, Disclosure, Limits, Policy

DISCLOSED = ".disclosed"
"""Folder, within the state folder, of what a silo remembers for good; no run has such a name."""

_COUNT = "requests.json"
_RUNS = "runs.txt"
_DAY = 24 * 60 * 60
_MEGABYTE = 10**6


def refuse_beyond(limits: Limits | Disclosure, key: str, asked: float, what: str) -> None:
    """Refuse `asked` of something if this silo's limit is lower; the message names the limit.

    Examples
    --------
    >>> refuse_beyond(Limits(epochs=20), "epochs", 20, "epochs in a job")
    """
    most, section = getattr(limits, key), type(limits).__name__.lower()
    if asked > most:
        raise MessageError(
            f"{asked:,} {what}: this silo allows {most:,} ({section}.{key} of its {POLICY})"
        )


class _Count(StrictModel):
    """When a run began here, and how many requests it has made."""

    began: float
    requests: int = Field(ge=0)


class Usage:
    """Counts what is done within a state folder, and refuses what is beyond the limits.

    Parameters
    ----------
    state : Path
        The silo's state folder.
    policy : Policy
        Its limits.
    now : callable
        Tells the time, in seconds since 1970.
    """

    def __init__(self, state: Path, policy: Policy, now: Callable[[], float] = time.time) -> None:
        self._state, self._policy, self._now = state, policy, now
        self._limits = policy.limits

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Let one request at a time pass, whatever process answers it."""
        make_private_folder(self._state)
        try:
            with FileLock(self._state / ".request.lock", timeout=self._limits.seconds, mode=0o600):
                yield
        except Timeout:
            raise MessageError("this silo is still busy with another request") from None

    def count(self, run: str) -> None:
        """Count a request of a run, unless it is one too many, or its run is."""
        found = _read(self._state / run / _COUNT)
        if found is None:
            today = 1 + sum(self._began_today(path) for path in self._state.glob(f"*/{_COUNT}"))
            refuse_beyond(self._limits, "runs_a_day", today, "runs within 24 hours")
            self._count_run(run)
            found = _Count(began=self._now(), requests=0)
        counted = found.model_copy(update={"requests": found.requests + 1})
        refuse_beyond(self._limits, "requests", counted.requests, "requests in a run")
        make_private_folder(self._state / run)
        write_atomically(self._state / run / _COUNT, counted.model_dump_json().encode())

    def _count_run(self, run: str) -> None:
        """Count a run for good: also if its folder is deleted later."""
        folder = make_private_folder(self._state / DISCLOSED)
        known = _read_names(folder / _RUNS)
        if run not in known:
            most = self._policy.disclosure
            refuse_beyond(most, "runs", len(known) + 1, "runs and audits in all")
            text = "\n".join([*known, run])
            write_atomically(folder / _RUNS, text.encode(), private=True)

    def require_room(self, size: int) -> None:
        """Refuse to store so many bytes if the state folder would hold too much."""
        used = sum(map(_bytes, self._state.rglob("*"))) + size
        refuse_beyond(
            self._limits, "megabytes", -(-used // _MEGABYTE), "megabytes in the state folder"
        )

    def _began_today(self, path: Path) -> bool:
        found = _read(path)
        return found is not None and found.began > self._now() - _DAY


def _read(path: Path) -> _Count | None:
    try:
        return _Count.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        where = f"{path.parent.name}/{path.name} in the state folder"
        raise ConfigError(f"{where} is damaged; delete it to count its run as new") from None


def _read_names(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def _bytes(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:  # Flower's own files in the folder come and go
        return 0
