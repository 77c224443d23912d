"""Run state on disk: one file per round, written atomically, hashed, no code inside.

A file is sealed: a safetensors document of arrays, with a JSON header for the rest, followed by
its SHA-256. What a silo keeps between messages is sealed too. Only this user can read the files.

A checkpoint is written beside its final name, flushed to disk and renamed: the rename is the
moment a round counts. A damaged file is never used; the one before it is, with a warning. Files of
the last few rounds are kept.

Models that may be served are written once, to a file beside the first checkpoint that has them;
later ones name it with its SHA-256. So what a run writes grows with its rounds, not their square.
"""

import hashlib
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from mfairfl.engine.output import Candidate
from mfairfl.engine.state import LastGoodState, RoundRecord, RunState, Setup
from mfairfl.errors import CheckpointError, MfairflError, first_problem
from mfairfl.failpoints import failpoint
from mfairfl.files import make_private_folder, read_regular_file, write_atomically
from mfairfl.strict_json import parse_json
from mfairfl.training.plan import STRICT

_VERSION = 4
_KEEP = 2

_DIGEST = 32
_KEY = "state"
# The last two: element types that numpy does not have.
_UNREADABLE = (SafetensorError, KeyError, TypeError, ValueError, AttributeError, ImportError)

_BANK_FILE = re.compile(r"bank-\d{6}\.ckpt")

_STATE = TypeAdapter(RunState)
_BANK = TypeAdapter(list[Candidate], config=STRICT)

Shape = tuple[int, ...]

BankFiles = dict[str, str]
"""Files with models that may be served, oldest first, and the SHA-256 of each."""


# ------------------------------------------------------------------ sealed files


def seal(arrays: Mapping[str, np.ndarray], header: Any = None) -> bytes:
    """Return arrays and a header of plain JSON as bytes that `unseal` checks.

    Examples
    --------
    >>> data = seal({"w": np.ones(2)}, {"round": 3})
    >>> arrays, header = unseal(data)
    >>> arrays["w"].tolist(), header
    ([1.0, 1.0], {'round': 3})
    >>> unseal(data[:-1])
    Traceback (most recent call last):
        ...
    mfairfl.errors.CheckpointError: its SHA-256 does not match: the file is damaged
    """
    # Not `ascontiguousarray`, which turns a scalar array into a vector.
    copies = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    body: bytes = save_tensors(copies, metadata={_KEY: json.dumps(header, allow_nan=False)})
    return body + hashlib.sha256(body).digest()


def unseal(data: bytes) -> tuple[dict[str, np.ndarray], Any]:
    """Return the arrays and the header, or refuse damaged or foreign bytes with a reason."""
    body, digest = data[:-_DIGEST], data[-_DIGEST:]
    if hashlib.sha256(body).digest() != digest:
        raise CheckpointError("its SHA-256 does not match: the file is damaged")
    try:
        return parse_tensors(body, _KEY)
    except ValueError as error:
        raise CheckpointError(f"it is not a file of mfairfl ({error})") from None


def parse_tensors(data: bytes, key: str) -> tuple[dict[str, np.ndarray], Any]:
    """Return the arrays of a safetensors document, and the JSON that its metadata hold.

    Parameters
    ----------
    key : str
        The metadata's key.

    Raises
    ------
    ValueError
        Whatever is wrong, in one line.
    """
    try:
        arrays: dict[str, np.ndarray] = load_tensors(data)
        length = int.from_bytes(data[:8], "little")
        header = parse_json(parse_json(data[8 : 8 + length])["__metadata__"][key])
    except _UNREADABLE as error:
        raise ValueError(" ".join(f"{type(error).__name__}: {error}".split())) from None
    return arrays, header


def write_sealed(path: Path, arrays: Mapping[str, np.ndarray], header: Any = None) -> None:
    """Write a sealed file, whole or not at all."""
    write_atomically(path, seal(arrays, header), private=True)


