"""A served model on raw rows: scikit-learn's `predict` on a frame, or a `torch.nn.Module`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import expit, logit
from torch import Tensor, nn

from mfairfl.data import Encoder, Task, canonical_text, cells_of
from mfairfl.data.coding import spelling
from mfairfl.data.columns import require_present
from mfairfl.engine.clients import served_logits
from mfairfl.engine.output import Served, draw_decisions
from mfairfl.errors import DataError, RunDirectoryError, require_known
from mfairfl.fairness import Tally
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.scores import RowScores
from mfairfl.models import MLP, Model, ModuleModel
from mfairfl.plugins import MODELS, ModuleFactory
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.record import RunRecord
from mfairfl.runs.rows import MeasuredRows, ReadRows, measure_predictions, read_rows
from mfairfl.wire.audit_messages import SentModel
from mfairfl.wire.enrolment_messages import ModelTerms

_WRITTEN = ("row", "score", "decision", "favourable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictor:
    """The model a run serves, with all it needs to read raw rows."""

    model: Model
    encoder: Encoder
    task: Task
    served: Served

    @property
    def randomised(self) -> bool:
        """Whether two people with the same data may get different decisions."""
        rule = self.served.thresholds
        return self.served.kind == "mixture" or (rule is not None and rule.randomised)

    def read(self, frame: Any, *, name: str | None = None) -> ReadRows:
        """Read raw rows as the model will, and count what is filled in or unknown.

        Parameters
        ----------
        frame : pandas or polars frame, or path
            Raw rows with the feature columns of the training data; others are ignored.
        name : str, optional
            What messages call the rows; a path has its own.

        Returns
        -------
        ReadRows
            Every other method takes them in place of the frame.

        Examples
        --------
        >>> import mfairfl
        >>> rows = mfairfl.load("runs/adult").read("people.csv")  # doctest: +SKIP
        >>> rows.missing, rows.notes  # doctest: +SKIP
        ({'age': 3}, ('age: 3 of 200 values missing, filled with the mean of training (38.6)',))
        """
        if isinstance(frame, ReadRows):
            return frame
        return read_rows(frame, self.task, self.encoder, name=name)

    def decision_function(self, frame: Any, *, client: str | None = None) -> NDArray[np.float64]:
        """Return the model's logits, (n,); those of each member, (R, n), for a mixture."""
        own = self.served.kind == "personal" or not self._reads_client
        place = None if client is None or not own else self._place(client)
        rows = self.read(frame)
        z = served_logits(self.served, self.model, rows.inputs, name=rows.name)
        if place is not None:
            return np.asarray(z[place])
        if self.served.kind == "personal":
            return np.asarray(z[self._members(rows), np.arange(len(rows.inputs))])
        return z if self.served.kind == "mixture" else np.asarray(z[0])

    def predict_proba(self, frame: Any, *, client: str | None = None) -> NDArray[np.float64]:
        """Return P(unfavourable), P(favourable) per row, (n, 2), as scikit-learn does.

        Of a model that decides by chance, or by fitted thresholds, this is the probability of a
        favourable *decision*.

        Parameters
        ----------
        frame : pandas or polars frame, path, or ReadRows
            Raw rows with the feature columns of the training data; others are ignored.
        client : str, optional
            Whose model or thresholds answer every row, if clients have their own; by default the
            rows' client column decides. A client without thresholds gets those for everyone.
        """
        rows = self.read(frame)
        positive = self._probability(self.decision_function(rows, client=client), rows, client)
        return np.column_stack([1 - positive, positive])

    @property
    def scores_decide(self) -> bool:
        """Whether a decision is nothing but a score above a threshold."""
        return self.served.kind != "mixture" and self.served.thresholds is None

    @property
    def _reads_client(self) -> bool:
        """Whether clients have thresholds of their own."""
        return self.served.thresholds is not None and bool(self.served.thresholds.clients)

    def _probability(
        self, z: NDArray[np.float64], rows: ReadRows, client: str | None
    ) -> NDArray[np.float64]:
        """Return P(favourable), of the label if scores decide, else of the decision."""
        if self.scores_decide:
            return np.asarray(expit(z))
        return self._decision_chance(z, rows, client)

    def _decision_chance(
        self,
        z: NDArray[np.float64],
        rows: ReadRows,
        client: str | None,
        threshold: float | None = None,
    ) -> NDArray[np.float64]:
        """Return the probability of a favourable decision; 0 or 1 unless it is drawn."""
        limit = 0.0
        if threshold is not None:
            if not 0 <= threshold <= 1:
                raise DataError(f"threshold {threshold:g}: give a number from 0 to 1")
            if not self.scores_decide:
                mixture = self.served.kind == "mixture"
                how = "at random" if mixture else "by fitted thresholds"
                raise DataError(
                    f"threshold {threshold:g}: this model decides {how}; remove threshold= "
                    "(--threshold)"
                )
            limit = float(logit(threshold))
        rule, cells, owners = self.served.thresholds, None, None
        if rule is not None and rule.reads_group:
            cells = cells_of(rows.frame, self.task, name=rows.name)
        if self._reads_client:
            owners = client or self._owners(rows)
        return self.served.decision_chance(z, cells, owners, limit=limit)

    def predict(
        self,
        frame: Any,
        *,
        labels: bool = False,
        threshold: float | None = None,
        client: str | None = None,
        random_state: int = 0,
    ) -> NDArray[Any]:
        """Return decisions, 1 = favourable, or the label's values.

        Parameters
        ----------
        frame : pandas or polars frame, path, or ReadRows
            Raw rows.
        labels : bool
            Whether to return values of the label (see `classes`) in place of 0 and 1.
        threshold : float, optional
            The score above which a decision is favourable, in place of 0.5. Fairness was measured
            at 0.5. Models that decide by chance or by fitted thresholds have no other.
        client : str, optional
            As for `predict_proba`.
        random_state : int
            Seed of a randomised model's draws; no other model's decisions depend on it.

        Examples
        --------
        >>> import mfairfl
        >>> mfairfl.load("runs/adult").predict("people.csv", labels=True)  # doctest: +SKIP
        array(['<=50K', '>50K', '<=50K'], dtype='<U5')
        """
        rows = self.read(frame)
        z = self.decision_function(rows, client=client)
        chance = self._decision_chance(z, rows, client, threshold)
        favourable = draw_decisions(chance, random_state)
        return np.array(self.classes)[favourable] if labels else favourable

    def predict_frame(
        self,
        frame: Any,
        *,
        keep: Sequence[str] = (),
        labels: bool = True,
        threshold: float | None = None,
        client: str | None = None,
        random_state: int = 0,
    ) -> pd.DataFrame:
        """Return one line a row: row (from 0), kept columns, score, decision, favourable.

        Parameters
        ----------
        frame : pandas or polars frame, path, or ReadRows
            Raw rows.
        keep : sequence of str
            Columns to copy as they are, such as an identifier.
        labels : bool
            Whether `decision` holds the label's values or 0 and 1, as `favourable` does.
        threshold, client, random_state
            As for `predict`.

        Examples
        --------
        >>> import mfairfl
        >>> model = mfairfl.load("runs/adult")  # doctest: +SKIP
        >>> model.predict_frame("people.csv", keep=["id"])  # doctest: +SKIP
        """
        if not labels and spelling(self.classes[0]) == "true":
            raise DataError(
                f"decision 1 would stand for '{self.classes[1]}', but reads as "
                f"'{self.classes[0]}'; leave labels=False (--decisions binary) out: the column "
                f"favourable holds 1 for '{self.classes[1]}'"
            )
        rows = self.read(frame)
        keep = [keep] if isinstance(keep, str) else keep
        require_present(rows.frame.columns, keep, rows.name)
        if taken := [column for column in keep if column in _WRITTEN]:
            raise DataError(
                f"{rows.name}: the column '{taken[0]}' cannot be kept: the scores have one of "
                "that name; rename it"
            )
        z = self.decision_function(rows, client=client)
        score = self._probability(z, rows, client)
        chance = self._decision_chance(z, rows, client, threshold)
        favourable = draw_decisions(chance, random_state)
        decision = np.array(self.classes, dtype=object)[favourable] if labels else favourable
        return pd.DataFrame(
            {
                "row": np.arange(len(score)),
                **{column: rows.frame[column].array for column in keep},
                "score": score,
                "decision": decision,
                "favourable": favourable,
            }
        )

    def evaluate(
        self, frame: Any, *, threshold: float | None = None, client: str | None = None
    ) -> Tally | None:
        """Count decisions on the rows that have a label; every measure is made from the counts.

        Of a randomised model these are expected counts.

        Parameters
        ----------
        frame : pandas or polars frame, path, or ReadRows
            Raw rows. Sensitive and client columns that are absent are not compared.
        threshold, client
            As for `predict`.

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
        measured = self.measure(frame, threshold=threshold, client=client)
        return None if measured is None else measured.tally

    def measure(
        self, frame: Any, *, threshold: float | None = None, client: str | None = None
    ) -> MeasuredRows | None:
        """Measure decisions and scores on the rows that have a label; arguments as in `evaluate`.

        Examples
        --------
        >>> import mfairfl
        >>> measured = mfairfl.load("runs/adult").measure("people.csv")  # doctest: +SKIP
        >>> measured.table()["roc_auc"].value  # doctest: +SKIP
        """
        rows = self.read(frame)
        z = self.decision_function(rows, client=client)
        mixture = self.served.kind == "mixture"
        return measure_predictions(
            rows.frame,
            self.task,
            self._decision_chance(z, rows, client, threshold),
            RowScores.of_mixture(z, self.served.weights) if mixture else RowScores.from_logits(z),
            randomised=mixture,
            name=rows.name,
        )

    def _place(self, client: str) -> int:
        """Return which member is a client's own model."""
        if self.served.kind != "personal":
            raise DataError(
                f"client '{client}': this run serves all clients alike; remove client= (--client)"
            )
        require_known("client", [client], self.served.clients, DataError)
        return self.served.clients.index(client)

    def _owners(self, rows: ReadRows) -> list[str]:
        """Return whose each row is, by the rows' client column."""
        column, rule = self.task.client, self.served.thresholds
        if column is None or column not in rows.frame:
            add = f"add the column '{column}', or " if column else ""
            what, clients = "a model", list(self.served.clients)
            if rule is not None:
                what, clients = "thresholds", [*rule.clients]
            raise DataError(
                f"{rows.name}: each client has {what} of its own: {add}give client= (--client), "
                f"one of: {', '.join(clients)}"
            )
        return [canonical_text(value) for value in rows.frame[column]]

    def _members(self, rows: ReadRows) -> NDArray[np.intp]:
        """Return which member answers each row."""
        owners, clients = self._owners(rows), self.served.clients
        places = {owner: i for i, owner in enumerate(clients)}
        where = f"{rows.name}, column '{self.task.client}'"
        require_known("client", owners, places, DataError, where=where)
        return np.array([places[owner] for owner in owners], dtype=np.intp)

    def to_module(self, *, client: str | None = None) -> ServedModule:
        """Return the model as a plain `torch.nn.Module` with its encoder, of equal scores.

        Where each client has its own model or thresholds, `client` says whose.

        Examples
        --------
        >>> import mfairfl
        >>> module = mfairfl.load("runs/adult").to_module()  # doctest: +SKIP
        >>> module(module.encode("people.csv"))  # doctest: +SKIP
        tensor([0.1042, 0.7310, 0.0518])
        """
        served = self.served
        if self._reads_client and served.thresholds is not None:
            if client is None:
                raise DataError(
                    "each client has thresholds of its own: give client=, one of: "
                    + ", ".join(served.thresholds.clients)
                )
            served = replace(served, thresholds=served.thresholds.of(client))
        elif client is not None:
            place = self._place(client)
            served = replace(served, members=served.members[[place]], weights=np.ones(1))
        elif served.kind == "personal":
            raise DataError(
                "each client has a model of its own: give client=, one of: "
                + ", ".join(served.clients)
            )
        return ServedModule(replace(self, served=served))

    @property
    def classes(self) -> tuple[str, str]:
        """The label's two values, unfavourable first."""
        return (str(self.task.unfavourable), self.task.favourable)


