"""The architecture page: its rooms, and the way of a round as the tracer sees it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SRC = ROOT / "src" / "mfairfl"


def test_the_rooms_are_those_of_the_package():
    block = PAGE[PAGE.index("src/mfairfl/\n") :]
    named = set(re.findall(r"^  ([\w.]+)/? ", block[: block.index("```")], flags=re.M))
    rooms = {path.name for path in SRC.iterdir() if (path / "__init__.py").exists()}
    assert rooms <= named
    assert all((SRC / name).exists() for name in named)


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "scripts" / "trace_round.py"),
            str(tmp_path_factory.mktemp("t") / "run"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr[done.stderr.index("main  (") :]


@pytest.mark.slow
def test_the_way_of_a_round_is_the_one_drawn(traced):
    drawn = re.search(r"<!-- trace -->\n```\n(.*?)```\n<!-- /trace -->", PAGE, flags=re.S)
    assert drawn[1].split() == traced.split()


@pytest.mark.slow
def test_it_is_short(traced):
    hops, files = map(int, re.search(r"(\d+) hops, (\d+) files", traced).groups())
    assert hops <= 25
    assert files <= 15
