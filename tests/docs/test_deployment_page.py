"""The page on deployments names commands that exist and files that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mfairfl.cli import main
from mfairfl.deployment.listener import ConnectionLimits
from mfairfl.deployment.settings import FederationSettings, ServerSettings
from mfairfl.silo.ledger import LedgerLine

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
COMMANDS = sorted(set(re.findall(r"mfairfl (deploy [a-z]+|doctor|train|strategies|init)", PAGE)))


def test_all_steps_are_commands():
    assert {"deploy certificates", "deploy key", "deploy run", "doctor"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_known(command):
    assert main([*command.split(), "--help"]) == 0


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\((?!http)([^)#]+)", PAGE))))
def test_a_link_leads_somewhere(link):
    assert (ROOT / "docs" / link).exists()


@pytest.mark.parametrize("flag", sorted(set(re.findall(r"--[a-z][a-z-]+", PAGE))))
def test_a_flag_is_known(flag, capsys):
    main(["deploy", "local", "--help"])
    main(["deploy", "init", "--help"])
    main(["deploy", "certificates", "--help"])
    main(["deploy", "audit", "--help"])
    main(["deploy", "ledger", "--help"])
    assert flag in capsys.readouterr().out


def test_the_keys_of_a_ledger_are_on_the_page():
    part = PAGE.partition("## What a silo has told")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([\w, ]+) \|", part, re.MULTILINE)[1:]
    named = [key for row in rows for key in row.split(", ")]
    assert sorted([*named, "torn"]) == sorted(LedgerLine.model_fields)


def test_the_ports_are_the_defaults():
    defaults = ServerSettings()
    assert f"`port` ({defaults.port})" in PAGE
    assert f"`superlink_port` ({defaults.superlink_port})" in PAGE
    for key in ("minimum", "deadline", "wait"):
        assert f"`{key}`" in PAGE
        assert key in FederationSettings.model_fields


def test_the_limits_are_those_of_the_gate():
    limits = ConnectionLimits()
    for said in (
        f"kept | {limits.head_seconds:g} s |",
        f"taken | {limits.stall_seconds:g} s |",
        f"| {limits.least_rate // 1000} kB/s, after {limits.stall_seconds:g} s |",
        f"| head | {limits.head_bytes >> 10} kB | 431 |",
        f"| {limits.body_bytes >> 20} MB, stated in advance |",
        f"| connections | {limits.connections} |",
        f"`allowance` ({ServerSettings().allowance} MB)",
    ):
        assert said in PAGE