class ServedModule(nn.Module):
    """From encoded rows to the probability of the favourable label, as `predict_proba` gives it.

    `forward` is PyTorch and nothing else, and everything it computes with is in the `state_dict`.
    `encode` turns raw rows into its input. Nothing is trained unless `requires_grad_()` is called.

    Parameters
    ----------
    predictor : Predictor
        The served model; not one in which each client has its own.

    Examples
    --------
    >>> import mfairfl
    >>> module = mfairfl.load("runs/adult").to_module()  # doctest: +SKIP
    >>> module(module.encode("people.csv"))  # doctest: +SKIP
    tensor([0.1042, 0.7310, 0.0518])
    """

    shares: Tensor
    thresholds: Tensor
    chances: Tensor

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        served = predictor.served
        self.encoder, self.task = predictor.encoder, predictor.task
        members = [predictor.model.to_module(weights) for weights in served.members]
        self.members = nn.ModuleList(members)
        self.register_buffer("shares", torch.tensor(served.weights, dtype=torch.float32))
        self._drawn, self._by_thresholds = served.kind == "mixture", served.thresholds is not None
        if served.thresholds is not None:
            chances = torch.tensor(served.thresholds.probabilities, dtype=torch.float32)
            self.register_buffer("thresholds", _rounded_up(served.thresholds.values))
            self.register_buffer("chances", chances)
        self.requires_grad_(False).eval()

    def forward(self, x: Tensor, cells: Tensor | None = None) -> Tensor:
        """Return the probability of the favourable label, float32 (n,).

        Of a model that is drawn, or that decides by fitted thresholds, this is the probability of
        a favourable *decision*.

        Parameters
        ----------
        x : Tensor, float32 (n, inputs)
            Encoded rows.
        cells : Tensor, int64 (n,), optional
            Each row's groups, from `cells`: needed where thresholds depend on them.
        """
        z = torch.stack([member(x).reshape(x.shape[0]) for member in self.members])
        if self._by_thresholds:
            if len(self.thresholds) == 1:  # everyone is decided alike
                cells = torch.zeros(len(x), dtype=torch.int64)
            if cells is None:
                raise DataError(
                    "this model decides by a threshold for each group: module(x, module.cells(…))"
                )
            passed = z[0].unsqueeze(1) >= self.thresholds[cells]
            return torch.where(passed, self.chances[cells], 0.0).sum(dim=1).clamp(max=1.0)
        answers = (z > 0).to(z.dtype) if self._drawn else torch.sigmoid(z)
        return self.shares @ answers

    def encode(self, frame: Any) -> Tensor:
        """Return raw rows (a pandas or polars frame, or a path) as this module's input."""
        return torch.from_numpy(read_rows(frame, self.task, self.encoder).X)

    def cells(self, frame: Any) -> Tensor:
        """Return the groups of raw rows as `forward` wants them."""
        return torch.from_numpy(cells_of(frame, self.task).astype(np.int64))


