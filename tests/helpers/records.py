"""Records of runs that were never made."""

from __future__ import annotations

from mfairfl.runs.record import RunRecord, StartedRecord

CLIENT = {"train": 0, "validation": 0, "test": 0}


def make_record(*, status="complete", config=None, federation=None, served=None, **parts):
    """Return a record with these parts; what a test does not name is plain."""
    names = parts.pop("clients", ())
    known = {
        "identity": "made by hand",
        "config": {
            "strategy": {"name": "fedavg"},
            "fairness": {"notion": ["demographic_parity"]},
            "training": {"rounds": 3, "local_epochs": 1},
            **(config or {}),
        },
        "seed": 0,
        "versions": {"mfairfl": "0.0.0"},
        "data": {"name": "people", "sha256": "abc", "rows": 1},
        "task": {"label": "hired", "favourable": "yes", "sensitive": ["sex"]},
        "federation": {
            "table": "people",
            "sha256": "abc",
            "scheme": "iid",
            "seed": 0,
            "features": 1,
            "notes": [],
            "warnings": [],
            "clients": [{"name": name, **CLIENT} for name in names],
            **(federation or {}),
        },
    }
    if status == "running":
        return StartedRecord(status="running", **known)
    result = {
        "rounds": 3,
        "epochs_per_round": 1,
        "model": {"kind": "mlp", "inputs": 1},
        "served": {
            "kind": "single",
            "names": ["round 3"],
            "weights": [1.0],
            "rule": "last",
            "tolerance": 0.0,
            **(served or {}),
        },
        "warnings": [],
        "metrics": {},
        "intervals": {},
        "noise_floor": {},
        "constant_classifier": {},
        "tallies": {},
        "timing": {"train_seconds": 1.0, "runs_at_once": 1},
        "machine": {"system": "by hand", "machine": "by hand"},
    }
    return RunRecord.model_validate({"status": "complete", **known, **result, **parts})


def as_running(record):
    """Return the record that the run of this one had before it finished."""
    known = {key: value for key, value in record if key in StartedRecord.model_fields}
    return StartedRecord(**known | {"status": "running"})
