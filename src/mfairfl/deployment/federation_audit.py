"""An audit over the silos of a running federation.

The process that waits writes an `AuditRequest` into the audit's folder; the coordinator's app
carries it out and writes audit.json beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from mfairfl.coordinator.audit import AuditTerms, GatheredAudit
from mfairfl.deployment.process_groups import Program
from mfairfl.deployment.settings import AuditRequest, load_federation
from mfairfl.deployment.superlink import Follower, submit_and_follow
from mfairfl.errors import ConfigError, first_problem
from mfairfl.files import write_atomically
from mfairfl.report.audit_document import build_audit
from mfairfl.report.audit_settings import AuditMeaning, AuditSource
from mfairfl.report.document import Document
from mfairfl.runs.predictor import model_to_send
from mfairfl.runs.record import RunRecord
from mfairfl.wire.audit_messages import SiloFacts

REQUEST = "request.json"
"""Name of the file in which the coordinator's app finds the request."""

_MODEL = "model.safetensors"


def terms_of(request: AuditRequest, most_rows: int | None = None) -> AuditTerms:
    """Return what silos are asked; the model of a run is read."""
    request.check()
    if request.run is not None:
        model = model_to_send(request.run, request.compared)
        return AuditTerms(subject=model, most_rows=most_rows)
    return AuditTerms(subject=request.columns(), grid=request.grid(), most_rows=most_rows)


def audit_federation(
    file: Path,
    request: AuditRequest,
    out: Path,
    follower: Follower,
    needs: Sequence[Program] = (),
) -> Document:
    """Ask the silos of a running federation for counts, and return the audit of them.

    Parameters
    ----------
    file : Path
        The coordinator's federation.toml.
    out : Path
        Folder for the request, the audit and the journal.
    follower : callable
        Called with every line of the journal.
    needs : sequence of Program
        What must run on this machine meanwhile.
    """
    settings = load_federation(file)
    paths = {"run": request.run, "baseline": request.baseline}
    absolute = {key: path.resolve() for key, path in paths.items() if path is not None}
    request = request.model_copy(update=absolute)  # the app has another working directory
    settings.members(), terms_of(request)  # so that mistakes in the files are reported here
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / REQUEST, request.model_dump_json(indent=1).encode())
    submit_and_follow(settings, file, out, follower, needs, audit=out / REQUEST)
    return Document.read(out)


def load_request(path: Path) -> AuditRequest:
    """Read the file that an audit was requested with."""
    try:
        return AuditRequest.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        reason = first_problem(error) if isinstance(error, ValidationError) else error.strerror
        raise ConfigError(f"{path}: not a request for an audit ({reason})") from None


def build_silo_audit(request: AuditRequest, gathered: GatheredAudit) -> Document:
    """Return the audit of what silos counted."""
    counts, left_out = gathered.counts, sorted(gathered.left_out.items())
    rows = counts.decided.sum(axis=(1, 2, 3)) + counts.withheld
    row_numbers = dict(zip(counts.clients, rows.tolist(), strict=True))
    sources = [
        _silo_source(name, row_numbers[name], facts) for name, facts in gathered.silos.items()
    ]
    if request.run is None:
        settings = request.settings(request.meaning())
    else:
        record = RunRecord.read(request.run)
        sources.append(
            AuditSource(
                name=f"{_MODEL} of run {request.run.name}",
                rows=0,
                sha256=record.files[_MODEL],
                notes=["sent to the silos"],
            )
        )
        settings = request.settings(
            AuditMeaning(
                label=record.task.label, favourable=record.task.favourable, client="silos"
            ),
            tool=f"the model of run {request.run.name}",
        )
    sources += [
        AuditSource(name=name, rows=0, notes=[f"left out: {reason}"]) for name, reason in left_out
    ]
    baseline = None if request.baseline is None else Document.read(request.baseline)
    document = build_audit(counts, settings, sources=sources, baseline=baseline)
    return document.with_warnings([f"{name} is not counted: {why}" for name, why in left_out])


def _silo_source(name: str, rows: int, facts: SiloFacts) -> AuditSource:
    note = f"released no count of fewer than {facts.floor} rows of a group and label"
    return AuditSource(
        name=name,
        rows=rows,
        sha256=facts.sha256,
        left_out=facts.left_out,
        notes=[note] * (facts.floor > 1),
    )
