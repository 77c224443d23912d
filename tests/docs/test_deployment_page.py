"""The page on deployments names commands that exist and files that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mfairfl.cli import main
from mfairfl.silo.ledger import LedgerLine

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
COMMANDS = sorted(set(re.findall(r"mfairfl (deploy [a-z]+|doctor|train|strategies|init)", PAGE)))


def test_all_steps_are_commands():
    assert {"deploy certificates", "deploy key", "deploy run", "doctor"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_known(command):
    assert main([*command.split(), "--help"]) == 0


@pytest.mark.parametrize("flag", sorted(set(re.findall(r"--[a-z][a-z-]+", PAGE))))
def test_a_flag_is_known(flag, capsys):
    main(["deploy", "local", "--help"])
    main(["deploy", "init", "--help"])
    main(["deploy", "certificates", "--help"])
    main(["deploy", "audit", "--help"])
    main(["deploy", "ledger", "--help"])
    assert flag in capsys.readouterr().out


def test_the_keys_of_a_ledger_are_on_the_page():
    part = PAGE.partition("## What a silo has disclosed")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([\w, ]+) \|", part, re.MULTILINE)[1:]
    named = [key for row in rows for key in row.split(", ")]
    assert sorted([*named, "torn"]) == sorted(LedgerLine.model_fields)
