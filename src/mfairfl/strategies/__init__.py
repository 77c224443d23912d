"""Methods of fair federated learning, by name, and what a method of one's own derives from."""

from mfairfl.strategies.base import (
    Card,
    Measurement,
    Round,
    State,
    Step,
    Strategy,
    Summary,
    parameter,
)
from mfairfl.strategies.registry import available, create, describe, grids
from mfairfl.training.plan import Job, Plan, Prices, Report, Reports

__all__ = [
    "Card",
    "Job",
    "Measurement",
    "Plan",
    "Prices",
    "Report",
    "Reports",
    "Round",
    "State",
    "Step",
    "Strategy",
    "Summary",
    "available",
    "create",
    "describe",
    "grids",
    "parameter",
]
