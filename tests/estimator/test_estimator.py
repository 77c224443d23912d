"""FairFederatedClassifier from the outside: scikit-learn's checks and tools, and fairlearn."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from fairlearn.metrics import (
    demographic_parity_difference,
    equal_opportunity_difference,
    selection_rate,
)
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer, make_scorer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import federations as fed
import mfairfl
from answers import one_line
from mfairfl import FairFederatedClassifier
from mfairfl.data import Task, table_from_frame
from mfairfl.errors import EstimatorError, MfairflError
from mfairfl.runs.config import make_config
from mfairfl.strategies import create

QUICK = {"rounds": 4, "hidden": (4,), "batch_size": 20, "lr": 0.05, "weight_decay": 0.1}
PEOPLE = fed.people()
FEATURES, HIRED = PEOPLE[["skill", "years", "job"]], PEOPLE["hired"]
NUMBERS = PEOPLE[["skill", "years"]]


def quick(**changes):
    return FairFederatedClassifier(**{**QUICK, "random_state": 0, **changes})


def weights(model):
    return model.run_.predictor.served.members.tobytes()


# No check is expected to fail: see docs/estimator.md.
@parametrize_with_checks([FairFederatedClassifier()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_the_defaults_are_those_of_a_run():
    model = FairFederatedClassifier(random_state=0).fit(NUMBERS, HIRED)
    config, default = model.run_.record.config, make_config({}).model_dump(mode="json")
    for section in ("training", "model", "fairness", "output", "encoder"):
        assert config[section] == default[section]
    assert config["strategy"]["name"] == "fedavg"
    fair = quick().fit(NUMBERS, HIRED, PEOPLE["sex"])
    assert fair.run_.record.config["strategy"] == default["strategy"]
    assert model.run_.record.federation.clients[0].test == 0


def test_its_tags_are_true():
    tags = FairFederatedClassifier().__sklearn_tags__()
    assert is_classifier(FairFederatedClassifier())
    assert not tags.classifier_tags.multi_class
    assert not tags.classifier_tags.poor_score
    assert not tags.input_tags.sparse
    gaps = NUMBERS.mask(np.eye(*NUMBERS.shape, dtype=bool))
    assert tags.input_tags.allow_nan
    assert np.isfinite(quick().fit(gaps, HIRED).predict_proba(gaps)).all()


# ------------------------------------------------------------------ the same as mfairfl.train


@pytest.mark.parametrize("kept_out", [True, False])
@pytest.mark.parametrize("strategy", ["fedavg", "mfairfl", "indfair", "scaffold"])
def test_it_trains_as_train_does(strategy, kept_out):
    roles = {"label": "hired", "favourable": "yes", "sensitive": ("sex", "age"), "client": "site"}
    table = table_from_frame(PEOPLE, Task(**roles, sensitive_as_features=not kept_out))
    run = mfairfl.train(table, strategy=strategy, notion="eo", seed=3, **QUICK, **NO_TEST)
    X = FEATURES if kept_out else FEATURES.join(PEOPLE[["sex", "age"]])
    model = quick(strategy=strategy, notion="eo", random_state=3)
    model.fit(X, HIRED, sensitive_features=PEOPLE[["sex", "age"]], clients=PEOPLE["site"])
    assert weights(model) == run.predictor.served.members.tobytes()
    assert model.run_.metrics == run.metrics
    np.testing.assert_array_equal(
        model.predict_proba(X), run.predictor.predict_proba(PEOPLE), strict=True
    )
    np.testing.assert_array_equal(model.predict(X), run.predictor.predict(PEOPLE, labels=True))


NO_TEST = {"clients.test": 0.0}


def test_without_clients_all_rows_are_one_clients():
    run = mfairfl.train(
        PEOPLE.drop(columns="site"),
        label="hired",
        favourable="yes",
        sensitive="sex",
        clients=1,
        **QUICK,
        **NO_TEST,
    )
    X = PEOPLE.drop(columns=["site", "hired"])
    model = quick().fit(X, HIRED, sensitive_features=PEOPLE["sex"])
    assert weights(model) == run.predictor.served.members.tobytes()
    assert len(model.run_.record.federation.clients) == 1


def test_what_has_no_parameter_is_in_config():
    how = {"strategy.beta": 0.3, "encoder.bins": 4, "encoder.min_rows": 10, "clients.test": 0.25}
    nested = {
        "strategy": {"beta": 0.3},
        "encoder": {"bins": 4, "min_rows": 10},
        "clients": {"test": 0.25},
    }
    models = [
        quick(config=config).fit(NUMBERS, HIRED, PEOPLE["sex"], PEOPLE["site"])
        for config in (how, nested)
    ]
    assert weights(models[0]) == weights(models[1])
    config = models[0].run_.record.config
    assert (config["strategy"]["beta"], config["encoder"]["bins"]) == (0.3, 4)
    assert models[0].run_.metrics["test"] is not None
    assert (
        quick(config={"robust": "auto"})
        .fit(NUMBERS, HIRED, clients=PEOPLE["site"])
        .run_.record.config["robust"]
        == "auto"
    )


def test_a_strategy_and_a_model_of_ones_own():
    def own(inputs):
        return nn.Sequential(nn.Linear(inputs, 3), nn.Tanh(), nn.Linear(3, 1))

    given = (NUMBERS, HIRED, PEOPLE["sex"], PEOPLE["site"])
    named = quick(strategy="mfairfl", model=own, config={"strategy.beta": 0.3}).fit(*given)
    made = quick(strategy=create("mfairfl", beta=0.3), model=own).fit(*given)
    assert weights(named) == weights(made)
    assert clone(made).get_params()["model"] is own
    assert named.run_.record.model.kind == "module"


# ------------------------------------------------------------------ what rows may come in


def containers(frame):
    return {
        "pandas": frame,
        "polars": pl.from_pandas(frame),
        "pyarrow": pa.Table.from_pandas(frame, preserve_index=False),
        "numpy": frame.to_numpy(),
        "list": frame.to_numpy().tolist(),
        "object": frame.to_numpy(dtype=object),
        "integer names": frame.set_axis(range(frame.shape[1]), axis=1),
        "odd index": frame.set_axis(range(100, 100 + len(frame))),
    }


@pytest.mark.slow
def test_containers_give_the_same_model():
    found = {}
    for kind, X in containers(NUMBERS).items():
        series = pl.Series if kind == "polars" else pd.Series if kind == "pandas" else np.array
        model = quick().fit(X, series(HIRED), series(PEOPLE["sex"]), series(PEOPLE["site"]))
        found[kind] = weights(model), model.predict_proba(X).tobytes()
    assert len(set(found.values())) == 1


def test_text_and_categories_are_features():
    plain = quick().fit(FEATURES, HIRED)
    typed = FEATURES.assign(job=FEATURES["job"].astype("category"))
    for X in (typed, pl.from_pandas(typed), FEATURES.to_numpy(dtype=object)):
        assert weights(quick().fit(X, HIRED)) == weights(plain)
    assert plain.run_.predictor.task.categorical == ("job",)
    strange = FEATURES.assign(job="pilot")
    assert np.isfinite(plain.predict_proba(strange)).all()


@pytest.mark.parametrize("given", ["column", "frame", "dict", "array", "polars"])
def test_groups_come_as_in_the_metrics(given):
    columns = ["sex"] if given == "column" else ["sex", "age"]
    sensitive = {
        "column": PEOPLE["sex"],
        "frame": PEOPLE[columns],
        "dict": {name: PEOPLE[name].tolist() for name in columns},
        "array": PEOPLE[columns].to_numpy(),
        "polars": pl.from_pandas(PEOPLE[columns]),
    }[given]
    model = quick().fit(NUMBERS, HIRED, sensitive_features=sensitive)
    expected = quick().fit(NUMBERS, HIRED, sensitive_features=PEOPLE[columns])
    assert weights(model) == weights(expected)
    names = [attribute.name for attribute in model.run_.record.task.attributes]
    numbered = ["sensitive_feature_0", "sensitive_feature_1"]
    assert names == (numbered if given == "array" else columns)


def test_groups_are_features_only_if_they_are_in_x():
    out = quick().fit(NUMBERS, HIRED, sensitive_features=PEOPLE["sex"])
    within = quick().fit(
        NUMBERS.assign(sex=PEOPLE["sex"]), HIRED, sensitive_features=PEOPLE["sex"]
    )
    assert "sex" not in (*out.run_.predictor.task.categorical, *out.run_.predictor.task.numeric)
    assert within.run_.predictor.task.categorical == ("sex",)
    assert within.run_.record.task.sensitive[0].column == "sex"


def test_names_that_collide_are_told_apart():
    """The groups, clients and labels of these names are other columns than the features."""
    X = NUMBERS.set_axis(["sex", "site"], axis=1)
    y, sex, site = (PEOPLE[c].rename(c) for c in ("hired", "sex", "site"))
    model = quick().fit(X, y.rename("site"), sensitive_features=sex, clients=site)
    plain = quick().fit(NUMBERS, y, sensitive_features=sex, clients=site)
    assert weights(model) == weights(plain)
    task = model.run_.record.task
    assert {*task.numeric} == {"sex", "site"}
    assert task.attributes[0].name == "sex"
    assert len({task.label, task.client, task.sensitive[0].column, "sex", "site"}) == 5


@pytest.mark.parametrize(
    "labels",
    [
        (False, True),
        (0, 1),
        (-1.0, 1.0),
        ("no", "yes"),
        ("?", "yes"),
        ("", "yes"),
        (" 1", "1"),
        (np.datetime64("2024-01-01"), np.datetime64("2024-01-02")),
    ],
    ids=str,
)
def test_labels_of_any_type(labels):
    y = np.array(labels)[(HIRED == "yes").astype(int)]
    model, expected = quick().fit(NUMBERS, y), quick().fit(NUMBERS, HIRED)
    np.testing.assert_array_equal(model.classes_, np.array(labels), strict=True)
    assert weights(model) == weights(expected)
    decided = model.predict(NUMBERS)
    assert decided.dtype == y.dtype
    np.testing.assert_array_equal(decided == y, expected.predict(NUMBERS) == HIRED)
    assert model.score(NUMBERS, y) == expected.score(NUMBERS, HIRED)


def test_objects_that_are_booleans():
    y = (HIRED == "yes").to_numpy().astype(object)
    model = quick().fit(NUMBERS, y)
    assert model.classes_.dtype == bool
    assert model.score(NUMBERS, y) == (model.predict(NUMBERS) == y).mean()


def test_the_favourable_class_may_be_the_first():
    """Favouring "no" of no and yes is favouring the second of two classes that are swapped."""
    swapped = np.where(HIRED == "yes", "a", "b")
    given = {"sensitive_features": PEOPLE["sex"], "clients": PEOPLE["site"]}
    first = quick(notion="eopp", favourable="no").fit(NUMBERS, HIRED, **given)
    second = quick(notion="eopp").fit(NUMBERS, swapped, **given)
    assert first.classes_.tolist() == ["no", "yes"]
    assert (first.favourable_, second.favourable_) == ("no", "b")
    assert weights(first) == weights(second)
    np.testing.assert_array_equal(
        first.predict_proba(NUMBERS), second.predict_proba(NUMBERS)[:, ::-1]
    )
    np.testing.assert_array_equal(
        first.decision_function(NUMBERS), -second.decision_function(NUMBERS)
    )
    assert ((first.predict(NUMBERS) == "no") == (second.predict(NUMBERS) == "b")).all()
    assert weights(first) != weights(quick(notion="eopp").fit(NUMBERS, HIRED, **given))


def test_scores_probabilities_and_decisions_agree():
    model = quick().fit(FEATURES, HIRED)
    score, chance = model.decision_function(FEATURES), model.predict_proba(FEATURES)
    np.testing.assert_allclose(chance[:, 1], 1 / (1 + np.exp(-score)), rtol=1e-12)
    np.testing.assert_allclose(chance.sum(axis=1), 1, rtol=1e-15)
    assert (model.predict(FEATURES) == np.where(score > 0, "yes", "no")).all()
    assert 0 < (score > 0).mean() < 1


def test_few_rows_and_constant_features():
    X = pd.DataFrame({"same": [1.0] * 4, "x": [0.0, 1, 2, 3], "word": ["a"] * 4})
    model = quick().fit(X, [0, 0, 1, 1], sensitive_features=list("abab"), clients=list("aabb"))
    assert set(model.predict(X)) <= {0, 1}
    assert model.run_.record.federation.warnings  # each client lacks a class
    two = quick().fit([[0.0], [1.0]], [0, 1])
    assert two.predict([[0.0], [1.0], [2.0]]).shape == (3,)


def test_a_group_of_one_row_is_no_obstacle():
    """Parts of the rows, as cross-validation takes them, may hold one member of a group."""
    sex = np.where(np.arange(len(PEOPLE)) == 5, "X", PEOPLE["sex"])
    model = quick().fit(NUMBERS, HIRED, sensitive_features=sex)
    assert model.run_.record.task.attributes[0].groups == ("F", "M", "X")


def test_rows_without_a_group_are_not_recorded():
    sex = PEOPLE["sex"].where(np.arange(len(PEOPLE)) % 5 > 0)
    model = quick(output_rule="thresholds", config={"by": "group"}).fit(
        NUMBERS, HIRED, sensitive_features=sex
    )
    assert model.run_.record.task.attributes[0].groups == ("F", "M", "?")
    assert model.predict(NUMBERS, sensitive_features=sex).shape == (len(PEOPLE),)


# ------------------------------------------------------------------ fairness, by fairlearn


def applicants(n, seed):
    """Groups that differ in what hiring depends on, and no other way to tell them apart."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n)
    skill = rng.normal(size=n) + 0.8 * (sex == "m")
    X = np.column_stack([skill, rng.normal(size=n), sex == "m"])
    y = (skill + rng.normal(size=n) > 0.4).astype(int)
    return X, y, sex, rng.choice(["north", "south", "west"], n)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("notion", "measure"),
    [
        ("demographic_parity", demographic_parity_difference),
        ("equal_opportunity", equal_opportunity_difference),
    ],
)
def test_it_is_fairer_than_plain_training(notion, measure):
    X, y, sex, site = applicants(3000, seed=1)
    unseen, truth, groups, _ = applicants(3000, seed=2)
    how = {"rounds": 20, "hidden": (16,), "lr": 0.02, "weight_decay": 0.1, "batch_size": 128}
    plain = FairFederatedClassifier(**how, random_state=0).fit(X, y, clients=site)
    fair = FairFederatedClassifier(notion=notion, **how, random_state=0)
    fair.fit(X, y, sensitive_features=sex, clients=site)
    before, after = (
        measure(truth, model.predict(unseen), sensitive_features=groups) for model in (plain, fair)
    )
    assert before > 0.15
    assert after < 0.07
    assert fair.score(unseen, truth) > plain.score(unseen, truth) - 0.08
    assert fair.score(unseen, truth) > max(truth.mean(), 1 - truth.mean()) + 0.1
    assert plain.score(unseen, truth) == pytest.approx(
        LogisticRegression().fit(X, y).score(unseen, truth), abs=0.02
    )


