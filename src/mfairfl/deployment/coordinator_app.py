"""The app that a SuperLink runs: one run, or one audit, over the silos of a federation.toml."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from mfairfl.coordinator.audit import audit_name, gather_counts
from mfairfl.deployment.federation_audit import build_silo_audit, load_request, terms_of
from mfairfl.deployment.gate import Signals
from mfairfl.deployment.journal import Journal, journalled
from mfairfl.deployment.processes import use_given_umask
from mfairfl.deployment.settings import FederationSettings, load_federation
from mfairfl.errors import ConfigError
from mfairfl.files import write_atomically
from mfairfl.flower.grid import GridTransport
from mfairfl.runs.silo_runs import run_federated, run_name

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Carry out the run, or resume it, or carry out an audit."""
    use_given_umask()  # the run's folder is for people; what is private in it is written so
    path, audit = (context.run_config.get(key) for key in ("federation", "audit"))
    if not isinstance(path, str) or not path:
        raise ConfigError("no federation.toml is named: start runs with `mfairfl deploy run`")
    settings, run = load_federation(Path(path)), str(context.run_id)
    if isinstance(audit, str) and audit:
        carry_out_audit(grid, settings, Path(audit), run=run)
    else:
        carry_out(grid, settings, run=run)


def carry_out(grid: Grid, settings: FederationSettings, *, run: str) -> None:
    """Wait for the silos, then run; events are written to the journal."""
    with journalled(settings.out, run) as journal:
        request = settings.federated()
        transport = _transport(grid, settings, run_name(request.config))
        journal.add("enrolling", online=_wait(transport, settings, journal))
        record = run_federated(request, transport, [journal])
        journal.add("finished", rounds=record.rounds, warnings=record.federation.warnings)


def carry_out_audit(grid: Grid, settings: FederationSettings, request: Path, *, run: str) -> None:
    """Wait for the silos, then ask them for counts; the audit is written beside the request."""
    out = request.parent
    with journalled(out, run) as journal:
        requested = load_request(request)
        terms = terms_of(requested, settings.most_rows)
        transport = _transport(grid, settings, audit_name(terms))
        journal.add("auditing", online=_wait(transport, settings, journal))
        gathered = gather_counts(
            transport, sorted(settings.silos), terms, minimum=settings.minimum
        )
        document = build_silo_audit(requested, gathered)
        write_atomically(out / "audit.json", document.to_json().encode())
        journal.add("finished", silos=list(gathered.silos))


def _transport(grid: Grid, settings: FederationSettings, name: str) -> GridTransport:
    return GridTransport(
        grid,
        name,
        deadline=settings.deadline,
        members=settings.members(),
        revoked=settings.revoked_keys,
        signals=Signals(settings.server.signals),
    )


def _wait(transport: GridTransport, settings: FederationSettings, journal: Journal) -> list[str]:
    """Wait for the silos; return those that are online."""
    names = sorted(settings.silos)
    journal.add("waiting", clients=names, seconds=settings.wait)
    return transport.wait_for(names, minimum=settings.minimum, seconds=settings.wait)
