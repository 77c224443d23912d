"""Every snippet of the page about extensions, run in order and in one session."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extend.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, flags=re.M | re.S)


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What the page's Python prints; in a process of its own: it registers names."""
    code = "\n".join(body for language, body in BLOCKS if language == "python")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path_factory.mktemp("page"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_snippets_run(printed):
    assert printed.startswith("Run of ")
    assert "Forgetful breaks 'functions are pure and fit the reports'" in printed
    assert "max over s of |P(ŷ=1 | s, y=0) − P(ŷ=1 | y=0)|" in printed


def test_a_strategy_takes_fifteen_lines():
    first = next(body for language, body in BLOCKS if "class LossShift" in body)
    rule = first[first.index("@dataclass") :]
    assert len([line for line in first.splitlines() if line.strip()]) <= 15
    assert "def combine" in rule


def test_the_entry_points_are_those_of_the_distribution_in_the_tests():
    shown = tomllib.loads("".join(b for language, b in BLOCKS if "entry-points" in b))
    real = tomllib.loads((ROOT / "tests" / "outside" / "pyproject.toml").read_text())
    assert shown["project"]["entry-points"] == real["project"]["entry-points"]
