"""`mfairfl.train` and `mfairfl.load` from the outside."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from torch import nn

import federations as fed
import mfairfl
from mfairfl.data import EncoderConfig, Task, partition, table_from_frame
from mfairfl.engine import loop as serving
from mfairfl.engine.output import Served
from mfairfl.errors import ConfigError, DataError, RunDirectoryError
from mfairfl.fairness import Tally, accuracy, demographic_parity_violation
from mfairfl.runs.config import make_config
from mfairfl.runs.execute import RunRequest, run_requests
from mfairfl.runs.options import settings
from mfairfl.strategies import available, create

QUICK = {"rounds": 2, "hidden": (4,), "batch_size": 20, "local_epochs": 1, "lr": 0.03}


def test_rows_of_ones_own():
    table = fed.people_table()
    run = mfairfl.train(table, **QUICK)
    assert run.path is None
    assert set(run.metrics) == {"train", "validation", "test"}
    clients = [c.name for c in run.record.federation.clients]
    assert clients == ["east", "north", "south", "west"]  # the table's own client column
    assert run.record.config["training"]["rounds"] == 2
    assert run.record.rounds == 2


def test_a_federation_of_ones_own():
    table = fed.people_table()
    federation = partition(table, "ratio", ratios=np.array([[0.5, 0.5], [0.2, 0.8]]), seed=3)
    run = mfairfl.train(federation, **QUICK)
    assert [c.name for c in run.record.federation.clients] == ["client-1", "client-2"]
    assert run.record.federation.options["ratios"] == [[0.5, 0.5], [0.2, 0.8]]


def test_a_table_is_dealt_as_the_options_say():
    run = mfairfl.train(fed.people_table(), heterogeneity="iid", clients=3, seed=5, **QUICK)
    federation = partition(fed.people_table(), "iid", clients=3, seed=5)
    recorded = run.record.federation.model_dump(mode="json")
    assert recorded == federation.summary() | {"disclosure": {}}
    again = mfairfl.train(federation, seed=5, **QUICK)
    assert again.metrics == run.metrics


def ungrouped(**fields):
    return table_from_frame(fed.people(), Task(**(dict(fed.TASK) | fields)), name="people")


UNCONSTRAINED = [name for name in available() if not create(name).card.constrained]


@pytest.mark.parametrize("strategy", sorted({*UNCONSTRAINED} - {"fedavg-threshold"}))
def test_without_groups_training_is_that_which_ignores_them(strategy, tmp_path):
    """The same features and no test rows: groups then decide nothing but what is measured."""
    how = {**QUICK, "strategy": strategy, "clients.test": 0.0}
    columns = tuple(s.column for s in fed.TASK.sensitive)
    plain = mfairfl.train(ungrouped(sensitive=(), ignore=columns), out=tmp_path / "run", **how)
    groups = mfairfl.train(ungrouped(sensitive_as_features=False), **how)
    assert plain.predictor.encoder == groups.predictor.encoder
    assert plain.predictor.served.members.tobytes() == groups.predictor.served.members.tobytes()
    assert plain.metrics["train"]["accuracy"] == groups.metrics["train"]["accuracy"]
    assert not [name for name in plain.metrics["train"] if "violation" in name]
    assert plain.record.goal == ()
    assert "_violation" not in repr(plain)
    again = mfairfl.load(tmp_path / "run")
    frame = fed.people()
    assert again.predict(frame).tobytes() == groups.predictor.predict(frame).tobytes()


@pytest.mark.parametrize(
    ("how", "rule"),
    [
        ({}, "MFairFL with output rule 'select'"),
        ({"strategy": "fedavg-threshold"}, "FedAvgThreshold with output rule 'thresholds'"),
        ({"strategy": "fedavg", "output_rule": "mixture"}, "FedAvg with output rule 'mixture'"),
        ({"output_rule": "last"}, "MFairFL with output rule 'last'"),
    ],
)
def test_without_groups_nothing_can_be_fair(how, rule):
    with pytest.raises(ConfigError, match=f"{rule} compares groups, and there is no sensitive"):
        mfairfl.train(ungrouped(sensitive=()), **how, **QUICK)


BINS = {"encoder.numeric": "bins", "encoder.min_rows": 10, "encoder.indicators": "bins"}


def test_numbers_in_bins_from_configuration_to_prediction(tmp_path):
    config = EncoderConfig(numeric="bins", min_rows=10, indicators="bins")
    run = mfairfl.train(fed.people_table(), out=tmp_path / "run", **QUICK, **BINS)
    federation = partition(fed.people_table(), encoder=config)
    assert run.predictor.encoder == federation.encoder
    assert any(name.startswith("skill in [") for name in federation.encoder.feature_names)
    given = mfairfl.train(federation, **QUICK)
    assert given.metrics == run.metrics
    plain = mfairfl.train(partition(fed.people_table()), **QUICK)
    assert plain.record.identity != given.record.identity
    again = mfairfl.load(tmp_path / "run").predict_proba(fed.people())
    np.testing.assert_array_equal(again, run.predictor.predict_proba(fed.people()))


@pytest.mark.slow
def test_runs_with_other_encodings_side_by_side():
    table = fed.people_table()
    changes = [{}, BINS, BINS | {"encoder.bins": 3}]
    configs = [make_config(settings(None, {"rounds": 2, **change})) for change in changes]
    together = run_requests([RunRequest(config=config, rows=table) for config in configs])
    alone = [run_requests([RunRequest(config=config, rows=table)])[0] for config in configs]
    assert [run.metrics for run in together] == [run.metrics for run in alone]
    assert len({len(run.predictor.encoder.feature_names) for run in together}) == 3


def test_a_data_set_by_name_with_options(tmp_path):
    run = mfairfl.train(
        "bank",
        strategy="constant",
        rounds=0,
        hidden=(),
        heterogeneity="iid",
        clients=2,
        **{"clients.test": 0.1, "strategy.name": "constant"},
    )
    assert run.record.data.name.startswith("bank")
    sizes = [(c.train, c.test) for c in run.record.federation.clients]
    total = np.sum(sizes, axis=0)
    assert total[1] / total.sum() == pytest.approx(0.1, abs=0.001)


def test_a_configuration_file_with_options_over_it(tmp_path):
    fed.people().to_csv(tmp_path / "people.csv", index=False)
    path = tmp_path / "run.toml"
    path.write_text(
        'seed = 2\n[data]\ncsv = "people.csv"\n'
        '[task]\nlabel = "hired"\nfavourable = "yes"\n'
        'sensitive = ["sex", "age"]\nclient = "site"\n'
        "[training]\nrounds = 9\nbatch_size = 20\n[model]\nhidden = [3]\n"
    )
    run = mfairfl.train(config=path, rounds=1)
    assert (run.record.rounds, run.record.seed) == (1, 2)
    assert run.record.model.hidden == (3,)
    assert run.record.data.rows == 260
    with pytest.raises(ConfigError, match=rf"^{path}: unknown key 'training.round'"):
        mfairfl.train(config=path, **{"training.round": 1})


def test_a_file_without_names_or_with_sheets_is_described_by_keywords(tmp_path):
    frame = fed.people()
    names = {column: f"column-{i}" for i, column in enumerate(frame, 1)}
    roles = {"label": "hired", "sensitive": "sex", "client": "site"}
    numbered = {role: names[column] for role, column in roles.items()}
    numbered["sensitive"] = [numbered["sensitive"]]
    frame.to_csv(tmp_path / "people.csv", index=False, header=False)
    with pd.ExcelWriter(tmp_path / "people.xlsx") as writer:
        frame.to_excel(writer, sheet_name="all", index=False, header=False)
        frame[:9].to_excel(writer, sheet_name="some", index=False, header=False)
    quick = {"rounds": 1, "hidden": (4,), "favourable": "yes"}
    runs = [
        mfairfl.train(csv=tmp_path / name, header=False, **more, **numbered, **quick)
        for name, more in (("people.csv", {}), ("people.xlsx", {"sheet": "all"}))
    ]
    expected = mfairfl.train(frame, **roles, **quick)
    for run in runs:
        assert run.metrics == json.loads(
            json.dumps(expected.metrics)
            .replace('"sex"', f'"{names["sex"]}"')
            .replace("'sex'", f"'{names['sex']}'")  # in the reasons of what is undefined
        )


@pytest.mark.parametrize(
    ("rows", "options", "key"),
    [
        ("table", {"sensitive": "sex"}, "data.sensitive: the rows are given already"),
        ("table", {"csv": "x.csv", "task.label": "y"}, "task"),
        ("federation", {"clients": 3}, "clients.count: the clients are given already"),
        ("federation", {"heterogeneity": "iid"}, "clients.scheme: the clients are given"),
        ("federation", {"clients.test": 0.5}, "clients.test: the clients are given"),
        ("federation", {"encoder.bins": 8}, "encoder.bins: the rows are encoded already"),
        (None, {}, "no data: give data.name"),
    ],
)
def test_settings_that_could_have_no_effect_are_refused(rows, options, key):
    given = {"table": fed.people_table, "federation": fed.people_federation, None: lambda: None}
    with pytest.raises(ConfigError, match=key):
        mfairfl.train(given[rows](), **options)


def test_dirichlets_parameter_is_a_keyword():
    table = fed.people_table()
    options = {"heterogeneity": "dirichlet", "clients": 3, **QUICK}
    run = mfairfl.train(table, concentration=3.0, **options)
    expected = mfairfl.partition(table, "dirichlet", concentration=3.0, clients=3)
    assert run.record.federation.clients == [
        type(run.record.federation.clients[0]).model_validate(one)
        for one in expected.summary()["clients"]
    ]
    with pytest.raises(ConfigError, match=r"alpha: .*fairness\.dead_zone.* is concentration"):
        mfairfl.train(table, alpha=0.1, **options)


def test_callbacks_hear_of_every_round(tmp_path):
    watch = fed.Watch()
    mfairfl.train(fed.people_table(), callbacks=[watch], **QUICK)
    assert [record.round for record in watch.records] == [0, 1, 2]


@pytest.mark.slow
def test_runs_side_by_side_equal_runs_alone(tmp_path):
    table = fed.people_table()
    configs = [
        make_config(
            {"seed": s, "training": {"rounds": r, "batch_size": 20}, "model": {"hidden": h}}
        )
        for s, r, h in [(0, 1, (4,)), (1, 2, (4,)), (0, 1, (3,))]
    ]
    together = run_requests(
        [RunRequest(config=c, rows=table, out=tmp_path / f"t{i}") for i, c in enumerate(configs)]
    )
    assert [run.record.timing.runs_at_once for run in together] == [3, 3, 3]
    for i, config in enumerate(configs):
        run_requests([RunRequest(config=config, rows=table, out=tmp_path / f"a{i}")])
        for name in ("model.safetensors", "rounds.csv", "clients.csv"):
            alone = (tmp_path / f"a{i}" / name).read_bytes()
            assert (tmp_path / f"t{i}" / name).read_bytes() == alone


def test_two_runs_cannot_share_a_folder(tmp_path):
    request = RunRequest(config=make_config({}), rows=fed.people_table(), out=tmp_path / "run")
    with pytest.raises(RunDirectoryError, match="using this run"):
        run_requests([request, request])


# ------------------------------------------------------------------ predictions


def tally_of_predictions(run, federation, frame, decisions) -> Tally:
    """Count the test rows by hand from the raw frame."""
    rows = np.concatenate([c.test.rows for c in federation.clients])
    clients = np.concatenate([[c.name] * len(c.test) for c in federation.clients])
    raw = frame.iloc[rows]
    return Tally.from_predictions(
        (raw.hired == "yes").astype(int),
        decisions[rows],
        sensitive_features={"sex": raw.sex, "age": raw.age},
        clients=clients,
        attributes=federation.attributes,
    )


def test_a_loaded_model_repeats_the_runs_decisions_exactly(tmp_path):
    frame = fed.people()
    run = mfairfl.train(fed.people_table(frame), out=tmp_path / "run", **QUICK)
    model = mfairfl.load(tmp_path / "run")
    federation = fed.people_federation(frame)
    tally = tally_of_predictions(run, federation, frame, model.predict(frame))
    assert tally == run.record.tallies["test"]
    assert accuracy(tally) == run.metrics["test"]["accuracy"]
    assert demographic_parity_violation(tally) == pytest.approx(
        run.metrics["test"]["demographic_parity_violation"]
    )
    assert np.array_equal(model.predict(frame), run.predictor.predict(frame))
    assert np.array_equal(model.predict_proba(frame), run.predictor.predict_proba(frame))
    assert model.classes == ("no", "yes")


def test_probabilities_are_the_logistic_function_of_the_logit(tmp_path):
    frame = fed.people()
    run = mfairfl.train(fed.people_table(frame), **(QUICK | {"hidden": ()}))
    probability = run.predictor.predict_proba(frame)
    X = run.predictor.encoder.transform(frame).astype(float)
    w = run.predictor.served.members[0].astype(float)
    expected = 1 / (1 + np.exp(-(X @ w[:-1] + w[-1])))
    np.testing.assert_allclose(probability[:, 1], expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(probability.sum(axis=1), 1, rtol=0, atol=1e-15)
    assert np.array_equal(run.predictor.predict(frame), probability[:, 1] > 0.5)


def test_prediction_needs_neither_label_nor_client(tmp_path):
    frame = fed.people()
    run = mfairfl.train(fed.people_table(frame), **QUICK)
    bare = frame.drop(columns=["hired", "site"]).assign(comment="x")
    assert np.array_equal(run.predictor.predict(bare), run.predictor.predict(frame))
    frame.to_csv(tmp_path / "people.csv", index=False)
    assert np.array_equal(
        run.predictor.predict(tmp_path / "people.csv"), run.predictor.predict(frame)
    )
    with pytest.raises(DataError, match="has no rows"):
        run.predictor.predict(frame.iloc[:0])


def small_net(inputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 3), nn.Tanh(), nn.Linear(3, 1))


def test_a_module_of_ones_own(tmp_path):
    frame = fed.people()
    out = tmp_path / "run"
    run = mfairfl.train(fed.people_table(frame), out=out, model=small_net, rounds=2, batch_size=20)
    assert run.record.model.size == run.record.model.inputs * 3 + 3 + 3 + 1
    assert run.record.config["model"]["factory"].endswith("test_train:small_net")
    loaded = mfairfl.load(out, model=small_net)
    assert np.array_equal(loaded.predict_proba(frame), run.predictor.predict_proba(frame))
    tally = tally_of_predictions(run, fed.people_federation(frame), frame, loaded.predict(frame))
    assert tally == run.record.tallies["test"]
    with pytest.raises(RunDirectoryError, match=rf"^{out}: .*give its factory with model="):
        mfairfl.load(out)
    with pytest.raises(RunDirectoryError, match="weights, but the model has"):
        mfairfl.load(out, model=lambda inputs: nn.Linear(inputs, 1))
    # The factory is part of what the run is.
    with pytest.raises(RunDirectoryError, match=r"model\.factory is .*small_net there"):
        mfairfl.train(
            fed.people_table(frame),
            out=out,
            model=lambda inputs: nn.Linear(inputs, 1),
            rounds=2,
            batch_size=20,
        )


# ------------------------------------------------------------------ mixtures


def two_opposites(output, last, candidates, constraints) -> Served:
    """Serve the last weights with probability .3 and their opposite with .7."""
    members = np.concatenate([last.members, -last.members])
    return Served(
        kind="mixture", members=members, weights=np.array([0.3, 0.7]), names=("last", "opposite")
    )


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    """A run whose served model is drawn at random among two, whatever training finds."""
    out = tmp_path_factory.mktemp("mixture") / "run"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(serving, "choose", two_opposites)
        logistic = QUICK | {"hidden": (), "seed": 1, "lr": 0.1}  # −w has the opposite logit
        return out, mfairfl.train(fed.people_table(), out=out, **logistic)


def test_a_mixtures_expected_counts_are_its_probabilities_summed(mixture):
    out, run = mixture
    frame, federation = fed.people(), fed.people_federation(seed=1)
    favourable = mfairfl.load(out).predict_proba(frame)[:, 1]
    counts = run.record.tallies["test"].counts
    for k, client in enumerate(federation.clients):
        for cell in range(4):
            for label in (0, 1):
                rows = (client.test.cells == cell) & (client.test.y == label)
                expected = favourable[client.test.rows[rows]].sum()
                np.testing.assert_allclose(
                    counts[k, cell, label], [rows.sum() - expected, expected], atol=1e-9
                )


@pytest.mark.slow
def test_a_mixtures_draws_average_to_the_expected_counts(mixture):
    out, run = mixture
    frame, federation = fed.people(), fed.people_federation(seed=1)
    model = mfairfl.load(out)
    rows = np.concatenate([c.test.rows for c in federation.clients])
    test = frame.iloc[rows]
    draws = np.array([model.predict(test, random_state=seed) for seed in range(300)])
    probability = model.predict_proba(test)[:, 1]
    # Each row is favoured by one of the two models.
    assert set(probability.round(12)) == {0.3, 0.7}
    # The sum of independent decisions has variance Σ p(1 − p); five standard errors of 300 draws.
    error = np.sqrt((probability * (1 - probability)).sum() / len(draws))
    assert abs(draws.sum(axis=1).mean() - probability.sum()) < 5 * error
    right = (draws == (test.hired == "yes").to_numpy()).mean()
    assert right == pytest.approx(run.metrics["test"]["accuracy"], abs=5 * error / len(rows))
    assert np.array_equal(draws[0], model.predict(test, random_state=0))
