"""Records of runs that were never made: what a search reads of run.json, by a formula."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mfairfl.runs.config import Config
from mfairfl.runs.record import RunRecord
from records import make_record

DP, EO = "demographic_parity_violation", "equalized_odds_violation"


def record(
    accuracy: float,
    violation: float | None = 0.0,
    *,
    eo: float = 0.0,
    floor: float | None = 0.0,
    constant: float = 0.5,
    data: str = "abc",
) -> RunRecord:
    others = {"equal_opportunity_violation": 0.0, "accuracy_parity_violation": 0.0}
    others |= {"client_accuracy_std": 0.125, "client_accuracy_gap": 0.25}
    measured = {"accuracy": accuracy, DP: violation, EO: eo, **others}
    return make_record(
        data={"name": "people", "sha256": data, "rows": 1},
        metrics={"test": {**measured, "undefined": {DP: "no rows of group F"}}},
        intervals={"test": {"level": 0.95}},
        noise_floor={"test": {DP: floor, EO: 0.0, **dict.fromkeys(others, 0.0)}},
        constant_classifier={"test": {"accuracy": constant}},
    )


@dataclass
class Pretence:
    """Stands for `run_many`: remembers what it is asked for, and answers by `rule(config)`."""

    rule: Callable[[Config], RunRecord]
    asked: list[list[tuple[Config, Any]]] = field(default_factory=list)

    def __call__(self, runs, *, progress=None):
        self.asked.append(list(runs))
        answers = [self.rule(config) for config, _ in runs]
        for _, out in runs:
            progress(str(out), 1, 1)
        return answers


def by_rate(config: Config) -> RunRecord:
    """Accuracy and violation both grow with the rate; fold k is k hundredths more accurate."""
    lr = config.training.lr
    return record(0.6 + 10 * lr + 0.01 * config.clients.fold, 5 * lr, floor=0.01)
