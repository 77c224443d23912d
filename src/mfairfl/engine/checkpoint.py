"""Run state on disk: one file per round, written atomically, hashed, no code inside.

A file is sealed (`mfairfl.engine.sealed`): arrays, with a JSON header for the rest, and a SHA-256.
It is written beside its final name, flushed to disk and renamed: the rename is the moment a round
counts. A damaged file is never used; the one before it is, and that is said aloud. Files of the
last few rounds are kept.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mfairfl.engine.output import Candidate
from mfairfl.engine.sealed import seal, unseal
from mfairfl.engine.state import RoundRecord, RunState, Setup
from mfairfl.errors import CheckpointError, MfairflError
from mfairfl.failpoints import failpoint
from mfairfl.fairness.cells import SUMS, Statistics
from mfairfl.files import make_private_folder, read_regular_file, write_atomically
from mfairfl.guard.standing import Standing

__all__ = ["CheckpointWarning", "Checkpoints", "dump", "parse"]

_VERSION = 2
_KEEP = 2


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
        "standing": state.standing.to_json(),
        "undone": state.undone,
    }
    return seal(arrays, header)


def parse(data: bytes, identity: str) -> RunState:
    """Return the state of a checkpoint, or refuse it with a reason."""
    arrays, header = unseal(data)
    if not isinstance(header, dict) or not {"version", "identity"} <= set(header):
        raise CheckpointError("it is not a checkpoint of mfairfl")
    if header["version"] != _VERSION:
        raise CheckpointError(f"it has format {header['version']}, this version reads {_VERSION}")
    if header["identity"] != identity:
        raise CheckpointError("it belongs to a run with another configuration")
    try:
        return _restore(header, arrays)
    except (MfairflError, AttributeError, KeyError, TypeError, ValueError) as error:
        why = " ".join(str(error).split())
        raise CheckpointError(f"it is not a checkpoint of mfairfl ({why})") from None


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
        standing=Standing.from_json(header["standing"]),
        undone=header["undone"],
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


def _require_name(path: Path, state: RunState) -> None:
    """Refuse a state of another round than the file's name says."""
    if path.name != _file_name(state.round):
        raise CheckpointError(f"it is the checkpoint of round {state.round}: renamed or replaced")


def _require_fit(state: RunState, setup: Setup) -> None:
    """Refuse a state that no round of this run can have left: the hash is no signature."""
    numbers = (state.round, state.best_round, state.undone)
    if not all(isinstance(number, int) and 0 <= number <= setup.rounds for number in numbers):
        raise CheckpointError(f"round {state.round!r} is none of this run's {setup.rounds}")
    if not isinstance(state.strategy, dict) or not isinstance(state.best_loss, int | float):
        raise CheckpointError("its header has values of another type")
    cells = len(next(iter(setup.summary.counts.values())))
    if any(one.statistics.counts.shape != (cells, 2) for one in state.bank):
        raise CheckpointError(f"its sums are not over this run's {cells} cells")
    for name, vector, shape in _vectors(state, setup):
        if shape is not None and (vector.shape != shape or vector.dtype != np.float32):
            raise CheckpointError(
                f"'{name}' is {vector.dtype} {vector.shape}; this run has float32 {shape}"
            )
        if not np.isfinite(vector).all():
            raise CheckpointError(f"'{name}' holds values that are not finite")


def _vectors(
    state: RunState, setup: Setup
) -> Iterator[tuple[str, np.ndarray, tuple[int, ...] | None]]:
    """Yield all vectors by name, with the shape that each must have, if that is known."""
    ensemble = setup.strategy.card.serves == "ensemble"
    model = (len(setup.summary.counts),) * ensemble + (setup.size,)
    yield "weights", state.weights, model
    if state.average is not None:
        yield "average", state.average, model
    yield from ((one.name, one.weights, model) for one in state.bank)
    yield from ((name, vector, (setup.size,)) for name, vector in state.vectors.items())
    for client, held in state.slots.items():
        yield from ((f"{client}/{slot}", vector, None) for slot, vector in held.items())


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

    def latest(self, setup: Setup | None = None) -> RunState | None:
        """Return the newest sound state, or None when there is no file at all.

        Parameters
        ----------
        setup : Setup, optional
            The run; a state that cannot be one of its states is not sound.

        Raises
        ------
        CheckpointError
            If there are files and none of them can be used.
        """
        reasons = []
        for path in reversed(self._files()):
            try:
                state = parse(read_regular_file(path), self.identity)
                if setup is not None:
                    _require_fit(state, setup)
                _require_name(path, state)
            except (CheckpointError, OSError) as error:
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
        make_private_folder(self.folder)
        for leftover in self.folder.glob(".*.tmp"):
            leftover.unlink()
        self._remove_old()  # a process may have been killed before it came to that

    def on_round(self, setup: Setup, state: RunState, record: RoundRecord) -> None:
        """Commit the round."""
        del setup, record
        path = self.folder / _file_name(state.round)
        failpoint("checkpoint.begun", state.round)
        write_atomically(path, dump(state, self.identity), private=True)
        failpoint("checkpoint.committed", state.round)
        self._remove_old()

    def _remove_old(self) -> None:
        for old in self._files()[:-_KEEP]:
            old.unlink()
