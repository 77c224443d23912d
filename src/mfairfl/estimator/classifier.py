"""`FairFederatedClassifier`: fair federated training behind scikit-learn's `fit` and `predict`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from mfairfl import errors
from mfairfl.engine.output import Rule
from mfairfl.estimator import in_memory
from mfairfl.estimator.file import EstimatorFile, SavedClasses, SavedParameters
from mfairfl.fairness.notions import Notion
from mfairfl.plugins import ModuleFactory
from mfairfl.runs.config import ModelConfig, TrainingConfig
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.execute import Run
from mfairfl.runs.options import OPTIONS, dotted
from mfairfl.runs.predictor import load
from mfairfl.runs.record import RunRecord
from mfairfl.runs.train import train
from mfairfl.strategies.base import Strategy

_TRAINING, _MODEL = TrainingConfig(), ModelConfig()

_ASKED = {"sensitive_features": True, "clients": True}


@contextmanager
def _as_value_error() -> Iterator[None]:
    """Let scikit-learn see the `ValueError` that it expects of bad input."""
    try:
        yield
    except errors.MfairflError as error:
        raise errors.EstimatorError(str(error)) from None


def _has_one_score(estimator: FairFederatedClassifier) -> bool:
    """Return whether decisions are a score above 0, as far as is known."""
    run: Run | None = getattr(estimator, "run_", None)
    if run is not None and not run.predictor.scores_decide:
        raise AttributeError(
            "this model decides at random or by fitted thresholds, not by the sign of a score: "
            "use predict_proba"
        )
    return True


def _run_options(
    parameters: Mapping[str, Any], *, grouped: bool, one_client: bool
) -> dict[str, Any]:
    """Return the keywords of `mfairfl.train` for an estimator's parameters.

    No rows are held out, and all rows are one client's if no clients are named; `config` may say
    otherwise.

    Parameters
    ----------
    parameters : mapping
        The estimator's.
    grouped : bool
        Whether there are groups to be fair to: what the strategy ``auto`` depends on.
    one_client : bool
        Whether all rows are one client's.
    """
    options = {name: value for name, value in parameters.items() if name in OPTIONS}
    del options["favourable"]  # it is part of the table
    taken = {OPTIONS[name].key: f"the parameter {name}" for name in options}
    taken |= {"seed": "the parameter random_state", "model.kind": "the parameter model"}
    taken |= dict.fromkeys(("task", "data"), "what fit is given")
    if options["strategy"] == "auto":
        options["strategy"] = "mfairfl" if grouped else "fedavg"
    options |= {"model": parameters["model"], "clients.test": 0.0}
    if one_client:
        options["clients.count"] = 1
    return options | _further_options(parameters["config"], taken)


def _further_options(config: Any, taken: Mapping[str, str]) -> dict[str, Any]:
    """Return the other keys of a configuration; `taken` are those that are stated elsewhere."""
    if not isinstance(config, Mapping | None):
        raise errors.ConfigError(f"config: pass a mapping of keys to values, not {config!r}")
    values = dotted(config or {})
    errors.require_known("key", [n for n in values if "." not in n], OPTIONS, where="config")
    options = {}
    for name, value in values.items():
        key = OPTIONS[name].key if name in OPTIONS else name
        elsewhere = taken.get(key) or taken.get(key.partition(".")[0])
        if elsewhere is not None:
            raise errors.ConfigError(f"config: '{name}' is {elsewhere}: remove it")
        options[key] = value
    return options


def _seed_of(random_state: int | np.random.RandomState | None) -> int:
    """Return the seed that scikit-learn's `random_state` stands for."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


class FairFederatedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Fair federated training of a binary classifier, as a scikit-learn estimator.

    Parameters
    ----------
    strategy : str or Strategy
        A name of `mfairfl.strategies.available()`, ``package.module:Name``, or a strategy object.
        ``"auto"`` is mfairfl where `fit` gets groups, and fedavg, which is plain training, where
        it gets none.
    notion : str, Notion, or several
        What is to be equal between groups: dp, eo, eopp, ap, or notions of your own.
    rounds, local_epochs, hidden, batch_size, lr, weight_decay
        Budget, model and recipe; the defaults are those of `mfairfl.train`, and so is None.
    tolerance : float, optional
        Largest violation that is acceptable: training and the output rule aim below it, by a
        margin for the number of rows. None: training leaves alone what its rows cannot tell from
        0, and the output rule allows 0.005, or 0.01 where the notion needs it.
    blind : bool
        Whether sensitive columns that are in X as well are only measured, and never enter the
        model or the output rule.
    output_rule : {"last", "average", "select", "mixture", "thresholds"}, optional
        Which model is served; None: the strategy's own. Thresholds are for everyone, unless
        ``config={"by": "group"}`` or another key says otherwise.
    weights : {"size", "uniform"}, optional
        How clients count; None: the strategy's own.
    model : str or callable, optional
        A model of your own, as in `mfairfl.train`.
    favourable : label, optional
        The class that is good for a person; None: `classes_[1]`.
    config : mapping, optional
        Any other key of the configuration, dotted or nested: ``{"strategy.beta": 0.6}``.
    random_state : int, RandomState or None
        An integer is the seed of `mfairfl.train`.

    Attributes
    ----------
    classes_ : ndarray (2,)
        The label's values, ascending.
    favourable_ : label
        The one that is good for a person.
    run_ : Run
        The run, with `metrics`, `record` and `predictor`. No rows are held out, so its numbers
        are those of the training rows, unless ``config={"clients.test": 0.2}`` says otherwise.
    n_features_in_, feature_names_in_
        As in every estimator of scikit-learn.

    Notes
    -----
    Every column of `X` is a feature, and `sensitive_features` are not, unless they are in `X`
    too. Text, categories, dates and missing values may be in `X`: they are read as `mfairfl.train`
    reads a frame. Sample weights are not supported.

    Examples
    --------
    >>> import numpy as np
    >>> from mfairfl import FairFederatedClassifier
    >>> rng = np.random.default_rng(0)
    >>> X, sex = rng.normal(size=(200, 3)), rng.choice(["f", "m"], 200)
    >>> y = np.where(X[:, 0] + (sex == "m") > 0, "hired", "declined")
    >>> model = FairFederatedClassifier(rounds=10, favourable="hired", random_state=0)
    >>> model.fit(X, y, sensitive_features=sex).classes_.tolist()
    ['declined', 'hired']
    >>> model.predict(X[:2]).shape, model.predict_proba(X[:2]).shape
    ((2,), (2, 2))
    """

    # What metadata routing passes on, to every method that may need it.
    __metadata_request__fit: ClassVar = _ASKED
    __metadata_request__predict: ClassVar = _ASKED
    __metadata_request__predict_proba: ClassVar = _ASKED
    __metadata_request__decision_function: ClassVar = _ASKED
    __metadata_request__score: ClassVar = _ASKED

    def __init__(
        self,
        strategy: str | Strategy = "auto",
        *,
        notion: str | Notion | Sequence[str | Notion] = "demographic_parity",
        rounds: int | None = None,
        local_epochs: int = _TRAINING.local_epochs,
        hidden: Sequence[int] = _MODEL.hidden,
        batch_size: int = _TRAINING.batch_size,
        lr: float = _TRAINING.lr,
        weight_decay: float = _TRAINING.weight_decay,
        tolerance: float | None = None,
        blind: bool = False,
        output_rule: Rule | None = None,
        weights: Literal["size", "uniform"] | None = None,
        model: str | ModuleFactory | None = None,
        favourable: Any = None,
        config: Mapping[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.strategy = strategy
        self.notion = notion
        self.rounds = rounds
        self.local_epochs = local_epochs
        self.hidden = hidden
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.tolerance = tolerance
        self.blind = blind
        self.output_rule = output_rule
        self.weights = weights
        self.model = model
        self.favourable = favourable
        self.config = config
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any, sensitive_features: Any = None, clients: Any = None) -> Self:
        """Train.

        Parameters
        ----------
        X : frame or array (n, features)
            pandas, polars, pyarrow, or anything that numpy converts to a 2-d array. Missing values
            are filled in and marked.
        y : array (n,)
            Two values of any type.
        sensitive_features : column, frame, dict of columns or 2-d array, optional
            The groups that are to be treated alike. A row with a missing value is compared with
            no group. Without groups training is plain.
        clients : array (n,), optional
            The client of each row; without it all rows are one client's.

        Returns
        -------
        self
        """
        with _as_value_error():
            features = self._features(X, reset=True)
            labels = in_memory.labels_of(y, self.favourable)
            check_consistent_length(X, labels.codes)
            table = in_memory.labelled_table(features, labels, sensitive_features, clients)
            options = _run_options(
                self.get_params(deep=False),
                grouped=bool(table.attributes),
                one_client=clients is None,
            )
            run = train(table, seed=_seed_of(self.random_state), baseline=False, **options)
        self.classes_, self.favourable_ = labels.classes, labels.classes[labels.favourable]
        self.run_, self._columns = run, tuple(features.columns)
        return self

    def _features(self, X: Any, *, reset: bool) -> pd.DataFrame:
        """Check features as scikit-learn does, and return them as a pandas frame."""
        if nw.dependencies.is_into_dataframe(X):
            frame = in_memory.features_of(X)
            validate_data(self, X, reset=reset, skip_check_array=True)
            if 0 in frame.shape:
                raise errors.EstimatorError(f"X has shape {frame.shape}: give rows and features")
            return frame
        array = validate_data(self, X, reset=reset, dtype=None, ensure_all_finite="allow-nan")
        return in_memory.features_of(array)

    def _rows(self, X: Any, sensitive_features: Any, clients: Any) -> tuple[pd.DataFrame, Any]:
        """Return raw rows for the predictor, and the client that decides all of them, if one."""
        check_is_fitted(self, "run_")
        predictor, features = self.run_.predictor, self._features(X, reset=False)
        task, served = predictor.task, predictor.served
        by_group = served.thresholds is not None and served.thresholds.reads_group
        by_client = served.thresholds is not None and bool(served.thresholds.clients)
        whose = clients if isinstance(clients, str) else None
        rows = in_memory.raw_rows(
            features,
            self._columns,
            task,
            sensitive_features=sensitive_features if by_group else None,
            clients=clients if whose is None else None,
        )
        if lacking := [s.name for s in task.sensitive if by_group and s.column not in rows]:
            raise errors.EstimatorError(
                "this model decides by a threshold for each group: pass sensitive_features "
                f"({', '.join(lacking)})"
            )
        if by_client:
            if clients is None:
                raise errors.EstimatorError("clients have thresholds of their own: pass clients")
            return rows, whose
        if served.kind != "personal":
            return rows, None
        if clients is None and len(served.clients) > 1:
            raise errors.EstimatorError("each client has a model of its own: pass clients")
        return rows, served.clients[0] if clients is None else whose

    def predict(
        self,
        X: Any,
        sensitive_features: Any = None,
        clients: Any = None,
        random_state: int = 0,
    ) -> NDArray[Any]:
        """Return a class for each row.

        Parameters
        ----------
        X : frame or array (n, features)
            Features in the order of `fit`.
        sensitive_features : column, frame, dict of columns or 2-d array, optional
            Needed where the model decides by a threshold for each group and `X` does not hold the
            groups; any other model does not look at them.
        clients : array (n,) or str, optional
            Needed where each client has its own model (ditto) or thresholds: the client of each
            row, or one for all. Any other model does not look at them.
        random_state : int
            Seed of the draws of a model that decides at random (mixture, and thresholds with
            ``randomise``).
        """
        with _as_value_error():
            rows, whose = self._rows(X, sensitive_features, clients)
            decided = self.run_.predictor.predict(rows, client=whose, random_state=random_state)
        return np.asarray(self.classes_[decided if self._second else 1 - decided])

    def predict_proba(
        self, X: Any, sensitive_features: Any = None, clients: Any = None
    ) -> NDArray[np.float64]:
        """Return the probability of each class, (n, 2) in the order of `classes_`.

        Of a model that decides at random, or by fitted thresholds, these are the probabilities
        of its *decision*. Parameters as in `predict`.
        """
        with _as_value_error():
            rows, whose = self._rows(X, sensitive_features, clients)
            chances = self.run_.predictor.predict_proba(rows, client=whose)
        return chances if self._second else chances[:, ::-1]

    @available_if(_has_one_score)  # type: ignore[untyped-decorator]
    def decision_function(
        self, X: Any, sensitive_features: Any = None, clients: Any = None
    ) -> NDArray[np.float64]:
        """Return the log-odds of `classes_[1]`, (n,); not for models that decide otherwise.

        Parameters as in `predict`.
        """
        with _as_value_error():
            rows, whose = self._rows(X, sensitive_features, clients)
            score = self.run_.predictor.decision_function(rows, client=whose)
        return score if self._second else -score

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        sensitive_features: Any = None,
        clients: Any = None,
    ) -> float:
        """Return the accuracy of `predict`, whose parameters it takes."""
        decided = self.predict(X, sensitive_features=sensitive_features, clients=clients)
        return float(
            accuracy_score(in_memory.label_column(y), decided, sample_weight=sample_weight)
        )

    @property
    def _second(self) -> bool:
        """Whether the favourable class is the second."""
        return bool(self.favourable_ == self.classes_[1])

    def save(self, folder: str | Path) -> None:
        """Save as JSON and safetensors; the folder is a run's, which every command can read.

        A model of your own is code and is not saved: `load` has to be given it.

        Examples
        --------
        >>> model.save("hiring")  # doctest: +SKIP
        >>> FairFederatedClassifier.load("hiring").predict(X)  # doctest: +SKIP
        """
        check_is_fitted(self, "run_")
        record, predictor, scores = self.run_.record, self.run_.predictor, self.run_.scores
        names = getattr(self, "feature_names_in_", None)
        file = EstimatorFile(
            run=record.identity,
            parameters=SavedParameters.of(self.get_params(deep=False), record),
            classes=SavedClasses.of(self.classes_),
            favourable=1 if self._second else 0,
            columns=self._columns,
            feature_names=None if names is None else tuple(names),
        )
        directory = RunDirectory(folder)
        with directory.locked():
            directory.write_run(record, predictor.served, predictor.encoder, scores)
            file.write(directory.path)

    @classmethod
    def load(
        cls, folder: str | Path, *, model: ModuleFactory | None = None, trust: bool = False
    ) -> Self:
        """Load what `save` wrote.

        Parameters
        ----------
        folder : path
            Where it was saved.
        model : callable, optional
            The factory, if the estimator has a model of your own.
        trust : bool
            Whether code that the file names (``package.module:Name``) may be imported. Only for
            files from sources whose code you would execute.
        """
        path = Path(folder)
        record = RunRecord.read(path)
        file = EstimatorFile.read(path, record)
        if file.parameters.code and not trust:
            raise errors.RunDirectoryError(
                f"{path}: its parameters name code, '{file.parameters.code[0]}'; give trust=True "
                "to allow its import"
            )
        predictor = load(path, model=model, trust=trust)
        estimator = cls(**dict(file.parameters))
        estimator.model = model or estimator.model
        estimator.run_ = Run(record=record, predictor=predictor, path=path)
        estimator.classes_ = file.classes.array()
        estimator.favourable_ = estimator.classes_[file.favourable]
        estimator._columns, estimator.n_features_in_ = file.columns, len(file.columns)
        if file.feature_names is not None:
            estimator.feature_names_in_ = np.array(file.feature_names, dtype=object)
        return estimator
