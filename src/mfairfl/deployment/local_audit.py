"""An audit over silos on this machine: TLS, keys, one process per silo, each with its own file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mfairfl.coordinator.audit import GatheredAudit
from mfairfl.data import read_frame
from mfairfl.data.columns import columns_of
from mfairfl.data.predictions import PredictionColumns, read_predictions
from mfairfl.deployment.audit import audit_federation, terms_of
from mfairfl.deployment.audit_request import AuditRequest
from mfairfl.deployment.coordinator import Follower
from mfairfl.deployment.local import Say, nodes, servers, write_federation
from mfairfl.deployment.processes import sole_use
from mfairfl.deployment.settings import load_federation
from mfairfl.errors import ConfigError
from mfairfl.silo.policy import OPEN, POLICY, Disclosure, Policy
from mfairfl.wire.audit_questions import AuditSubject, SentModel


def audit_local(
    request: AuditRequest,
    silos: Mapping[str, Path],
    out: Path,
    *,
    follower: Follower,
    say: Say,
    min_rows: int | None = None,
    deadline: float = 600,
) -> GatheredAudit:
    """Audit files on this machine as if each were at a silo of its own.

    Parameters
    ----------
    silos : mapping of str to Path
        The silos' files.
    out : Path
        The audit's folder; the deployment's own files are in its folder ``deployment``.
    min_rows : int, optional
        The silos' floor; by default the one of a silo without a policy.toml.
    """
    subject = terms_of(request).subject
    if isinstance(subject, PredictionColumns):
        for path in silos.values():  # a silo would say no more than that it cannot use its file
            read_predictions(columns_of(read_frame(path), path.name), subject, path.name)
    with sole_use(out / "deployment"):
        file = write_audit_deployment(
            subject,
            silos,
            out,
            score_range=request.score_range,
            min_rows=min_rows,
            deadline=deadline,
        )
        settings = load_federation(file)
        with (
            servers(settings, file, say) as server_programs,
            nodes(settings, file.parent, say) as silo_programs,
        ):
            say("asking for counts")
            needs = [*server_programs, *silo_programs.values()]
            return audit_federation(file, request, out, follower, needs)


def write_audit_deployment(
    subject: AuditSubject,
    silos: Mapping[str, Path],
    out: Path,
    *,
    score_range: tuple[float, float] = (0.0, 1.0),
    min_rows: int | None = None,
    deadline: float = 600,
) -> Path:
    """Write the deployment's files, in which every silo agrees to what is asked for.

    Returns
    -------
    Path
        federation.toml.
    """
    folder = out / "deployment"
    if (folder / "run.toml").exists():
        raise ConfigError(f"{out}: holds a run over silos; choose another --out")
    for old in folder.glob(f"silos/*/{POLICY}"):  # of an earlier audit, perhaps with another floor
        old.unlink()
    # All files have one owner, who may change them between two audits.
    floor = Disclosure().min_rows if min_rows is None else min_rows
    disclosure = OPEN.disclosure.model_copy(update={"min_rows": floor})
    return write_federation(
        out,
        silos,
        silo={"audit": _consent(subject, score_range)},
        federation={"deadline": deadline},
        policy=Policy(disclosure=disclosure),
    )


def _consent(subject: AuditSubject, score_range: tuple[float, float]) -> dict[str, Any]:
    if isinstance(subject, SentModel):
        columns = [s.column for s in subject.task.sensitive if s.name in subject.audited]
        return {"label": subject.task.label, "sensitive": columns, "models": True}
    return subject.model_dump(mode="json", exclude_none=True) | {"score_range": list(score_range)}
