"""A separate, installed distribution: its strategy, notion, data set and model, by name alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from many_commands import answers, many
from mfairfl.testing import people

pytestmark = pytest.mark.slow

OUTSIDE = Path(__file__).parent / "outside"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Where the distribution is installed: a folder with its package and its metadata."""
    folder = tmp_path_factory.mktemp("site-packages")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "install"]
    flags = ["--no-deps", "--no-build-isolation", "--target", str(folder), str(OUTSIDE)]
    subprocess.run([*pip, *flags], check=True, capture_output=True)
    assert any(folder.glob("fairplus-*.dist-info/entry_points.txt"))
    return folder


@pytest.fixture
def python(installed, tmp_path):
    """Run Python with the distribution installed; return what it prints."""

    def run(*words, code=0):
        path = os.pathsep.join(filter(None, [str(installed), os.environ.get("PYTHONPATH")]))
        done = subprocess.run(
            [sys.executable, *map(str, words)],
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "80"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    return run


TRAIN = """-m mfairfl train --data applicants --strategy loss-shift --notion predictive_equality
    --set model.kind=tiny --set strategy.t=2.0 --rounds 2 --local-epochs 1 --batch-size 20
    --out runs/own --json"""


def test_it_is_listed_and_explained(python):
    asked = ("strategies --json", "strategies loss-shift", "data list")
    (_, strategies), (_, told), (_, data) = answers(python(*many(asked)))
    assert {"loss-shift", "mfairfl"} <= {one["name"] for one in json.loads(strategies)}
    assert "Clients count a little more by their loss" in told
    assert "strategy.t" in told
    assert "applicants" in data


def test_it_is_trained_by_name_and_a_model_of_others_asks_for_trust(python, tmp_path):
    python(*TRAIN.split())
    record = json.loads((tmp_path / "runs" / "own" / "run.json").read_text())
    assert record["rounds"] == 2  # its hyper-parameter called `update` means nothing to an engine
    assert record["config"]["strategy"] == {"name": "loss-shift", "t": 2.0}
    for kind in ("violation", "difference", "ratio"):
        assert f"predictive_equality_{kind}" in record["metrics"]["test"]
    assert "predictive_equality_violation" in record["intervals"]["test"]
    assert "predictive_equality_violation" in record["noise_floor"]["test"]
    people().to_csv(tmp_path / "rows.csv", index=False)
    predict = ["-m", "mfairfl", "predict", "runs/own", "--csv", "rows.csv", "--out", "scores.csv"]
    refused = python(*predict, code=2)
    assert "trained with the module 'tiny', which is code" in refused
    assert refused.count("\n") == 1
    python(*predict, "--trust")
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == 261


def test_it_is_compared_by_two_worker_processes(python, tmp_path):
    (tmp_path / "two.py").write_text(
        """
from mfairfl.fairness import Event, Notion
import mfairfl
from mfairfl.runs.config import make_config
from mfairfl.runs.workers import run_many
mfairfl.register(Notion("own_opportunity", (Event("y=1", (1,)),), "selection"))
base = {"data": {"name": "applicants"}, "model": {"kind": "fairplus:tiny"},
        "training": {"rounds": 2, "local_epochs": 1, "batch_size": 20},
        "fairness": {"notion": ["own_opportunity", "fairplus:PREDICTIVE_EQUALITY"]}}
runs = [(make_config(base | {"strategy": {"name": name}, "seed": seed}), f"out/{name}-{seed}")
        for name in ("loss-shift", "fairplus:LossShift") for seed in (0, 1)]
records = run_many(runs, processes=2)
keys = ("own_opportunity_violation", "predictive_equality_violation", "accuracy")
print([[record.metrics["test"][key] for key in keys] for record in records])
"""
    )
    found = json.loads(python("two.py"))
    assert found[:2] == found[2:]  # the same rule by its two names
    assert found[0] != found[1]
    (tmp_path / "study.toml").write_text(
        'data = ["applicants"]\nstrategies = ["fedavg", "loss-shift"]\nseeds = [0, 1]\n'
        'notions = ["predictive_equality"]\nprotocols = ["1x1"]\n'
    )
    python("-m", "mfairfl", "compare", "study.toml", "--out", "study")
    table = next((tmp_path / "study").glob("*.md")).read_text()
    assert "loss-shift" in table
    assert "predictive_equality" in (tmp_path / "study" / "study-runs.csv").read_text()


def test_it_runs_over_the_in_process_grid_if_the_silos_list_it(python, tmp_path):
    (tmp_path / "grid.py").write_text(
        f"""
import sys, json
sys.path.insert(0, {str(Path(__file__).parent / "helpers")!r})
from pathlib import Path
import numpy as np
import federations as fed
import mfairfl
from grids import LocalGrid, transport_over
from mfairfl.deployment.silo_app import app
from mfairfl.runs.config import make_config
from mfairfl.runs.silo_runs import FederatedRequest, run_federated

frame, nodes = fed.people(), {{}}
for i, site in enumerate(["east", "west"]):
    folder = Path(site)
    folder.mkdir()
    frame[frame["site"] == site].drop(columns="site").to_csv(folder / "rows.csv", index=False)
    (folder / "silo.toml").write_text(
        f'name = "{{site}}"\\ncsv = "rows.csv"\\nstate = "state"\\n'
        + f"extensions = {{sys.argv[1]}}\\n"
    )
    (folder / "policy.toml").write_text("[disclosure]\\nmin_rows = 1\\n")
    nodes[100 + i] = {{"silo": str(folder / "silo.toml")}}
config = make_config({{
    "task": {{"label": "hired", "favourable": "yes", "sensitive": ["sex"]}},
    "strategy": {{"name": sys.argv[2]}}, "model": {{"kind": "tiny"}},
    "fairness": {{"notion": ["predictive_equality"]}}, "seed": 5,
    "training": {{"rounds": 2, "local_epochs": 6, "batch_size": 16}},
}})
transport = transport_over(LocalGrid(app, nodes), {{100: "east", 101: "west"}})
wanted = FederatedRequest(config=config, clients=("east", "west"), minimum=2, out=Path("run"))
record = run_federated(wanted, transport)
print(json.dumps(record.metrics["test"]["predictive_equality_violation"]))
"""
    )
    listed = '["tiny", "fairplus:PREDICTIVE_EQUALITY"]'
    # mfairfl moves multipliers inside these rounds: the notion's name crosses to the silos.
    assert np.isfinite(float(python("grid.py", listed, "mfairfl")))


def test_a_silo_refuses_what_it_does_not_list(python, tmp_path):
    (tmp_path / "refuse.py").write_text(
        """
from pathlib import Path
from mfairfl.errors import MessageError
from mfairfl.wire.packing import make_packet
from mfairfl.silo.responder import Responder
from mfairfl.silo.silo_file import SiloSettings
import sys
silo = Responder(SiloSettings(name="east", csv=Path("x.csv"), state=Path("state")))
job = {"client": "east", "plan": {"controller": {"goal": {"notions": ["predictive_equality"]}}}}
for header in ({"round": 0, "jobs": [job]}, {"model": {"kind": "tiny"}},
               {"model": {"kind": "fairplus:tiny"}}):
    try:
        silo.handle("run-1", make_packet("train" if "jobs" in header else "encode", header))
    except MessageError as error:
        print(error)
assert "fairplus" not in sys.modules
"""
    )
    lines = python("refuse.py").splitlines()
    assert len(lines) == 3
    assert all("not listed in extensions of silo.toml" in line for line in lines)


def test_it_keeps_the_promises(python):
    python("-c", "import mfairfl; mfairfl.testing.check_strategy('loss-shift')")
    python(
        "-c",
        "import mfairfl.testing as t, fairplus; t.check_notion(fairplus.PREDICTIVE_EQUALITY)",
    )


def test_a_broken_distribution_is_named_and_does_not_hide_the_others(python, installed, tmp_path):
    broken = tmp_path / "broken-1.0.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (broken / "entry_points.txt").write_text("[mfairfl.strategies]\nbad = nowhere:Rule\n")
    told = python("-m", "mfairfl", "train", "--data", "applicants", "--strategy", "bad", code=2)
    assert told.count("\n") == 1
    assert "'nowhere:Rule' cannot be imported (ModuleNotFoundError" in told
    assert "loss-shift" in python("-m", "mfairfl", "strategies")
