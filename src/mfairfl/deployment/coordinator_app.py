"""The app that a SuperLink runs: one run, or one audit, over the silos of a federation.toml."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from mfairfl.coordinator.audit import GatheredAudit, audit_name, gather_counts
from mfairfl.deployment.gate import Signals
from mfairfl.deployment.journal import Journal, journalled
from mfairfl.deployment.processes import use_given_umask
from mfairfl.deployment.settings import AuditRequest, FederationSettings, load_federation
from mfairfl.errors import ConfigError
from mfairfl.files import write_atomically
from mfairfl.flower.grid import GridTransport
from mfairfl.report.audit_document import build_audit
from mfairfl.report.audit_settings import AuditMeaning, AuditSource
from mfairfl.report.document import Document
from mfairfl.runs.record import RunRecord
from mfairfl.runs.silo_runs import run_federated, run_name

_MODEL = "model.safetensors"

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
        transport, online = _connect(grid, settings, run_name(request.config), journal)
        journal.add("enrolling", online=online)
        record = run_federated(request, transport, [journal])
        journal.add("finished", rounds=record.rounds, warnings=record.federation.warnings)


def carry_out_audit(grid: Grid, settings: FederationSettings, file: Path, *, run: str) -> None:
    """Wait for the silos, then ask them for counts; the audit is written beside the request."""
    with journalled(file.parent, run) as journal:
        request = AuditRequest.model_validate_json(file.read_bytes())
        terms = request.terms(settings.most_rows)
        transport, online = _connect(grid, settings, audit_name(terms), journal)
        journal.add("auditing", online=online)
        names = sorted(settings.silos)
        gathered = gather_counts(transport, names, terms, minimum=settings.minimum)
        document = build_silo_audit(request, gathered)
        write_atomically(file.parent / "audit.json", document.to_json().encode())
        journal.add("finished", silos=list(gathered.silos))


def _connect(
    grid: Grid, settings: FederationSettings, name: str, journal: Journal
) -> tuple[GridTransport, list[str]]:
    """Wait for the silos; return the way to them, and those that are online."""
    transport = GridTransport(
        grid,
        name,
        deadline=settings.deadline,
        members=settings.members(),
        revoked=settings.revoked_keys,
        signals=Signals(settings.server.signals),
    )
    names, seconds = sorted(settings.silos), settings.wait
    journal.add("waiting", clients=names, seconds=seconds)
    online = transport.wait_for(names, minimum=settings.minimum, seconds=seconds)
    return transport, online


def build_silo_audit(request: AuditRequest, gathered: GatheredAudit) -> Document:
    """Return the audit of what silos counted."""
    counts, left_out = gathered.counts, sorted(gathered.left_out.items())
    rows = (counts.decided.sum(axis=(1, 2, 3)) + counts.withheld).tolist()
    sources = []
    for name, count in zip(counts.clients, rows, strict=True):
        facts, notes = gathered.silos[name], []
        if facts.floor > 1:
            notes = [f"released no count of fewer than {facts.floor} rows of a group and label"]
        sources.append(
            AuditSource(
                name=name, rows=count, sha256=facts.sha256, left_out=facts.left_out, notes=notes
            )
        )
    if request.run is None:
        settings = request.settings(request.meaning())
    else:
        record = RunRecord.read(request.run)
        tool, sha256 = f"the model of run {request.run.name}", record.files[_MODEL]
        name = f"{_MODEL} of run {request.run.name}"
        sources.append(AuditSource(name=name, rows=0, sha256=sha256, notes=["sent to the silos"]))
        label, favourable = record.task.label, record.task.favourable
        meaning = AuditMeaning(label=label, favourable=favourable, client="silos")
        settings = request.settings(meaning, tool=tool)
    for name, why in left_out:
        sources.append(AuditSource(name=name, rows=0, notes=[f"left out: {why}"]))
    baseline = None if request.baseline is None else Document.read(request.baseline)
    document = build_audit(counts, settings, sources=sources, baseline=baseline)
    return document.with_warnings([f"{name} is not counted: {why}" for name, why in left_out])