def read_sealed(path: Path, *, remedy: str) -> tuple[dict[str, np.ndarray], Any]:
    """Read a sealed file; an error names it and the remedy.

    Raises
    ------
    FileNotFoundError
        If there is none.
    CheckpointError
        If it is damaged, or cannot be read.
    """
    try:
        return unseal(read_regular_file(path))
    except FileNotFoundError:
        raise
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
    except CheckpointError as error:
        reason = str(error)
    raise CheckpointError(f"{path}: {reason}; {remedy}")


# ------------------------------------------------------------------ checkpoints


class CheckpointWarning(UserWarning):
    """A checkpoint was damaged and an older one is used."""


def dump(state: RunState, identity: str, bank_files: BankFiles | None = None) -> bytes:
    """Return the checkpoint of a state.

    Parameters
    ----------
    identity : str
        Names the run's configuration.
    bank_files : mapping, optional
        Where all of the bank is; else it is in the checkpoint.
    """
    arrays: dict[str, np.ndarray] = {}
    stored = replace(state, bank=[]) if bank_files else state
    plain = _detach(_STATE.dump_python(stored), arrays)
    # JSON has no infinity; a run that has not measured a loss yet has no best one.
    plain["best_loss"] = state.best_loss if np.isfinite(state.best_loss) else None
    header = {"version": _VERSION, "identity": identity, "bank_files": bank_files or {}}
    return seal(arrays, header | {"state": plain})


def parse(data: bytes, identity: str) -> RunState:
    """Return the state of a checkpoint that holds all of it, or refuse it with a reason."""
    state, bank_files = _parse(data, identity)
    if bank_files:
        raise CheckpointError("its models that may be served are in files beside it")
    return state


def _parse(data: bytes, identity: str) -> tuple[RunState, BankFiles]:
    arrays, header = unseal(data)
    if not isinstance(header, dict) or not {"version", "identity"} <= set(header):
        raise CheckpointError("it is not a checkpoint of mfairfl")
    if header["version"] != _VERSION:
        raise CheckpointError(f"it has format {header['version']}, this version reads {_VERSION}")
    if header["identity"] != identity:
        raise CheckpointError("it belongs to a run with another configuration")
    try:
        bank_files = {str(name): str(digest) for name, digest in header["bank_files"].items()}
        plain = _attach(header["state"], arrays)
        if plain["best_loss"] is None:
            plain["best_loss"] = float("inf")
        return _STATE.validate_python(plain), bank_files
    except ValidationError as error:
        why = first_problem(error)
    except (MfairflError, AttributeError, KeyError, TypeError) as error:
        why = " ".join(str(error).split())
    raise CheckpointError(f"it is not a checkpoint of mfairfl ({why})")


