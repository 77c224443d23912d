"""A served model on raw rows: `mfairfl.load(run)` gives scikit-learn's `predict` on a frame."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from mfairfl.data import Encoder, Task, canonical_text, cells_of, features_frame, read_frame
from mfairfl.engine.output import Kind
from mfairfl.errors import DataError, RunDirectoryError, unknown
from mfairfl.fairness import Tally
from mfairfl.fairness.thresholds import Thresholds
from mfairfl.models import MLP, Model, ModuleModel
from mfairfl.plugins import MODELS
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.evaluation import measure_predictions
from mfairfl.runs.prepare import ModuleFactory
from mfairfl.runs.record import RunRecord
from mfairfl.training.arithmetic import steady_arithmetic
from mfairfl.training.batches import Pool
from mfairfl.training.measure import Probe, logits

__all__ = ["Predictor", "load"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictor:
    """The model a run serves, with all it needs to read raw rows.

    Parameters
    ----------
    kind : {"single", "mixture", "ensemble", "personal"}
        A mixture decides each row by a member drawn at random with `weights`; an ensemble by the
        weighted mean of its members' probabilities; personal members are one for each client.
    clients : tuple of str
        Whose each member is, in an ensemble and where each client has its own.
    thresholds : Thresholds, optional
        How scores of each group become decisions (at random where a group has several).
    """

    model: Model
    encoder: Encoder
    task: Task
    members: NDArray[np.float32]
    weights: NDArray[np.float64]
    kind: Kind = "single"
    clients: tuple[str, ...] = ()
    thresholds: Thresholds | None = None

    @property
    def randomised(self) -> bool:
        """Whether two people alike in everything may be decided differently."""
        rule = self.thresholds
        drawn = rule is not None and bool(((rule.probabilities > 0).sum(axis=1) > 1).any())
        return self.kind == "mixture" or drawn

    def decision_function(
        self, frame: Any, *, client: str | None = None, name: str = "the frame"
    ) -> NDArray[np.float64]:
        """Return the model's logits, (n,); those of each member, (R, n), for a mixture."""
        if client is not None and self.kind != "personal":
            raise DataError(
                f"client '{client}': this run serves all clients alike; leave client= (--client) "
                "out"
            )
        frame = read_frame(frame)
        X = self.encoder.transform(features_frame(frame, self.task, name=name))
        none = np.zeros(len(X), dtype=np.int64)
        pool, (where,) = Pool.from_arrays([(X, none, none)], cells=1)
        models = self.members[None] if self.kind == "ensemble" else self.members
        with steady_arithmetic():  # as in training: the same rows get the same decisions
            probes = [Probe(weights, where, self.weights) for weights in models]
            z = np.stack([found.numpy() for found in logits(probes, self.model, pool)])
        if self.kind == "personal":
            return np.asarray(z[self._owners(frame, client, name), np.arange(len(X))])
        return z if self.kind == "mixture" else np.asarray(z[0])

    def predict_proba(
        self, frame: Any, *, client: str | None = None, name: str = "the frame"
    ) -> NDArray[np.float64]:
        """Return P(unfavourable), P(favourable) per row, (n, 2), as scikit-learn does.

        Of a model that decides by chance, or by thresholds for each group, this is the
        probability of a favourable *decision*.

        Parameters
        ----------
        frame : pandas or polars frame, or path
            Raw rows with the feature columns of the training data; others are ignored.
        client : str, optional
            Whose model answers every row, if each client has its own; without it the rows' client
            column says.
        name : str
            What error messages call the rows.
        """
        z = self.decision_function(frame, client=client, name=name)
        if self.kind == "mixture":
            positive = np.tensordot(self.weights, z > 0, axes=1)
        elif self.thresholds is not None:
            cells = cells_of(frame, self.task, name=name)
            positive = self.thresholds.positive_probability(z, cells)
        else:
            positive = expit(z)
        return np.column_stack([1 - positive, positive])

    def predict(
        self,
        frame: Any,
        *,
        client: str | None = None,
        name: str = "the frame",
        random_state: int = 0,
    ) -> NDArray[np.int8]:
        """Return decisions, 1 = favourable.

        Parameters
        ----------
        frame : pandas or polars frame, or path
            Raw rows.
        client, name : str, optional
            As for `predict_proba`.
        random_state : int
            Seed of a randomised model's draws; no other model's decisions depend on it.
        """
        if self.kind == "mixture" or self.thresholds is not None:
            chance = self.predict_proba(frame, client=client, name=name)[:, 1]
            draws = np.random.default_rng(random_state).random(len(chance))
            return np.asarray(draws < chance, dtype=np.int8)
        z = self.decision_function(frame, client=client, name=name)
        return np.asarray(z > 0, dtype=np.int8)

    def evaluate(
        self, frame: Any, *, client: str | None = None, name: str = "the frame"
    ) -> Tally | None:
        """Count decisions on the rows that have a label; every measure is made from the counts.

        Of a randomised model these are expected counts.

        Parameters
        ----------
        frame : pandas or polars frame, or path
            Raw rows. Sensitive and client columns that are absent are not compared.
        client, name : str, optional
            As for `predict_proba`.

        Returns
        -------
        Tally or None
            None if no row has a label.

        Examples
        --------
        >>> import mfairfl
        >>> tally = mfairfl.load("runs/adult").evaluate("people.csv")  # doctest: +SKIP
        >>> mfairfl.fairness.accuracy(tally)  # doctest: +SKIP
        """
        frame = read_frame(frame)
        if self.randomised:
            chance = self.predict_proba(frame, client=client, name=name)[:, 1]
        else:
            chance = self.predict(frame, client=client, name=name).astype(np.float64)
        return measure_predictions(frame, self.task, chance, name=name)

    def _owners(self, frame: pd.DataFrame, client: str | None, name: str) -> NDArray[np.intp]:
        """Return which member answers each row."""
        place = {owner: i for i, owner in enumerate(self.clients)}
        if client is not None:
            if client not in place:
                raise DataError(unknown("client", client, self.clients))
            return np.full(len(frame), place[client], dtype=np.intp)
        if self.task.client not in frame:
            column = f"add the column '{self.task.client}', or " if self.task.client else ""
            raise DataError(
                f"{name}: each client has a model of its own: {column}give client= (--client), "
                f"one of: {', '.join(self.clients)}"
            )
        owners = [canonical_text(value) for value in frame[self.task.client]]
        strange = [owner for owner in owners if owner not in place]
        if strange:
            raise DataError(
                f"{name}, column '{self.task.client}': "
                + unknown("client", strange[0], self.clients)
            )
        return np.array([place[owner] for owner in owners], dtype=np.intp)

    @property
    def classes(self) -> tuple[str, str]:
        """The label's two values, unfavourable first."""
        return (str(self.task.unfavourable), self.task.favourable)


