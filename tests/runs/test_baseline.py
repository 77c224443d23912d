"""FedAvg beside a run: when, where, and that it changes nothing but what is known."""

from __future__ import annotations

import json

import pytest

import federations as fed
import mfairfl
from mfairfl.data import partition
from mfairfl.errors import ConfigError
from mfairfl.fairness.worsened import worsened
from mfairfl.runs.config import make_config
from mfairfl.runs.execute import RunRequest, with_baseline

QUICK = {"rounds": 2, "hidden": (4,), "batch_size": 20, "local_epochs": 1, "lr": 0.03}
ROLES = {"label": "hired", "favourable": "yes", "sensitive": ["sex"], "client": "site"}


def on_file(tmp_path):
    fed.people().to_csv(tmp_path / "people.csv", index=False)
    return {"csv": tmp_path / "people.csv", **ROLES}


def wanted(config, baseline=None, **more):
    return [r.config.strategy.name for r in with_baseline(
        RunRequest(config=make_config(config), **more), baseline
    )]  # fmt: skip


def test_a_file_of_ones_own_has_a_baseline_in_the_runs_folder(tmp_path):
    how = on_file(tmp_path) | QUICK
    run = mfairfl.train(**how, tolerance=0.1, out=tmp_path / "run")
    alone = mfairfl.train(**how, tolerance=0.1, out=tmp_path / "alone", baseline=False)
    plain = mfairfl.train(**how, tolerance=0.1, strategy="fedavg", out=tmp_path / "plain")
    assert run.baseline.path == tmp_path / "run" / "baseline"
    assert alone.baseline is plain.baseline is None
    # It is no part of the run, and it is the run that its own command would make.
    assert run.record.identity == alone.record.identity
    assert run.baseline.record.identity == plain.record.identity
    for ours, theirs in ((run, alone), (run.baseline, plain)):
        for name in ("model.safetensors", "encoder.json", "rounds.csv", "clients.csv"):
            assert (ours.path / name).read_bytes() == (theirs.path / name).read_bytes()
    # The same command finds both, and adds the baseline to a run without one.
    assert mfairfl.train(**how, tolerance=0.1, out=tmp_path / "run").baseline.metrics == (
        plain.metrics
    )
    assert mfairfl.train(**how, tolerance=0.1, out=tmp_path / "alone").baseline.path.is_dir()


def test_a_frame_has_a_baseline_in_memory_and_callbacks_hear_of_the_run_alone():
    class Heard:
        def __init__(self):
            self.rounds = []

        def on_start(self, setup, state):
            pass

        def on_round(self, setup, state, record):
            self.rounds.append(record.round)

    heard = Heard()
    run = mfairfl.train(fed.people(), **ROLES, **QUICK, callbacks=[heard])
    assert (run.path, run.baseline.path) == (None, None)
    assert run.baseline.record.strategy == "fedavg"
    assert run.worsened == worsened(
        run.baseline.record.tallies["test"], run.record.tallies["test"]
    )
    assert run.baseline.worsened is None
    assert "baseline fedavg: test accuracy" in repr(run)
    assert run.baseline.record.federation == run.record.federation
    assert run.baseline.baseline is None
    assert heard.rounds == [0, 1, 2]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"strategy": {"name": "fedavg"}}, ["fedavg"]),
        ({"strategy": {"name": "fedavg"}, "output": {"rule": "select"}}, ["fedavg", "fedavg"]),
        ({"strategy": {"name": "qffl"}}, ["qffl", "fedavg"]),
        ({"data": {"name": "adult"}}, ["mfairfl"]),
    ],
)
def test_the_default_is_a_baseline_for_rows_that_nobody_knows(config, expected):
    rows = None if "data" in config else fed.people_table()
    assert wanted(config, rows=rows) == expected
    if expected != ["fedavg"]:
        assert wanted(config, True, rows=rows) == [expected[0], "fedavg"]
    assert wanted(config, False, rows=rows) == expected[:1]


def test_clients_that_somebody_made_have_one_when_asked():
    rows = partition(fed.people_table())
    assert wanted({}, rows=rows) == ["mfairfl"]
    assert wanted({}, True, rows=rows) == ["mfairfl", "fedavg"]


def test_the_baseline_has_the_same_settings_but_method_and_rule(tmp_path):
    config = make_config(
        {
            "seed": 4,
            "strategy": {"name": "mfairfl", "beta": 0.5},
            "output": {"rule": "thresholds", "by": "group", "tolerance": 0.02},
            "fairness": {"notion": ["eo"], "tolerance": 0.1},
            "training": {"rounds": 7},
        }
    )
    request = RunRequest(config=config, rows=fed.people_table(), out=tmp_path / "r")
    run, beside = with_baseline(request, None)
    assert run is request
    assert beside.out == tmp_path / "r" / "baseline"
    ours, theirs = (x.config.model_dump(exclude={"strategy", "output"}) for x in (run, beside))
    assert ours == theirs
    assert beside.config.output_rule() == "last"


def test_fedavg_is_no_baseline_of_itself():
    with pytest.raises(ConfigError, match="the run is FedAvg itself"):
        wanted({"strategy": {"name": "fedavg"}}, True)


def test_under_a_policy_there_is_one_when_asked_under_the_same_policy(tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text("[disclosure]\nmin_rows = 5\n", encoding="utf-8")
    how = on_file(tmp_path) | QUICK | {"policy": policy}
    assert mfairfl.train(**how).baseline is None
    run = mfairfl.train(**how, baseline=True, out=tmp_path / "r")
    facts = [json.loads((f / "run.json").read_text()) for f in (run.path, run.baseline.path)]
    ours, theirs = (fact["federation"]["disclosure"] for fact in facts)
    assert ours == theirs != {}
