"""Train every strategy with explicit settings and print the SHA-256 of each served model.

Run it with two versions on one machine and compare (`make compare-bytes`): no hash is stored, for
they differ between processors.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import torch

import mfairfl
from mfairfl.strategies import available

SETTINGS: dict[str, Any] = {
    "heterogeneity": "high",
    "hidden": (8, 8),
    "rounds": 3,
    "local_epochs": 2,
    "batch_size": 512,
    "lr": 5e-3,
    "weight_decay": 1.0,
    "seed": 3,
    "training.optimizer": "adamw",
    "training.lr_final": 1e-4,
    "training.schedule": "cosine",
    "training.momentum": 0.0,
    "training.participation": 1.0,
    "encoder.numeric": "standard",
    "encoder.min_level_rows": 1,
}
NOTIONS = ("demographic_parity", "equalized_odds", "accuracy_parity", "accuracy_parity_loss")

# Paths through the code that defaults do not take, by hyper-parameters.
VARIANTS: dict[str, dict[str, Any]] = {
    "mfairfl every": {"every": 1},
    "mfairfl smooth": {"every": 1, "prices.driven_by": "smooth", "prices.one_sided": False},
    "mfairfl caps": {"prices.cap": 0.5, "prices.counter_cap": 0.1, "damping": 0.5},
    "mfairfl local": {"scope": "local", "every": 1, "shrink": 0.7},
    "mfairfl uniform": {"weights": "uniform", "every": 1, "client_parity": 0.5},
    "mfairfl objective": {"order": "objective", "client_parity": 1.0},
    "mfairfl reversed": {"order": "reversed-kept", "beta": 0.5},
    "mfairfl fixed": {"order": "fixed", "beta": 1.0, "delta": 0.5, "goals.convention": "gradvac"},
    "mfairfl goals": {"goals.floor": -0.5, "goals.cap": 0.5, "descent_guard": True},
    "mfairfl unconstrained": {"constraint": False},
    "mfairfl plain": {"conflict": False, "gamma": 0.5},
    "mfairfl paper": {"multiplier": "paper", "prices.driven_by": "smooth", "damping": 1.0},
    "fpfl smooth": {"prices.driven_by": "smooth", "prices.one_sided": False, "gamma": 0.3},
    "fpfl caps": {"prices.cap": 0.5, "prices.counter_cap": 0.1, "damping": 10.0},
    "fpfl gradient": {"update": "gradient", "multiplier": "paper"},
    "indfair caps": {"prices.cap": 0.5, "prices.one_sided": False, "weights": "uniform"},
    "cenfair smooth": {"prices.driven_by": "smooth", "every": 1},
    "fedfb client": {"parity": "client", "driven_by": "loss"},
    "fairfed reweighting": {"debias": "reweighting", "beta": 1.0},
    "qffl gradient": {"update": "gradient", "q": 2.0},
    "fedmgda+ decay": {"step": "decay", "eta": 0.5, "normalise": False},
    "fedavg uniform": {"weights": "uniform"},
}


def digest(strategy: str, notion: str, **hyper_parameters: Any) -> str:
    """Train and return the hash of the served model's members and their weights."""
    dotted = {f"strategy.{name}": value for name, value in hyper_parameters.items()}
    run = mfairfl.train("adult", strategy=strategy, notion=notion, **SETTINGS, **dotted)
    served = run.predictor.served
    return hashlib.sha256(served.members.tobytes() + served.weights.tobytes()).hexdigest()


def compare(*files: str) -> None:
    """Print which cases of two files differ; end with code 1 if any does."""
    before, after = (json.loads(Path(file).read_text(encoding="utf-8")) for file in files)
    different = [case for case in before if before[case] != after.get(case)]
    for case in different:
        sys.stdout.write(f"differs: {case}\n")
    sys.stdout.write(f"{len(before) - len(different)} of {len(before)} served models are equal\n")
    sys.exit(1 if different or not before else 0)


def main() -> None:
    """Print one JSON object: case to hash; or compare two such files."""
    if len(sys.argv) > 1:
        compare(*sys.argv[1:])
    torch.set_num_threads(1)
    cases = {name: (name, {}) for name in available()}
    cases |= {case: (case.split()[0], changes) for case, changes in VARIANTS.items()}
    hashes = {}
    for case, (strategy, changes) in sorted(cases.items()):
        for notion in NOTIONS:
            if notion == "accuracy_parity_loss" and strategy == "fedavg-threshold":
                continue  # no threshold changes a loss: refused
            hashes[f"{case} {notion}"] = digest(strategy, notion, **changes)
            sys.stderr.write(f"{case} {notion}\n")
    sys.stdout.write(json.dumps(hashes, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
