"""The search itself: scores by hand, stopped and taken up, shared; on pretended and real runs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tomllib
from contextlib import contextmanager
from pathlib import Path

import optuna
import pytest

import federations as fed
import mfairfl
from answers import csv_rows
from eyes import contrast, drawn_colours
from mfairfl.errors import ConfigError, DataError, MfairflError, RunDirectoryError
from mfairfl.experiments.search.space import Choices, Range, default_metrics, default_space
from mfairfl.experiments.search.trials import SearchTrial, plot_trials
from mfairfl.runs.config import make_config
from records import make_record
from tuning_records import DP, EO, Pretence, by_rate, record

RATES = {"training.lr": Range(0.001, 0.02, log=True)}


@pytest.fixture
def pretend(monkeypatch):
    """Put a rule in the place of training."""

    def start(rule):
        pretence = Pretence(rule)
        monkeypatch.setattr("mfairfl.experiments.search.optuna_study.run_many", pretence)
        return pretence

    return start


def search(space=RATES, metrics=(DP,), **config):
    return {"config": config, "space": space, "metrics": metrics}


def tune(what, out, **options):
    return mfairfl.tune(out=out, **what, **options)


def drawn(tuned):
    return [dict(trial.values) for trial in tuned.trials]


@contextmanager
def optuna_storage(path):
    """Open a study's file as someone without mfairfl would, and leave no connection behind."""
    storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
    try:
        yield storage
    finally:
        storage.engine.dispose()


class Stop(BaseException):
    """What no one catches, like a kill."""


def stopping(rule, after):
    """Return a rule that is stopped in the middle of a trial."""
    calls = []

    def stopped(config):
        calls.append(config)
        if len(calls) > after:
            raise Stop
        return rule(config)

    return stopped


# What a trial is


def test_a_trial_runs_every_fold_with_its_values(pretend, tmp_path):
    asked = pretend(by_rate).asked
    tuned = tune(search(seed=4), tmp_path, trials=2)
    assert len(asked) == 2
    for runs, trial in zip(asked, tuned.trials, strict=True):
        assert [(c.clients.folds, c.clients.fold) for c, _ in runs] == [(3, 0), (3, 1), (3, 2)]
        assert {c.training.lr for c, _ in runs} == {trial.values["training.lr"]}
        assert {c.seed for c, _ in runs} == {4}
        assert len({out for _, out in runs}) == 3
    assert tuned.config.clients.folds is None


def test_means_over_folds_by_hand(pretend, tmp_path):
    shown = {0: (0.6, 0.25), 1: (0.75, 0.5), 2: (0.9, 0.0)}
    pretend(lambda c: record(*shown[c.clients.fold], floor=0.125, constant=0.5))
    (trial,) = tune(search(), tmp_path, trials=1).trials
    assert trial.mean("accuracy") == pytest.approx(0.75)
    assert trial.violation == 0.25
    assert trial.mean(f"floor_{DP}") == 0.125
    assert trial.mean("constant_accuracy") == 0.5
    assert [fold["accuracy"] for fold in trial.folds] == [0.6, 0.75, 0.9]


def test_the_first_trial_has_the_configuration_s_own_values(pretend, tmp_path):
    pretend(by_rate)
    space = {**RATES, "strategy.beta": Choices((0.2, 0.8)), "model.hidden": Choices(([4], [8]))}
    tuned = tune(search(space, training={"lr": 0.004}, model={"hidden": [8]}), tmp_path, trials=1)
    own = {"training.lr": 0.004, "strategy.beta": 0.8, "model.hidden": [8]}
    assert drawn(tuned) == [own]


def test_all_kinds_of_values_come_from_their_parts(pretend, tmp_path):
    pretend(by_rate)
    space = {
        "training.batch_size": Range(3, 5),
        "training.momentum": Range(0.25, 0.5),
        "strategy.weights": Choices(("size", "uniform")),
        "model.hidden": Choices(([4], [8, 8])),
    }
    seen = drawn(tune(search(space), tmp_path, trials=10))
    assert {values["training.batch_size"] for values in seen} == {3, 4, 5}
    assert all(0.25 <= values["training.momentum"] <= 0.5 for values in seen)
    assert {values["strategy.weights"] for values in seen} == {"size", "uniform"}
    assert {tuple(values["model.hidden"]) for values in seen} == {(4,), (8, 8)}


