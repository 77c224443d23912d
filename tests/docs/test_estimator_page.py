"""Every snippet of the page about the estimator, run in order and in one session."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mfairfl import FairFederatedClassifier

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "estimator.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.M | re.S)


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What the page prints, in a folder and a process of its own: it changes settings."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(BLOCKS)],
        cwd=tmp_path_factory.mktemp("page"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_the_snippets_run_and_the_fair_model_is_fairer(printed):
    numbers = [float(x) for line in printed[:2] for x in re.findall(r"\d\.\d+", line)]
    plain, before, fair, after = numbers
    assert before > 0.2
    assert after < 0.08
    assert fair > 0.6
    assert plain > fair - 0.02
    assert printed[2].startswith("Run of mfairfl on frame: 3 clients, 20 rounds")


@pytest.mark.slow
def test_thresholds_on_the_page_select_alike(printed):
    low, high = map(float, re.findall(r"\d\.\d+", printed[-1]))
    assert low == high


@pytest.mark.slow
def test_the_search_on_the_page_chooses_the_fair_strategy(printed):
    (line,) = [line for line in printed if line.startswith("{")]
    assert "'strategy': 'mfairfl'" in line


def test_every_parameter_and_rule_on_the_page_exists():
    for name in re.findall(r"`(strategy|random_state|config|favourable|model)=", PAGE):
        assert name in FairFederatedClassifier().get_params()
    assert "No check is excluded" in PAGE
