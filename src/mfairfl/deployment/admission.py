"""Who may send how much: decided from a request's head, before a byte of its body is taken.

A SuperNode signs the time and sends time, signature and public key as headers. Flower checks them
too, but only once it holds the whole body. Quotas keep one silo from crowding out the others.
"""

import base64
import json
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from mfairfl.deployment.keys import read_registered, read_revocations
from mfairfl.deployment.listener import Exchange, Refused, require
from mfairfl.errors import ConfigError

_EVERY = 1.0  # seconds between two looks at the files
_OLDEST, _AHEAD = 305, 5  # seconds between a silo's clock and ours, as Flower allows
_PERIOD = 600.0  # seconds in which a key may send its allowance
_UNSIGNED = (401, b"a signature by an enrolled key is needed")
_log = logging.getLogger("mfairfl")


class KeyRing:
    """The keys that may take part; the files are read again when they may have changed.

    Parameters
    ----------
    registered : Path
        Keys that the SuperLink has registered.
    revoked : Path
        Keys that no longer count.
    """

    def __init__(self, registered: Path, revoked: Path) -> None:
        self._registered, self._revocations = registered, revoked
        self._problem = ""
        self._read_files()

    def authenticate(self, exchange: Exchange) -> str:
        """Return the key that signed a request; refuse one without."""
        if time.monotonic() - self._read_at >= _EVERY:
            self._read_again()
        key = _decoded(exchange, b"flwr-public-key")
        signature = _decoded(exchange, b"flwr-signature")
        if key in self._revoked:
            raise _turned_away("this key was revoked; ask the coordinator")
        if key not in self._keys:
            raise _turned_away("no silo is enrolled with this key; send it to the coordinator")
        signed_at = exchange.only(b"flwr-timestamp") or b""
        try:
            age = (datetime.now(UTC) - datetime.fromisoformat(signed_at.decode())).total_seconds()
            self._keys[key].verify(signature, signed_at, ec.ECDSA(hashes.SHA256()))
        except (ValueError, TypeError, InvalidSignature):  # a time without a zone: TypeError
            raise Refused(*_UNSIGNED) from None
        require(-_AHEAD < age < _OLDEST, *_UNSIGNED)
        return key.decode()

    def _read_again(self) -> None:
        """Read the files; if that fails, log why, once, and keep the keys."""
        problem = ""
        try:
            self._read_files()
        except (ConfigError, OSError) as error:
            problem = str(error)
        if problem and problem != self._problem:
            _log.warning("%s; the keys read before stay in force", problem)
        self._problem = problem

    def _read_files(self) -> None:
        self._read_at = time.monotonic()
        self._revoked = frozenset(read_revocations(self._revocations))
        texts = read_registered(self._registered)
        keys = {text: serialization.load_pem_public_key(text) for text in texts}
        self._keys = {  # others cannot be registered
            text: key for text, key in keys.items() if isinstance(key, ec.EllipticCurvePublicKey)
        }


def _decoded(exchange: Exchange, header: bytes) -> bytes:
    with suppress(ValueError):
        if (text := exchange.only(header)) is not None:
            return base64.b64decode(text, validate=True)
    raise Refused(*_UNSIGNED)


def _turned_away(why: str) -> Refused:
    # 412 in Flower's form: a SuperNode then writes the reason to its log and ends. To 401 and 403
    # it gives meanings of its own.
    return Refused(412, json.dumps({"code": 2004, "detail": why}).encode())


@dataclass(slots=True)
class _KeyUse:
    requests: int = 0  # under way
    size: int = 0  # bytes of their bodies
    sent: int = 0  # bytes since `since`
    since: float = 0.0


@dataclass(slots=True, kw_only=True)
class Quotas:
    """Bounds the bodies in memory, here and in the SuperLink, until each request is answered.

    Parameters
    ----------
    total, each : int
        Bytes of bodies at once: of all keys, of one key.
    requests : int
        Requests of one key at once; a SuperNode has six.
    allowance : int
        Bytes that one key may send in ten minutes.
    clock : callable
        Seconds, for tests.

    Examples
    --------
    >>> quotas = Quotas(total=100, each=60)
    >>> with quotas.reserve("a key", 50):
    ...     quotas.reserved
    50
    >>> quotas.reserved
    0
    """

    total: int = 64 << 20
    each: int = 16 << 20
    requests: int = 16
    allowance: int = 256 << 20
    clock: Callable[[], float] = time.monotonic
    _uses: defaultdict[str, _KeyUse] = field(
        default_factory=lambda: defaultdict(_KeyUse), init=False
    )

    @property
    def reserved(self) -> int:
        """Bytes of the bodies under way."""
        return sum(use.size for use in self._uses.values())

    @contextmanager
    def reserve(self, key: str, size: int) -> Iterator[None]:
        """Reserve room for a body; 503 if there is none, which a SuperNode takes as `later`."""
        use = self._uses[key]
        if self.clock() - use.since >= _PERIOD:
            use.sent, use.since = 0, self.clock()
        room = use.requests < self.requests and use.size + size <= self.each
        require(room, 503, b"this key has too much under way")
        spent = b"this key has sent its allowance; see allowance in federation.toml"
        require(use.sent + size <= self.allowance, 503, spent)
        require(self.reserved + size <= self.total, 503, b"too many bodies at once")
        use.requests += 1
        use.size += size
        use.sent += size
        try:
            yield
        finally:
            use.requests -= 1
            use.size -= size
