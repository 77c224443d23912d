"""A run over clients elsewhere: enrol, train, and the same run directory as any other run.

What was agreed is kept in enrolment.json. A server that is restarted does not enrol again: the
clients still hold their encoded rows, and the run is resumed at its last completed round.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from mfairfl.coordinator.enrolment import Enrolled, EnrolmentTerms, enrol
from mfairfl.coordinator.run import drive
from mfairfl.coordinator.transport import Transport
from mfairfl.data import SPLITS
from mfairfl.engine.loop import Callback, Result, first_state
from mfairfl.errors import ConfigError, MfairflError, RunDirectoryError, first_problem
from mfairfl.fairness.cells import Cells
from mfairfl.files import write_atomically
from mfairfl.runs.config import Config
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.history import History
from mfairfl.runs.outcome import finish_run, started_record
from mfairfl.runs.prepare import model_of, setup_for
from mfairfl.runs.record import (
    ClientFacts,
    DisclosureFacts,
    FederationFacts,
    RunRecord,
    StartedRecord,
    Timing,
    TreatedFacts,
    WithheldCell,
)
from mfairfl.strategies.base import Summary
from mfairfl.wire.enrolment_messages import ModelTerms

_LONGEST_NAME = 80  # characters of a strategy's name in that of a run


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
    most_rows : int, optional
        Rows that no client has: one that claims more stays out.
    """

    config: Config
    clients: tuple[str, ...]
    minimum: int
    out: Path
    most_rows: int | None = None


def run_name(config: Config) -> str:
    """Return the name under which clients keep what belongs to a run with this configuration.

    Clients take it for the name of a folder, and refuse what else a strategy's name may hold.

    Examples
    --------
    >>> from mfairfl.runs.config import make_config
    >>> run_name(make_config({"strategy": {"name": "fedmgda+"}})).partition("-")[0]
    'fedmgda_'
    """
    text = json.dumps(config.model_dump(mode="json"), sort_keys=True)
    plain = re.sub(r"[^\w.-]", "_", config.strategy.name)[:_LONGEST_NAME]
    return f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


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
        write_atomically(agreed, enrolled.model_dump_json(indent=1).encode())
        directory.write_encoder(enrolled.encoder)
        summary = Summary(
            counts=enrolled.counts["train"],
            attributes=enrolled.attributes,
            goal=config.goal(tuple(a.name for a in enrolled.attributes)),
            withheld={name: own.rows["train"] for name, own in enrolled.disclosure.items()},
        )
        model = model_of(config, len(enrolled.encoder.feature_names))
        setup = setup_for(config, size=model.size, summary=summary, enrolled=enrolled.counts)
        checkpoints = directory.checkpoints(started.identity)
        state = checkpoints.latest(setup) or first_state(setup, model)
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
        encoder=config.encoder,
        test=config.clients.test,
        validation=config.clients.validation,
        most_rows=request.most_rows,
    )
    return enrol(transport, request.clients, terms, minimum=request.minimum)


def _read_enrolment(path: Path) -> Enrolled:
    try:
        return Enrolled.model_validate_json(path.read_bytes())
    except ValidationError as error:
        problem = first_problem(error)
    except MfairflError as error:  # a task that contradicts itself
        problem = str(error)
    raise RunDirectoryError(
        f"{path}: not what this version agrees on ({problem}); restore it or choose another out"
    )


def _started(config: Config, enrolled: Enrolled) -> StartedRecord:
    """Return the record of a run over clients whose rows nobody else sees."""
    sums = "".join(f"{name} {digest}\n" for name, digest in sorted(enrolled.sha256.items()))
    digest = hashlib.sha256(sums.encode()).hexdigest()
    clients = [
        ClientFacts(
            name=name,
            rows=sum(enrolled.rows(name, split) for split in SPLITS),
            **{split: enrolled.rows(name, split) for split in SPLITS},
        )
        for name in sorted(enrolled.sha256)
    ]
    facts = FederationFacts(
        table="silos",
        sha256=digest,
        scheme="silos",
        seed=config.seed,
        features=len(enrolled.encoder.feature_names),
        notes=list(enrolled.notes),
        warnings=[
            *(f"{name} stays out: {why}" for name, why in enrolled.refused.items()),
            *enrolled.warnings,
        ],
        treatment=[TreatedFacts(**one._asdict()) for one in enrolled.treatment],
        clients=clients,
        disclosure={name: _disclosed(enrolled, name) for name in sorted(enrolled.sha256)},
    )
    return started_record(config, enrolled.task, facts)


def _disclosed(enrolled: Enrolled, client: str) -> DisclosureFacts:
    """Return what a client withholds."""
    silo, cells = enrolled.disclosure[client], Cells(enrolled.attributes)
    names = [attribute.name for attribute in enrolled.attributes]
    return DisclosureFacts(
        policy_sha256=silo.policy,
        min_rows=silo.floor,
        withheld=[
            WithheldCell(
                split=split, cell=dict(zip(names, cells.decode(cell), strict=True)), label=label
            )
            for split in SPLITS
            for cell, label in silo.hidden[split]
        ],
        rows_withheld=silo.rows,
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