# ------------------------------------------------------------------ rules that need the group


@pytest.fixture(scope="module")
def by_group():
    """Thresholds of equal expected selection on the training rows; the groups are not in X."""
    model = quick(strategy="fedavg-threshold", tolerance=0.0)
    return model.fit(NUMBERS, HIRED, sensitive_features=PEOPLE["sex"], clients=PEOPLE["site"])


def test_thresholds_select_groups_alike(by_group):
    chance = by_group.predict_proba(NUMBERS, sensitive_features=PEOPLE["sex"])[:, 1]
    rates = pd.Series(chance).groupby(PEOPLE["sex"]).mean()
    assert rates["F"] == pytest.approx(rates["M"], abs=1e-9)
    drawn = [
        by_group.predict(NUMBERS, sensitive_features=PEOPLE["sex"], random_state=seed)
        for seed in range(3)
    ]
    selected = [selection_rate(HIRED == "yes", decided == "yes") for decided in drawn]
    assert np.mean(selected) == pytest.approx(chance.mean(), abs=0.05)
    again = by_group.predict(NUMBERS, sensitive_features=PEOPLE[["sex"]])
    np.testing.assert_array_equal(again, by_group.predict(NUMBERS, {"sex": PEOPLE["sex"]}))
    assert by_group.score(NUMBERS, HIRED, sensitive_features=PEOPLE["sex"]) == pytest.approx(
        (again == HIRED).mean()
    )


