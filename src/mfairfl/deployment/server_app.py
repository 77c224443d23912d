"""The app a SuperLink runs: one run over the silos of a federation.toml."""

from __future__ import annotations

import logging
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from mfairfl.deployment.journal import Journal
from mfairfl.deployment.processes import use_given_umask
from mfairfl.deployment.settings import FederationSettings, load_federation
from mfairfl.errors import ConfigError, MfairflError
from mfairfl.flower.grid import GridTransport
from mfairfl.runs.federated import run_federated, run_name

__all__ = ["app", "carry_out"]

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Carry out the run, or resume it."""
    use_given_umask()  # the run's folder is for people; what is private in it is written so
    path = context.run_config.get("federation")
    if not isinstance(path, str) or not path:
        raise ConfigError("no federation.toml was named: start runs with `mfairfl deploy run`")
    carry_out(grid, load_federation(Path(path)), run=str(context.run_id))


def carry_out(grid: Grid, settings: FederationSettings, *, run: str) -> None:
    """Wait for the silos, then run; events are written to the journal."""
    journal = Journal(settings.out / "journal.jsonl", run)
    logger = logging.getLogger("mfairfl")
    logger.addHandler(journal)
    try:
        wanted = settings.federated()
        name, members = run_name(wanted.config), settings.members()
        transport = GridTransport(
            grid,
            name,
            deadline=settings.deadline,
            members=members,
            revoked=settings.revoked_keys,
        )
        journal.add("waiting", clients=list(wanted.clients), seconds=settings.wait)
        online = transport.wait_for(
            wanted.clients, minimum=settings.minimum, seconds=settings.wait
        )
        journal.add("enrolling", online=online)
        record = run_federated(wanted, transport, [journal])
        journal.add("finished", rounds=record.rounds, warnings=record.federation.warnings)
    except Exception as error:
        kind = "" if isinstance(error, MfairflError) else f"{type(error).__name__}: "
        journal.add("failed", message=kind + " ".join(str(error).split()))
        raise
    finally:
        logger.removeHandler(journal)