def _rounded_up(values: np.ndarray) -> Tensor:
    """Return the least float32 numbers that are not below these: the same scores reach them."""
    nearest = values.astype(np.float32)
    above = np.nextafter(nearest, np.float32(np.inf))
    return torch.from_numpy(np.where(nearest < values, above, nearest))


def load(run: str | Path, *, model: ModuleFactory | None = None, trust: bool = False) -> Predictor:
    """Load the model of a finished run.

    Parameters
    ----------
    run : path
        Run directory.
    model : callable, optional
        The factory, if the run was trained with one: code is never stored in a run.
    trust : bool
        Import the model that the run names, if it is not built in. Only for runs from sources
        whose code you would execute.

    Examples
    --------
    >>> import mfairfl
    >>> mfairfl.load("runs/adult").predict("people.csv")  # doctest: +SKIP
    """
    directory = RunDirectory(run)
    path, record = directory.path, RunRecord.read(directory.path)
    served, encoder = directory.read_model(record.files)
    # The model is made of as many weights as the record says: the encoder comes first.
    _require_fit(path, _other_encoder(encoder, record))
    shape = _model(record, path, model, trust=trust)
    _require_fit(path, _other_weights(served, shape, record))
    return Predictor(model=shape, encoder=encoder, task=record.task, served=served)


