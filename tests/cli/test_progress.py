"""Progress on a terminal of 80 columns, and where there is no terminal."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from mfairfl.cli.progress import JournalProgress, ManyRuns
from mfairfl.errors import ConfigError
from mfairfl.runs.workers import PlannedRun

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
    assert line.startswith("round 12/40 ━━━        -:--:-- left loss 0.410")
    assert len(line) <= width
    for number in ("loss 0.410", "accuracy 0.823", "violation 0.022"):
        assert number in line
    assert ("client gap 0.052" in line) == (width > 80)


def lines_of(capsys):
    return capsys.readouterr().err.splitlines()


@pytest.fixture
def clock():
    """A clock that stands still until it is set."""

    class Clock:
        now = 0.0

        def __call__(self):
            return self.now

    return Clock()


def plain(clock):
    return ManyRuns(Console(file=io.StringIO()), clock=clock)


FOUR = {name: PlannedRun(rounds=10) for name in "abcd"}


def test_lines_before_the_first_round(capsys, clock):
    with plain(clock) as watcher:
        watcher.loading("table-1")  # a mistake may yet be found: an error is one line
        assert lines_of(capsys) == []
        watcher.loading("table-1", checked=True)
        assert lines_of(capsys) == ["table-1: loading"]
        clock.now = 2.0
        watcher.begin("table-1", FOUR)
        assert lines_of(capsys) == ["table-1: 0/40 rounds, 0/4 runs; reading data"]
        clock.now = 5.0
        watcher.on_round("a", 0, 10)  # nothing done yet: no line
        assert lines_of(capsys) == []
        watcher.stage("writing tables")
    assert lines_of(capsys) == ["table-1: writing tables"]


def test_plain_lines_show_progress_and_time_left(capsys, clock):
    with plain(clock) as watcher:
        watcher.begin("table-1", FOUR)
        clock.now = 60.0  # workers load, and read the data: no speed of rounds
        for name in "abcd":
            watcher.on_round(name, 0, 10)
        for round_ in range(1, 11):
            clock.now += 12.0
            for name in "abcd":
                watcher.on_round(name, round_, 10)
    lines = lines_of(capsys)
    assert lines[0] == "table-1: 0/40 rounds, 0/4 runs; reading data"
    assert "table-1: 2/40 rounds, 0/4 runs, 1.2 min gone" in lines  # the speed is not known yet
    (line,) = [line for line in lines if "24/40" in line]
    shown, left, _ = line.rpartition("about ")
    assert shown + left == "table-1: 24/40 rounds, 0/4 runs, 2.2 min gone, about "
    assert 36 <= int(line.split()[-3]) <= 60  # 16 rounds of 12 seconds, four at a time
    assert lines[-1] == "table-1: 40/40 rounds, 4/4 runs, 3.0 min gone, about 0 s left"
    assert len(lines) <= 21


def test_earlier_rounds_are_counted_but_not_as_speed(capsys, clock):
    with plain(clock) as watcher:
        watcher.begin("again", FOUR)
        clock.now = 1.0
        watcher.on_round("a", 1, 1)  # finished: told at the end of its batch only
        watcher.on_round("b", 5, 10)  # resumed
        for round_ in range(6, 11):
            clock.now += 10.0
            watcher.on_round("b", round_, 10)
        for round_ in range(11):
            watcher.on_round("c", round_, 10)
            clock.now += 10.0
    lines = lines_of(capsys)
    assert lines[1] == "again: 10/40 rounds, 1/4 runs, 1 s gone"
    (line,) = [line for line in lines if "20/40" in line]  # 10 rounds of 10 seconds so far
    left = float(line.split()[-3])
    assert line == f"again: 20/40 rounds, 2/4 runs, 51 s gone, about {left:g} min left"
    assert 3.2 <= left <= 3.5


def test_runs_without_rounds_are_counted_when_they_end(capsys, clock):
    with plain(clock) as watcher:
        watcher.begin("attacks", {str(case): PlannedRun() for case in range(20)})
        for case in range(20):
            clock.now += 30.0
            watcher.on_round(str(case), 1, 1)
    said = lines_of(capsys)
    assert said[0] == "attacks: 0/20 runs; reading data"
    assert said[10] == "attacks: 10/20 runs, 5.0 min gone, about 5.0 min left"


def test_the_time_left_is_about_right_when_the_speed_varies(capsys, clock):
    """Five runs side by side at a time, each batch twice as slow as the one before or after."""
    runs = {f"{batch}-{run}": PlannedRun(40, 80) for batch in range(8) for run in range(5)}
    with plain(clock) as watcher:
        watcher.begin("study", runs)
        for batch in range(8):
            clock.now += 4.0  # reading data
            for round_ in range(41):
                clock.now += 1.0 + batch % 2
                for run in range(5):
                    clock.now += 0.002
                    watcher.on_round(f"{batch}-{run}", round_, 40)
    seconds = {"s": 1.0, "min": 60.0}
    found = [
        (float(gone) * seconds[unit], float(left) * seconds[other])
        for line in lines_of(capsys)
        for gone, unit, left, other in re.findall(
            r"([\d.]+) (\w+) gone, about ([\d.]+) (\w+)", line
        )
    ]
    assert len(found) >= 18
    end = clock.now
    assert all(0.6 < left / (end - gone) < 1.5 for gone, left in found[2:] if end - gone > 60)


def test_a_new_list_starts_from_nothing(capsys, clock):
    with plain(clock) as watcher:
        watcher.begin("one", {"a": PlannedRun(1)})
        watcher.on_round("a", 1, 1)
        clock.now = 100.0
        watcher.begin("two", {"a": PlannedRun(1), "b": PlannedRun(1)})
        clock.now = 110.0
        watcher.on_round("a", 1, 1)
    assert lines_of(capsys)[-1] == "two: 1/2 rounds, 1/2 runs, 10 s gone"


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_shows_stage_rounds_and_times_in_one_line(clock, width):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=width, color_system=None)
    with ManyRuns(console, clock=clock) as watcher:
        watcher.loading("table-1")
        clock.now = 3.0
        watcher.begin("table-1", {"a": PlannedRun(10)})
        for round_ in range(9):
            clock.now += 12.0
            watcher.on_round("a", round_, 10)
    shown = re.sub(r"\x1b\[\?\d+[hl]", "", screen.getvalue())
    lines = [part.rstrip() for part in re.split(r"\x1b\[2K|[\r\n]", shown)]
    assert any(line.startswith("table-1: loading ") and "0:00:00 gone" in line for line in lines)
    last = [line for line in lines if "rounds" in line][-1]
    assert last.startswith("table-1 ━━━━━━━━")
    assert last.endswith("0:01:48 gone 0:00:24 left 8/10 rounds  0/1 runs")
    assert len(last) <= width


def test_a_mistake_found_while_loading_leaves_nothing_on_the_terminal(clock):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, color_system=None)

    def fail():
        with ManyRuns(console, clock=clock) as watcher:
            watcher.loading("table-1")
            raise ConfigError("protocols: 'x' is no protocol")

    with pytest.raises(ConfigError):
        fail()
    # The line is erased, and the cursor stands where it began.
    assert re.sub(r"\x1b\[\?\d+[hl]", "", screen.getvalue()).endswith("\x1b[1A\x1b[2K")
