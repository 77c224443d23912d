"""What a round did, for rounds.csv and for an auditor: plain numbers and names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mfairfl.fairness.cells import Statistics
from mfairfl.geometry.conflicts import Conflicts, cosines
from mfairfl.strategies.lagrangian import Lagrangian

Floats = NDArray[np.float64]
_SHOWN = 50  # clients


def fairness_log(law: Lagrangian, multipliers: Floats, whole: Statistics) -> dict[str, Any]:
    """Return multipliers, prices and violations at the start of the round."""
    score, loss = law.prices(law.signed(multipliers, whole), whole.counts)
    return {
        "constraints": [" | ".join(label) for label in law.constraints.labels],
        "multipliers": multipliers.tolist(),
        "score_prices": score.tolist(),
        "loss_prices": loss.tolist(),
        "violation_hard": _known(law.constraints.violation(whole, "hard")),
        "violation_smooth": _known(law.constraints.violation(whole, "smooth")),
    }


def conflict_log(
    found: Conflicts, gram: Floats, goals: Floats, names: Sequence[str]
) -> dict[str, Any]:
    """Return who gave way to whom, and how far: row k is client k, column i its target.

    Tables of pairs are left out where there are more than 2,500 pairs: megabytes a round.
    """
    before = cosines(gram)
    pairs = {"cosines": before, "cosines_after": _turned(found, gram), "goals": goals}
    shown = len(names) <= _SHOWN
    return {
        "order": [names[i] for i in found.order],
        "adjusted": [name for name, yes in zip(names, found.adjusted, strict=True) if yes],
        "conflicts": int((np.triu(before, 1) < 0).sum()),
        "adjustments": int(found.conflicts.sum()),
        **{name: _plain(table) if shown else None for name, table in pairs.items()},
    }


def _turned(found: Conflicts, gram: Floats) -> Floats:
    """Return the cosines of the adjusted updates with the original ones, the targets.

    Norms are those of the closed form: an update that an opposite one has cancelled has length 0
    there, and rounding errors of either sign in C M Cᵀ.
    """
    product = np.outer(found.norms, np.sqrt(np.diag(gram)))
    turned = np.full_like(product, np.nan)
    np.divide(found.rows @ gram, product, out=turned, where=product > 0)
    return np.clip(turned, -1.0, 1.0)


def _plain(table: Floats) -> list[list[float | None]]:
    found = table.astype(object)
    found[np.isnan(table)] = None
    plain: list[list[float | None]] = found.tolist()
    return plain


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
