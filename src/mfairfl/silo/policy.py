"""What a silo does for a coordinator at most, and what it discloses: policy.toml.

It lies beside silo.toml. Only the silo reads it, for every message anew; nothing in a message can
change it. Without the file the defaults hold: every method's default recipe and the paper's
protocol stay within them.

Runs and requests are counted on the silo's own disk, in a folder per run: the count outlives the
process, and goes with the folder.
"""

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, get_args

from filelock import FileLock, Timeout
from pydantic import ConfigDict, Field, ValidationError

from mfairfl.data.values import DocumentedModel, StrictModel
from mfairfl.errors import ConfigError, MessageError
from mfairfl.files import load_settings, make_private_folder, toml_text, write_atomically
from mfairfl.wire.packing import require

POLICY = "policy.toml"
"""Name of the file."""

Kind = Literal[
    "profile", "sums", "cuts", "encode", "measure", "score", "train", "audit-groups", "audit"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Kinds of messages that a silo can answer."""

DISCLOSED = ".disclosed"
"""Folder, within the state folder, of what a silo remembers for good; no run has such a name."""

_FIRST_LINE = f"# {POLICY}: what this silo does for the coordinator at most. Nothing else sets it."
_COUNT = "requests.json"
_DAY = 24 * 60 * 60
_MEGABYTE = 10**6


class Limits(DocumentedModel):
    """Beyond these a silo refuses a request, with the reason, and the run goes on without it.

    Examples
    --------
    >>> Limits(epochs=50).epochs, Limits().jobs
    (50, 4)
    """

    model_config = ConfigDict(strict=True)

    epochs: int = Field(default=200, ge=1)
    """Epochs of a job."""
    steps: int = Field(default=100_000, ge=1)
    """Optimiser steps of a job: epochs × batches."""
    seconds: int = Field(default=600, ge=1)
    """Seconds of computing for a request; the next one waits as long at most."""
    jobs: int = Field(default=4, ge=1)
    """Jobs of a request for training."""
    weights: int = Field(default=10_000_000, ge=1)
    """Weights of a model."""
    requests: int = Field(default=10_000, ge=1)
    """Requests of a run; a round makes two."""
    runs_a_day: int = Field(default=50, ge=1)
    """Runs that begin within 24 hours; one that is resumed has begun already."""
    megabytes: int = Field(default=10_000, ge=1)
    """Megabytes in the state folder, all runs together."""


class Disclosure(DocumentedModel):
    """What a silo discloses: over how few rows, in answer to what, how often.

    Examples
    --------
    >>> Disclosure().min_rows, Disclosure().versions
    (10, 1)
    """

    model_config = ConfigDict(strict=True)

    min_rows: int = Field(default=10, ge=1)
    """Fewest rows that a published name or count may be about; 1 withholds nothing."""
    kinds: tuple[Kind, ...] = Field(default=KINDS, strict=False)
    """Kinds of messages that are answered."""
    models: int = Field(default=64, ge=1)
    """Models of a request for a measurement; each member of an ensemble or a mixture is one."""
    split_seed: int = Field(default=0, ge=0)
    """Splits a file into train and test rows, once for all runs; unused if min_rows = 1."""
    rounds: int = Field(default=1000, ge=1)
    """Rounds of training in a run."""
    runs: int = Field(default=1000, ge=1)
    """Runs and audits in all, as long as the state folder is kept."""
    tasks: int = Field(default=8, ge=1)
    """Ways to form groups and labels that rows are counted by."""
    versions: int = Field(default=1, ge=1)
    """Versions of a file that are answered for: two that differ in one row disclose that row."""
    price: float = Field(default=1000.0, gt=0, strict=False)
    """Largest weight of a (group, label) pair in training, in either direction; 1 is neutral."""


class Policy(DocumentedModel):
    """A silo's policy.toml, one section after the other."""

    limits: Limits = Field(default_factory=Limits)
    """How much is done for a coordinator."""
    disclosure: Disclosure = Field(default_factory=Disclosure)
    """What is disclosed to a coordinator."""


OPEN = Policy(disclosure=Disclosure(min_rows=1, tasks=10**6, versions=10**6))
"""For files that all have one owner: nothing is withheld, and every run has a split of its own."""


def refuse_beyond(limits: Limits | Disclosure, key: str, asked: float, what: str) -> None:
    """Refuse `asked` of something if this silo's limit is lower; the message names the limit.

    Examples
    --------
    >>> refuse_beyond(Limits(epochs=20), "epochs", 20, "epochs in a job")
    """
    most, section = getattr(limits, key), type(limits).__name__.lower()
    allowed = f"this silo allows {most:,} ({section}.{key} of its {POLICY})"
    require(asked <= most, f"{asked:,} {what}: {allowed}")


def load_policy(silo_file: Path) -> Policy:
    """Read the policy.toml beside a silo's file; without one the defaults hold."""
    path = silo_file.parent / POLICY
    return read_policy(path) if path.exists() else Policy()


def read_policy(path: Path) -> Policy:
    """Read a policy.toml; an error about it names file and key."""
    if not path.is_file():
        raise ConfigError(
            f"{path}: no such policy; `mfairfl deploy init` writes one for each silo"
        )
    return load_settings(path, Policy)


def policy_sha256(policy: Policy) -> str:
    """Return the SHA-256 of what a policy says about disclosure, in force or by default.

    It is that of the section as JSON, its keys in alphabetical order and no space between them:
    equal for equal settings, whether a file names them or not.

    Examples
    --------
    >>> policy_sha256(Policy()) == policy_sha256(Policy(limits=Limits(epochs=3)))
    True
    """
    plain = policy.disclosure.model_dump(mode="json")
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def policy_text(policy: Policy) -> str:
    """Write a policy as TOML, each key with its meaning.

    Examples
    --------
    >>> print(policy_text(Policy()))  # doctest: +ELLIPSIS
    # policy.toml: what this silo does for the coordinator at most. Nothing else sets it.
    <BLANKLINE>
    [limits]
    # Epochs of a job.
    epochs = 200
    ...
    """
    sections = []
    for section in Policy.model_fields:
        values = getattr(policy, section)
        lines = [f"[{section}]"]
        for key, field in type(values).model_fields.items():
            lines += [f"# {field.description}", f"{key} = {toml_text(getattr(values, key))}"]
        sections.append("\n".join(lines))
    return "\n\n".join([_FIRST_LINE, *sections]) + "\n"


# ------------------------------------------------------------------ what was done so far


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
        Returns the time, in seconds since 1970.
    """

    def __init__(self, state: Path, policy: Policy, now: Callable[[], float] = time.time) -> None:
        self._state, self._now = state, now
        self._limits, self._disclosure = policy.limits, policy.disclosure

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
        path = self._state / run / _COUNT
        count = _read(path)
        if count is None:
            counts = [_read(other) for other in self._state.glob(f"*/{_COUNT}")]
            recent = sum(other.began > self._now() - _DAY for other in counts if other is not None)
            refuse_beyond(self._limits, "runs_a_day", recent + 1, "runs within 24 hours")
            self._count_run(run)
            count = _Count(began=self._now(), requests=0)
        requests = count.requests + 1
        refuse_beyond(self._limits, "requests", requests, "requests in a run")
        make_private_folder(path.parent)
        counted = _Count(began=count.began, requests=requests)
        write_atomically(path, counted.model_dump_json().encode())

    def _count_run(self, run: str) -> None:
        """Count a run for good: also if its folder is deleted later."""
        path = make_private_folder(self._state / DISCLOSED) / "runs.txt"
        runs = path.read_text(encoding="utf-8").split() if path.exists() else []
        if run not in runs:
            refuse_beyond(self._disclosure, "runs", len(runs) + 1, "runs and audits in all")
            write_atomically(path, "\n".join([*runs, run]).encode(), private=True)

    def require_room(self, size: int) -> None:
        """Refuse to store so many bytes if the state folder would hold too much."""
        for path in self._state.rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # Flower's own files come and go
                size += path.lstat().st_size
        full = -(-size // _MEGABYTE)
        refuse_beyond(self._limits, "megabytes", full, "megabytes in the state folder")


def _read(path: Path) -> _Count | None:
    try:
        return _Count.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        where = f"{path.parent.name}/{path.name} in the state folder"
        raise ConfigError(f"{where} is damaged; delete it to count its run as new") from None
