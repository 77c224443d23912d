"""Flower carries the messages: the same loop and strategies, with clients on other machines.

There are two ways to use it. `mfairfl deploy` runs mfairfl's own clients behind a Flower Grid. Or
keep your own Flower app, model and training code, and use only the strategy: `FairStrategy` on the
server, and on the client the functions exported here (docs/flower-app.md).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mfairfl.flower.client import (
        cells_of,
        fair_loss,
        make_optimizer,
        measurement_record,
        proximal_term,
    )
    from mfairfl.flower.records import read_plan
    from mfairfl.flower.strategy import FairStrategy
    from mfairfl.training.plan import Recipe

__all__ = [
    "FairStrategy",
    "Recipe",
    "cells_of",
    "fair_loss",
    "make_optimizer",
    "measurement_record",
    "proximal_term",
    "read_plan",
]

# Imported when first used: a client that only answers messages need not wait for all of it.
_HOME = {
    "FairStrategy": "mfairfl.flower.strategy",
    "Recipe": "mfairfl.training.plan",
    "cells_of": "mfairfl.flower.client",
    "fair_loss": "mfairfl.flower.client",
    "make_optimizer": "mfairfl.flower.client",
    "measurement_record": "mfairfl.flower.client",
    "proximal_term": "mfairfl.flower.client",
    "read_plan": "mfairfl.flower.records",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'mfairfl.flower' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
