"""run.json: what was run, on what, and every number with its interval and noise floor."""

from __future__ import annotations

import json
import math
import platform
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from mfairfl.data import Federation, Task
from mfairfl.engine.loop import Result
from mfairfl.engine.state import Setup, Split
from mfairfl.engine.tallies import mean_loss, served_statistics, served_tally
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.constraints import Constraints
from mfairfl.fairness.notions import available_notions
from mfairfl.fairness.summary import constant_classifier, summarise
from mfairfl.fairness.tally import Tally
from mfairfl.fairness.uncertainty import intervals, noise_floor
from mfairfl.models import Model
from mfairfl.runs.config import Config
from mfairfl.runs.directory import SCHEMA_VERSION

__all__ = [
    "Facts",
    "closing_record",
    "facts_of",
    "goal_metrics",
    "measured_numbers",
    "opening_record",
]

NEAR_CONSTANT = 0.01  # a model that selects fewer (or all but fewer) is no decision at all
_LIBRARIES = ("mfairfl", "torch", "numpy", "scipy", "pandas", "safetensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a record tells of its rows and clients.

    Parameters
    ----------
    identity : tuple
        What decides the result beside the configuration, for JSON.
    summary : dict
        Who holds what.
    """

    name: str
    sha256: str
    rows: int
    task: Task
    identity: tuple[Any, ...]
    summary: dict[str, Any]


def facts_of(federation: Federation) -> Facts:
    """Return the facts of clients whose rows are here."""
    task = federation.task.model_dump(mode="json")
    # Rows in memory come with a task, a split and a seed that the configuration does not know.
    about = (federation.scheme, federation.seed, federation.options)
    return Facts(
        name=federation.table_name,
        sha256=federation.sha256,
        rows=len(federation.pool),
        task=federation.task,
        identity=(federation.sha256, task, *about),
        summary=federation.summary(),
    )


def opening_record(config: Config, facts: Facts, module: str | None = None) -> dict[str, Any]:
    """Return the record of a run that has not finished: who it is.

    `module` names the factory of a model that is code, and therefore not in the configuration.
    """
    settings = config.model_dump(mode="json")
    if module is not None:
        settings["model"] = {"kind": "module", "factory": module}
    return {
        "schema_version": SCHEMA_VERSION,
        "status": "running",
        "identity": config.identity(json.dumps([*facts.identity, module], sort_keys=True)),
        "config": settings,
        "seed": config.seed,
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in _LIBRARIES},
        },
        "data": {"name": facts.name, "sha256": facts.sha256, "rows": facts.rows},
        "task": facts.task.model_dump(mode="json"),
        "federation": facts.summary,
    }


def closing_record(
    opening: dict[str, Any], setup: Setup, model: Model, result: Result, timing: dict[str, float]
) -> dict[str, Any]:
    """Return the finished record."""
    attributes = setup.summary.attributes
    tallies = {
        split: served_tally(result.served, result.measured, split, attributes)
        for split in setup.splits
    }
    metrics: dict[str, Any] = {"train": None, "validation": None, "test": None}
    train = tallies["train"]
    found = {s: measured_numbers(t, majority=train) for s, t in tallies.items()}
    for split in tallies:
        metrics[split] = found[split]["metrics"] | _losses(setup, result, split)
    thresholds = result.served.thresholds
    return opening | {
        "status": "complete",
        "rounds": result.rounds,
        "model": model.describe(),
        "served": {
            "kind": result.served.kind,
            "names": list(result.served.names),
            "clients": list(result.served.clients),
            "weights": [float(w) for w in result.served.weights],
            "rule": setup.output.rule,
            "tolerance": setup.output.tolerance,
            "note": result.served.note,
            "thresholds": None if thresholds is None else thresholds.to_json(),
        },
        "warnings": _warnings(metrics),
        "metrics": metrics,
        **{
            part: {split: numbers[part] for split, numbers in found.items()}
            for part in ("intervals", "noise_floor", "constant_classifier")
        },
        "tallies": {s: t.to_json() for s, t in tallies.items()},
        "timing": timing,
        "machine": {"system": platform.system(), "machine": platform.machine()},
    }


def goal_metrics(record: dict[str, Any]) -> list[str]:
    """Return the metrics of the notions a run was asked for.

    Examples
    --------
    >>> goal_metrics({"config": {"fairness": {"notion": ["demographic_parity"]}}})
    ['demographic_parity_violation']
    """
    return [f"{name}_violation" for name in record["config"]["fairness"]["notion"]]


def _losses(setup: Setup, result: Result, split: Split) -> dict[str, float | None]:
    """Return the mean cross-entropy and how far groups' means are from it (the paper's Eq. 6)."""
    served = served_statistics(result.served, result.measured, split)
    cells = Cells(setup.summary.attributes)
    numbers = {"loss": mean_loss(served)} | {
        f"{item.name}_violation": Constraints(cells, item).violation(served)
        for item in available_notions()
        if item.statistic == "loss"
    }
    # A model that diverged has no finite loss, and JSON has no infinity.
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}


def _warnings(metrics: dict[str, Any]) -> list[str]:
    """Say what makes good fairness numbers worthless."""
    found = []
    if metrics["train"]["loss"] is None:
        found.append(
            "the served model's loss is no finite number: training diverged; lower training.lr"
        )
    rate = metrics["train"]["selection_rate"]
    if rate is not None and not NEAR_CONSTANT <= rate <= 1 - NEAR_CONSTANT:
        found.append(
            f"the served model decides alike for nearly everyone (selection rate {rate:.4f}, true "
            f"positive rate {metrics['train']['true_positive_rate'] or 0:.4f} on train rows): its "
            "fairness numbers say little"
        )
    return found


def measured_numbers(tally: Tally, *, majority: Tally | None = None) -> dict[str, Any]:
    """Return a tally's metrics, intervals, noise floor and constant classifier, as in run.json.

    Parameters
    ----------
    majority : Tally, optional
        The (training) rows whose commoner label the constant classifier answers.
    """
    return {
        "metrics": _numbers(tally),
        "intervals": _intervals(tally),
        "noise_floor": _floors(tally),
        "constant_classifier": summarise(constant_classifier(tally, majority=majority)).values,
    }


def _numbers(tally: Tally) -> dict[str, Any]:
    """Return the flat numbers of a summary, with its tables beside them."""
    summary = summarise(tally)
    return {
        **summary.values,
        "by_attribute": summary.by_attribute,
        "by_client": summary.by_client,
        "by_group": summary.by_group,
        "undefined": summary.undefined,
    }


def _intervals(tally: Tally) -> dict[str, Any]:
    """Return [lower, upper] by the names of the metrics."""
    found = intervals(tally)
    return {
        "level": found.level,
        **_pairs(found.values),
        "by_attribute": _pairs(found.by_attribute),
        "by_client": _pairs(found.by_client),
        "by_group": _pairs(found.by_group),
    }


def _pairs(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _pairs(inner) for name, inner in value.items()}
    return None if value is None else [value.lower, value.upper]


def _floors(tally: Tally) -> dict[str, Any]:
    found = noise_floor(tally)
    return {**found.values, "by_attribute": found.by_attribute}
