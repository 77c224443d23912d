"""The read-outs of `make disclosure` read rows of a small silo, as its file has them."""

from __future__ import annotations

import importlib
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest

from mfairfl.silo import refusals
from mfairfl.silo.policy import Policy
from mfairfl.training.plan import Recipe

ROWS = 1000
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)


def module(name):
    return importlib.import_module(f"readouts.{name}")


def enrolled(folder, frame, *, fitted):
    silo = module("silo")
    run = silo.Run(silo.line_to(folder, frame, agreed=fitted))
    if fitted:
        run.enrol_as_agreed(silo.adult_task())
    else:
        run.enrol_freely(silo.adult_task(), silo.exact_encoder())
    return run


@pytest.mark.slow
@pytest.mark.parametrize("fitted", [False, True], ids=["own encoder", "as agreed"])
def test_chosen_models_read_nearly_every_row(tmp_path, fitted):
    silo = module("silo")
    frame = silo.adult_rows(0, ROWS)
    run = enrolled(tmp_path, frame, fitted=fitted)
    *_, claims = module("chosen_models").read_rows(run, 0, sizes=silo.SIZES)
    found = silo.judge_rows(claims, frame, run.encoder)
    assert found.right >= 0.95 * ROWS
    assert found.wrong <= 2
    assert run.line.refused == 0


def test_default_training_gives_every_row_that_is_trapped(tmp_path):
    silo = module("silo")
    frame = silo.adult_rows(0, ROWS)
    run = enrolled(tmp_path, frame, fitted=True)
    plans = [asdict(Recipe().plan(round_, 40)) for round_ in range(2)]
    claims = list(module("training").read_by_training(run, 0, sizes=silo.SIZES, plans=plans))
    traps = 29  # of a round, with the default model
    for round_, found in enumerate(claims, start=1):
        reading = silo.judge_rows(found, frame, run.encoder)
        assert reading.right >= 0.9 * round_ * traps
        assert reading.wrong == 0


@pytest.mark.slow
def test_audits_at_any_threshold_would_give_the_scores(tmp_path, monkeypatch):
    audits = module("audit_scores")
    (tmp_path / "agreed").mkdir()
    (tmp_path / "any").mkdir()
    found = audits.read_scores(tmp_path / "agreed", 0, rows=40)
    assert (found.right, found.refused) == (0, 1)
    monkeypatch.setattr(refusals, "require_columns_agreed", lambda _, asked, grid: asked)
    found = audits.read_scores(tmp_path / "any", 0, rows=40)
    assert found.right == found.counted >= 10
    assert (found.wrong, found.refused) == (0, 0)


@pytest.mark.slow
def test_counts_of_an_honest_enrolment_isolate_who_has_a_workclass_but_no_occupation(tmp_path):
    found = module("honest").isolated_by_enrolment("adult", tmp_path, Policy())
    assert {(one.inner, one.outer) for one in found} == {("workclass = ?", "occupation = ?")}
    assert 1 in {one.rows for one in found}


def test_the_judge_finds_each_row_once_and_counts_what_fits_none():
    silo = module("silo")
    frame = silo.adult_rows(0, 5)
    claims = pd.concat([frame, frame.iloc[:1], frame.iloc[:1].assign(age=1)])
    held = frame.value_counts().max()
    assert held == 1
    assert silo.judge_rows(claims, frame, silo.exact_encoder()) == silo.Reading(5, 5, 2)
