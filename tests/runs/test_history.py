"""rounds.csv and clients.csv, and what becomes of them when a run is disturbed."""

from __future__ import annotations

import csv
import json
import math
import shutil
from dataclasses import replace
from functools import partial

import pytest

import federations as fed
import mfairfl
from answers import csv_rows
from mfairfl.engine.checkpoint import Checkpoints, CheckpointWarning
from mfairfl.engine.embedded import Member
from mfairfl.engine.state import Measure, RunState, Score, Train
from mfairfl.errors import CheckpointError, RunDirectoryError
from mfairfl.experiments.histories import read_history
from mfairfl.report.figures import draw_training
from mfairfl.report.reported_run import read_runs
from mfairfl.report.training_history import training_history
from mfairfl.runs import execute, outcome
from mfairfl.runs.history import History, read_rows

ROUNDS = 3
SETTINGS = {
    "strategy": "fedavg",
    "rounds": ROUNDS,
    "hidden": (4,),
    "batch_size": 20,
    "local_epochs": 1,
    "lr": 0.02,
}
COMPARED = ("rounds.csv", "clients.csv", "model.safetensors", "scores.safetensors", "encoder.json")


def train(out, **changes):
    measured = {"training.evaluate_every": 1}
    return mfairfl.train(fed.people_table(), out=out, **(SETTINGS | measured | changes))


def contents(out):
    return {name: (out / name).read_bytes() for name in COMPARED}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    return out, train(out)


# ------------------------------------------------------------------ what they say


def test_rounds_end_with_the_numbers_of_the_record(undisturbed):
    out, run = undisturbed
    rows = csv_rows(out / "rounds.csv")
    assert [row["round"] for row in rows] == ["0", "1", "2", "3"]
    for split in ("train", "test"):
        for name in ("accuracy", "demographic_parity_violation", "worst_client_accuracy"):
            assert float(rows[-1][f"{split}_{name}"]) == run.metrics[split][name]
        # The record's loss is summed from scores, in another order.
        loss = float(rows[-1][f"{split}_loss"])
        assert loss == pytest.approx(run.metrics[split]["loss"], rel=1e-14)


def test_clients_say_how_much_each_counted(undisturbed):
    out, run = undisturbed
    rows = csv_rows(out / "clients.csv")
    assert len(rows) == 4 * (ROUNDS + 1)
    first, last = rows[:4], rows[-4:]
    assert [row["client"] for row in first] == ["east", "north", "south", "west"]
    assert {row["coefficient"] for row in first} == {""}  # nobody has trained yet
    sizes = {"east": 72, "north": 56, "south": 32, "west": 48}
    for row in last:
        assert int(row["train_rows"]) == sizes[row["client"]]
        assert float(row["coefficient"]) == pytest.approx(sizes[row["client"]] / 208)
        own = run.metrics["test"]["by_client"][row["client"]]["accuracy"]
        assert float(row["test_accuracy"]) == own
        assert row["set_aside"] == ""
        assert float(row["update_norm"]) > 0


def test_a_client_without_test_rows_has_empty_fields(tmp_path):
    frame = fed.people(sites={"east": 40, "solo": 1})
    mfairfl.train(fed.people_table(frame), out=tmp_path / "run", **SETTINGS)
    (solo,) = [r for r in csv_rows(tmp_path / "run" / "clients.csv")[-2:] if r["client"] == "solo"]
    assert (solo["train_rows"], solo["test_rows"], solo["test_accuracy"]) == ("1", "0", "")
    assert not math.isnan(float(solo["train_loss"]))


def tampered(monkeypatch, tamper):
    """Let every embedded run hear answers that `tamper` has changed."""
    monkeypatch.setattr(execute, "Member", partial(Member, tamper=tamper))


@pytest.fixture
def with_a_liar(tmp_path, monkeypatch):
    """West says it has a million times its rows: never accepted, and suspended after round 3."""

    def more_rows(ask, one):
        return replace(one, counts=1e6 * one.counts) if isinstance(ask, Measure) else one

    tampered(monkeypatch, fed.lying("west", more_rows))
    return tmp_path / "run", train(tmp_path / "run", rounds=6)


