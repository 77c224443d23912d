"""docs/experiments.md: its file is valid, its commands exist, its numbers are the code's."""

from __future__ import annotations

import re
import shlex
import tomllib
from functools import partial
from pathlib import Path

import pytest
import typer

import mfairfl
from mfairfl.cli import app
from mfairfl.experiments.search.choice import FLOOR_FACTOR, USEFUL
from mfairfl.experiments.search.halving import FOLDS, RUNGS
from mfairfl.experiments.study import Study
from mfairfl.paper import PAPER
from mfairfl.references import REFERENCES, reference_settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")


def test_the_experiment_file_says_what_the_text_says():
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.S)
    study = Study.model_validate(tomllib.loads(block))
    assert study.labels == ("fedavg", "fedavg-threshold", "fairfed", "mfairfl")
    assert study.notions == ("demographic_parity", "equalized_odds")
    assert study.seeds == (0, 1, 2, 3, 4)
    assert study.tested_against == "mfairfl"
    assert study.references == REFERENCES


@pytest.mark.parametrize(
    "key", ["references", "reference", "kind", "notions", "lock", "base", "data"]
)
def test_keys_the_page_names_exist(key):
    assert f"`{key} = " in PAGE or f"[{key}." in PAGE
    assert key in Study.model_fields


COMMANDS = re.findall(r"^(mfairfl [^#\n]*)", PAGE, flags=re.M)


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_are_understood(line):
    command = typer.main.get_command(app)
    _, verb, *arguments = shlex.split(line)
    context = command.commands[verb].make_context(verb, arguments)
    if verb == "reproduce":
        assert set(context.params["what"]) <= {*PAPER, "all", "tuning"}


def test_finished_runs_are_compared_in_python_as_the_page_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    quick = partial(mfairfl.train, rounds=1, local_epochs=1, hidden=(4,))
    monkeypatch.setattr(mfairfl, "train", quick)
    first, *_ = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
    exec(first, {})  # noqa: S102
    lines = capsys.readouterr().out.splitlines()
    shown = [line for line in lines if not line.startswith("warning: ")]  # one round is too few
    assert shown[0].startswith("adult, 5 clients, 9,769 test rows: value, 95%")
    assert (tmp_path / "comparison.svg").exists()


def test_the_rungs_and_the_rule_are_those_of_the_code():
    assert FOLDS == 3
    assert [rung.settings for rung in RUNGS] == [8, 3, 2]
    assert [len(rung.folds) for rung in RUNGS] == [1, 1, 3]
    assert [rung.share for rung in RUNGS] == [0.5, 1.0, 1.0]
    text = " ".join(PAGE.split())
    assert "eight settings from the grids" in text
    assert "after half the rounds on one fold three are left, after all rounds two" in text
    assert f"max(.01, {FLOOR_FACTOR} × noise floor)" in text
    assert USEFUL == 0.01
    assert "beat the constant classifier by a point" in text


def test_the_references_are_those_of_the_code():
    for name in REFERENCES:
        assert f"| `{name}` |" in PAGE
    settings, text = reference_settings("boosting-threshold"), " ".join(PAGE.split())
    assert settings["learning_rate"] == 0.05
    assert "learning rate .05, at most 1,000 trees of 15 leaves, stopped after 20 trees" in text
    assert [settings[key] for key in ("max_iter", "max_leaf_nodes", "n_iter_no_change")] == [
        1000,
        15,
        20,
    ]
    assert settings["validation_fraction"] == 0.1
    assert "on a tenth of the train rows" in text
    assert settings["folds"] == 5
    assert "(five folds of the train rows)" in text


def test_a_reference_is_fitted_in_python_as_the_page_says():
    *_, last = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
    names = {"mfairfl": mfairfl}
    exec(last, names)  # noqa: S102
    assert len(names["logits"]) == len(names["test"]) == 200


def test_the_decision_s_numbers_are_the_benchmark_s():
    kept = (ROOT / "benchmarks" / "references.txt").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "decisions" / "0016-pooled-references.md").read_text(encoding="utf-8")
    folds = [n for pair in re.findall(r"0(\.\d{4}) / 0(\.\d{4})", kept) for n in pair]
    lines = re.findall(r"0(\.\d{4})    0(\.\d{4}) \(sd", kept)
    assert (len(folds), len(lines)) == (4 * 4 * 2, 4 * 2 * 2)
    said = re.findall(r"\.\d{4}", page)
    assert said == [*folds, *(n for line in lines for n in line)]
    own, unseen = (float(violation) for _, violation in lines[6:8])  # Bank, equalized odds
    text = " ".join(PAGE.split())
    assert f"was {own:.3f} instead of {unseen:.3f}".replace("0.", ".") in text