def _require_fit(path: Path, problem: str) -> None:
    if problem:
        raise RunDirectoryError(f"{path}: {problem}; restore the files or train again")


def _other_encoder(encoder: Encoder, record: RunRecord) -> str:
    """Return in what the encoder does not fit the record."""
    inputs, task = len(encoder.feature_names), record.task
    if inputs != record.model.inputs:
        return f"encoder.json has {inputs} inputs, but the model has {record.model.inputs}"
    for kind, columns, listed in (
        ("numeric", encoder.numeric, task.numeric),
        ("categorical", encoder.categorical, task.categorical),
    ):
        if sorted(column.name for column in columns) != sorted(listed or ()):
            return f"encoder.json has other {kind} columns than the task in run.json"
    return ""


def _other_weights(served: Served, model: Model, record: RunRecord) -> str:
    """Return in what the weights do not fit the model."""
    size, cells = served.members.shape[1], Cells(record.task.attributes).size
    if size != model.size:
        return f"model.safetensors has {size} weights, but the model has {model.size}"
    if served.thresholds is not None and len(served.thresholds.values) not in (1, cells):
        return (
            f"model.safetensors has thresholds of {len(served.thresholds.values)} groups, but the "
            f"task has {cells}"
        )
    return ""


def _model(record: RunRecord, path: Path, factory: ModuleFactory | None, *, trust: bool) -> Model:
    if record.model.kind == "mlp":
        return MLP(inputs=record.model.inputs, hidden=record.model.hidden)
    name, _ = _module_name(record, path)
    factory = factory or (MODELS.follow(name) if trust else None)
    if factory is None:
        raise RunDirectoryError(
            f"{path}: trained with the module '{name}', which is code; give its factory with "
            "model=, or trust=True (--trust) to import it"
        )
    return ModuleModel(factory, record.model.inputs)


