"""The record of a run as it is made: its identity at the start, every number at the end."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version

from mfairfl.data import Task
from mfairfl.engine.loop import Result
from mfairfl.engine.state import Setup
from mfairfl.failpoints import failpoint
from mfairfl.models import Model
from mfairfl.runs.config import Config
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.evaluation import evaluate
from mfairfl.runs.record import (
    DataFacts,
    FederationFacts,
    MachineFacts,
    MetricsBySplit,
    ModelFacts,
    RunRecord,
    ServedFacts,
    StartedRecord,
    Timing,
    reported,
)
from mfairfl.runs.usefulness import Asked, doubts

_LIBRARIES = ("mfairfl", "torch", "numpy", "scipy", "pandas", "safetensors")


def started_record(
    config: Config, task: Task, federation: FederationFacts, module: str | None = None
) -> StartedRecord:
    """Return the record of a run that has not finished.

    `module` names the factory of a model that is code, and therefore not in the configuration.
    """
    settings = config.model_dump(mode="json")
    if module is not None:
        settings["model"] = {"kind": "module", "factory": module}
    count = sum(client.rows or 0 for client in federation.clients)
    data = DataFacts(name=federation.table, sha256=federation.sha256, rows=count)
    # Rows in memory come with a task, a split and a seed that the configuration does not know.
    given = [federation.scheme, federation.seed, federation.options]
    rows = [data.sha256, task.model_dump(mode="json"), *given, module]
    return StartedRecord(
        status="running",
        identity=config.identity(json.dumps(rows, sort_keys=True)),
        config=settings,
        seed=config.seed,
        versions={
            "python": platform.python_version(),
            **{name: version(name) for name in _LIBRARIES},
        },
        data=data,
        task=task,
        federation=federation,
    )


def finish_run(
    started: StartedRecord,
    setup: Setup,
    model: Model,
    result: Result,
    *,
    timing: Timing,
    directory: RunDirectory | None,
) -> RunRecord:
    """Return the record of a finished run, written with its model if there is a directory."""
    files = {}
    failpoint("run.trained")
    if directory is not None:
        directory.write_model(result.served)
        files = directory.digests()
    attributes = setup.summary.attributes
    tallies = {
        split: result.served.tally(result.measured, split, attributes) for split in setup.splits
    }
    found = {
        split: evaluate(
            tally,
            scores=result.scored[split],
            randomised=result.served.kind == "mixture",
            majority=tallies["train"],
        )
        for split, tally in tallies.items()
    }
    served, training = result.served, started.config["training"]
    shown, left_out = reported(found), sorted(result.left_out.items())
    record = RunRecord(
        **dict(started) | {"status": "complete"},
        rounds=result.rounds,
        epochs_per_round=training["local_epochs"] * training["rounds"] // (setup.rounds or 1),
        model=ModelFacts(**{"size": model.size, **model.describe()}),
        served=ServedFacts(
            kind=served.kind,
            names=served.names,
            clients=served.clients,
            weights=tuple(served.weights.tolist()),
            rule=setup.output.rule,
            tolerance=setup.output.tolerance,
            note=served.note,
            thresholds=None if served.thresholds is None else served.thresholds.to_json(),
        ),
        warnings=[
            *doubts(found[shown], tallies[shown], _asked(setup), rows=f"{shown} rows"),
            *(f"{name}: not in the final numbers ({why})" for name, why in left_out),
            *result.warnings,
        ],
        metrics=MetricsBySplit(**{split: one.metrics for split, one in found.items()}),
        intervals={split: one.intervals for split, one in found.items()},
        noise_floor={split: one.noise_floor for split, one in found.items()},
        constant_classifier={split: one.constant_classifier for split, one in found.items()},
        tallies=tallies,
        timing=timing,
        machine=MachineFacts(system=platform.system(), machine=platform.machine()),
        files=files,
    )
    failpoint("run.served")
    if directory is not None:
        record.write(directory.path)
    return record


def _asked(setup: Setup) -> Asked:
    """Return what advice about the result depends on."""
    output = setup.output
    return Asked(
        constrained=setup.strategy.card.constrained or output.rule not in ("last", "average"),
        notions=tuple(item.name for item in setup.summary.constraints.notions),
        tolerance=output.tolerance,
    )
