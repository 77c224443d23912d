"""Where silos wait for a message, instead of asking for one every three seconds.

A SuperNode that is told `nothing yet` sleeps for three seconds, always. So the gate keeps its
question, and answers as soon as there is a message, or when its patience ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import contextmanager

from mfairfl.deployment.signals import Signals

_LOOK = 0.05  # seconds between two looks at a file while somebody waits; no request is made


class WaitingRoom:
    """Holds requests until the server app says that there are messages.

    Parameters
    ----------
    signals : Signals
        What the server app says.
    seconds : float
        How long a request is held; 0 for not at all.
    places : int
        Requests held at once, one for each key; others are answered as if there were no room.
    """

    def __init__(self, signals: Signals, *, seconds: float, places: int = 128) -> None:
        self.signals = signals
        self._seconds, self._places = seconds, places
        self._inside: set[str] = set()
        self._news = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Requests that are held now."""
        return len(self._inside)

    @contextmanager
    def place(self, key: str) -> Iterator[float]:
        """Take a place; return the seconds for which it may be held, 0 if there is none."""
        if key in self._inside or len(self._inside) >= self._places:
            yield 0.0
            return
        self._inside.add(key)
        try:
            yield self._seconds
        finally:
            self._inside.remove(key)

    async def wait(self, seconds: float) -> None:
        """Wait for news, or until the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()

    async def watch(self) -> None:
        """Wake those who wait, until cancelled."""
        seen = b""
        while True:
            await asyncio.sleep(_LOOK)
            if self._inside and (mark := self.signals.messages()) != seen:
                seen = mark
                self._news.set()
                self._news = asyncio.Event()