def test_every_client_has_a_row_in_every_round_whatever_it_says(with_a_liar):
    rows = csv_rows(with_a_liar[0] / "clients.csv")
    assert [(row["round"], row["client"]) for row in rows] == [
        (str(round_), name) for round_ in range(7) for name in sorted(fed.SITES)
    ]
    refused = "its measurement of train rows: its counts are not those it was enrolled with"
    suspended = "suspended until round 9: its answers were refused"
    west = [row for row in rows if row["client"] == "west"]
    assert [row["set_aside"] for row in west] == [refused] * 4 + [suspended] * 3
    for row in west:
        assert (row["train_rows"], row["test_rows"]) == ("48", "12")  # as it was enrolled
        for empty in ("coefficient", "update_norm", "clipped", "train_loss", "test_accuracy"):
            assert row[empty] == ""
    others = [row for row in rows[4:] if row["client"] != "west"]
    shares = {"east": 72 / 160, "north": 56 / 160, "south": 32 / 160}
    for row in others:
        assert float(row["coefficient"]) == pytest.approx(shares[row["client"]])
        assert float(row["test_accuracy"]) <= 1


def test_numbers_of_a_round_are_those_of_the_clients_that_were_measured(with_a_liar):
    out, _ = with_a_liar
    clients, rounds = csv_rows(out / "clients.csv"), csv_rows(out / "rounds.csv")
    for round_, row in enumerate(rounds):
        own = [c for c in clients if c["round"] == str(round_) and c["train_accuracy"]]
        right = sum(float(c["train_accuracy"]) * int(c["train_rows"]) for c in own)
        assert float(row["train_accuracy"]) == pytest.approx(right / 160)
        worst = min(float(c["train_accuracy"]) for c in own)
        assert float(row["train_worst_client_accuracy"]) == pytest.approx(worst)


def test_a_record_says_who_is_missing_and_who_was_refused(with_a_liar):
    _, run = with_a_liar
    refused = "its measurement of train rows: its counts are not those it was enrolled with"
    assert run.record.warnings[-2:] == [
        f"west: not in the final numbers ({refused})",
        f"west: answers refused in 3 rounds, suspended for 5 rounds ({refused})",
    ]
    assert sorted(run.metrics["test"]["by_client"]) == ["east", "north", "south"]
    assert run.record.tallies["train"].n == 160
    assert {client.name for client in run.record.federation.clients} == set(fed.SITES)


def test_a_history_is_read_from_rows_with_gaps(with_a_liar):
    out, _ = with_a_liar
    assert [path.name for path in draw_training(out)] == ["rounds.svg", "clients.svg"]
    history = training_history(read_runs([out])[0])
    assert sorted(history.coefficients) == sorted(fed.SITES)
    assert set(history.coefficients["west"]) == {None}
    assert len(read_history(out)) == 7


def test_scores_that_never_came_leave_their_numbers_undefined(tmp_path, monkeypatch):
    """West's decisions count, its scores do not: ROC-AUC and loss of all rows are not known."""

    def steep(ask, one):
        return replace(one, losses=one.losses + 1e9) if isinstance(ask, Score) else one

    tampered(monkeypatch, fed.lying("west", steep))
    run = train(tmp_path / "run")
    refused = "its scores of train rows: its mean loss is above 10000"
    assert run.record.warnings[-1] == f"west: not in the final numbers ({refused})"
    metrics = run.record.metrics["test"]
    assert metrics["accuracy"] is not None
    for name in ("roc_auc", "loss", "expected_calibration_error"):
        assert metrics[name] is None
        assert metrics.undefined[name] == "the scores of client 'west' are missing"
        assert metrics.by_client["west"][name] is None
        assert metrics.by_client["east"][name] is not None


