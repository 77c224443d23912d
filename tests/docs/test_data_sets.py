"""docs/data-sets.md: the catalogue's facts, commands that exist, settings that are accepted."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import typer

from mfairfl.cli import app
from mfairfl.cli.flags import configuration, parse_sets
from mfairfl.data import DATASETS, list_datasets
from mfairfl.runs.config import make_config

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "data-sets.md").read_text(encoding="utf-8")
ROWS = {
    cells[0].strip("` "): [cell.strip() for cell in cells[1:]]
    for cells in (line.strip("|").split("|") for line in PAGE.splitlines() if line[:3] == "| `")
}
COMMANDS = re.findall(r"^(mfairfl .*)$", PAGE, flags=re.M)


def test_every_built_in_data_set_has_a_row():
    assert list(ROWS) == [name for name in DATASETS.names() if DATASETS.is_builtin(name)]


@pytest.mark.parametrize("facts", [f for f in list_datasets() if DATASETS.is_builtin(f["name"])])
def test_the_table_says_what_the_catalogue_says(facts):
    rows, sensitive, options, source = ROWS[facts["name"]]
    assert rows == f"{facts['rows']:,}"
    assert sensitive == ", ".join(facts["sensitive"])
    assert re.findall(r"(\w+) \(", options) == list(DATASETS.get(facts["name"]).options)
    assert ("bundled" in source) == facts["bundled"]


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_are_understood(line):
    _, *words = shlex.split(line)
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    given = command.make_context(command.name, words).params
    if command.name == "train":
        flags = {k: given[k] for k in ("data", "sensitive", "set") if given.get(k) is not None}
        assert configuration(None, flags).data.name == "acs-income"
    else:
        assert set(parse_sets(given["set_"])) <= set(DATASETS.get("acs-income").options)


def test_the_settings_are_accepted():
    ((text,),) = [re.findall(r"```toml\n(.*?)```", PAGE, flags=re.S)]
    data = make_config(tomllib.loads(text)).data
    assert data.options == {"year": 2018, "states": ("VT", "WY")}


def test_the_address_is_the_catalogues():
    named = re.search(r"`(https://www2[^`]*)`", PAGE)[1]
    assert named.replace("<", "{").replace(">", "}") == DATASETS.get("acs-income").address
