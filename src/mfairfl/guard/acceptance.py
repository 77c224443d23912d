"""Which replies count: a bad one is set aside with a reason, and the round goes on."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from mfairfl.strategies.base import Measurement
from mfairfl.training.plan import Report

__all__ = ["accept", "measurable"]


def accept(
    answers: Sequence[Report], asked: Collection[str], size: int
) -> tuple[list[Report], dict[str, str]]:
    """Sort reports by client and set those aside that would poison the model.

    A client counts once: of several reports the first sound one is taken.
    """
    accepted: dict[str, Report] = {}
    set_aside: dict[str, str] = {}
    for report in sorted(answers, key=lambda r: r.client):
        if report.client not in asked:
            set_aside[report.client] = "it was not asked to train"
        elif fault := _fault(report, size):
            set_aside[report.client] = fault
        else:
            accepted.setdefault(report.client, report)
    for client in asked:
        set_aside.setdefault(client, "it sent no report")
    return list(accepted.values()), {
        client: reason for client, reason in sorted(set_aside.items()) if client not in accepted
    }


def measurable(
    reports: list[Report], set_aside: dict[str, str], known: Sequence[Measurement]
) -> tuple[list[Report], dict[str, str]]:
    """Set clients aside whose loss at the server's weights is no number: no rule can rank them."""
    lost = {m.client for m in known if not np.isfinite(m.loss)}
    reason = "its loss at the server's weights is not finite"
    kept = [report for report in reports if report.client not in lost]
    return kept, {**dict.fromkeys(sorted(lost & {r.client for r in reports}), reason), **set_aside}


def _fault(report: Report, size: int) -> str:
    """Say why a report cannot be used; empty if it can."""
    vectors = {"update": report.update, "control change": report.control_change}
    for name, vector in vectors.items():
        if vector is None:
            continue
        if vector.shape != (size,):
            return f"its {name} has shape {vector.shape}; the model has {size} weights"
        if not np.isfinite(vector).all():
            return f"its {name} holds a number that is not finite"
    if not np.isfinite((*report.multipliers, *report.gaps)).all():
        return "a multiplier or gap it reports is not finite"
    return ""
