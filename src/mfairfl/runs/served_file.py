"""model.safetensors: the members of a served model and their weights, with all that is checked."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from pydantic import ValidationError
from safetensors.numpy import save as save_tensors

from mfairfl.data.values import StrictModel
from mfairfl.engine.checkpoint import parse_tensors
from mfairfl.engine.output import Kind, Served
from mfairfl.errors import RunDirectoryError, first_problem
from mfairfl.fairness.thresholds import Thresholds

_KEY = "served"
_DTYPES: dict[str, np.dtype[Any]] = {
    "members": np.dtype(np.float32),
    "weights": np.dtype(np.float64),
}
_ROUNDING = 1e-6


class _Header(StrictModel):
    """What the arrays are."""

    kind: Kind
    names: tuple[str, ...]
    clients: tuple[str, ...] = ()
    thresholds: dict[str, Any] | None = None


def dump_served(served: Served) -> bytes:
    """Return the file of a served model."""
    rule = None if served.thresholds is None else served.thresholds.to_json()
    whose = {"names": served.names, "clients": served.clients}
    # One key only: the order of several would differ from one writing to the next.
    meta = {_KEY: json.dumps({"kind": served.kind, **whose, "thresholds": rule})}
    arrays = {
        name: np.ascontiguousarray(getattr(served, name), dtype=dtype)
        for name, dtype in _DTYPES.items()
    }
    data: bytes = save_tensors(arrays, metadata=meta)
    return data


def parse_served(data: bytes) -> Served:
    """Return the served model of a file that anyone may have written.

    Raises
    ------
    MfairflError
        If it is not what `dump_served` writes of a model that can answer.
    """
    try:
        arrays, header = parse_tensors(data, _KEY)
    except ValueError as error:
        raise RunDirectoryError(f"not a model of mfairfl ({error})") from None
    try:
        said = _Header.model_validate(header)
    except ValidationError as error:
        raise RunDirectoryError(f"its header: {first_problem(error, _Header)}") from None
    _check_arrays(arrays)
    rule = None if said.thresholds is None else Thresholds.from_json(said.thresholds)
    served = Served(
        kind=said.kind,
        members=arrays["members"],
        weights=arrays["weights"],
        names=said.names,
        clients=said.clients,
        thresholds=rule,
    )
    _check_members(served)
    return served


def _check_arrays(arrays: dict[str, np.ndarray]) -> None:
    if set(arrays) != set(_DTYPES):
        raise RunDirectoryError(f"it holds {sorted(arrays)[:5]}, not members and weights")
    for name, dtype in _DTYPES.items():
        if arrays[name].dtype != dtype:
            raise RunDirectoryError(f"{name} are {arrays[name].dtype}, not {dtype}")
        if not np.isfinite(arrays[name]).all():
            raise RunDirectoryError(
                f"{name} hold values that are not finite: training diverged, or it was altered"
            )
    members, weights = arrays["members"], arrays["weights"]
    if members.ndim != 2 or 0 in members.shape or weights.shape != members.shape[:1]:
        raise RunDirectoryError(
            f"members {members.shape} and weights {weights.shape} do not fit: (R, m) and (R,)"
        )


def _check_members(served: Served) -> None:
    """Refuse members whose number, owners or shares contradict the kind of model."""
    count, owners = len(served.members), len(served.clients)
    if len(served.names) != count or (served.kind == "single" and count != 1):
        raise RunDirectoryError(f"{count} members, {len(served.names)} names, '{served.kind}'")
    if owners != count and (owners or served.kind == "personal"):
        raise RunDirectoryError(f"{count} members of {owners} clients")
    if len(set(served.clients)) < owners:
        raise RunDirectoryError("two members belong to one client")
    if served.kind in ("mixture", "ensemble"):
        shares = served.weights
        if (shares < 0).any() or abs(shares.sum() - 1) > _ROUNDING:
            raise RunDirectoryError("weights must be 0 or more and sum to 1")
    if served.thresholds is not None and served.kind != "single":
        raise RunDirectoryError(f"thresholds of a '{served.kind}'")
