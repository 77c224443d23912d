"""Reading and writing of settings, and files that are whole or not there."""

from __future__ import annotations

import errno
import os
import tomllib
from pathlib import Path

import pytest

from mfairfl.files import (
    make_private_folder,
    read_regular_file,
    toml_text,
    write_atomically,
)


@pytest.mark.parametrize(
    "value", ['a "quoted" \\ text', "tab\tline\nend\x7f", "é", [1, 2.5, True], {"a b": 1e-05}]
)
def test_toml_reads_back(value):
    assert tomllib.loads(f"x = {toml_text(value)}")["x"] == value


# ------------------------------------------------------------------ who can read


def mode(path):
    return path.stat().st_mode & 0o777


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_private_is_private_whatever_the_umask(tmp_path, umask):
    folder = make_private_folder(tmp_path / "new" / "state")
    write_atomically(folder / "key", b"x", private=True)
    write_atomically(folder / "result", b"x")
    assert (mode(folder), mode(folder / "key")) == (0o700, 0o600)
    assert mode(folder / "result") == 0o666 & ~umask
    assert mode(tmp_path / "new") == 0o777 & ~umask


def test_an_open_file_is_replaced_by_a_private_one(tmp_path):
    path = tmp_path / "key"
    path.touch(mode=0o644)
    write_atomically(path, b"x", private=True)
    assert mode(path) == 0o600


def test_where_nothing_can_be_private_that_is_said(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError

    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    monkeypatch.setattr(Path, "chmod", refuse)
    monkeypatch.setattr(os, "fchmod", refuse)
    with pytest.warns(UserWarning, match="others can read it, and it cannot be closed"):
        assert make_private_folder(folder) == folder
    write_atomically(folder / "key", b"x", private=True)
    assert (folder / "key").read_bytes() == b"x"


# ------------------------------------------------------------------ what somebody else wrote


@pytest.mark.parametrize(
    "make", [Path.mkdir, os.mkfifo, lambda p: p.symlink_to("/dev/zero"), lambda p: p.symlink_to(p)]
)
def test_only_files_are_read(tmp_path, make):
    make(tmp_path / "thing")
    with pytest.raises(OSError, match="thing"):
        read_regular_file(tmp_path / "thing")


def test_a_file_without_end_is_not_read(tmp_path):
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)  # takes no room on the disk
    with pytest.raises(OSError, match="File too large"):
        read_regular_file(tmp_path / "huge")


def test_a_full_disk_names_the_file_and_keeps_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("mfairfl.files.os.fsync", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        write_atomically(path, b"new and longer")
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]  # nothing takes up the room that is missing
