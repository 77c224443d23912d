"""Random streams keyed by what they are for; there is no global seed anywhere.

A stream is a function of its keys alone, for example (seed, "batches", round, client name). So a
client draws the same numbers alone or beside others, in this process or in another, before or
after a restart.
"""

from __future__ import annotations

import hashlib

import numpy as np

__all__ = ["stream"]


def stream(seed: int, *keys: str | int) -> np.random.Generator:
    """Return the random generator that belongs to `keys` under `seed`.

    Keys are hashed, never added or concatenated, so streams of neighbouring keys share nothing.

    Examples
    --------
    >>> a = stream(0, "batches", 3, "hospital-a").integers(1000)
    >>> b = stream(0, "batches", 3, "hospital-a").integers(1000)
    >>> bool(a == b)
    True
    """
    text = "\x1f".join([str(int(seed)), *(f"{type(key).__name__}:{key}" for key in keys)])
    digest = hashlib.sha256(text.encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))
