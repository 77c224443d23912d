"""The model of a finished run as silos are sent it: weights and data, no code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mfairfl.errors import RunDirectoryError, require_known
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.record import RunRecord
from mfairfl.wire.audit_messages import SentModel
from mfairfl.wire.enrolment_messages import ModelTerms


def model_to_send(run: str | Path, sensitive: Sequence[str] = ()) -> SentModel:
    """Return the model that a run serves, for an audit over silos.

    Parameters
    ----------
    run : path
        Run directory.
    sensitive : sequence of str
        Names of the attributes to compare; by default all of the run's task.

    Examples
    --------
    >>> model_to_send("runs/adult", ["sex"]).audited  # doctest: +SKIP
    ('sex',)
    """
    directory = RunDirectory(run)
    record = RunRecord.read(directory.path)
    served, encoder = directory.read_model(record.files)
    if served.kind == "personal":
        raise RunDirectoryError(
            f"{directory.path}: each client has a model of its own, which is not sent to others; "
            "audit its predictions instead"
        )
    known = [s.name for s in record.task.sensitive]
    require_known("sensitive attribute", sensitive, known, where=str(directory.path))
    return SentModel(
        task=record.task.model_copy(update={"client": None}),
        encoder=encoder,
        terms=_terms(record, directory.path),
        combined=served.kind,
        members=served.members,
        weights=served.weights,
        thresholds=served.thresholds,
        audited=tuple(name for name in known if name in (sensitive or known)),
    )


def _terms(record: RunRecord, path: Path) -> ModelTerms:
    if record.model.kind == "mlp":
        return ModelTerms(hidden=record.model.hidden)
    said = record.config.get("model")
    kind = said.get("kind") if isinstance(said, dict) and "factory" not in said else None
    if not isinstance(kind, str):
        raise RunDirectoryError(
            f"{path}: trained with a module that is code, which no silo is sent; register it "
            "under a name that silos list in extensions of silo.toml"
        )
    return ModelTerms(kind=kind)
