"""Models of every kind, loaded again: the run's own counts are found in their predictions."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from test_train import tally_of_predictions

import federations as fed
import mfairfl
from answers import csv_rows
from mfairfl.data import table_from_frame
from mfairfl.errors import DataError, FederationError

QUICK = {"rounds": 4, "hidden": (4,), "batch_size": 20, "lr": 0.05, "weight_decay": 0.1}
EXACT = {"strategy": "fedavg-threshold", "notion": "eo", "tolerance": 0.0, "randomise": True}
LOOSE = {"strategy": "fedavg-threshold", "tolerance": 1.0}
KINDS = {
    "ensemble": {"strategy": "indfair"},
    "personal": {"strategy": "ditto"},
    "pooled": {"strategy": "cenfair"},
    "random": EXACT,
    "fixed": LOOSE,
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {
        kind: (folder / kind, mfairfl.train(fed.people_table(), out=folder / kind, **QUICK, **how))
        for kind, how in KINDS.items()
    }


def members(model, frame):
    """P of every member for every row, from the weights and the layout of a small net."""
    X = model.encoder.transform(frame).astype(float)
    d, found = X.shape[1], []
    for w in model.served.members.astype(float):
        hidden = np.maximum(X @ w[: 4 * d].reshape(d, 4) + w[4 * d : 4 * d + 4], 0)
        found.append(1 / (1 + np.exp(-(hidden @ w[4 * d + 4 : 4 * d + 8] + w[4 * d + 8]))))
    return np.array(found)


def cells(frame):
    return 2 * (frame.sex == "M").to_numpy() + (frame.age == "young").to_numpy()


# ------------------------------------------------------------------ the run's own numbers


@pytest.mark.parametrize("kind", ["ensemble", "personal", "pooled", "fixed"])
def test_a_loaded_model_repeats_the_runs_decisions_exactly(runs, kind):
    out, run = runs[kind]
    frame, model = fed.people(), mfairfl.load(out)
    assert not model.randomised
    decided = model.predict(frame)
    tally = tally_of_predictions(run, fed.people_federation(frame), frame, decided)
    assert tally == run.record.tallies["test"]
    assert np.array_equal(decided, model.predict(frame, random_state=9))
    assert np.array_equal(model.predict_proba(frame), run.predictor.predict_proba(frame))
    assert 0 < decided.mean() < 1


@pytest.mark.slow
def test_random_thresholds_expect_the_runs_counts(runs):
    out, run = runs["random"]
    frame, model = fed.people(), mfairfl.load(out)
    assert model.randomised
    p = model.predict_proba(frame)[:, 1]
    federation = fed.people_federation(frame)
    counts = run.record.tallies["test"].counts
    for k, client in enumerate(federation.clients):
        for cell in range(4):
            for y in (0, 1):
                rows = client.test.rows[(client.test.cells == cell) & (client.test.y == y)]
                expected = [len(rows) - p[rows].sum(), p[rows].sum()]
                np.testing.assert_allclose(counts[k, cell, y], expected, atol=1e-9)
    sure = (p < 1e-9) | (p > 1 - 1e-9)
    assert 0 < sure.sum() < len(p)
    draws = np.array([model.predict(frame, random_state=seed) for seed in range(200)])
    assert (draws[:, sure] == (p > 0.5)[sure]).all()
    error = np.sqrt((p * (1 - p)).sum() / len(draws))
    assert abs(draws.sum(axis=1).mean() - p.sum()) < 5 * error


# ------------------------------------------------------------------ who answers


def test_an_ensembles_probability_is_the_weighted_mean(runs):
    out, _ = runs["ensemble"]
    frame, model = fed.people(), mfairfl.load(out)
    shares = np.array([72, 56, 32, 48]) / 208
    np.testing.assert_allclose(model.served.weights, shares, rtol=1e-15)
    expected = shares @ members(model, frame)
    np.testing.assert_allclose(model.predict_proba(frame)[:, 1], expected, rtol=0, atol=1e-6)
    bare = frame.drop(columns=["site", "hired"])
    assert np.array_equal(model.predict(bare), model.predict(frame))


def test_each_row_is_answered_by_its_own_clients_model(runs):
    out, _ = runs["personal"]
    frame, model = fed.people(), mfairfl.load(out)
    assert model.served.clients == ("east", "north", "south", "west")
    each = members(model, frame)
    own = each[
        frame.site.map(dict(zip(model.served.clients, range(4), strict=True))), np.arange(260)
    ]
    np.testing.assert_allclose(model.predict_proba(frame)[:, 1], own, rtol=0, atol=1e-6)
    bare = frame.drop(columns=["site", "hired"])
    for k, client in enumerate(model.served.clients):
        found = model.predict_proba(bare, client=client)[:, 1]
        np.testing.assert_allclose(found, each[k], rtol=0, atol=1e-6)
        # Said aloud, it wins over the column.
        assert np.array_equal(model.predict_proba(frame, client=client)[:, 1], found)
        here = (frame.site == client).to_numpy()
        assert np.array_equal(found[here], model.predict_proba(frame)[here, 1])


@pytest.mark.parametrize("kind", ["random", "fixed"])
def test_thresholds_depend_on_the_group_in_the_row(runs, kind):
    out, _ = runs[kind]
    frame, model = fed.people(), mfairfl.load(out)
    (score,) = members(model, frame)
    z = np.log(score / (1 - score))
    rule = model.served.thresholds
    passed = z[:, None] >= rule.values[cells(frame)]
    expected = (passed * rule.probabilities[cells(frame)]).sum(axis=1)
    np.testing.assert_allclose(model.predict_proba(frame)[:, 1], expected, rtol=0, atol=1e-12)


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("kind", "change", "options", "message"),
    [
        (
            "personal",
            lambda f: f.drop(columns="site"),
            {},
            "new.csv: each client has a model of its own: add the column 'site', or give client= "
            "(--client), one of: east, north, south, west",
        ),
        (
            "personal",
            lambda f: f.assign(site="wets"),
            {},
            "new.csv, column 'site': unknown client 'wets': did you mean 'west'? "
            "(known: east, north, south, west)",
        ),
        (
            "personal",
            lambda f: f,
            {"client": "moon"},
            "unknown client 'moon' (known: east, north, south, west)",
        ),
        ("personal", lambda f: f, {"client": ""}, "unknown client ''"),
        (
            "ensemble",
            lambda f: f,
            {"client": "east"},
            "client 'east': this run serves all clients alike; remove client= (--client)",
        ),
        ("random", lambda f: f.drop(columns="sex"), {}, "new.csv lacks the column 'sex'"),
        (
            "fixed",
            lambda f: f.assign(age=["ancient", *f.age[1:]]),
            {},
            "new.csv, row 0, column 'age': unknown group 'ancient'",
        ),
        (
            "fixed",
            lambda f: f.assign(sex=[None, *f.sex[1:]]),
            {},
            "new.csv, row 0, column 'sex': value missing",
        ),
    ],
)
def test_rows_that_nobody_can_answer_are_refused_in_one_line(runs, kind, change, options, message):
    model = mfairfl.load(runs[kind][0])
    for answer in (model.predict, model.predict_proba):
        with pytest.raises(DataError) as error:
            answer(model.read(change(fed.people()), name="new.csv"), **options)
        assert str(error.value).startswith(message)
        assert "\n" not in str(error.value)


def test_a_group_that_is_no_feature_is_needed_for_thresholds_only():
    table = table_from_frame(
        fed.people(), fed.TASK.model_copy(update={"sensitive_as_features": False}), name="people"
    )
    bare = fed.people().drop(columns=["sex", "hired"])
    plain = mfairfl.train(table, **QUICK)
    assert len(plain.predictor.predict(bare)) == 260
    fitted = mfairfl.train(table, **QUICK, **EXACT)
    with pytest.raises(DataError, match=r"^the frame lacks the column 'sex'"):
        fitted.predictor.predict(bare)


# ------------------------------------------------------------------ files


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_model_file_holds_all_that_is_served(runs, kind):
    out, run = runs[kind]
    loaded, kept = mfairfl.load(out).served, run.predictor.served
    assert loaded.members.tobytes() == kept.members.tobytes()
    assert loaded.weights.tobytes() == kept.weights.tobytes()
    assert (loaded.kind, loaded.clients) == (kept.kind, kept.clients)
    if kind in ("random", "fixed"):
        assert loaded.thresholds.values.tobytes() == kept.thresholds.values.tobytes()
        assert loaded.thresholds.probabilities.tobytes() == kept.thresholds.probabilities.tobytes()
        assert loaded.thresholds.to_json() == run.record.served.thresholds
    else:
        assert loaded.thresholds is None
        assert run.record.served.thresholds is None


def test_a_file_from_before_there_were_thresholds_still_loads(tmp_path):
    out = tmp_path / "run"
    run = mfairfl.train(fed.people_table(), out=out, **QUICK)
    model = out / "model.safetensors"
    with safe_open(model, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in ("members", "weights")}
    header = {"kind": "single", "names": ["round 4"]}
    save_file(arrays, model, metadata={"served": json.dumps(header)})
    record = json.loads((out / "run.json").read_text())
    record["files"]["model.safetensors"] = hashlib.sha256(model.read_bytes()).hexdigest()
    for key in ("thresholds", "clients"):
        del record["served"][key]
    (out / "run.json").write_text(json.dumps(record))
    frame = fed.people()
    assert np.array_equal(mfairfl.load(out).predict(frame), run.predictor.predict(frame))


# ------------------------------------------------------------------ what the files tell


def test_the_record_says_whose_the_members_are(runs):
    served = {kind: run.record.served for kind, (_, run) in runs.items()}
    clients = ("east", "north", "south", "west")
    assert served["personal"].names == ("round 4",) * 4
    assert served["personal"].clients == served["ensemble"].clients == clients
    assert len(set(served["ensemble"].names)) == 1
    assert served["fixed"].clients == served["pooled"].clients == ()


def test_pooled_training_has_a_line_of_its_own(runs):
    out, _ = runs["pooled"]
    rows = csv_rows(out / "clients.csv")
    assert len(rows) == 5 * 5  # rounds 0 to 4; four clients and all of them
    for row in rows:
        whole = row["client"] == "all clients"
        trained = whole and row["round"] != "0"
        assert row["coefficient"] == ("1.0" if trained else "")
        assert bool(row["update_norm"]) == trained
    last = {row["client"]: row for row in rows[-5:]}
    assert last["all clients"]["train_rows"] == "208"
    right = {name: float(r["train_accuracy"]) * int(r["train_rows"]) for name, r in last.items()}
    assert right.pop("all clients") == pytest.approx(sum(right.values()), abs=1e-9)


def test_own_models_that_diverged_end_the_run():
    # Every step takes v − w times 1 − lr·λ = −49; nobody sees it but the client.
    steep = {"training.optimizer": "sgd", "strategy.pull": 100.0}
    options = QUICK | {"lr": 0.5, "weight_decay": 0.0}
    with pytest.raises(FederationError, match=r"^round \d: most clients' .* lower training.lr$"):
        mfairfl.train(fed.people_table(), strategy="ditto", **options, **steep)