def _detach(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Return plain data with references in place of its arrays, which go to `arrays`."""
    if isinstance(value, np.ndarray):
        # Numbered, because two paths of names may spell the same text.
        name = str(len(arrays))
        arrays[name] = value
        return {"$array": name}
    if isinstance(value, Mapping):
        return {key: _detach(item, arrays) for key, item in value.items()}
    if isinstance(value, list):
        return [_detach(item, arrays) for item in value]
    return value


def _attach(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return what `_detach` was given."""
    if isinstance(value, dict):
        if set(value) == {"$array"}:
            return arrays[value["$array"]]
        return {key: _attach(item, arrays) for key, item in value.items()}
    if isinstance(value, list):
        return [_attach(item, arrays) for item in value]
    return value


def _file_name(round_: int) -> str:
    return f"round-{round_:06d}.ckpt"


def _require_fit(path: Path, state: RunState, setup: Setup | None) -> None:
    """Refuse a state that no round of this run can have left: a hash is not a signature."""
    if path.name != _file_name(state.round):
        raise CheckpointError(f"it is the checkpoint of round {state.round}: renamed or replaced")
    if setup is None:
        return
    last_good = 0 if state.last_good is None else state.last_good.round
    numbers = (state.round, state.best_round, state.undone, last_good)
    if not all(0 <= number <= setup.rounds for number in numbers):
        raise CheckpointError(f"round {state.round} is none of this run's {setup.rounds}")
    cells = len(setup.summary.pooled)
    if any(candidate.statistics.counts.shape != (cells, 2) for candidate in state.bank):
        raise CheckpointError(f"its sums are not over this run's {cells} cells")
    for name, vector, shape in _vectors(state, setup):
        if shape is not None and (vector.shape != shape or vector.dtype != np.float32):
            raise CheckpointError(
                f"'{name}' is {vector.dtype} {vector.shape}; this run has float32 {shape}"
            )
        if not np.isfinite(vector).all():
            raise CheckpointError(f"'{name}' holds values that are not finite")


def _vectors(state: RunState, setup: Setup) -> Iterator[tuple[str, np.ndarray, Shape | None]]:
    """Yield all vectors by name, with the shape that each must have, if that is known."""
    ensemble = setup.strategy.card.serves == "ensemble"
    model = (len(setup.summary.counts),) * ensemble + (setup.size,)
    parts: dict[str, RunState | LastGoodState] = {"": state}
    if state.last_good is not None:
        parts["last good "] = state.last_good
    for prefix, part in parts.items():
        yield f"{prefix}weights", part.weights, model
        if part.average is not None:
            yield f"{prefix}average", part.average, model
        for name, vector in part.vectors.items():
            yield f"{prefix}{name}", vector, (setup.size,)
    yield from ((candidate.name, candidate.weights, model) for candidate in state.bank)
    for client, slots in state.slots.items():
        yield from ((f"{client}/{slot}", vector, None) for slot, vector in slots.items())


@dataclass(slots=True)
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
    _bank_files: BankFiles = field(init=False, default_factory=dict)
    _stored: int = field(init=False, default=0)

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("round-*.ckpt"))

    def latest(self, setup: Setup | None = None) -> RunState | None:
        """Return the newest undamaged state, or None when there is no file at all.

        Parameters
        ----------
        setup : Setup, optional
            The run; a state that cannot be one of its states counts as damaged.

        Raises
        ------
        CheckpointError
            If there are files and none of them can be used.
        """
        reasons = []
        for path in reversed(self._files()):
            try:
                state, bank_files = _parse(read_regular_file(path), self.identity)
                for name, digest in bank_files.items():
                    state.bank += self._read_bank(name, digest)
                _require_fit(path, state, setup)
            except (CheckpointError, OSError) as error:
                reasons.append(f"{path}: {error}")
                continue
            self._bank_files, self._stored = bank_files, len(state.bank)
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
        if len(state.bank) > self._stored:
            self._write_bank(state)
        write_atomically(path, dump(state, self.identity, self._bank_files), private=True)
        failpoint("checkpoint.committed", state.round)
        self._remove_old()

    def _write_bank(self, state: RunState) -> None:
        """Write the models that no file has yet: a bank only grows."""
        name, arrays = f"bank-{state.round:06d}.ckpt", dict[str, np.ndarray]()
        bank = _detach(_BANK.dump_python(state.bank[self._stored :]), arrays)
        data = seal(arrays, {"version": _VERSION, "bank": bank})
        write_atomically(self.folder / name, data, private=True)
        self._bank_files[name] = hashlib.sha256(data).hexdigest()
        self._stored = len(state.bank)

    def _read_bank(self, name: str, digest: str) -> list[Candidate]:
        if not _BANK_FILE.fullmatch(name):
            raise CheckpointError(f"'{name}' is not the name of a file of models")
        try:
            data = read_regular_file(self.folder / name)
        except OSError as error:
            raise CheckpointError(f"{name} cannot be read ({error.strerror})") from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise CheckpointError(f"the SHA-256 of {name} does not match: it is damaged")
        arrays, header = unseal(data)
        try:
            return _BANK.validate_python(_attach(header["bank"], arrays))
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{name} is not a file of models ({error})") from None

    def _remove_old(self) -> None:
        for old in self._files()[:-_KEEP]:
            old.unlink()
