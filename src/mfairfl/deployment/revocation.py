"""Keys that no longer count: written once, read by the gate and by every run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from mfairfl.errors import ConfigError, first_problem
from mfairfl.files import write_atomically


class Revocation(BaseModel):
    """A key that was revoked.

    Parameters
    ----------
    silo : str
        The name it was enrolled under.
    key : str
        The public key (PEM), as Flower holds it.
    since : datetime
        When it was revoked.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    silo: str
    key: str
    since: datetime


_LIST = TypeAdapter(list[Revocation])


def read_revocations(path: Path) -> dict[bytes, Revocation]:
    """Return the revoked keys; none without the file."""
    try:
        return {one.key.encode(): one for one in _LIST.validate_json(path.read_bytes())}
    except FileNotFoundError:
        return {}
    except ValidationError as error:
        raise ConfigError(
            f"{path}: damaged ({first_problem(error)}); restore it, or revoke the keys again"
        ) from None


def add_revocation(path: Path, silo: str, key: bytes) -> Revocation:
    """Write down that a key is revoked, and return the record; the first one stays."""
    with FileLock(path.with_name(f".{path.name}.lock")):
        known = read_revocations(path)
        if key not in known:
            now = datetime.now(UTC).replace(microsecond=0)
            known[key] = Revocation(silo=silo, key=key.decode(), since=now)
            write_atomically(path, _LIST.dump_json(list(known.values()), indent=1) + b"\n")
    return known[key]
