"""examples/flower-app runs whole in this process; docs/flower-app.md shows it, and runs too."""

from __future__ import annotations

import doctest
import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Context, RecordDict
from flwr.serverapp.strategy import Strategy

from grids import LocalGrid
from mfairfl.flower import FairStrategy
from mfairfl.strategies import available

ROOT = Path(__file__).parents[2]
APP = ROOT / "examples" / "flower-app"
PAGE = ROOT / "docs" / "flower-app.md"
TEXT = PAGE.read_text(encoding="utf-8")
SETTINGS = tomllib.loads((APP / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["flwr"]
QUICK = {"num-server-rounds": 2, "local-epochs": 5, "rows": 700, "min-clients": 3}


@pytest.fixture
def apps(monkeypatch):
    """Import the two apps from where the settings say they are."""
    monkeypatch.syspath_prepend(str(APP))
    found = []
    for part in ("serverapp", "clientapp"):
        module, name = SETTINGS["app"]["components"][part].split(":")
        found.append(getattr(__import__(module, fromlist=[name]), name))
    yield found
    for module in [name for name in sys.modules if name.split(".")[0] == "fairapp"]:
        monkeypatch.delitem(sys.modules, module)


@pytest.fixture
def results(monkeypatch):
    """Keep what `start` returns; the app only lets Flower log it."""
    kept, start = [], Strategy.start

    def keeping(self, *args, **kwargs):
        kept.append((self, start(self, *args, **kwargs)))
        return kept[-1][1]

    monkeypatch.setattr(Strategy, "start", keeping)
    return kept


def run(apps, **changes):
    server, client = apps
    config = SETTINGS["app"]["config"] | QUICK | changes
    nodes = {40 - i: {"partition-id": i, "num-partitions": 3} for i in range(3)}
    grid = LocalGrid(client, nodes, run_config=config)
    context = Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config=config)
    server(grid, context)


def test_the_app_runs_whole_with_its_settings(apps, results, caplog):
    run(apps)
    ((strategy, result),) = results
    assert "left out" not in caplog.text
    assert isinstance(strategy, FairStrategy)
    assert [sorted(record.coefficients) for record in strategy.history[1:]] == [
        ["client-0", "client-1", "client-2"]
    ] * 2
    first = strategy.history[0].measured["train"].values()
    before = sum(s.losses.sum() for s in first) / sum(s.counts.sum() for s in first)
    assert {s.counts.sum() for s in first} == {QUICK["rows"]}
    numbers = result.evaluate_metrics_clientapp
    assert numbers[2]["train_loss"] < before - 0.05
    assert {"test_accuracy", "test_violation"} <= set(numbers[2])
    assert np.abs(strategy.history[2].log["multipliers"]).max() > 0.01  # mfairfl, and it acts


def test_the_model_that_comes_out_is_the_app_s_own(apps, results):
    run(apps, strategy="fedprox")
    ((_, result),) = results
    model = sys.modules["fairapp.task"].Net()
    model.load_state_dict(result.arrays.to_torch_state_dict())
    features = sys.modules["fairapp.task"].FEATURES
    assert model(torch.zeros(4, features)).shape == (4, 1)
    assert np.isfinite(result.arrays["head.bias"].numpy()).all()


def test_the_example_s_clients_are_unlike(apps):
    """The README says so; the mapping is the data's own."""
    task = sys.modules["fairapp.task"]
    federation = task.load_clients(5)
    assert {a.name: list(a.groups) for a in federation.attributes} == task.SENSITIVE
    assert federation.pool.X.shape[1] == task.FEATURES
    women = [float((client.train.cells == 0).mean()) for client in federation.clients]
    assert max(women) - min(women) > 0.4


# ------------------------------------------------------------------ the page


def test_the_page_shows_the_example():
    blocks = re.findall(r"^```python\n(.*?)^```$", TEXT, flags=re.M | re.S)
    code = "".join(path.read_text(encoding="utf-8") for path in sorted(APP.glob("fairapp/*.py")))
    assert len(blocks) == 3
    assert [block for block in blocks if block.strip() not in code] == []


def test_the_page_prints_what_it_shows():
    blocks = re.findall(r"^```pycon\n(.*?)^```$", TEXT, flags=re.M | re.S)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, PAGE.name, str(PAGE), 0)
    printed = []
    failed, tried = doctest.DocTestRunner().run(test, out=printed.append)
    assert tried == 12
    assert failed == 0, "".join(printed)


def test_the_page_s_names_and_links_exist():
    assert "afl" in available()
    links = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert links
    assert [link for link in links if not (PAGE.parent / link).exists()] == []
    readme = (APP / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)\)", readme)
    assert [link for link in links if not (APP / link).exists()] == []
    listed = re.findall(r"^\| `([\w/.]+\.(?:py|toml))`", readme, flags=re.M)
    assert len(listed) == 4
    assert [name for name in listed if not (APP / name).exists()] == []
    for key in re.findall(r"-c '([^']*)'", readme):
        assert {part.split("=")[0] for part in key.split()} <= set(SETTINGS["app"]["config"])
