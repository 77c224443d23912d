"""docs/experiments.md: its file is valid, its commands exist, its snippets run."""

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
from mfairfl.experiments.study import Study
from mfairfl.paper import PAPER
from mfairfl.references import REFERENCES

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


@pytest.mark.slow
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


def test_a_reference_is_fitted_in_python_as_the_page_says():
    *_, last = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
    names = {"mfairfl": mfairfl}
    exec(last, names)  # noqa: S102
    assert len(names["logits"]) == len(names["test"]) == 200
