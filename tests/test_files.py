"""Reading and writing of settings."""

from __future__ import annotations

import tomllib

import pytest

from mfairfl.files import toml_text


@pytest.mark.parametrize(
    "value", ['a "quoted" \\ text', "tab\tline\nend\x7f", "é", [1, 2.5, True], {"a b": 1e-05}]
)
def test_toml_reads_back(value):
    assert tomllib.loads(f"x = {toml_text(value)}")["x"] == value
