"""The defaults of versions 0.1 and 0.2, for results that were made with them."""

from __future__ import annotations

from typing import Any

__all__ = ["ENCODER", "MODEL", "TRAINING"]

ENCODER: dict[str, Any] = {"numeric": "standard", "min_level_rows": 1}
MODEL: dict[str, Any] = {"hidden": (32, 32, 32, 32)}
TRAINING: dict[str, Any] = {"rounds": 40, "local_epochs": 5, "lr": 2e-3, "weight_decay": 3.0}
