"""Pooled references: what one would fit if all clients' rows lay in one place.

They are not federated and see every train row. They show what federation, the class of model and
fairness each cost:

* ``boosting``: gradient boosting, scikit-learn's histogram form, stopped early on a tenth of the
  train rows;
* ``boosting-threshold``: the same model, with a threshold for each group, fitted for a notion as
  the output rule ``thresholds`` fits them;
* ``logistic``: logistic regression on standardised numbers and one-hot categories.

The settings are fixed, the same for all data. Those of boosting were chosen by three folds of the
train rows of Adult, Bank, COMPAS and German (seed 0), before any comparison was made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, Self, cast, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mfairfl.data import Encoder, Federation, Table, statistics
from mfairfl.data.federation import hold_out
from mfairfl.errors import DataError, require_known
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.constraints import Goal
from mfairfl.fairness.fitting import Demand, fit_thresholds, refuse_losses
from mfairfl.fairness.histogram import ScoreHistogram
from mfairfl.fairness.scores import LOGIT_BINS
from mfairfl.fairness.thresholds import Thresholds
from mfairfl.randomness import stream

ReferenceName = Literal["boosting", "boosting-threshold", "logistic"]
REFERENCES: tuple[ReferenceName, ...] = get_args(ReferenceName)

_BOOSTING: dict[str, Any] = {
    "learning_rate": 0.05,
    "max_iter": 1000,
    "max_leaf_nodes": 15,
    "early_stopping": True,
    "validation_fraction": 0.1,
    "n_iter_no_change": 20,
}
_LOGISTIC: dict[str, Any] = {"C": 1.0, "max_iter": 5000}
_FOLDS = 5  # whose scores thresholds are fitted on
_LEVELS = 255  # scikit-learn's limit for a categorical column
_LEAST = 10  # train rows of each label: every fold and the rows that stop boosting have some
_BLOCK = 16_384  # rows that are encoded at once

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedReference:
    """A model that is fitted on the train rows of all clients together.

    Attributes
    ----------
    estimator
        The model, an estimator of scikit-learn.
    prepare
        Turns features into the estimator's input.
    thresholds
        How each group's scores become decisions; None decides at score ½.
    """

    estimator: Any
    prepare: Callable[[pd.DataFrame], Any]
    thresholds: Thresholds | None = None

    def fit(self, X: pd.DataFrame, y: NDArray[Any]) -> Self:
        """Fit the estimator, and return this object."""
        with _one_thread():
            self.estimator.fit(self.prepare(X), y)
        return self

    def logits(self, X: pd.DataFrame) -> Floats:
        """Return the score of each row of features (`Table.X`), as a logit."""
        if not len(X):
            return np.empty(0)
        with _one_thread():
            logits = self.estimator.decision_function(self.prepare(X))
        return np.asarray(logits, dtype=np.float64)

    def chances(self, logits: Floats, cells: NDArray[Any]) -> Floats:
        """Return each row's probability of a favourable decision: 0 or 1, unless it is drawn."""
        if self.thresholds is None:
            return (logits >= 0).astype(np.float64)
        return self.thresholds.positive_probability(logits, cells)


def fit_reference(
    name: str,
    table: Table,
    federation: Federation,
    *,
    goal: Goal | None = None,
    tolerance: float = 0.0,
) -> FittedReference:
    """Fit a reference on the train rows of all clients.

    Parameters
    ----------
    name
        ``boosting``, ``boosting-threshold`` or ``logistic``.
    table
        The table that the federation was made from.
    federation
        From `mfairfl.partition`; its seed is the seed of the fit.
    goal, tolerance
        What the thresholds of ``boosting-threshold`` are fitted for, and the violation that they
        allow; the other references use neither. By default demographic parity on all sensitive
        attributes.

    Examples
    --------
    >>> import mfairfl
    >>> table = mfairfl.load_dataset("german")
    >>> federation = mfairfl.partition(table, "iid", seed=0)
    >>> reference = fit_reference("logistic", table, federation)
    >>> test = federation.pooled("test")
    >>> decisions = reference.chances(reference.logits(table.X.iloc[test.rows]), test.cells)
    >>> print(f"{(decisions == test.y).mean():.3f}")
    0.745
    """
    rows = PooledRows(table, federation)
    return rows.fit(known_reference(name), goal=goal, tolerance=tolerance)


def known_reference(name: str) -> ReferenceName:
    """Return the name, or refuse one that no reference has.

    Examples
    --------
    >>> known_reference("logistic")
    'logistic'
    """
    require_known("reference", [name], REFERENCES)
    return cast("ReferenceName", name)


def reference_settings(name: ReferenceName) -> dict[str, Any]:
    """Return what decides the fit, beside rows, seed, goal and tolerance.

    Examples
    --------
    >>> reference_settings("logistic")
    {'C': 1.0, 'max_iter': 5000}
    """
    if name == "logistic":
        return dict(_LOGISTIC)
    return _BOOSTING | ({"folds": _FOLDS} if name == "boosting-threshold" else {})


