"""What one key may have under way, and send over time, so that no silo crowds out the others."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mfairfl.deployment.listener import Refused

_PERIOD = 600.0  # seconds in which a key may send its allowance


@dataclass(slots=True)
class _KeyUse:
    requests: int = 0  # under way
    held: int = 0  # bytes of their bodies
    sent: int = 0  # bytes since `since`
    since: float = 0.0


class MemoryShares:
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
    >>> shares = MemoryShares(total=100, each=60)
    >>> with shares.hold("a key", 50):
    ...     shares.held
    50
    >>> shares.held
    0
    """

    def __init__(
        self,
        *,
        total: int = 64 << 20,
        each: int = 16 << 20,
        requests: int = 16,
        allowance: int = 256 << 20,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total, self._each, self._requests = total, each, requests
        self._allowance, self._clock = allowance, clock
        self._shares: defaultdict[str, _KeyUse] = defaultdict(_KeyUse)

    @property
    def held(self) -> int:
        """Bytes of bodies that are held now."""
        return sum(share.held for share in self._shares.values())

    @contextmanager
    def hold(self, key: str, size: int) -> Iterator[None]:
        """Reserve room for a body; 503 if there is none, which a SuperNode takes as `later`."""
        share = self._shares[key]
        if self._clock() - share.since >= _PERIOD:
            share.sent, share.since = 0, self._clock()
        if share.requests >= self._requests or share.held + size > self._each:
            raise Refused(503, b"this key has too much under way")
        if share.sent + size > self._allowance:
            raise Refused(
                503, b"this key has sent its allowance; see allowance in federation.toml"
            )
        if self.held + size > self._total:
            raise Refused(503, b"too many bodies at once")
        share.requests += 1
        share.held += size
        share.sent += size
        try:
            yield
        finally:
            share.requests -= 1
            share.held -= size
