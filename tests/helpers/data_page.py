"""docs/data.md: the tables whose lines are tests."""

from __future__ import annotations

import re
from pathlib import Path

from mfairfl.data import Task

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
GIVEN = ("--label", "Hired", "--favourable", "yes", "--sensitive", "Gender", "--client", "Site")
TASK = Task(label="Hired", favourable="yes", sensitive=("Gender",), client="Site")


def rows_of(section, head):
    """Return the first cells of the table with this head under a heading."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, flags=re.M | re.S)
    (table,) = re.findall(rf"^\| {head} \|.*\n\| --- .*\n((?:\|.*\n)+)", text, flags=re.M)
    return re.findall(r"^\| (.*?) \|", table, flags=re.M)
