"""Whose request is it? Decided from the head alone, before a byte of the body is taken.

A SuperNode signs the time and sends time, signature and public key as headers. Flower checks them
too, but only once it holds the whole body.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from mfairfl.deployment.listener import Exchange, Refused
from mfairfl.deployment.revocation import read_revocations
from mfairfl.errors import ConfigError

_EVERY = 1.0  # seconds between two looks at the files
_OLDEST, _AHEAD = 305, 5  # seconds between a silo's clock and ours, as Flower allows
_KEY, _SIGNATURE, _TIME = b"flwr-public-key", b"flwr-signature", b"flwr-timestamp"
_log = logging.getLogger("mfairfl")


def read_registered(path: Path) -> list[str]:
    """Return the keys (PEM) that the SuperLink knows; none without the file."""
    try:
        keys = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise ConfigError(f"{path}: damaged ({error}); delete it and start again") from None
    return [str(key) for key in keys]


class KeyRing:
    """The keys that may take part; the files are read again when they may have changed.

    Parameters
    ----------
    registered : Path
        Keys that the SuperLink knows.
    revoked : Path
        Keys that no longer count.
    clock : callable
        Seconds, for tests.
    """

    def __init__(
        self, registered: Path, revoked: Path, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._files, self._clock = (registered, revoked), clock
        self._keys: dict[bytes, ec.EllipticCurvePublicKey] = {}
        self._revoked: frozenset[bytes] = frozenset()
        self._problem = ""
        self._read_files()

    def holder(self, exchange: Exchange) -> str:
        """Return the key that signed a request; refuse one without."""
        if self._clock() - self._read_at >= _EVERY:
            self._refresh()
        key, signature = self._decoded(exchange, _KEY), self._decoded(exchange, _SIGNATURE)
        if key in self._revoked:
            raise _turned_away(b"this key was revoked; ask the coordinator")
        if key not in self._keys:
            raise _turned_away(b"no silo is enrolled with this key; send it to the coordinator")
        signed_at = exchange.only(_TIME) or b""
        try:
            age = (datetime.now(UTC) - datetime.fromisoformat(signed_at.decode())).total_seconds()
            self._keys[key].verify(signature, signed_at, ec.ECDSA(hashes.SHA256()))
        except (ValueError, TypeError, InvalidSignature):  # a time without a zone: TypeError
            raise _unsigned() from None
        if not -_AHEAD < age < _OLDEST:
            raise _unsigned()
        return key.decode()

    @staticmethod
    def _decoded(exchange: Exchange, name: bytes) -> bytes:
        text = exchange.only(name)
        if text is None:
            raise _unsigned()
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error:
            raise _unsigned() from None

    def _refresh(self) -> None:
        """Read the files again; one that cannot be read changes nothing, and is reported once."""
        problem = ""
        try:
            self._read_files()
        except (ConfigError, OSError) as error:
            problem, self._read_at = str(error), self._clock()
        if problem and problem != self._problem:
            _log.warning("%s; the keys read before stay in force", problem)
        self._problem = problem

    def _read_files(self) -> None:
        registered, revoked = self._files
        self._revoked = frozenset(read_revocations(revoked))
        self._keys = _loaded(read_registered(registered))
        self._read_at = self._clock()


def _loaded(keys: Iterable[str]) -> dict[bytes, ec.EllipticCurvePublicKey]:
    found = {}
    for text in keys:
        key = serialization.load_pem_public_key(text.encode())
        if isinstance(key, ec.EllipticCurvePublicKey):  # others cannot be registered
            found[text.encode()] = key
    return found


def _unsigned() -> Refused:
    return Refused(401, b"a signature by an enrolled key is needed")


def _turned_away(why: bytes) -> Refused:
    # 412 in Flower's form: a SuperNode then writes the reason to its log and ends. To 401 and 403
    # it gives meanings of its own.
    detail = {"code": 2004, "detail": why.decode()}
    return Refused(412, json.dumps(detail).encode())
