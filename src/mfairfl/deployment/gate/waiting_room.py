"""Where silos wait for a message, instead of asking for one every three seconds.

Flower polls: a SuperNode that gets no message sleeps for three seconds, always, and the server
app looks for answers. Both ends of that are the coordinator's own processes, on one machine. So
each signals when it is worth looking, by changing a file: looking at it costs no request. The gate
keeps a silo's request, and answers it as soon as there is a message, or when its time is up.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from mfairfl.files import make_private_folder

_LOOK = 0.05  # seconds between two looks at a file while a silo waits; no request is made
_SIZE = 16  # bytes of a mark


class Signals:
    """Marks in a folder that both processes see; a mark that differs means that something is new.

    A lost or additional signal costs time, never an answer: both sides also look now and then.

    Parameters
    ----------
    folder : Path
        Where the marks are.

    Examples
    --------
    >>> import tempfile
    >>> signals = Signals(Path(tempfile.mkdtemp()))
    >>> before = signals.messages()
    >>> signals.announce_messages()
    >>> signals.messages() == before
    False
    """

    def __init__(self, folder: Path) -> None:
        self._folder = make_private_folder(folder)
        self._messages = folder / "messages"

    def announce_messages(self) -> None:
        """Signal that messages for silos are on the server."""
        _change(self._messages)

    def messages(self) -> bytes:
        """Return the mark of the last messages."""
        return _mark(self._messages)

    def announce_visit(self, key: bytes) -> None:
        """Signal that the silo with this key asks for a message: its last answer is complete."""
        _change(self._visits(key))

    def visit(self, key: bytes) -> bytes:
        """Return the mark of a silo's last visit."""
        return _mark(self._visits(key))

    def _visits(self, key: bytes) -> Path:
        return self._folder / hashlib.sha256(key).hexdigest()


def _change(path: Path) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.write(file, os.urandom(_SIZE))  # two marks are never the same
    finally:
        os.close(file)


def _mark(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


class WaitingRoom:
    """Holds requests until the server app signals that there are messages.

    Parameters
    ----------
    signals : Signals
        From the server app.
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

    @contextlib.contextmanager
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
        """Wake the waiting requests when there are messages, until cancelled."""
        seen = b""
        while True:
            await asyncio.sleep(_LOOK)
            if self._inside and (mark := self.signals.messages()) != seen:
                seen = mark
                self._news.set()
                self._news = asyncio.Event()
