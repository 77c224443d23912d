"""An audit over the silos of a running federation, and the counts that come back.

The process that waits writes an `AuditRequest` into the audit's folder; the server app carries it
out and writes the counts beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, ValidationError

from mfairfl.coordinator.audit import AuditTerms, GatheredAudit
from mfairfl.data import Attribute
from mfairfl.data.values import StrictModel
from mfairfl.deployment.audit_request import REQUEST, AuditRequest
from mfairfl.deployment.process_groups import Program
from mfairfl.deployment.settings import load_federation
from mfairfl.deployment.superlink import Follower, submit_and_follow
from mfairfl.engine.checkpoint import read_sealed, write_sealed
from mfairfl.errors import CheckpointError, MfairflError
from mfairfl.fairness.audit_counts import AuditCounts, ScoreGrid
from mfairfl.fairness.histogram import ScoreHistogram
from mfairfl.fairness.scores import ScoreSums
from mfairfl.files import write_atomically
from mfairfl.report.audit.build import build_audit
from mfairfl.report.audit_settings import AuditMeaning, AuditSettings, AuditSource
from mfairfl.report.document import Document
from mfairfl.runs.record import RunRecord
from mfairfl.runs.sending import model_to_send
from mfairfl.wire.audit_answers import SiloFacts

_COUNTS, _MODEL = "counts.safetensors", "model.safetensors"
_SCORE_SUMS = ("rows", "sums", "losses")  # of `ScoreSums`, beside its histogram
_PARTS = ("decided", "hidden", "withheld")


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
) -> GatheredAudit:
    """Ask the silos of a running federation for counts.

    Parameters
    ----------
    file : Path
        The coordinator's federation.toml.
    out : Path
        Folder for the request, the counts and the journal.
    follower : callable
        Called with every line of the journal.
    needs : sequence of Program
        What must run on this machine meanwhile.
    """
    settings = load_federation(file)
    if request.run is not None:  # the server app runs elsewhere
        request = request.model_copy(update={"run": request.run.resolve()})
    settings.members(), terms_of(request)  # so that mistakes in the files are reported here
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / REQUEST, request.model_dump_json(indent=1).encode())
    submit_and_follow(settings, file, out, follower, needs, audit=out / REQUEST)
    return read_gathered(out)


def build_silo_audit(
    request: AuditRequest, found: GatheredAudit, baseline: Document | None = None
) -> Document:
    """Return everything that an audit says of what silos told.

    Parameters
    ----------
    baseline : Document, optional
        An earlier audit, to say what changed.
    """
    held = found.counts.decided.sum(axis=(1, 2, 3)) + found.counts.withheld
    rows = dict(zip(found.counts.clients, held.tolist(), strict=True))
    sources = [_source(name, rows[name], facts) for name, facts in found.silos.items()]
    if request.run is not None:
        sources.append(_model_source(request.run))
    sources += [
        AuditSource(name=name, rows=0, notes=[f"left out: {why}"])
        for name, why in sorted(found.left_out.items())
    ]
    built = build_audit(found.counts, _settings(request), sources=sources, baseline=baseline)
    absent = [f"{name} is not counted: {why}" for name, why in sorted(found.left_out.items())]
    return built.with_warnings(absent)


def _source(name: str, rows: int, facts: SiloFacts) -> AuditSource:
    note = f"told no count of fewer than {facts.floor} rows of a group and label"
    notes = [note] if facts.floor > 1 else []
    return AuditSource(
        name=name, rows=rows, sha256=facts.sha256, left_out=facts.left_out, notes=notes
    )


def _model_source(run: Path) -> AuditSource:
    digest = RunRecord.read(run).files[_MODEL]
    return AuditSource(
        name=f"{_MODEL} of run {run.name}", rows=0, sha256=digest, notes=["silos were sent it"]
    )


def _settings(request: AuditRequest) -> AuditSettings:
    if request.run is None:
        return request.settings(request.meaning())
    task = RunRecord.read(request.run).task
    meaning = AuditMeaning(label=task.label, favourable=task.favourable, client="silos")
    return request.settings(meaning, f"the model of run {request.run.name}")


# ------------------------------------------------------------------ counts on disk


class _CountsHeader(StrictModel):
    """What the arrays are of."""

    clients: tuple[str, ...]
    attributes: tuple[tuple[str, tuple[str, ...]], ...]
    score_range: tuple[float, float] | None
    silos: dict[str, SiloFacts]
    left_out: dict[str, str] = Field(default_factory=dict)


def write_gathered(out: Path, found: GatheredAudit) -> None:
    """Write what silos told into the audit's folder.

    Examples
    --------
    >>> import tempfile
    >>> counts = AuditCounts.from_rows([1, 0], [1, 1], sensitive_features=["F", "M"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_gathered(Path(folder), GatheredAudit(counts=counts, silos={}, left_out={}))
    ...     read_gathered(Path(folder)).counts.decided.sum()
    np.int64(2)
    """
    counts, grid = found.counts, found.counts.grid
    arrays: dict[str, np.ndarray] = {name: getattr(counts, name) for name in _PARTS}
    if counts.scored is not None:
        arrays["scored"] = counts.scored
    for k, sums in enumerate(counts.sums or ()):
        arrays[f"{k}/histogram"] = sums.histogram.counts
        arrays |= {f"{k}/{name}": getattr(sums, name) for name in _SCORE_SUMS}
    header = _CountsHeader(
        clients=counts.clients,
        attributes=tuple((one.name, one.groups) for one in counts.attributes),
        score_range=None if grid is None else (grid.lowest, grid.highest),
        silos=dict(found.silos),
        left_out=dict(found.left_out),
    )
    write_sealed(out / _COUNTS, arrays, header.model_dump(mode="json"))


def read_gathered(out: Path) -> GatheredAudit:
    """Read what `write_gathered` wrote."""
    path, remedy = out / _COUNTS, "audit again"
    arrays, plain = read_sealed(path, remedy=remedy)
    try:
        header = _CountsHeader.model_validate(plain)
        counts = _counts(arrays, header)
    except (ValidationError, KeyError, MfairflError) as error:
        raise CheckpointError(f"{path}: not the counts of an audit ({error}); {remedy}") from None
    return GatheredAudit(counts=counts, silos=header.silos, left_out=header.left_out)


def _counts(arrays: dict[str, np.ndarray], header: _CountsHeader) -> AuditCounts:
    parts: dict[str, Any] = {name: arrays[name] for name in _PARTS}
    sums = None
    if "0/histogram" in arrays:
        sums = tuple(
            ScoreSums(
                ScoreHistogram(arrays[f"{k}/histogram"]),
                *(arrays[f"{k}/{name}"] for name in _SCORE_SUMS),
            )
            for k in range(len(header.clients))
        )
    return AuditCounts(
        **parts,
        clients=header.clients,
        attributes=tuple(Attribute(name, groups) for name, groups in header.attributes),
        grid=None if header.score_range is None else ScoreGrid(*header.score_range),
        scored=arrays.get("scored"),
        sums=sums,
    )
