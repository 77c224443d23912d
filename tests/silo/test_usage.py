"""What a silo counts on its disk: a restart changes nothing, a day later runs may begin again."""

from __future__ import annotations

import json
import shutil

import pytest
from filelock import FileLock

import federations as fed
from mfairfl.errors import ConfigError, MessageError
from mfairfl.silo.policy import Usage

HOUR = 3600.0


def usage(tmp_path, *, at=0.0, **limits):
    """A new process's view of the folder."""
    return Usage(tmp_path, fed.policy(**limits), now=lambda: at)


def test_the_request_beyond_the_limit_is_refused_whatever_process_counts(tmp_path):
    for _ in range(3):
        usage(tmp_path, requests=3).count("run-1")
    with pytest.raises(MessageError) as caught:
        usage(tmp_path, requests=3).count("run-1")
    assert str(caught.value) == (
        "4 requests in a run: this silo allows 3 (limits.requests of its policy.toml)"
    )
    usage(tmp_path, requests=3).count("run-2")
    held = json.loads((tmp_path / "run-1" / "requests.json").read_text())
    assert held == {"began": 0.0, "requests": 3}  # a refused one is not counted


def test_runs_are_counted_by_the_day_and_a_resumed_one_is_not_new(tmp_path):
    usage(tmp_path, at=0, runs_a_day=2).count("run-1")
    usage(tmp_path, at=5 * HOUR, runs_a_day=2).count("run-2")
    with pytest.raises(MessageError, match=r"3 runs within 24 hours: .*\(limits\.runs_a_day "):
        usage(tmp_path, at=23 * HOUR, runs_a_day=2).count("run-3")
    assert not (tmp_path / "run-3").exists()
    usage(tmp_path, at=23 * HOUR, runs_a_day=2).count("run-1")
    usage(tmp_path, at=25 * HOUR, runs_a_day=2).count("run-3")
    with pytest.raises(MessageError, match="3 runs within 24 hours"):
        usage(tmp_path, at=28 * HOUR, runs_a_day=2).count("run-4")


def test_runs_are_counted_for_good_also_if_their_folders_are_deleted(tmp_path):
    for day in range(3):
        usage(tmp_path, at=48 * HOUR * day, runs=3).count(f"run-{day}")
        shutil.rmtree(tmp_path / f"run-{day}")
    with pytest.raises(MessageError) as caught:
        usage(tmp_path, at=999 * HOUR, runs=3).count("audit-3")
    assert str(caught.value) == (
        "4 runs and audits in all: this silo allows 3 (disclosure.runs of its policy.toml)"
    )
    assert not (tmp_path / "audit-3").exists()
    usage(tmp_path, at=999 * HOUR, runs=3).count("run-1")  # one that is known is not new


def test_a_clock_that_was_set_back_frees_nothing(tmp_path):
    usage(tmp_path, at=500 * HOUR, runs_a_day=1).count("run-1")
    with pytest.raises(MessageError, match="2 runs within 24 hours"):
        usage(tmp_path, at=0, runs_a_day=1).count("run-2")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"began": 1}', '{"began": 1, "requests": -9}'])
def test_a_damaged_count_is_named_and_not_taken_for_a_new_run(tmp_path, text):
    usage(tmp_path).count("run-1")
    (tmp_path / "run-1" / "requests.json").write_text(text)
    with pytest.raises(ConfigError, match=r"run-1/requests\.json in the state folder is damaged"):
        usage(tmp_path).count("run-1")


def test_what_would_not_fit_into_the_folder_is_refused(tmp_path):
    (tmp_path / "run-1").mkdir()
    (tmp_path / "run-1" / "rows").write_bytes(bytes(600_000))
    folders = sum(path.lstat().st_size for path in (tmp_path / "run-1",))
    exact = usage(tmp_path, megabytes=1)
    exact.require_room(400_000 - folders)
    with pytest.raises(MessageError) as caught:
        exact.require_room(400_001 - folders)
    assert str(caught.value) == (
        "2 megabytes in the state folder: this silo allows 1 (limits.megabytes of its policy.toml)"
    )


def test_one_request_at_a_time(tmp_path):
    with (
        FileLock(tmp_path / ".request.lock"),
        pytest.raises(MessageError, match="still busy with another request"),
        usage(tmp_path, seconds=1).turn(),
    ):
        raise AssertionError("two at once")
    with usage(tmp_path, seconds=1).turn():
        pass
