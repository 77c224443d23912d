"""README, changelog and pages: links lead somewhere, commands and names exist."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import typer

import mfairfl
from federations import people
from mfairfl.cli import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RELEASES = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "results").glob("*.md"),
    *(ROOT / "examples").rglob("*.md"),
]


def anchors(page):
    """Return the anchors that GitHub gives a page's headings."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", head).strip().lower().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(
        r"\]\((?!http)([^)#\s]*)#?([^)\s]*)\)", page.read_text("utf-8")
    ):
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), f"{target}#{anchor}"


COMMANDS = re.findall(r"^(mfairfl [^#\n]*)", README, flags=re.M)


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_of_the_readme_are_understood(line):
    _, *words = shlex.split(line)
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    command.make_context(command.name, words)


def blocks(text):
    return re.findall(r"```python\n(.*?)```", text, flags=re.S)


def test_python_of_the_readme_runs(tmp_path, monkeypatch):
    """With people in place of Adult and a few rounds; the rule of one's own is FedAvg."""
    monkeypatch.chdir(tmp_path)
    rows = people()
    rows.to_csv("new-people.csv", index=False)
    real, quick = mfairfl.train, {"rounds": 1, "local_epochs": 1, "hidden": ()}
    roles = {"label": "hired", "favourable": "yes", "sensitive": "sex", "client": "site"}

    def train(data, **keywords):
        if isinstance(data, str):
            assert data in mfairfl.data.DATASETS.names()
            keywords = roles | {k: v for k, v in keywords.items() if k != "heterogeneity"}
        return real(rows, **keywords, **quick)

    monkeypatch.setattr(mfairfl, "train", train)
    training, measuring, own = blocks(README)
    exec(training, {"people": rows})  # noqa: S102
    rng = np.random.default_rng(0)
    y_true, y_pred = rng.integers(0, 2, (2, 200))
    sex, site = rng.choice(["F", "M"], 200), rng.choice(["north", "south"], 200)
    exec(measuring, {"y_true": y_true, "y_pred": y_pred, "sex": sex, "site": site})  # noqa: S102
    called = {
        node.func.attr
        for node in ast.walk(ast.parse(own))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert called == {"check_strategy", "train", "register"}


def test_the_changelog_starts_with_this_version_or_the_next():
    released = [text for text in RELEASES[1:] if "(unreleased)" not in text.partition("\n")[0]]
    assert released[0].startswith(f"{mfairfl.__version__}\n")
    assert len(released) >= len(RELEASES) - 2