class PooledRows:
    """The train rows of all clients in one place; a model of them is fitted once.

    Examples
    --------
    >>> rows = PooledRows(table, federation)  # doctest: +SKIP
    >>> fair = [rows.fit("boosting-threshold", goal=Goal(notions=(name,)))
    ...         for name in ("dp", "eo")]  # doctest: +SKIP
    """

    def __init__(self, table: Table, federation: Federation) -> None:
        if (table.sha256, table.task) != (federation.sha256, federation.task):
            raise DataError(
                f"table '{table.name}' is not the one that the federation of "
                f"'{federation.table_name}' was made from: pass the table given to partition()"
            )
        self.table, self.federation = table, federation
        self._train = federation.pooled("train")
        self._X = table.X.iloc[self._train.rows]
        fewest = int(np.bincount(self._train.y, minlength=2).min())
        if fewest < _LEAST:
            raise DataError(
                f"{table.name}: {fewest} train rows of one label; a reference needs {_LEAST} of "
                "each: give more rows, or leave references out"
            )

    def fit(
        self, name: ReferenceName, *, goal: Goal | None = None, tolerance: float = 0.0
    ) -> FittedReference:
        """Fit one of `REFERENCES`; see `fit_reference`."""
        if name == "logistic":
            return self._logistic
        if name == "boosting":
            return self._boosting
        constraints = (goal or Goal()).constraints(self.federation.attributes)
        refuse_losses(constraints)
        demand = Demand(by="group", tolerance=tolerance)
        fitted = fit_thresholds({"all": self._unseen}, constraints, demand)
        return replace(self._boosting, thresholds=fitted.thresholds)

    @cached_property
    def _boosting(self) -> FittedReference:
        return self._boosted(self._X, self._train.y)

    def _boosted(self, X: pd.DataFrame, y: NDArray[Any]) -> FittedReference:
        """Fit gradient boosting on features as they are: numbers, missing ones too, and texts."""
        from sklearn.ensemble import HistGradientBoostingClassifier  # noqa: PLC0415 - slow

        levels = {column: _Levels.of(X[column]) for column in self.table.task.categorical or ()}
        model = HistGradientBoostingClassifier(
            **_BOOSTING, categorical_features="from_dtype", random_state=self.federation.seed
        )
        prepare = partial(_with_categories, levels=levels)
        return FittedReference(estimator=model, prepare=prepare).fit(X, y)

    @cached_property
    def _logistic(self) -> FittedReference:
        """Fit logistic regression on standardised numbers and one-hot categories."""
        from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - slow

        task = self.table.task
        every = self.table.X.iloc[self.federation.pool.rows]
        encoder = Encoder.fit(statistics(self._X, task), task, schema=statistics(every, task))
        model = LogisticRegression(**_LOGISTIC)
        prepare = partial(_sparse, encoder=encoder)
        return FittedReference(estimator=model, prepare=prepare).fit(self._X, self._train.y)

    @cached_property
    def _unseen(self) -> ScoreHistogram:
        """The scores of train rows by models that were fitted without them.

        A boosted model is surer of the rows it was fitted on than of new ones: thresholds that
        were fair on such scores would not be fair on others.
        """
        X, y, cells = self._X, self._train.y, self._train.cells
        strata = cells.astype(np.int64) * 2 + y
        logits = np.empty(len(y))
        for fold in range(_FOLDS):
            rng = stream(self.federation.seed, "reference folds")
            others, unseen = hold_out(strata, fold=fold, folds=_FOLDS, rng=rng)
            logits[unseen] = self._boosted(X.iloc[others], y[others]).logits(X.iloc[unseen])
        size = Cells(self.federation.attributes).size
        return ScoreHistogram.from_logits(logits, cells, y, size=size, bins=LOGIT_BINS)


class _Levels(NamedTuple):
    """The distinct levels of a categorical column, and whether all others are merged into one."""

    names: pd.Index
    merged: bool

    @classmethod
    def of(cls, column: pd.Series) -> _Levels:
        """Keep all levels, or the most frequent ones if there are more than boosting takes."""
        counts = column.astype(object).value_counts()
        # Levels that are equally frequent go by name, never by their order in a file.
        ordered = sorted(counts.items(), key=lambda pair: (-pair[1], str(pair[0])))
        names = [str(level) for level, _ in ordered[: _LEVELS - 1]]
        return cls(pd.Index(sorted(names), dtype=object), merged=len(ordered) > len(names))

    def numbered(self, column: pd.Series) -> Any:
        """Return each row's level by number; any other level is merged, or missing."""
        codes = self.names.get_indexer(pd.Index(column.astype(object)))
        if self.merged:
            codes = np.where(codes < 0, len(self.names), codes)
        numbers = pd.RangeIndex(len(self.names) + self.merged)
        return pd.Categorical.from_codes(codes, categories=numbers)


def _with_categories(X: pd.DataFrame, levels: Mapping[str, _Levels]) -> pd.DataFrame:
    """Return the features with their texts as categories."""
    X = X.reset_index(drop=True)
    for column, column_levels in levels.items():
        X[column] = column_levels.numbered(X[column])
    return X


def _sparse(X: pd.DataFrame, encoder: Encoder) -> Any:
    """Encode block by block: of a one-hot column only the ones are kept."""
    from scipy.sparse import csr_array, vstack  # noqa: PLC0415 - slow, rarely needed

    starts = range(0, len(X), _BLOCK)
    parts = [csr_array(encoder.transform(X.iloc[at : at + _BLOCK])) for at in starts]
    return vstack(parts, format="csr", dtype=np.float64)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on one thread: sums split over threads round differently."""
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 - only here

    with threadpool_limits(limits=1):
        yield
