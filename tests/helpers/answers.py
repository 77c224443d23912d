"""What the package answers with: refusals in one line, rows of the files that it writes."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest


def one_line(caught: pytest.ExceptionInfo[BaseException]) -> str:
    """Return the message of an error, which has no line break."""
    message = str(caught.value)
    assert "\n" not in message
    return message


def csv_rows(path: str | Path) -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
