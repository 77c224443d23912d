"""How the hand-made table of tests is to be read: its task, as flags and as settings."""

from __future__ import annotations

from mfairfl.data import Task

GIVEN = ("--label", "Hired", "--favourable", "yes", "--sensitive", "Gender", "--client", "Site")
TASK = Task(label="Hired", favourable="yes", sensitive=("Gender",), client="Site")