def test_the_same_values_have_the_same_folder_and_are_not_trained_twice(pretend, tmp_path):
    asked = pretend(by_rate).asked
    tune(search({"strategy.weights": Choices(("size", "uniform"))}), tmp_path, trials=6)
    folders = {(c.strategy.create().weights, out.parent) for runs in asked for c, out in runs}
    assert len(folders) == len({weights for weights, _ in folders}) == 2


# What is chosen


def test_the_choice_is_the_rule_on_the_means(pretend, tmp_path):
    pretend(by_rate)  # violation 5·lr, floor .01: up to lr .0026 it is at most .013
    tuned = tune(search(training={"lr": 0.002}), tmp_path, trials=5)
    rates = [trial.values["training.lr"] for trial in tuned.trials]
    assert max(rates) > 0.0026  # more accurate, and too unfair
    expected = max(rate for rate in rates if 5 * rate <= 1.3 * 0.01)
    assert tuned.best.values == {"training.lr": expected}
    assert tuned.config.training.lr == expected
    assert tuned.reason.startswith("highest accuracy of the")


def test_the_constant_answer_is_on_the_pareto_set_and_not_chosen(pretend, tmp_path):
    def rule(config):
        fair = config.strategy.create().weights == "size"
        return record(0.7, 0.0, constant=0.7) if fair else record(0.8, 0.005, constant=0.7)

    pretend(rule)
    space = {"strategy.weights": Choices(("size", "uniform"))}
    tuned = tune(search(space), tmp_path, trials=6)
    by_weights = {trial.values["strategy.weights"]: trial for trial in tuned.trials}
    assert by_weights["size"].violation < by_weights["uniform"].violation
    assert {tuned.trials[n].values["strategy.weights"] for n in tuned.pareto} == {
        "size",
        "uniform",
    }
    assert tuned.best.values == {"strategy.weights": "uniform"}


def test_of_several_metrics_all_must_be_small(pretend, tmp_path):
    def rule(config):
        one_sided = config.strategy.create().weights == "size"
        return record(0.9, 0.0, eo=0.3) if one_sided else record(0.8, 0.008, eo=0.009)

    pretend(rule)
    space = {"strategy.weights": Choices(("size", "uniform"))}
    tuned = tune(search(space, (DP, EO)), tmp_path, trials=6)
    assert tuned.best.values == {"strategy.weights": "uniform"}
    assert tuned.best.violation == 0.009


def test_each_metric_is_held_to_its_own_floor():
    """DP is within 1.3 floors; EO, though smaller, is not within its bound."""
    folds = ({"accuracy": 0.8, "constant_accuracy": 0.5, DP: 0.05, f"floor_{DP}": 0.04}
             | {EO: 0.02, f"floor_{EO}": 0.001},)  # fmt: skip
    trial = SearchTrial(number=0, state="complete", values={}, metrics=(DP, EO), folds=folds)
    scored = trial.scored(0.01)
    assert (scored.violation, scored.floor) == (0.02, 0.001)


@pytest.mark.parametrize(
    ("config", "metrics"),
    [
        ({}, (DP,)),
        ({"fairness": {"notion": ["dp", "eo"]}}, (DP, EO)),
        ({"strategy": {"name": "fedavg"}, "fairness": {"notion": "eo"}}, (EO,)),
        ({"strategy": {"name": "qffl"}}, ("client_accuracy_std",)),
        ({"strategy": {"name": "ditto"}}, ("client_accuracy_std",)),
        ({"strategy": {"name": "fedfb"}}, (DP,)),
        ({"strategy": {"name": "fedfb", "parity": "client"}}, ("client_accuracy_std",)),
        ({"strategy": {"name": "mfairfl", "constraint": False}}, ("client_accuracy_std",)),
        ({"strategy": {"name": "fedavg-threshold"}}, (DP,)),
    ],
)
def test_the_metric_is_what_the_method_protects(config, metrics):
    assert default_metrics(make_config(config)) == metrics


# Stopped, taken up, shared


@pytest.mark.slow
def test_same_seed_same_trials(pretend, tmp_path):
    pretend(by_rate)
    one, two, other = (
        drawn(tune(search(seed=seed), tmp_path / name, trials=3))
        for name, seed in (("one", 3), ("two", 3), ("other", 4))
    )
    assert one == two
    assert one[0] == other[0]  # the configuration's own values
    assert not any(mine == theirs for mine, theirs in zip(one[1:], other[1:], strict=True))


