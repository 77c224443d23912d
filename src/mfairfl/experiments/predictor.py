"""A served model on raw rows: `mfairfl.load(run)` gives scikit-learn's `predict` on a frame."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, PositiveInt, ValidationError

from mfairfl.data import Encoder, Task, features_frame, read_frame
from mfairfl.errors import ConfigError, RunDirectoryError
from mfairfl.experiments.directory import RunDirectory
from mfairfl.experiments.prepare import ModuleFactory
from mfairfl.models import MLP, Model
from mfairfl.modules import ModuleModel
from mfairfl.training.arithmetic import steady_arithmetic
from mfairfl.training.batches import Pool
from mfairfl.training.measure import Probe, logits

__all__ = ["Predictor", "load"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictor:
    """The model a run serves, with all it needs to read raw rows.

    Parameters
    ----------
    kind : {"single", "mixture"}
        A mixture decides each row by a member drawn at random with `weights`.
    """

    model: Model
    encoder: Encoder
    task: Task
    members: NDArray[np.float32]
    weights: NDArray[np.float64]
    kind: Literal["single", "mixture"] = "single"

    def decision_function(self, frame: Any) -> NDArray[np.float64]:
        """Return the members' logits, (R, n); row r belongs to member r."""
        rows = features_frame(read_frame(frame), self.task)
        X = self.encoder.transform(rows)
        none = np.zeros(len(X), dtype=np.int64)
        pool, (where,) = Pool.from_arrays([(X, none, none)], cells=1)
        with steady_arithmetic():  # as in training: the same rows get the same decisions
            found = logits([Probe(member, where) for member in self.members], self.model, pool)
        return np.stack([z.numpy() for z in found]).astype(np.float64)

    def predict_proba(self, frame: Any) -> NDArray[np.float64]:
        """Return P(unfavourable), P(favourable) per row, (n, 2), as scikit-learn does.

        For a mixture this is the probability of a favourable *decision*.

        Parameters
        ----------
        frame : pandas or polars frame, or path
            Raw rows with the feature columns of the training data; others are ignored.
        """
        z = self.decision_function(frame)
        if self.kind == "mixture":
            positive = np.tensordot(self.weights, z > 0, axes=1)
        else:
            positive = 1 / (1 + np.exp(-np.clip(z[0], -700, 700)))
        return np.column_stack([1 - positive, positive])

    def predict(self, frame: Any, *, random_state: int = 0) -> NDArray[np.int8]:
        """Return decisions, 1 = favourable.

        Parameters
        ----------
        frame : pandas or polars frame, or path
            Raw rows.
        random_state : int
            Seed of a mixture's draws; the decisions of a single model do not depend on it.
        """
        z = self.decision_function(frame)
        if self.kind == "single":
            return np.asarray(z[0] > 0, dtype=np.int8)
        rng = np.random.default_rng(random_state)
        drawn = rng.choice(len(self.members), size=z.shape[1], p=self.weights)
        return np.asarray(z[drawn, np.arange(z.shape[1])] > 0, dtype=np.int8)

    @property
    def classes(self) -> tuple[str, str]:
        """The label's two values, unfavourable first."""
        return (str(self.task.unfavourable), self.task.favourable)


def load(run: str | Path, *, model: ModuleFactory | None = None) -> Predictor:
    """Load the model of a finished run.

    Parameters
    ----------
    run : path
        Run directory.
    model : callable, optional
        The factory, if the run was trained with one: code is never stored in a run.

    Examples
    --------
    >>> import mfairfl
    >>> mfairfl.load("runs/adult").predict("people.csv")  # doctest: +SKIP
    """
    directory = RunDirectory(run)
    record = directory.read_record()
    if record["status"] != "complete":
        raise RunDirectoryError(f"{directory.path}: the run is not finished; train it again")
    stored = _stored(directory, record)
    directory.check(stored.files)
    made = _model(directory, stored.model, model)
    members, weights = directory.read_model()
    if members.shape[1] != made.size:
        raise RunDirectoryError(
            f"{directory.path}: model.safetensors has {members.shape[1]} weights, but the model "
            f"has {made.size}"
        )
    return Predictor(
        model=made,
        encoder=Encoder.load(directory.path / "encoder.json"),
        task=stored.task,
        members=members,
        weights=weights,
        kind=stored.served.kind,
    )


class _StoredModel(BaseModel):
    kind: Literal["mlp", "module"]
    inputs: PositiveInt
    hidden: tuple[PositiveInt, ...] = ()


class _StoredChoice(BaseModel):
    kind: Literal["single", "mixture"]


class _Stored(BaseModel):
    """The part of run.json that prediction needs."""

    task: Task
    model: _StoredModel
    served: _StoredChoice
    files: dict[str, str]


def _stored(directory: RunDirectory, record: dict[str, Any]) -> _Stored:
    try:
        return _Stored.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    except ConfigError as error:
        problem = f"task: {error}"
    raise RunDirectoryError(
        f"{directory.record_path}: {problem}; the file was altered, restore it or train again"
    )


def _model(directory: RunDirectory, stored: _StoredModel, factory: ModuleFactory | None) -> Model:
    if stored.kind == "mlp":
        return MLP(inputs=stored.inputs, hidden=stored.hidden)
    if factory is None:
        raise RunDirectoryError(
            f"{directory.path}: trained with a module of your own; give its factory with model="
        )
    return ModuleModel(factory, stored.inputs)
