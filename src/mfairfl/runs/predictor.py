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
from mfairfl.engine.output import Served
from mfairfl.errors import DataError, RunDirectoryError, unknown
from mfairfl.fairness import Tally
from mfairfl.fairness.scores import RowScores
from mfairfl.models import MLP, Model, ModuleModel
from mfairfl.plugins import MODELS
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.evaluation import MeasuredRows, measure_predictions
from mfairfl.runs.prepare import ModuleFactory
from mfairfl.runs.record import RunRecord
from mfairfl.training.arithmetic import steady_arithmetic
from mfairfl.training.batches import Pool
from mfairfl.training.measure import Probe, logits

__all__ = ["Predictor", "load"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictor:
    """The model a run serves, with all it needs to read raw rows."""

    model: Model
    encoder: Encoder
    task: Task
    served: Served

    @property
    def randomised(self) -> bool:
        """Whether two people alike in everything may be decided differently."""
        rule = self.served.thresholds
        drawn = rule is not None and bool(((rule.probabilities > 0).sum(axis=1) > 1).any())
        return self.served.kind == "mixture" or drawn

    def decision_function(
        self, frame: Any, *, client: str | None = None, name: str = "the frame"
    ) -> NDArray[np.float64]:
        """Return the model's logits, (n,); those of each member, (R, n), for a mixture."""
        served = self.served
        if client is not None and served.kind != "personal":
            raise DataError(
                f"client '{client}': this run serves all clients alike; leave client= (--client) "
                "out"
            )
        frame = read_frame(frame)
        X = self.encoder.transform(features_frame(frame, self.task, name=name))
        none = np.zeros(len(X), dtype=np.int64)
        pool, (where,) = Pool.from_arrays([(X, none, none)], cells=1)
        models = served.members[None] if served.kind == "ensemble" else served.members
        with steady_arithmetic():  # as in training: the same rows get the same decisions
            probes = [Probe(weights, where, served.weights) for weights in models]
            z = np.stack([found.numpy() for found in logits(probes, self.model, pool)])
        if served.kind == "personal":
            return np.asarray(z[self._owners(frame, client, name), np.arange(len(X))])
        return z if served.kind == "mixture" else np.asarray(z[0])

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
        if self.served.kind == "mixture" or self.served.thresholds is not None:
            positive = self._favoured(frame, client, name)
        else:
            positive = expit(self.decision_function(frame, client=client, name=name))
        return np.column_stack([1 - positive, positive])

    def _favoured(self, frame: Any, client: str | None, name: str) -> NDArray[np.float64]:
        """Return the probability of a favourable decision; 0 or 1 unless it is drawn."""
        return self._chance(self.decision_function(frame, client=client, name=name), frame, name)

    def _chance(self, z: NDArray[np.float64], frame: Any, name: str) -> NDArray[np.float64]:
        """Return the probability of a favourable decision from the logits."""
        if self.served.kind == "mixture":
            return np.asarray(np.tensordot(self.served.weights, z > 0, axes=1))
        if self.served.thresholds is not None:
            cells = cells_of(frame, self.task, name=name)
            return self.served.thresholds.positive_probability(z, cells)
        return np.asarray(z > 0, dtype=np.float64)

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
        chance = self._favoured(frame, client, name)
        draws = np.random.default_rng(random_state).random(len(chance))
        return np.asarray(draws < chance, dtype=np.int8)

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
        found = self.measure(frame, client=client, name=name)
        return None if found is None else found.tally

    def measure(
        self, frame: Any, *, client: str | None = None, name: str = "the frame"
    ) -> MeasuredRows | None:
        """Measure decisions and scores on the rows that have a label; arguments as in `evaluate`.

        Examples
        --------
        >>> import mfairfl
        >>> found = mfairfl.load("runs/adult").measure("people.csv")  # doctest: +SKIP
        >>> found.evaluate().metrics["roc_auc"]  # doctest: +SKIP
        """
        frame = read_frame(frame)
        z = self.decision_function(frame, client=client, name=name)
        drawn = self.served.kind == "mixture"
        scores = (
            RowScores.of_mixture(z, self.served.weights) if drawn else RowScores.from_logits(z)
        )
        chance = self._chance(z, frame, name)
        return measure_predictions(frame, self.task, chance, scores, randomised=drawn, name=name)

    def _owners(self, frame: pd.DataFrame, client: str | None, name: str) -> NDArray[np.intp]:
        """Return which member answers each row."""
        place = {owner: i for i, owner in enumerate(self.served.clients)}
        if client is not None:
            if client not in place:
                raise DataError(unknown("client", client, self.served.clients))
            return np.full(len(frame), place[client], dtype=np.intp)
        if self.task.client not in frame:
            column = f"add the column '{self.task.client}', or " if self.task.client else ""
            raise DataError(
                f"{name}: each client has a model of its own: {column}give client= (--client), "
                f"one of: {', '.join(self.served.clients)}"
            )
        owners = [canonical_text(value) for value in frame[self.task.client]]
        strange = [owner for owner in owners if owner not in place]
        if strange:
            raise DataError(
                f"{name}, column '{self.task.client}': "
                + unknown("client", strange[0], self.served.clients)
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
    served = directory.read_model()
    size = served.members.shape[1]
    if size != made.size:
        raise RunDirectoryError(
            f"{directory.path}: model.safetensors has {size} weights, but the model has "
            f"{made.size}"
        )
    encoder = Encoder.load(directory.path / "encoder.json")
    return Predictor(model=made, encoder=encoder, task=record.task, served=served)


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