def test_thresholds_need_the_groups(by_group):
    with pytest.raises(EstimatorError, match=r"pass sensitive_features \(sex\)"):
        by_group.predict(NUMBERS)
    with pytest.raises(EstimatorError, match="unknown group 'X'"):
        by_group.predict(NUMBERS, sensitive_features=["X"] * len(NUMBERS))
    with pytest.raises(EstimatorError, match=r"shape \(2,\); give one value for each of 260"):
        by_group.predict(NUMBERS, sensitive_features=["F", "M"])


def test_groups_that_are_features_need_not_be_given_twice():
    X = NUMBERS.assign(sex=PEOPLE["sex"])
    model = quick(strategy="fedavg-threshold").fit(X, HIRED, sensitive_features=PEOPLE["sex"])
    given = model.predict_proba(X, sensitive_features=PEOPLE["sex"])
    np.testing.assert_array_equal(model.predict_proba(X), given)
    with pytest.raises(EstimatorError, match="row 0: 'sex' is not what the column 'sex' of X"):
        model.predict(X, sensitive_features=PEOPLE["sex"].map({"F": "M", "M": "F"}))


def test_a_score_is_offered_only_where_it_decides(by_group):
    assert not hasattr(by_group, "decision_function")
    assert hasattr(quick(), "decision_function")
    X = NUMBERS.assign(sex=PEOPLE["sex"])
    model = quick(strategy="fedavg-threshold").fit(X, HIRED, sensitive_features=PEOPLE["sex"])
    with pytest.raises(AttributeError) as caught:
        model.decision_function(X)
    assert "use predict_proba" in str(caught.value.__cause__)
    assert 0.5 < get_scorer("roc_auc")(model, X, HIRED) <= 1  # from the probabilities