@pytest.mark.slow
def test_a_stopped_search_goes_on_as_if_it_had_not_been(pretend, tmp_path):
    pretend(by_rate)
    # From the eleventh trial on, draws depend on what the trials before showed.
    straight = tune(search(), tmp_path / "straight", trials=13)
    done = 0
    for calls, complete in ((0, 0), (4, 1), (31, 11)):  # a trial makes three calls
        asked = pretend(stopping(by_rate, calls)).asked
        with pytest.raises(Stop):
            tune(search(), tmp_path / "stopped", trials=13)
        done += len(asked) - 1
        assert done == complete  # nothing that was complete is run again
    pretend(by_rate)
    resumed = tune(search(), tmp_path / "stopped", trials=13)
    assert resumed.trials == straight.trials  # none lost, none twice, none failed
    assert resumed.best == straight.best


KILLED = """
import os, signal, sys
sys.path[:0] = sys.argv[2:]
import mfairfl.experiments.search.optuna_study as tuning
from test_tune_search import by_rate, search, tune
from tuning_records import Pretence

def rule(config):
    if config.clients.fold == 2 and tuning.run_many.asked[1:]:
        os.kill(os.getpid(), signal.SIGKILL)
    return by_rate(config)

tuning.run_many = Pretence(rule)
tune(search(), sys.argv[1], trials=3)
"""


@pytest.mark.slow
def test_killed_for_real_and_taken_up(pretend, tmp_path):
    pretend(by_rate)
    straight = tune(search(), tmp_path / "straight", trials=3)
    here = Path(__file__).parent
    helpers = here.parent / "helpers"
    command = [sys.executable, "-c", KILLED, tmp_path / "killed", here, helpers]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    asked = pretend(by_rate).asked
    resumed = tune(search(), tmp_path / "killed", trials=3)
    assert len(asked) == 2  # the first trial was complete, the second was not
    assert resumed.trials == straight.trials


@pytest.mark.slow
def test_no_draw_is_repeated_after_going_on(pretend, tmp_path):
    pretend(by_rate)
    for trials in (1, 2, 4):
        tuned = tune(search(), tmp_path, trials=trials)
    rates = [trial.values["training.lr"] for trial in tuned.trials]
    assert len(rates) == len(set(rates)) == 4


def test_enough_trials_are_only_shown(pretend, tmp_path):
    pretend(by_rate)
    first = tune(search(), tmp_path, trials=3)
    asked = pretend(by_rate).asked
    assert tune(search(), tmp_path, trials=2) == first
    assert asked == []


@pytest.mark.slow
def test_two_folders_share_one_study(pretend, tmp_path):
    storage = f"sqlite:///{tmp_path / 'shared.db'}"
    pretend(stopping(by_rate, 4))
    with pytest.raises(Stop):  # the first leaves its second trial unfinished
        tune(search(), tmp_path / "a", trials=4, storage=storage)
    asked = pretend(by_rate).asked
    second = tune(search(), tmp_path / "b", trials=4, storage=storage)
    assert len(asked) == 2  # not the one that runs elsewhere
    assert [t.state for t in second.trials] == ["complete", "running", "complete", "complete"]
    asked.clear()
    first = tune(search(), tmp_path / "a", trials=4, storage=storage)
    assert len(asked) == 1
    assert [t.state for t in first.trials] == ["complete"] * 4
    rates = [trial.values["training.lr"] for trial in first.trials]
    assert len(set(rates)) == 4


def test_a_trial_whose_owner_is_unknown_holds_no_place(pretend, tmp_path):
    """Killed between taking a number and signing for it."""
    pretend(by_rate)
    tune(search(), tmp_path, trials=1, study="s")
    with optuna_storage(tmp_path / "study.db") as storage:
        optuna.load_study(study_name="s", storage=storage).ask()
    tuned = tune(search(), tmp_path, trials=3, study="s")
    states = [trial.state for trial in tuned.trials]
    assert states == ["complete", "running", "complete", "complete"]


def test_a_folder_serves_one_process_at_a_time(pretend, tmp_path):
    def second(config):
        tune(search(), tmp_path, trials=1)

    pretend(second)
    with pytest.raises(RunDirectoryError, match="another process"):
        tune(search(), tmp_path, trials=1)


# What is refused


