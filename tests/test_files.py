"""Reading and writing of settings, and files that are whole or not there."""

from __future__ import annotations

import errno
import os
import tomllib

import pytest

from mfairfl.files import toml_text, write_atomically


@pytest.mark.parametrize(
    "value", ['a "quoted" \\ text', "tab\tline\nend\x7f", "é", [1, 2.5, True], {"a b": 1e-05}]
)
def test_toml_reads_back(value):
    assert tomllib.loads(f"x = {toml_text(value)}")["x"] == value


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