@pytest.mark.slow
def test_a_mixture_is_drawn_with_its_seed():
    X, groups = FEATURES.join(PEOPLE[["sex", "age"]]), PEOPLE[["sex", "age"]]
    model = quick(notion="eopp", output_rule="mixture", tolerance=0.0, rounds=8)
    model.fit(X, HIRED, groups, PEOPLE["site"])
    assert model.run_.predictor.served.kind == "mixture"
    assert model.run_.predictor.served.weights.min() > 0.4
    draws = np.array([model.predict(X, random_state=seed) == "yes" for seed in range(100)])
    np.testing.assert_array_equal(draws[0], model.predict(X) == "yes")
    np.testing.assert_allclose(draws.mean(axis=0), model.predict_proba(X)[:, 1], atol=0.2)


def test_personal_models_answer_their_own_rows():
    model = quick(strategy="ditto").fit(NUMBERS, HIRED, clients=PEOPLE["site"])
    mixed = model.predict_proba(NUMBERS, clients=PEOPLE["site"])
    for site in fed.SITES:
        here = (PEOPLE["site"] == site).to_numpy()
        alone = model.predict_proba(NUMBERS[here], clients=site)
        np.testing.assert_allclose(mixed[here], alone, rtol=0, atol=1e-6)
    with pytest.raises(EstimatorError, match="each client has a model of its own: pass clients"):
        model.predict(NUMBERS)
    with pytest.raises(EstimatorError, match="unknown client 'nowhere'"):
        model.predict(NUMBERS, clients="nowhere")
    alone = quick(strategy="ditto").fit(NUMBERS, HIRED)
    assert alone.predict(NUMBERS).shape == (len(PEOPLE),)


