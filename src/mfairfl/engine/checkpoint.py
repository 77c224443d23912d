"""Run state on disk: one file per round, written atomically, hashed, no code inside.

A file is a safetensors document (arrays, with a JSON header for the rest) followed by its SHA-256.
It is written beside its final name, flushed to disk and renamed: the rename is the moment a round
counts. A damaged file is never used; the one before it is, and that is said aloud. Files of the
last few rounds are kept.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from mfairfl.engine.output import Candidate
from mfairfl.engine.state import RoundRecord, RunState, Setup
from mfairfl.errors import CheckpointError
from mfairfl.failpoints import failpoint
from mfairfl.fairness.cells import SUMS, Statistics
from mfairfl.files import write_atomically

__all__ = ["CheckpointWarning", "Checkpoints", "dump", "parse"]

_VERSION = 1
_KEEP = 2
_DIGEST = 32


class CheckpointWarning(UserWarning):
    """A checkpoint was damaged and an older one is used."""


def dump(state: RunState, identity: str) -> bytes:
    """Return the checkpoint of a state; `identity` names the run's configuration."""
    arrays: dict[str, np.ndarray] = {"weights": state.weights}
    if state.average is not None:
        arrays["average"] = state.average
    for name, vector in state.vectors.items():
        arrays[f"vectors/{name}"] = vector
    slots: list[list[str]] = []
    for client, held in state.slots.items():
        for slot, vector in held.items():
            arrays[f"slots/{len(slots)}"] = vector
            slots.append([client, slot])
    for i, candidate in enumerate(state.bank):
        arrays[f"bank/{i}/weights"] = candidate.weights
        arrays[f"bank/{i}/sums"] = np.stack([getattr(candidate.statistics, s) for s in SUMS])
    header = {
        "version": _VERSION,
        "identity": identity,
        "round": state.round,
        "strategy": _take_arrays(state.strategy, arrays),
        "vectors": list(state.vectors),
        "slots": slots,
        "bank": [candidate.name for candidate in state.bank],
        # JSON has no infinity; a run that has not measured a loss yet has no best one.
        "best_loss": state.best_loss if np.isfinite(state.best_loss) else None,
        "best_round": state.best_round,
    }
    # Not `ascontiguousarray`, which turns a scalar array into a vector.
    copies = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    body = save_tensors(copies, metadata={"state": json.dumps(header, allow_nan=False)})
    return body + hashlib.sha256(body).digest()


def parse(data: bytes, identity: str) -> RunState:
    """Return the state of a checkpoint, or refuse it with a reason."""
    body, digest = data[:-_DIGEST], data[-_DIGEST:]
    if hashlib.sha256(body).digest() != digest:
        raise CheckpointError("its SHA-256 does not match: the file is damaged")
    try:
        arrays = load_tensors(body)
        length = int.from_bytes(body[:8], "little")
        header = json.loads(json.loads(body[8 : 8 + length])["__metadata__"]["state"])
        version, owner = header["version"], header["identity"]
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"it is not a checkpoint of mfairfl ({error})") from None
    if version != _VERSION:
        raise CheckpointError(f"it has format {version}, this version reads {_VERSION}")
    if owner != identity:
        raise CheckpointError("it belongs to a run with another configuration")
    return _restore(header, arrays)


def _read(path: Path, identity: str) -> RunState:
    """Return the state in a file, which must be that of the round in its name."""
    state = parse(path.read_bytes(), identity)
    if path != path.with_name(_file_name(state.round)):
        raise CheckpointError(f"it is the checkpoint of round {state.round}: renamed or replaced")
    return state


def _file_name(round_: int) -> str:
    return f"round-{round_:06d}.ckpt"


def _restore(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> RunState:
    slots: dict[str, dict[str, np.ndarray]] = {}
    for i, (client, slot) in enumerate(header["slots"]):
        slots.setdefault(client, {})[slot] = arrays[f"slots/{i}"]
    bank = []
    for i, name in enumerate(header["bank"]):
        sums = dict(zip(SUMS, arrays[f"bank/{i}/sums"], strict=True))
        bank.append(Candidate(name, arrays[f"bank/{i}/weights"], Statistics(**sums)))
    return RunState(
        round=header["round"],
        weights=arrays["weights"],
        strategy=_put_arrays(header["strategy"], arrays),
        vectors={name: arrays[f"vectors/{name}"] for name in header["vectors"]},
        slots=slots,
        average=arrays.get("average"),
        bank=bank,
        best_loss=float("inf") if header["best_loss"] is None else header["best_loss"],
        best_round=header["best_round"],
    )


def _take_arrays(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Replace every array in a strategy's state by a reference to a tensor of the file."""
    if isinstance(value, np.ndarray):
        # Numbered, because two paths of names may spell the same text.
        name = f"strategy/{len(arrays)}"
        arrays[name] = value
        return {"$array": name}
    if isinstance(value, Mapping):
        return {k: _take_arrays(v, arrays) for k, v in value.items()}
    if isinstance(value, list):
        return [_take_arrays(v, arrays) for v in value]
    return value


def _put_arrays(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if isinstance(value, dict):
        if set(value) == {"$array"}:
            return arrays[value["$array"]]
        return {k: _put_arrays(v, arrays) for k, v in value.items()}
    if isinstance(value, list):
        return [_put_arrays(v, arrays) for v in value]
    return value


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoint folder of one run; also the callback that fills it.

    Parameters
    ----------
    folder : Path
        Where the files are.
    identity : str
        Hash of the configuration; files of another configuration are refused.
    """

    folder: Path
    identity: str

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("round-*.ckpt"))

    def latest(self) -> RunState | None:
        """Return the newest sound state, or None when there is no file at all.

        Raises
        ------
        CheckpointError
            If there are files and none of them can be used.
        """
        reasons = []
        for path in reversed(self._files()):
            try:
                state = _read(path, self.identity)
            except CheckpointError as error:
                reasons.append(f"{path}: {error}")
                continue
            for reason in reasons:
                warnings.warn(
                    f"{reason}; going on from round {state.round} instead",
                    CheckpointWarning,
                    stacklevel=2,
                )
            return state
        if reasons:
            raise CheckpointError(
                f"{reasons[0]}; no older checkpoint is left: delete {self.folder} to start again"
            )
        return None

    def on_start(self, setup: Setup, state: RunState) -> None:
        """Make the folder and clear what a crash may have left half written."""
        del setup, state
        self.folder.mkdir(parents=True, exist_ok=True)
        for leftover in self.folder.glob(".*.tmp"):
            leftover.unlink()
        self._remove_old()  # a process may have been killed before it came to that

    def on_round(self, setup: Setup, state: RunState, record: RoundRecord) -> None:
        """Commit the round."""
        del setup, record
        path = self.folder / _file_name(state.round)
        failpoint("checkpoint.begun", state.round)
        write_atomically(path, dump(state, self.identity))
        failpoint("checkpoint.committed", state.round)
        self._remove_old()

    def _remove_old(self) -> None:
        for old in self._files()[:-_KEEP]:
            old.unlink()