def load(run: str | Path, *, model: ModuleFactory | None = None, trust: bool = False) -> Predictor:
    """Load the model of a finished run.

    Parameters
    ----------
    run : path
        Run directory.
    model : callable, optional
        The factory, if the run was trained with one: code is never stored in a run.
    trust : bool
        Import the model that the run names, if it is not built in. Only for runs of people whose
        code you would execute.

    Examples
    --------
    >>> import mfairfl
    >>> mfairfl.load("runs/adult").predict("people.csv")  # doctest: +SKIP
    """
    directory = RunDirectory(run)
    record = RunRecord.read(directory.path)
    directory.check(record.files)
    made = _model(record, directory.path, model, trust=trust)
    members, weights, thresholds = directory.read_model()
    if members.shape[1] != made.size:
        raise RunDirectoryError(
            f"{directory.path}: model.safetensors has {members.shape[1]} weights, but the model "
            f"has {made.size}"
        )
    return Predictor(
        model=made,
        encoder=Encoder.load(directory.path / "encoder.json"),
        task=record.task,
        members=members,
        weights=weights,
        kind=record.served.kind,
        clients=record.served.clients,
        thresholds=thresholds,
    )


def _model(record: RunRecord, path: Path, factory: ModuleFactory | None, *, trust: bool) -> Model:
    if record.model.kind == "mlp":
        return MLP(inputs=record.model.inputs, hidden=record.model.hidden)
    name = record.config["model"].get("factory") or record.config["model"]["kind"]
    factory = factory or (MODELS.follow(name) if trust else None)
    if factory is None:
        raise RunDirectoryError(
            f"{path}: trained with the module '{name}', which is code; give its factory with "
            "model=, or trust=True (--trust) to import it"
        )
    return ModuleModel(factory, record.model.inputs)
