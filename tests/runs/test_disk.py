"""A disk that is full or read-only: said in one line, and nothing is lost once it is repaired.

`make durability` does the same with real file systems.
"""

from __future__ import annotations

import errno
import os
import stat

import pytest
from filelock import FileLock

import federations as fed
import mfairfl
from answers import one_line
from mfairfl.errors import RunDirectoryError

SETTINGS = {"rounds": 2, "hidden": (4,), "batch_size": 20, "local_epochs": 1}
FILES = ("model.safetensors", "scores.safetensors", "encoder.json", "rounds.csv", "clients.csv")


def train(out):
    return mfairfl.train(fed.people_table(), out=out, baseline=False, **SETTINGS)


def contents(out):
    checkpoints = sorted((out / "checkpoint").iterdir())
    return {path.name: path.read_bytes() for path in [*checkpoints, *(out / f for f in FILES)]}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    train(out)
    return contents(out)


class FullDisk:
    """An `os.fsync` that finds no room for the last bytes of the n-th file."""

    def __init__(self, n: int) -> None:
        self._left, self._fsync = n, os.fsync

    def __call__(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        self._left -= stat.S_ISREG(found.st_mode)  # folders have room
        if self._left:
            return self._fsync(descriptor)
        os.ftruncate(descriptor, found.st_size - 7)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("n", "name"),
    [
        (1, "run.json"),
        (2, "encoder.json"),
        (3, "rounds.csv"),
        (7, "clients.csv"),
        (11, "bank-000002.ckpt"),
        (12, "round-000002.ckpt"),
        (13, "model.safetensors"),
        (14, "scores.safetensors"),
        (15, "run.json"),
    ],
)
def test_a_full_disk_costs_nothing_once_there_is_room(n, name, undisturbed, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", FullDisk(n))
        with pytest.raises(OSError, match="No space left on device") as caught:
            train(tmp_path / "run")
    assert caught.value.filename.endswith(f"/{name}")
    train(tmp_path / "run")
    assert contents(tmp_path / "run") == undisturbed
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_read_only_folder_is_refused_in_one_line(tmp_path, monkeypatch):
    def read_only(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(FileLock, "acquire", read_only)
    with pytest.raises(RunDirectoryError, match="Read-only file system") as caught:
        train(tmp_path / "run")
    assert str(tmp_path / "run") in one_line(caught)