def test_what_a_model_does_not_need_is_not_looked_at():
    model = quick().fit(NUMBERS, HIRED, sensitive_features=PEOPLE["sex"])
    plain = model.predict_proba(NUMBERS)
    other = model.predict_proba(NUMBERS, sensitive_features=["?"], clients="nobody")
    np.testing.assert_array_equal(plain, other)


# ------------------------------------------------------------------ scikit-learn's tools


def test_a_pipeline_with_groups_and_clients():
    model = make_pipeline(
        make_column_transformer(
            (StandardScaler(), ["skill", "years"]), (OneHotEncoder(), ["job"])
        ),
        quick(),
    )
    step = "fairfederatedclassifier__"
    model.fit(
        FEATURES,
        HIRED,
        **{f"{step}sensitive_features": PEOPLE["sex"], f"{step}clients": PEOPLE["site"]},
    )
    run = model[-1].run_.record
    assert [client.name for client in run.federation.clients] == sorted(fed.SITES)
    assert run.strategy == "mfairfl"
    assert model.score(FEATURES, HIRED) == (model.predict(FEATURES) == HIRED).mean()


def test_cross_validation_with_groups_and_clients():
    """Each fold by hand: the folds of groups and clients go with those of the rows."""
    given = {"sensitive_features": PEOPLE["sex"], "clients": PEOPLE["site"]}
    folds = [(np.arange(len(PEOPLE))[i::2], np.arange(len(PEOPLE))[1 - i :: 2]) for i in (0, 1)]
    found = cross_val_score(quick(), NUMBERS, HIRED, cv=folds, params=given)
    expected = []
    for train, test in folds:
        part = {name: column.iloc[train] for name, column in given.items()}
        model = quick().fit(NUMBERS.iloc[train], HIRED.iloc[train], **part)
        expected.append((model.predict(NUMBERS.iloc[test]) == HIRED.iloc[test]).mean())
    assert found.tolist() == expected


