"""Bits are promised on one thread; how fast the machine is must never decide a test."""

from __future__ import annotations

import functools
import sys

import pytest
import torch
import typer.main
from hypothesis import HealthCheck, settings

from federations import SITES, people, people_federation
from mfairfl.data import DATASETS
from mfairfl.fairness.notions import REGISTRY as NOTIONS
from mfairfl.plugins import MODELS
from mfairfl.silo.silo_file import SiloSettings
from mfairfl.strategies.registry import METHODS
from one_process import in_one_process

settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


# A process calls `main` once and a test session hundreds of times: build Typer's commands once.
typer.main.get_command = functools.cache(typer.main.get_command)


def pytest_collection_modifyitems(items):
    """Begin with deployments, which mostly wait: another worker computes meanwhile."""
    items.sort(key=lambda item: item.get_closest_marker("deployment") is None)


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def federation():
    """Four sites, one without women and one without a favourable label."""
    return people_federation()


@pytest.fixture
def one_process():
    """Train here; how many runs each call asked for."""
    with in_one_process() as asked:
        yield asked


@pytest.fixture(name="settings")
def silo_settings(tmp_path):
    """Every site's rows in a file of its own, and a folder for its state."""
    frame = people()
    silos = {}
    for site in SITES:
        path = tmp_path / f"{site}.csv"
        frame[frame["site"] == site].drop(columns="site").to_csv(path, index=False)
        silos[site] = SiloSettings(name=site, csv=path, state=tmp_path / "state" / site)
    return silos


@pytest.fixture
def new_names():
    """Names that the test gives to things are forgotten after it."""
    registries = (METHODS, NOTIONS, DATASETS, MODELS)
    before = [set(registry.added()) for registry in registries]
    yield
    for registry, known in zip(registries, before, strict=True):
        for name in set(registry.added()) - known:
            registry.remove(name)


@pytest.fixture
def write_module(tmp_path, monkeypatch):
    """Write a module that can be imported; return its name, another one in every test."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    made = []

    def write(source):
        name = "".join(c if c.isalnum() else "_" for c in f"{tmp_path.name}_{len(made)}")
        (folder / f"{name}.py").write_text(source, encoding="utf-8")
        made.append(name)
        return name

    yield write
    for name in made:
        sys.modules.pop(name, None)
