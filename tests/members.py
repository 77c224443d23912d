"""A consortium's members: a signing key each, and what each of them holds of the others."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from mfairfl.deployment.credentials import make_key as write_key
from mfairfl.remote.masking import MaskKey, Roster, make_key

_SIGNERS: dict[str, ec.EllipticCurvePrivateKey] = {}


def signer(name: str) -> ec.EllipticCurvePrivateKey:
    """Return a member's own key, the same for all tests."""
    return _SIGNERS.setdefault(name, ec.generate_private_key(ec.SECP384R1()))


def publics(names: str | list[str]) -> dict[str, ec.EllipticCurvePublicKey]:
    return {name: signer(name).public_key() for name in names}


def exchange(names: str | list[str], run: str = "run-1", number: int = 0) -> list[MaskKey]:
    """Return a fresh key of each of these members for one exchange."""
    return [make_key(signer(name), run, number, name) for name in sorted(names)]


def roster_of(keys: list[MaskKey], run: str = "run-1") -> Roster:
    return Roster(run, keys[0].exchange, tuple(key.offer for key in keys))


def write_members(folder: Path, names: list[str]) -> dict[str, Path]:
    """Write a key for each silo, and the public ones together; return the private ones' files."""
    found, public = {}, folder / "members"
    public.mkdir(parents=True)
    for name in names:
        found[name] = folder / "keys" / name
        write_key(found[name]).rename(public / f"{name}.pub")
    return found