def unfairness(y_true, y_pred, sensitive_features):
    return demographic_parity_difference(
        y_true == "yes", y_pred == "yes", sensitive_features=sensitive_features
    )


@pytest.mark.slow
@pytest.mark.parametrize("piped", [False, True])
def test_a_search_with_routed_groups(piped):
    with config_context(enable_metadata_routing=True):
        model = quick().set_fit_request(sensitive_features=True, clients=True)
        prefix = "fairfederatedclassifier__" if piped else ""
        search = GridSearchCV(
            make_pipeline(StandardScaler(), model) if piped else model,
            {f"{prefix}strategy": ["fedavg", "mfairfl"], f"{prefix}rounds": np.arange(2, 4)},
            scoring={
                "accuracy": "accuracy",
                "unfairness": make_scorer(unfairness, greater_is_better=False).set_score_request(
                    sensitive_features=True
                ),
            },
            refit="accuracy",
            cv=2,
            error_score="raise",
        )
        search.fit(NUMBERS, HIRED, sensitive_features=PEOPLE["sex"], clients=PEOPLE["site"])
    results = search.cv_results_
    assert len(results["params"]) == 4
    assert (results["mean_test_unfairness"] <= 0).all()
    assert search.best_estimator_.predict(NUMBERS).shape == (len(PEOPLE),)


