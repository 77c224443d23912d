"""What the gate and the server app tell each other, so that neither has to poll a server.

Flower polls: a silo asks for a message every three seconds, and the server app looks for answers.
Both ends of that are the coordinator's own processes, on one machine. So each says when it is
worth looking, by changing a file: looking at it costs no request.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from mfairfl.files import make_private_folder

_MESSAGES = "messages"
_SIZE = 16  # bytes of a mark; those of two rings are never the same


class Signals:
    """Marks in a folder that both processes see; a mark that differs means that something is new.

    A lost or additional signal costs time, never an answer: whoever waits also looks now and then.

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

    def announce_messages(self) -> None:
        """Say that messages for silos are on the server."""
        self._change(_MESSAGES)

    def messages(self) -> bytes:
        """Return the mark of the last messages."""
        return self._mark(_MESSAGES)

    def announce_visit(self, key: bytes) -> None:
        """Say that the silo with this key asks for a message: its last answer is here, in full."""
        self._change(_name(key))

    def visit(self, key: bytes) -> bytes:
        """Return the mark of a silo's last visit."""
        return self._mark(_name(key))

    def _change(self, name: str) -> None:
        file = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.write(file, os.urandom(_SIZE))
        finally:
            os.close(file)

    def _mark(self, name: str) -> bytes:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return b""


def _name(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()
