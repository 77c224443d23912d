"""scores.safetensors holds what clients counted, and nothing else is read from it."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save

import federations as fed
import mfairfl
from answers import one_line
from mfairfl.data.sums import MOST_ROWS
from mfairfl.engine.loop import Result
from mfairfl.engine.output import Served
from mfairfl.errors import RunDirectoryError
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.histogram import ScoreHistogram
from mfairfl.fairness.scores import RowScores, ScoreSums
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.record import RunRecord
from mfairfl.runs.stored_scores import dump_scores, parse_scores, scores_of

PEOPLE = fed.people()
SETTINGS = {"rounds": 2, "hidden": (4,), "batch_size": 20, "local_epochs": 1, "lr": 0.02}
FILE = "scores.safetensors"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("finished") / "run"
    return mfairfl.train(fed.people_table(), out=out, **SETTINGS)


def stored(run):
    return RunDirectory(run.path).read_scores(RunRecord.read(run.path))


def same(one, other):
    assert {split: list(clients) for split, clients in one.items()} == {
        split: list(clients) for split, clients in other.items()
    }
    for split, clients in one.items():
        for name, histogram in clients.items():
            np.testing.assert_array_equal(histogram.counts, other[split][name].counts)


# ------------------------------------------------------------------ what it holds


@pytest.mark.parametrize("strategy", ["fedavg", "indfair", "ditto", "fedavg-threshold"])
def test_it_counts_the_scores_of_every_client_row_by_row(strategy, tmp_path):
    table = fed.people_table()
    federation = mfairfl.partition(table, "column", seed=0)
    run = mfairfl.train(table, out=tmp_path / "run", strategy=strategy, **SETTINGS)
    cells = Cells(table.attributes).encode(table.groups)
    scores = stored(run)
    assert list(scores) == ["train", "test"]
    for split, clients in scores.items():
        assert list(clients) == sorted(fed.SITES)
        for client in federation.clients:
            rows, found = client.shard(split).rows, clients[client.name].counts
            z = run.predictor.decision_function(PEOPLE.iloc[rows])
            expected = np.zeros_like(found)
            for logit, cell, label in zip(z, cells[rows], table.y[rows], strict=True):
                expected[cell, label, int(np.clip(np.floor((logit + 8) * 128), 0, 2047))] += 1
            np.testing.assert_array_equal(found, expected)


def test_it_is_small_and_the_same_twice(finished, tmp_path):
    again = mfairfl.train(fed.people_table(), out=tmp_path / "run", **SETTINGS)
    data = (finished.path / FILE).read_bytes()
    assert data == (again.path / FILE).read_bytes()
    assert len(data) < 3000  # 260 rows of four clients in four cells
    assert hashlib.sha256(data).hexdigest() == finished.record.files[FILE]


def test_a_run_in_memory_keeps_them_and_saves_them(finished, tmp_path):
    run = mfairfl.train(fed.people_table(), **SETTINGS)
    same(run.scores, finished.scores)
    same(run.scores, stored(finished))
    RunDirectory(tmp_path).write_run(
        run.record, run.predictor.served, run.predictor.encoder, run.scores
    )
    assert (tmp_path / FILE).read_bytes() == (finished.path / FILE).read_bytes()


def test_a_finished_run_is_returned_with_them(finished):
    again = mfairfl.train(fed.people_table(), out=finished.path, **SETTINGS)
    same(again.scores, finished.scores)


def test_a_mixture_has_none_nor_have_clients_without_numbers(tmp_path):
    scores = ScoreSums.from_rows(RowScores.from_probabilities([0.3, 1.0]), [0, 0], [0, 1], size=1)
    served = Served(
        kind="mixture", members=np.ones((2, 1)), weights=np.ones(2) / 2, names=("a", "b")
    )
    scored, measured = {"test": {"east": scores, "west": scores}}, ({"test": {"east": None}},)
    result = Result(served=served, measured=measured, scored=scored, rounds=1)
    assert scores_of(result) == {}
    assert RunDirectory(tmp_path).write_scores({}) == {}
    assert not any(tmp_path.iterdir())
    alone = replace(served, kind="single", members=np.ones((1, 1)), weights=np.ones(1))
    # West is not in the final numbers.
    assert scores_of(replace(result, served=alone)) == {"test": {"east": scores.histogram}}


def test_a_run_of_an_earlier_version_has_none(finished, tmp_path):
    folder = shutil.copytree(finished.path, tmp_path / "old")
    document = json.loads((folder / "run.json").read_text())
    del document["files"][FILE]
    (folder / "run.json").write_text(json.dumps(document))
    (folder / FILE).write_bytes(b"of somebody else")
    assert RunDirectory(folder).read_scores(RunRecord.read(folder)) == {}
    mfairfl.load(folder).predict(PEOPLE)


def test_rows_beyond_what_small_integers_hold():
    many = np.zeros((3, 2, 2048), dtype=np.int64)
    many[2, 1, 2047] = 2**33
    found = parse_scores(dump_scores({"test": {"a": ScoreHistogram(many)}}))
    np.testing.assert_array_equal(found["test"]["a"].counts, many)


# ------------------------------------------------------------------ what is refused


def parts(run):
    with safe_open(run.path / FILE, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return arrays, json.loads(file.metadata()["scores"])


def first(array, value):
    changed = array.copy()
    changed[0] = value
    return changed


HOSTILE = {
    "other bins": (lambda a, h: h.update(bins=1024), "bins"),
    "no cells": (lambda a, h: h.update(cells=0), "cells"),
    "many cells": (lambda a, h: h.update(cells=10**12), "cells"),
    "cells of text": (lambda a, h: h.update(cells="4"), "cells"),
    "an unknown split": (lambda a, h: h["clients"].update(holdout=["x"]), "holdout"),
    "an unknown key": (lambda a, h: h.update(version=1), "version"),
    "a client less": (lambda a, h: h["clients"]["test"].pop(), "do not fit"),
    "a client twice": (lambda a, h: h["clients"]["test"].__setitem__(0, "north"), "in order"),
    "clients out of order": (lambda a, h: h["clients"]["test"].reverse(), "in order"),
    "no client": (lambda a, h: h["clients"]["test"].clear(), "clients are none"),
    "an array less": (lambda a, h: a.pop("test/numbers"), "no array 'test/numbers'"),
    "an array more": (lambda a, h: a.update(x=np.ones(1)), "unknown array 'x'"),
    "places below 0": (
        lambda a, h: a.update({"test/places": -a["test/places"].astype("i8")}),
        "u",
    ),
    "numbers with fractions": (lambda a, h: a.update({"test/numbers": np.full(3, 0.5)}), "u"),
    "an empty bin": (
        lambda a, h: a.update({"test/numbers": first(a["test/numbers"], 0)}),
        "or empty",
    ),
    "a bin outside": (
        lambda a, h: a.update({"test/places": first(a["test/places"], 65_000)}),
        "outside",
    ),
    "a bin twice": (
        lambda a, h: a.update({"test/places": first(a["test/places"], a["test/places"][1])}),
        "bins of 'east' are not in order",
    ),
    "too many rows": (
        lambda a, h: a.update(
            {"test/numbers": first(a["test/numbers"].astype("u8"), 2 * MOST_ROWS)}
        ),
        "more rows than",
    ),
    "entries that wrap around": (
        lambda a, h: a.update({"test/entries": first(a["test/entries"].astype("u8"), 2**64 - 1)}),
        "do not fit",
    ),
    "a row more than was measured": (
        lambda a, h: a.update({"test/numbers": first(a["test/numbers"], 9)}),
        "'east' has other test rows than in run.json",
    ),
    "cells of another task": (lambda a, h: h.update(cells=9), "other train rows"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_an_altered_file_is_refused_in_one_line(case, finished, tmp_path):
    folder = shutil.copytree(finished.path, tmp_path / "copy")
    change, words = HOSTILE[case]
    arrays, header = parts(finished)
    change(arrays, header)
    data = save(arrays, metadata={"scores": json.dumps(header)})
    (folder / FILE).write_bytes(data)
    record = RunRecord.read(folder)
    with pytest.raises(RunDirectoryError, match="SHA-256"):
        RunDirectory(folder).read_scores(record)
    record = record.model_copy(
        update={"files": record.files | {FILE: hashlib.sha256(data).hexdigest()}}
    )
    with pytest.raises(RunDirectoryError, match=words) as caught:
        RunDirectory(folder).read_scores(record)
    assert f"{folder / FILE}: " in one_line(caught)


def test_a_missing_file_is_named(finished, tmp_path):
    folder = shutil.copytree(finished.path, tmp_path / "copy")
    (folder / FILE).unlink()
    with pytest.raises(RunDirectoryError, match="not found") as caught:
        RunDirectory(folder).read_scores(RunRecord.read(folder))
    assert str(folder / FILE) in one_line(caught)