def test_thresholds_in_a_search_with_routed_groups():
    """`score` asks for the groups as `fit` does, without being told."""
    with config_context(enable_metadata_routing=True):
        found = cross_val_score(
            quick(strategy="fedavg-threshold"),
            NUMBERS,
            HIRED,
            cv=2,
            params={"sensitive_features": PEOPLE["sex"], "clients": PEOPLE["site"]},
            error_score="raise",
        )
    assert ((found > 0.5) & (found < 1)).all()


def test_a_clone_has_the_parameters_and_nothing_else():
    model = quick(strategy="indfair", notion=["dp", "eo"], config={"encoder.bins": 4})
    model.fit(NUMBERS, HIRED, PEOPLE["sex"], PEOPLE["site"])
    other = clone(model)
    assert other.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        other.predict(NUMBERS)
    other.fit(NUMBERS, HIRED, PEOPLE["sex"], PEOPLE["site"])
    assert weights(other) == weights(model)
    assert other.set_params(strategy="fedavg", lr=0.01).lr == 0.01


def test_parameters_are_kept_as_given():
    hidden, config = [4], {"encoder.bins": 4}
    model = FairFederatedClassifier(hidden=hidden, config=config, lr="much")
    assert model.hidden is hidden
    assert model.config is config
    names = inspect.signature(FairFederatedClassifier).parameters
    assert {*names} == {*model.get_params()}


def test_random_states():
    same = [quick(random_state=state) for state in (5, np.int64(5))]
    assert len({weights(model.fit(NUMBERS, HIRED)) for model in same}) == 1
    assert same[0].run_.record.seed == 5
    drawn = [quick(random_state=np.random.RandomState(1)).fit(NUMBERS, HIRED) for _ in range(2)]
    assert weights(drawn[0]) == weights(drawn[1])
    state = np.random.RandomState(1)
    one, two = (quick(random_state=state).fit(NUMBERS, HIRED) for _ in range(2))
    assert weights(one) != weights(two)
    np.random.seed(3)  # noqa: NPY002 - what scikit-learn's None means
    first = quick(random_state=None).fit(NUMBERS, HIRED)
    np.random.seed(3)  # noqa: NPY002
    assert weights(first) == weights(quick(random_state=None).fit(NUMBERS, HIRED))


def test_a_pickled_model_answers_alike():
    model = quick().fit(FEATURES, HIRED, PEOPLE["sex"])
    again = pickle.loads(pickle.dumps(model))  # noqa: S301 - as joblib does between processes
    np.testing.assert_array_equal(again.predict_proba(FEATURES), model.predict_proba(FEATURES))


# ------------------------------------------------------------------ what is refused, in one line

FAIR = {"sensitive_features": PEOPLE["sex"]}
SOME = np.arange(len(PEOPLE))


