"""Where the numbers of a report come from, and whether the files are still the same."""

from __future__ import annotations

import hashlib

from mfairfl.data import Encoder
from mfairfl.errors import DataError
from mfairfl.files import read_regular_file
from mfairfl.report.document import Provenance
from mfairfl.report.reported_run import ReportedRun
from mfairfl.report.training_history import HISTORY
from mfairfl.report.wording import and_list
from mfairfl.runs.options import dotted

_ENCODER = "encoder.json"
_FILES = ("run.json", "model.safetensors", _ENCODER)


def provenance_of(run: ReportedRun) -> Provenance:
    """Collect identity, settings, hashes, versions and machine."""
    record = run.record
    return Provenance(
        run=run.path.resolve().name,
        identity=record.identity,
        strategy=record.strategy,
        settings=dotted(record.config),
        seed=record.seed,
        data=record.data.model_dump(),
        files=_digests(run),
        versions=record.versions,
        machine=record.machine.model_dump(),
    )


def altered_files(run: ReportedRun) -> list[str]:
    """Name the files that are gone or are not what the record was written with."""
    today, found = _digests(run), list[str]()
    for name, digest in run.record.files.items():
        if name not in today:
            found.append(f"{name} is missing: the model that was measured cannot be checked")
        elif today[name] != digest:
            found.append(
                f"{name} is not the file that was measured: its SHA-256 begins with "
                f"{today[name][:12]}, that in run.json with {digest[:12]}"
            )
    if not any((run.path / name).exists() for name in HISTORY):
        found.append(f"{and_list(HISTORY)} are missing: how training went is not known")
    return found


def _digests(run: ReportedRun) -> dict[str, str]:
    """Return the SHA-256 of the files that are there."""
    held = {name: _read(run, name) for name in _FILES}
    return {n: hashlib.sha256(data).hexdigest() for n, data in held.items() if data is not None}


def _read(run: ReportedRun, name: str) -> bytes | None:
    try:
        return read_regular_file(run.path / name)
    except OSError:
        return None


def read_encoder(run: ReportedRun) -> Encoder | None:
    """Read how features became numbers; None if the file is gone or is none of ours."""
    data = _read(run, _ENCODER)
    if data is None:
        return None
    try:
        return Encoder.from_json(data, name=_ENCODER)
    except DataError:
        return None
