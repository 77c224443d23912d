"""Progress on a terminal of 80 columns, and where there is no terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from mfairfl.cli.progress import JournalProgress, ManyRuns

ROUND = {
    "event": "round",
    "round": 12,
    "rounds": 40,
    "train_loss": 0.41,
    "train_accuracy": 0.8234,
    "train_violation": 0.0219,
    "train_client_accuracy_gap": 0.052,
}


@pytest.mark.parametrize("width", [80, 100, 140])
def test_round_and_bar_stay_whatever_the_width(width):
    screen = io.StringIO()
    console = Console(
        file=screen, force_terminal=True, width=width, color_system=None, legacy_windows=False
    )
    with JournalProgress(console) as progress:
        progress({"event": "started", "clients": ["a"], "rounds": 40, "round": 0})
        progress(ROUND)
    (line,) = {
        part for part in screen.getvalue().replace("\x1b[2K", "\n").split("\n") if "12/40" in part
    }
    line = line.rstrip()
    # A bar of ten characters, three of them for 12 of 40 rounds; then the time left.
    assert line.startswith("round 12/40 ━━━        --:-- left  loss 0.410")
    assert len(line) <= width
    for number in ("loss 0.410", "accuracy 0.823", "violation 0.022"):
        assert number in line
    assert ("client gap 0.052" in line) == (width > 80)


def test_plain_lines_say_how_much_is_done_and_how_long_it_will_take(capsys):
    now = [0.0]
    with ManyRuns(Console(file=io.StringIO()), clock=lambda: now[0]) as watcher:
        watcher.begin("table-1", 4)
        now[0] = 30.0
        watcher.on_round("a", 5, 10)  # half of one of four
        watcher.on_round("a", 5, 10)  # nothing new: no line
        now[0] = 150.0
        watcher.on_round("a", 10, 10)
        watcher.on_round("b", 0, 0)  # a run without rounds is done when it begins
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "table-1: 0/4 runs, 30 s gone, about 3.5 min left",
        "table-1: 1/4 runs, 2.5 min gone, about 7.5 min left",
        "table-1: 2/4 runs, 2.5 min gone, about 2.5 min left",
    ]


def test_a_new_list_starts_from_nothing(capsys):
    now = [0.0]
    with ManyRuns(Console(file=io.StringIO()), clock=lambda: now[0]) as watcher:
        watcher.begin("one", 1)
        watcher.on_round("a", 1, 1)
        now[0] = 100.0
        watcher.begin("two", 2)
        now[0] = 110.0
        watcher.on_round("a", 1, 1)
    assert capsys.readouterr().err.splitlines()[-1] == "two: 1/2 runs, 10 s gone, about 10 s left"