def test_a_shortened_update_has_its_factor_in_the_row(tmp_path, monkeypatch):
    def longer(ask, one):
        return replace(one, update=5 * one.update) if isinstance(ask, Train) else one

    tampered(monkeypatch, fed.lying("west", longer))
    train(tmp_path / "run", config={"robust": "clip"})
    rows = csv_rows(tmp_path / "run" / "clients.csv")
    for round_ in ("1", "2", "3"):
        own = [row for row in rows if row["round"] == round_]
        middle = sorted(float(row["update_norm"]) for row in own)[1]
        for row in own:
            factor = middle / float(row["update_norm"])
            told = float(row["clipped"]) if row["clipped"] else 1.0
            assert told == pytest.approx(min(1.0, factor), rel=1e-6)
            share = int(row["train_rows"]) / 208
            assert float(row["coefficient"]) == pytest.approx(share * told)
    assert {row["clipped"] for row in rows[:4]} == {""}


def test_the_trainer_of_all_rows_has_a_row_of_its_own(tmp_path):
    train(tmp_path / "run", strategy="cenfair", rounds=1)
    rows = csv_rows(tmp_path / "run" / "clients.csv")[-5:]
    assert [row["client"] for row in rows] == ["all clients", *sorted(fed.SITES)]
    assert [int(row["test_rows"]) for row in rows] == [52, 18, 14, 8, 12]
    assert all(row["test_loss"] for row in rows)


# ------------------------------------------------------------------ stopped at bad moments


class Stop:
    """A callback that fails after a round, before the run's own callbacks hear of it."""

    def __init__(self, round_: int) -> None:
        self._round = round_

    def on_start(self, setup, state):
        pass

    def on_round(self, setup, state, record):
        if state.round == self._round:
            raise KeyboardInterrupt


@pytest.mark.parametrize("round_", [0, 2])
def test_stopped_before_a_round_is_written(round_, undisturbed, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(out, callbacks=[Stop(round_)])
    train(out)
    assert contents(out) == contents(undisturbed[0])


@pytest.mark.parametrize("round_", range(ROUNDS + 1))
def test_stopped_between_the_history_and_the_checkpoint(
    round_, undisturbed, tmp_path, monkeypatch
):
    out = tmp_path / "run"

    def crash(self, setup, state, record):
        if state.round == round_:
            raise KeyboardInterrupt
        original(self, setup, state, record)

    original = Checkpoints.on_round
    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "on_round", crash)
        with pytest.raises(KeyboardInterrupt):
            train(out)
    # The round's rows are on disk, but the round does not count yet.
    assert csv_rows(out / "rounds.csv")[-1]["round"] == str(round_)
    train(out)
    assert contents(out) == contents(undisturbed[0])


def test_stopped_before_the_record_is_closed(undisturbed, tmp_path, monkeypatch):
    def crash(*_, **__):
        raise KeyboardInterrupt

    out = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(outcome, "model_warnings", crash)  # the model is written, the record not
        with pytest.raises(KeyboardInterrupt):
            train(out)
    assert train(out).record.metrics == undisturbed[1].record.metrics
    assert contents(out) == contents(undisturbed[0])


@pytest.fixture(scope="module")
def after_two(tmp_path_factory):
    """A run as a kill after the second round's checkpoint leaves it."""
    out = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.raises(KeyboardInterrupt):
        train(out, callbacks=[Stop(3)])
    return out


@pytest.fixture
def stopped(after_two, tmp_path):
    return shutil.copytree(after_two, tmp_path / "run")


@pytest.mark.parametrize("torn", [b"3,0.0", b"3", b"1", b'3,"a\nb', "3,Zoë".encode()[:-1], b"\n"])
@pytest.mark.parametrize("name", ["rounds.csv", "clients.csv"])
def test_a_torn_last_line_is_dropped(torn, name, stopped):
    whole = (stopped / name).read_bytes()
    (stopped / name).write_bytes(whole + torn)
    History(stopped).on_start(None, RunState(round=2, weights=None, strategy={}))
    assert (stopped / name).read_bytes() == whole


