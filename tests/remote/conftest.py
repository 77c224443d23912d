"""Silos with a file and a state folder each."""

from __future__ import annotations

import pytest

import federations as fed
from mfairfl.remote.silo_file import SiloSettings


@pytest.fixture
def settings(tmp_path):
    """Every site's rows in a file of its own."""
    frame = fed.people()
    found = {}
    for site in fed.SITES:
        path = tmp_path / f"{site}.csv"
        frame[frame["site"] == site].drop(columns="site").to_csv(path, index=False)
        found[site] = SiloSettings(name=site, csv=path, state=tmp_path / "state" / site)
    return found
