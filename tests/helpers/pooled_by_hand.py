"""The pooled references by hand: scikit-learn's own encoders, settings spelled out."""

from __future__ import annotations

import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler


def with_categories(X, train, columns):
    """Texts as categories of the levels that the train rows hold."""
    levels = {c: sorted(set(train[c])) for c in columns}
    return X.assign(**{c: pd.Categorical(X[c], categories=levels[c]) for c in columns})


def boosted(train, y, columns, *, seed):
    """Return a function from features to logits."""
    model = HistGradientBoostingClassifier(
        learning_rate=0.05,
        max_leaf_nodes=15,
        max_iter=1000,
        early_stopping=True,
        validation_fraction=0.1,
        n_iter_no_change=20,
        categorical_features="from_dtype",
        random_state=seed,
    ).fit(with_categories(train, train, columns), y)
    return lambda X: model.decision_function(with_categories(X, train, columns))


def logistic(train, y, numeric, columns):
    """Return a function from features to logits."""
    encoded = make_column_transformer(
        (StandardScaler(), list(numeric)),
        (OneHotEncoder(handle_unknown="ignore"), list(columns)),
    )
    model = make_pipeline(encoded, LogisticRegression(C=1.0, max_iter=5000)).fit(train, y)
    return model.decision_function
