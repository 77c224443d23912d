"""A hand-made file with other names than the catalogue's, and the entry point in process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from mfairfl.cli import main

ROWS = 240


class Answer(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Answer]


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Cli:
    """Call `main` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    # Styled text is for terminals; a runner's settings must not bring it into these tests.
    for name in ("FORCE_COLOR", "GITHUB_ACTIONS", "TERMINAL_WIDTH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")

    def call(*arguments: str | Path) -> Answer:
        capsys.readouterr()
        code = main([str(one) for one in arguments])
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return call


@pytest.fixture
def people() -> pd.DataFrame:
    """Three sensitive groups, three clients, a label that depends on both."""
    rng = np.random.default_rng(11)
    score = rng.normal(size=ROWS).round(3)
    gender = rng.choice(["d", "f", "m"], ROWS, p=[0.2, 0.4, 0.4])
    chance = score + 0.8 * (gender == "m") + 0.6 * rng.normal(size=ROWS)
    return pd.DataFrame(
        {
            "Score": score,
            "Age": rng.integers(18, 80, ROWS),
            "Job": rng.choice(["clerk", "cook", "smith"], ROWS),
            "Gender": gender,
            "Site": rng.choice(["north", "south", "west"], ROWS),
            "Hired": np.where(chance > 0, "yes", "no"),
        }
    )


@pytest.fixture
def csv(people: pd.DataFrame, tmp_path: Path) -> Path:
    """The people as a file with semicolons."""
    path = tmp_path / "people.csv"
    people.to_csv(path, sep=";", index=False)
    return path


TASK = ("--label", "Hired", "--favourable", "yes", "--sensitive", "Gender", "--client", "Site")
QUICK = (
    *("--rounds", "2", "--local-epochs", "1", "--hidden", "4", "--lr", "0.05"),
    *("--weight-decay", "3", "--set", "encoder.numeric=standard"),
)


@pytest.fixture
def flags() -> tuple[str, ...]:
    """Everything `train` needs on the hand-made file but the file."""
    return (*TASK, *QUICK)


@pytest.fixture
def task_flags() -> tuple[str, ...]:
    """The meaning of the hand-made file."""
    return TASK