def _module_name(record: RunRecord, path: Path) -> tuple[str, bool]:
    """Return the name of the module that a run trained, and whether the settings had it."""
    match record.config.get("model"):
        case {"factory": str(name)}:
            return name, False
        case {"kind": str(name)}:
            return name, True
    raise RunDirectoryError(
        f"{path / 'run.json'}: config.model names no module; the file was altered: restore it or "
        "train again"
    )


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
    path, record = directory.path, RunRecord.read(directory.path)
    served, encoder = directory.read_model(record.files)
    if served.kind == "personal":
        raise RunDirectoryError(
            f"{path}: each client has a model of its own, which is not sent to others; audit its "
            "predictions instead"
        )
    if served.thresholds is not None and served.thresholds.clients:
        raise RunDirectoryError(
            f"{path}: each client has thresholds of its own, which are not sent to others; audit "
            "its predictions instead"
        )
    terms = ModelTerms(hidden=record.model.hidden)
    if record.model.kind == "module":
        kind, in_settings = _module_name(record, path)
        if not in_settings:
            raise RunDirectoryError(
                f"{path}: trained with a module that is code, which silos are not sent; register "
                "it under a name that silos list in extensions of silo.toml"
            )
        terms = ModelTerms(kind=kind)
    attributes = [s.name for s in record.task.sensitive]
    require_known("sensitive attribute", sensitive, attributes, where=str(path))
    return SentModel(
        task=record.task.model_copy(update={"client": None}),
        encoder=encoder,
        terms=terms,
        combined=served.kind,
        members=served.members,
        weights=served.weights,
        thresholds=served.thresholds,
        audited=tuple(name for name in attributes if name in (sensitive or attributes)),
    )