def test_a_study_is_not_mixed_with_another_search(pretend, tmp_path):
    pretend(by_rate)
    mine = tune(search(), tmp_path, trials=1, study="mine")
    others = {
        "training.rounds is 40 in the study and 7 here": search(training={"rounds": 7}),
        "strategy.shrink is None in the study and 0.25 here": search(strategy={"shrink": 0.25}),
        "metric is .*demographic.* in the study and .*equalized.* here": search(metrics=(EO,)),
        "search of training.lr is": search({"training.lr": Range(0.001, 0.1)}),
        "searched keys is": search({**RATES, "strategy.beta": Choices((0.2, 0.8))}),
    }
    for said, other in others.items():
        with pytest.raises(ConfigError, match=f"^study 'mine': {said}.*choose another --study"):
            tune(other, tmp_path, trials=2, study="mine")
    assert tune(search(), tmp_path, trials=1, study="mine") == mine


def test_a_study_is_not_mixed_with_other_rows(pretend, tmp_path):
    pretend(by_rate)
    tune(search(), tmp_path, trials=1)
    pretend(lambda c: record(0.9, data="def"))
    with pytest.raises(ConfigError, match="sha256 is abc in the study and def here"):
        tune(search(), tmp_path, trials=2)


def test_a_study_of_another_kind_is_refused(tmp_path):
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with optuna_storage(tmp_path / "x.db") as storage:
        optuna.create_study(storage=storage, study_name="theirs")
    with pytest.raises(ConfigError, match="study 'theirs': was not created by mfairfl tune"):
        tune(search(), tmp_path / "out", study="theirs", storage=f"sqlite:///{tmp_path / 'x.db'}")


def test_an_undefined_violation_names_fold_and_reason(pretend, tmp_path):
    pretend(lambda c: record(0.9, None if c.clients.fold == 1 else 0.0))
    with pytest.raises(DataError, match=rf"fold 1: {DP} is undefined \(no rows of group F\)"):
        tune(search(), tmp_path, trials=1)
    pretend(lambda c: make_record())
    with pytest.raises(DataError, match="fold 0: no client has rows to measure on"):
        tune(search(), tmp_path, trials=1)


@pytest.mark.slow
def test_values_that_do_not_go_together_stop_the_search_once(pretend, tmp_path):
    """lr · weight decay must stay below 1; each of these values is fine by itself."""
    pretend(by_rate)
    both = {"training.lr": 0.1, "training.weight_decay": 20.0}
    space = {
        "training.lr": Choices((0.002, 0.1)),
        "training.weight_decay": Choices((3.0, 20.0)),
    }
    said = []
    while True:
        try:
            tuned = tune(search(space), tmp_path, trials=6)
            break
        except ConfigError as error:
            said.append(str(error).partition(" must")[0])
    refused = len(said)
    assert set(said) == {"trial: training.lr · training.weight_decay = 2"}
    failed = [dict(trial.values) for trial in tuned.trials if trial.state == "fail"]
    assert failed == [both] * refused  # not taken up again, and no place of the six is theirs
    assert len(tuned.complete) == 6
    assert both not in [dict(trial.values) for trial in tuned.complete]


@pytest.mark.slow
def test_what_a_run_says_reaches_the_caller_and_the_trial_is_taken_up(pretend, tmp_path):
    def broken(config):
        raise MfairflError("the disk is full")

    pretend(broken)
    with pytest.raises(MfairflError, match="the disk is full"):
        tune(search(), tmp_path, trials=1)
    pretend(by_rate)
    tuned = tune(search(), tmp_path, trials=1)
    assert [trial.state for trial in tuned.trials] == ["complete"]


@pytest.mark.parametrize(
    ("storage", "said"),
    [
        ("study.db", "^--storage: not a database URL; use sqlite:///FILE"),
        ("sqlite:////nowhere/at/all.db", "^--storage sqlite:////nowhere/at/all.db: unable to"),
        ("oracle://me:secret@host/db", r"^--storage oracle://me:\*\*\*@host/db: .*the driver"),
    ],
)
def test_a_database_that_cannot_be_used(tmp_path, storage, said):
    with pytest.raises(ConfigError, match=said) as caught:
        tune(search(), tmp_path, storage=storage)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_metrics_and_folds_are_checked(tmp_path):
    with pytest.raises(ConfigError, match=r"unknown metric .*did you mean 'client_accuracy_std'"):
        tune(search(metrics=("client_accuracy_sd",)), tmp_path)
    with pytest.raises(ConfigError, match=r"clients\.folds: a search makes its own"):
        tune(search(clients={"folds": 2}), tmp_path)


# What is left on disk