@pytest.mark.parametrize(
    ("how", "given", "message"),
    [
        ({}, {"y": SOME % 3}, "Only binary classification is supported. The type .* 3 classes"),
        ({}, {"y": SOME * 0}, "y holds one class only, 0"),
        ({}, {"y": SOME + 0.5}, "Unknown label type: continuous"),
        ({}, {"y": HIRED.where(SOME != 7)}, "Input y contains NaN: row 7 has no label"),
        ({}, {"y": None}, "requires y to be passed, but the target y is None"),
        (
            {"favourable": "maybe"},
            {},
            r"'maybe' is not a class of y: .*\['no', 'yes'\]",
        ),
        ({}, {"X": NUMBERS.assign(years=np.inf)}, "row 0, column 'years': infinity"),
        ({}, {"X": NUMBERS.set_axis(["a", "a"], axis=1)}, "column name 'a' occurs twice"),
        ({}, {"X": NUMBERS.assign(years=None)}, "X: column 'years' has no value: remove it"),
        ({}, {"X": NUMBERS[[]]}, r"X has shape \(260, 0\): give rows and features"),
        ({}, {"X": FEATURES.assign(job=[{}] * 260)}, "must be a string or a number"),
        (
            {},
            {"sensitive_features": ["f"] * 260},
            "every row is in group 'f', so there is nothing",
        ),
        ({}, {"sensitive_features": [None] * 260}, "no row has a value, so there is nothing"),
        ({}, {"sensitive_features": SOME}, "260 different values .* at most 50 groups"),
        ({}, {"sensitive_features": ["f", "m"]}, r"has shape \(2,\); give one value for each"),
        ({}, {"sensitive_features": {}}, "sensitive_features has no column"),
        ({}, {"clients": PEOPLE["site"].where(SOME != 3)}, "clients: row 3 has none"),
        ({}, {"clients": ["?"] * 260}, "clients: row 0 has none"),
        ({}, {"clients": ["a"]}, r"clients has shape \(1,\)"),
        ({"strategy": "mfairfl"}, {}, "MFairFL with output rule 'select' compares groups, and"),
        (
            {"output_rule": "thresholds"},
            {},
            "FedAvg with output rule 'thresholds' compares groups",
        ),
        ({"strategy": "mfairfll"}, FAIR, "unknown strategy 'mfairfll': did you mean 'mfairfl'"),
        ({"strategy": 3}, FAIR, "strategy: 3 is not a strategy"),
        ({"notion": "dpp"}, FAIR, "unknown notion 'dpp'"),
        ({"rounds": -1}, {}, "training.rounds"),
        ({"lr": "much"}, {}, "training.lr"),
        ({"hidden": (1,)}, {}, "model.hidden"),
        ({"random_state": -1}, {}, "seed"),
        ({"config": "a.toml"}, {}, "config: pass a mapping of keys to values, not 'a.toml'"),
        ({"config": {"rounds": 3}}, {}, "config: 'rounds' is the parameter rounds"),
        ({"config": {"training": {"lr": 1}}}, {}, "'training.lr' is the parameter lr"),
        ({"config": {"seed": 1}}, {}, "'seed' is the parameter random_state"),
        ({"config": {"task.label": "y"}}, {}, "'task.label' is what fit is given"),
        ({"config": {"encoder.bim": 4}}, {}, "did you mean 'encoder.bins'"),
        ({"config": {"out": "run"}}, {}, "config: unknown key 'out'"),
        ({"config": {"robist": "auto"}}, {}, "did you mean 'robust'"),
    ],
)
def test_refusals(how, given, message):
    given = {"X": NUMBERS, "y": HIRED} | given
    with pytest.raises(ValueError, match=message) as caught:
        quick(**how).fit(**given)
    one_line(caught)
    assert isinstance(caught.value, MfairflError)


def test_other_columns_are_refused():
    model = quick().fit(NUMBERS, HIRED)
    with pytest.raises(ValueError, match="same order"):
        model.predict(NUMBERS[["years", "skill"]])
    with pytest.raises(ValueError, match="missing"):
        model.predict(NUMBERS[["skill"]])
    unnamed = quick().fit(NUMBERS.to_numpy(), HIRED)
    with pytest.raises(ValueError, match="expecting 2 features"):
        unnamed.predict(NUMBERS.to_numpy()[:, :1])
    with pytest.warns(UserWarning, match="valid feature names"):
        found = model.predict_proba(NUMBERS.to_numpy())
    np.testing.assert_array_equal(found, model.predict_proba(NUMBERS))


def test_a_failed_fit_leaves_no_model():
    model = quick(strategy="mfairfl")
    with pytest.raises(EstimatorError):
        model.fit(NUMBERS, HIRED)
    with pytest.raises(NotFittedError):
        model.predict(NUMBERS)
