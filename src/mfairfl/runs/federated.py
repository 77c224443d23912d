"""A run over clients elsewhere: enrol, train, and the same run directory as any other run.

What was agreed is kept in enrolment.json. A server that is restarted does not enrol again: the
clients still hold their encoded rows, and the run is resumed at its last completed round.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mfairfl.data import SPLITS, Encoder, Task
from mfairfl.engine.loop import Callback, Result, first_state
from mfairfl.errors import ConfigError, RunDirectoryError
from mfairfl.files import write_atomically
from mfairfl.remote.enrolment import Enrolled, EnrolmentTerms, ModelTerms, enrol
from mfairfl.remote.transport import Transport, drive
from mfairfl.runs.config import Config
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.history import History
from mfairfl.runs.outcome import finish_run, started_record
from mfairfl.runs.prepare import model_of, setup_for
from mfairfl.runs.record import (
    ClientFacts,
    DataFacts,
    FederationFacts,
    RunRecord,
    StartedRecord,
    Timing,
)
from mfairfl.strategies.base import Summary

__all__ = ["FederatedRequest", "run_federated", "run_name"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedRequest:
    """A run to be made over clients elsewhere.

    Parameters
    ----------
    clients : tuple of str
        The clients that may take part.
    minimum : int
        How many of them must take part in every round.
    out : Path
        Run directory.
    """

    config: Config
    clients: tuple[str, ...]
    minimum: int
    out: Path


def run_name(config: Config) -> str:
    """Return the name under which clients keep what belongs to a run with this configuration."""
    text = json.dumps(config.model_dump(mode="json"), sort_keys=True)
    return f"{config.strategy.name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def run_federated(
    request: FederatedRequest, transport: Transport, callbacks: Sequence[Callback] = ()
) -> RunRecord:
    """Carry out a run, or resume it, and return its record."""
    config, directory = request.config, RunDirectory(request.out)
    agreed = request.out / "enrolment.json"
    with directory.locked():
        enrolled = _read_enrolment(agreed) if agreed.exists() else _enrol(request, transport)
        started = _started(config, enrolled)
        finished = directory.claim(started)
        if finished is not None:
            return finished
        _write_enrolment(enrolled, agreed)
        directory.write_encoder(enrolled.encoder)
        summary = Summary(
            counts=enrolled.counts["train"],
            attributes=enrolled.attributes,
            goal=config.goal(tuple(a.name for a in enrolled.attributes)),
        )
        model = model_of(config, len(enrolled.encoder.feature_names))
        splits = tuple(s for s in SPLITS if any(c.sum() for c in enrolled.counts[s].values()))
        setup = setup_for(config, size=model.size, summary=summary, splits=splits)
        checkpoints = directory.checkpoints(started.identity)
        state = checkpoints.latest() or first_state(setup, model)
        watchers = (*callbacks, History(directory.path), checkpoints)
        began = time.perf_counter()
        result = drive(setup, state, transport, minimum=request.minimum, callbacks=watchers)
        seconds = round(time.perf_counter() - began, 3)
        return finish_run(
            started,
            setup,
            model,
            _without_personal(result, state.weights),
            timing=Timing(train_seconds=seconds, runs_at_once=1),
            directory=directory,
        )


def _enrol(request: FederatedRequest, transport: Transport) -> Enrolled:
    config = request.config
    if config.task is None:
        raise ConfigError("[task]: clients with files of their own need one that all agree on")
    terms = EnrolmentTerms(
        task=config.task,
        seed=config.seed,
        model=ModelTerms(kind=config.model.kind, hidden=config.model.widths),
        test=config.clients.test,
        validation=config.clients.validation,
    )
    return enrol(transport, request.clients, terms, minimum=request.minimum)


def _write_enrolment(enrolled: Enrolled, path: Path) -> None:
    plain = {
        "task": enrolled.task.model_dump(mode="json"),
        "encoder": json.loads(enrolled.encoder.to_json()),
        "counts": {
            split: {name: counts.tolist() for name, counts in clients.items()}
            for split, clients in enrolled.counts.items()
        },
        "sha256": dict(enrolled.sha256),
        "refused": dict(enrolled.refused),
        "notes": list(enrolled.notes),
    }
    write_atomically(path, json.dumps(plain, indent=1).encode())


def _read_enrolment(path: Path) -> Enrolled:
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        return Enrolled(
            task=Task.model_validate(plain["task"]),
            encoder=Encoder.from_json(json.dumps(plain["encoder"]), name=str(path)),
            counts={
                split: {name: np.array(table, dtype=np.float64) for name, table in clients.items()}
                for split, clients in plain["counts"].items()
            },
            sha256=plain["sha256"],
            refused=plain["refused"],
            notes=tuple(plain["notes"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RunDirectoryError(
            f"{path}: damaged ({' '.join(str(error).split())}); restore it or choose another out"
        ) from None


def _started(config: Config, enrolled: Enrolled) -> StartedRecord:
    """Return the record of a run over clients whose rows nobody else sees."""
    sums = "".join(f"{name} {digest}\n" for name, digest in sorted(enrolled.sha256.items()))
    digest = hashlib.sha256(sums.encode()).hexdigest()
    clients = [
        ClientFacts(
            name=name,
            rows=sum(int(counts[name].sum()) for counts in enrolled.counts.values()),
            **{split: int(enrolled.counts[split][name].sum()) for split in SPLITS},
        )
        for name in sorted(enrolled.sha256)
    ]
    return started_record(
        config,
        data=DataFacts(name="silos", sha256=digest, rows=sum(c.rows or 0 for c in clients)),
        task=enrolled.task,
        federation=FederationFacts(
            table="silos",
            sha256=digest,
            scheme="silos",
            seed=config.seed,
            features=len(enrolled.encoder.feature_names),
            notes=list(enrolled.notes),
            warnings=[f"{name} stays out: {why}" for name, why in enrolled.refused.items()],
            clients=clients,
        ),
    )


def _without_personal(result: Result, weights: np.ndarray) -> Result:
    """Serve the server's model where each client keeps its own: those never leave them."""
    if result.served.kind != "personal":
        return result
    served = replace(
        result.served,
        kind="single",
        members=np.atleast_2d(weights),
        weights=np.ones(1),
        names=("server",),
        clients=(),
        note="each client is served by the model on its own disk; this one is the server's",
    )
    return replace(result, served=served)
