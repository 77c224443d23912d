"""Random streams keyed by what they are for; there is no global seed anywhere.

A stream is a function of its keys alone, for example (seed, "batches", round, client name). So a
client draws the same numbers alone or beside others, in this process or in another, before or
after a restart.
"""

import hashlib
import json

import numpy as np


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
    # JSON distinguishes 1 from "1" and one key from two, on every platform alike.
    digest = hashlib.sha256(json.dumps([int(seed), *keys]).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))
