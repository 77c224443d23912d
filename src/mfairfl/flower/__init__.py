"""Flower carries the messages: the same loop and strategies, with clients on other machines.

There are two ways to use it. `mfairfl deploy` runs mfairfl's own clients behind a Flower Grid. Or
keep your own Flower app, model and training code, and use only the strategy: `FairStrategy` on the
server, and on the client the functions exported here (docs/flower-app.md).
"""

try:
    import flwr  # noqa: F401
except ImportError:
    raise ImportError("mfairfl.flower needs Flower: pip install 'mfairfl[flower]'") from None

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