def test_the_table_has_one_row_a_trial(pretend, tmp_path):
    pretend(by_rate)
    space = {**RATES, "model.hidden": Choices(([4], [8, 8]))}
    tune(search(space), tmp_path, trials=3)
    rows = csv_rows(tmp_path / "trials.csv")
    assert [row["trial"] for row in rows] == ["0", "1", "2"]
    assert {row["state"] for row in rows} == {"complete"}
    assert [row["chosen"] for row in rows].count("1") == 1
    for row in rows:
        lr = float(row["training.lr"])
        assert json.loads(row["model.hidden"]) in ([4], [8, 8])
        assert float(row["accuracy"]) == pytest.approx(0.61 + 10 * lr)
        assert float(row["violation"]) == float(row[DP]) == pytest.approx(5 * lr)
        assert float(row[f"floor_{DP}"]) == pytest.approx(0.01)
        assert float(row["accuracy[fold 2]"]) == pytest.approx(0.62 + 10 * lr)
        assert float(row[f"{DP}[fold 1]"]) == pytest.approx(5 * lr)


def test_what_is_undefined_or_unfinished_is_empty_in_the_table(pretend, tmp_path):
    storage = f"sqlite:///{tmp_path / 'shared.db'}"
    pretend(stopping(by_rate, 0))
    with pytest.raises(Stop):
        tune(search(), tmp_path / "a", trials=2, storage=storage)
    pretend(lambda c: record(0.9, floor=None))
    tune(search(), tmp_path / "b", trials=2, storage=storage)
    running, done = csv_rows(tmp_path / "b" / "trials.csv")
    assert (running["state"], running["training.lr"]) == ("running", "0.004")
    assert running["accuracy"] == ""
    assert (done["accuracy"], done[f"floor_{DP}"]) == ("0.9", "")


def test_the_picture_shows_every_trial_and_the_bound(pretend, tmp_path):
    pretend(by_rate)
    tuned = tune(search(), tmp_path, trials=6)
    (panel,) = plot_trials(tuned).axes
    lines = {line.get_label(): line for line in panel.lines}
    rates = [trial.values["training.lr"] for trial in tuned.trials]
    assert list(lines["trial"].get_xdata()) == pytest.approx([5 * rate for rate in rates])
    assert list(lines["trial"].get_ydata()) == pytest.approx([0.61 + 10 * rate for rate in rates])
    chosen = lines[f"chosen: trial {tuned.best.number}"]
    assert list(chosen.get_xdata()) == [tuned.best.violation]
    assert lines["small enough"].get_xdata()[0] == pytest.approx(0.013)
    assert lines["constant classifier"].get_ydata()[0] == 0.5
    assert min(map(contrast, drawn_colours(panel))) >= 3.0


def test_best_toml_is_the_given_file_with_the_chosen_values(pretend, tmp_path):
    pretend(by_rate)
    (tmp_path / "my.toml").write_text("[training]\nrounds = 7\n[strategy]\nname = 'fedavg'\n")
    tuned = mfairfl.tune(tmp_path / "my.toml", tmp_path / "out", trials=2)
    assert tuned.search.space == default_space("fedavg")
    assert tuned.search.metrics == (DP,)
    best = tomllib.loads((tmp_path / "out" / "best.toml").read_text(encoding="utf-8"))
    rate = tuned.best.values["training.lr"]
    assert best == {"training": {"rounds": 7, "lr": rate}, "strategy": {"name": "fedavg"}}
    assert str(tuned).startswith(f"trial {tuned.best.number} (of 2 complete ones): training.lr")
    assert {"trials.csv", "trials.svg", "trials.png"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }


# Real training


@pytest.mark.slow
def test_real_runs_are_scored_by_their_records(one_process, tmp_path):
    fed.people().to_csv(tmp_path / "people.csv", index=False)
    config = {
        "data": {"csv": str(tmp_path / "people.csv")},
        "task": fed.TASK.model_dump(mode="json", exclude_none=True),
        "model": {"hidden": [4]},
        "training": {"rounds": 1, "local_epochs": 2, "batch_size": 20, "lr": 0.02},
    }
    tuned = tune(search(**config), tmp_path / "out", trials=2)
    records = [json.loads(path.read_text()) for path in tmp_path.glob("out/trials/*/*/run.json")]
    assert len(records) == 6
    for trial in tuned.trials:
        mine = [r for r in records if r["config"]["training"]["lr"] == trial.values["training.lr"]]
        assert len(mine) == 3
        accuracies = [r["metrics"]["test"]["accuracy"] for r in mine]
        assert trial.mean("accuracy") == pytest.approx(sum(accuracies) / 3)
        assert trial.violation == pytest.approx(sum(r["metrics"]["test"][DP] for r in mine) / 3)