def test_rows_of_rounds_that_do_not_count_are_dropped(stopped, undisturbed):
    for name in ("rounds.csv", "clients.csv"):
        whole = (stopped / name).read_bytes()
        shutil.copy(undisturbed[0] / name, stopped / name)
        History(stopped).on_start(None, RunState(round=2, weights=None, strategy={}))
        assert (stopped / name).read_bytes() == whole


def test_a_damaged_checkpoint_costs_a_round_and_nothing_else(undisturbed, stopped):
    newest = stopped / "checkpoint" / "round-000002.ckpt"
    newest.write_bytes(newest.read_bytes()[:-7])
    with pytest.warns(CheckpointWarning, match="going on from round 1"):
        train(stopped)
    assert contents(stopped) == contents(undisturbed[0])


def test_damaged_checkpoints_are_refused_and_nothing_is_lost(stopped):
    for path in (stopped / "checkpoint").iterdir():
        path.write_bytes(b"noise")
    before = (stopped / "rounds.csv").read_bytes()
    with pytest.raises(CheckpointError, match=r"delete .*checkpoint to start again"):
        train(stopped)
    assert (stopped / "rounds.csv").read_bytes() == before


def test_deleting_the_checkpoints_starts_again(undisturbed, stopped):
    shutil.rmtree(stopped / "checkpoint")
    train(stopped)
    assert contents(stopped) == contents(undisturbed[0])


@pytest.mark.parametrize("damage", ["missing", "empty", "gap"])
def test_a_history_with_a_hole_is_not_continued(damage, stopped):
    path = stopped / "rounds.csv"
    lines = path.read_bytes().splitlines(keepends=True)
    kept = {"missing": None, "empty": b"", "gap": b"".join(lines[:2] + lines[3:])}[damage]
    path.unlink() if kept is None else path.write_bytes(kept)
    with pytest.raises(RunDirectoryError, match=r"rounds.csv: lacks rounds .* delete"):
        train(stopped)


def test_names_with_commas_quotes_and_line_ends_survive_a_restart(tmp_path):
    names = {"east": 'a "north", b', "north": "two\nlines", "south": "Zoë\u2028", "west": "7,x"}
    frame = fed.people().assign(site=lambda f: f.site.map(names))
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    table = fed.people_table(frame)
    mfairfl.train(table, out=straight, **SETTINGS)
    with pytest.raises(KeyboardInterrupt):
        mfairfl.train(table, out=stopped, callbacks=[Stop(2)], **SETTINGS)
    mfairfl.train(table, out=stopped, **SETTINGS)
    assert contents(stopped) == contents(straight)
    assert {row["client"] for row in csv_rows(straight / "clients.csv")} == {
        name.strip() for name in names.values()
    }


def test_a_client_whose_name_is_a_formula_is_found_again(tmp_path):
    names = {"east": "=1+1", "north": "@x", "south": "-7", "west": "'=x"}
    frame = fed.people().assign(site=lambda f: f.site.map(names))
    mfairfl.train(fed.people_table(frame), out=tmp_path / "run", **(SETTINGS | {"rounds": 1}))
    path = tmp_path / "run" / "clients.csv"
    assert {row["client"] for row in read_rows(path)} == set(names.values())
    assert {row["client"] for row in csv_rows(path)} == {"'=1+1", "'@x", "-7", "''=x"}


def test_the_log_of_many_clients_can_be_read(tmp_path):
    """Three tables of 50 × 50 cosines are longer than the fields that `csv` reads by itself."""
    log = json.dumps({"cosines": [[0.12345678901234567] * 50] * 150})
    assert len(log) > csv.field_size_limit()
    path = tmp_path / "rounds.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["round", "log"], [1, log]])
    assert read_rows(path) == [{"round": "1", "log": log}]
    assert csv.field_size_limit() == 131072


def test_a_fresh_run_drops_what_an_unfinished_start_left(tmp_path):
    (tmp_path / "rounds.csv").write_text("round,lr\n0,0.1\n")
    history = History(tmp_path)
    history.on_start(None, RunState(round=0, weights=None, strategy={}))
    assert not (tmp_path / "rounds.csv").exists()
