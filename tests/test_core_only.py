"""Every verb and every public name with the core dependencies alone: it works, or names the extra.

Processes are started, one for many verbs, in which nothing can be imported but what the core
requires, and what that requires in turn; their child processes are bound by the same rule.
"""

from __future__ import annotations

import json
import os
import pkgutil
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

import numpy as np
import pandas as pd
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from typer.main import get_command

import mfairfl
from many_commands import answers, many
from mfairfl.cli import app

pytestmark = pytest.mark.slow

SITE = """
import json, os, sys
from importlib.machinery import PathFinder

absent = frozenset(json.loads(os.environ["ABSENT_MODULES"]))


class CoreFinder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] not in absent:
            return super().find_spec(name, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = CoreFinder
"""
EXTRA = re.compile(r"error: .*pip install 'mfairfl\[(\w+)\]'.*\n")
VERBS = {  # in this order: later ones read what earlier ones wrote
    "init": "--csv rows.csv --label hired --favourable yes --sensitive sex --out task.toml",
    "doctor": "task.toml",
    "train": "task.toml --clients 2 --rounds 1 --local-epochs 1 --out run",
    "predict": "run --csv new.csv --out decided.csv",
    "report": "run --out report.html",
    "tradeoff": "run --points 3",
    "choose": "task.toml --clients 2 --rounds 1 --local-epochs 1 --folds 2 --methods fpfl "
    "--lose-at-most 0.1 --out chosen",
    "audit": "new.csv --label hired --favourable yes --prediction decided --sensitive sex "
    "--out audited",
    "compare": "run run",
    "explain": "violation",
    "strategies": "mfairfl",
    "data list": "",
    "data describe": "adult",
    "data fetch": "adult",
    "data verify": "",
    "deploy ledger": "silo.toml",
}
FLOWER_VERBS = {
    "deploy local": "--data adult --clients 2",
    "deploy init": "consortium --silo north --silo south --host localhost",
    "deploy key": "key",
    "deploy certificates": "certificates --host localhost",
    "deploy server": "federation.toml",
    "deploy silo": "silo.toml",
    "deploy run": "federation.toml",
    "deploy audit": "federation.toml --out audit",
    "deploy revoke": "north federation.toml",
}
BY_IMPORT = {"reproduce"}  # takes minutes and COMPAS; its modules are imported below
OF_EXTRAS = (  # whoever uses these has the extra
    "mfairfl.flower",
    "mfairfl.deployment",
    "mfairfl.checks.deployment_checks",
    "mfairfl.experiments.search.optuna_study",
)
NAMING_EXTRAS = {f"{verb} {words}": "flower" for verb, words in FLOWER_VERBS.items()} | {
    "doctor silo.toml": "flower",
    "doctor federation.toml": "flower",
    "tune task.toml": "tune",
    "audit sheet.xlsx --label y --prediction d --sensitive s --out a": "excel",
}
PUBLIC_NAMES = """
import mfairfl, pandas as pd
from mfairfl.silo.policy import Policy
rows = pd.read_csv("rows.csv")
roles = {"label": "hired", "favourable": "yes", "sensitive": "sex"}
short = {"rounds": 1, "local_epochs": 1}
for name in mfairfl.__all__:
    if name != "tune":
        getattr(mfairfl, name)
run = mfairfl.train(rows, **roles, clients=2, **short, out="from-python")
assert (mfairfl.load("from-python").predict(rows) == run.predictor.predict(rows)).all()
mfairfl.compare([run, run])
kept = mfairfl.train(rows, **roles, clients=2, **short, policy=Policy())
x, y = rows[["age", "sex"]], rows["hired"]
model = mfairfl.FairFederatedClassifier(favourable="yes", **short)
model.fit(x, y, sensitive_features=x["sex"])
assert len(model.predict(x)) == len(rows)
"""


def absent_modules() -> list[str]:
    """Return the modules that an environment with the core alone does not have."""
    core: set[str] = set()
    waiting = ["mfairfl"]
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name not in core:
            core.add(name)
            try:
                needed = [Requirement(line) for line in requires(name) or ()]
            except PackageNotFoundError:  # of another platform
                continue
            markers = ((r.name, r.marker) for r in needed)
            waiting += [n for n, m in markers if m is None or m.evaluate({"extra": ""})]
    return sorted(
        module
        for module, owners in packages_distributions().items()
        if core.isdisjoint(map(canonicalize_name, owners))
    )


@pytest.fixture(scope="module")
def core_only(tmp_path_factory):
    """Return a function that runs Python, with the core alone, in a folder with small files."""
    folder = tmp_path_factory.mktemp("core")
    site = tmp_path_factory.mktemp("site")
    (site / "sitecustomize.py").write_text(SITE, encoding="utf-8")
    rng = np.random.default_rng(3)
    for name in ("rows.csv", "new.csv"):
        age, sex = rng.integers(18, 70, 300), rng.choice(["f", "m"], 300)
        hired = np.where(age + 20 * rng.normal(size=300) > 40, "yes", "no")
        frame = pd.DataFrame({"age": age, "sex": sex, "hired": hired})
        if name == "new.csv":
            frame["decided"] = np.where(age > 45, "yes", "no")
        frame.to_csv(folder / name, index=False)
    (folder / "state").mkdir()
    (folder / "silo.toml").write_text(
        'name = "north"\ncsv = "rows.csv"\nstate = "state"\n', encoding="utf-8"
    )
    (folder / "federation.toml").write_text("[silos]\nnorth = 'north.pub'\n", encoding="utf-8")
    with pd.ExcelWriter(folder / "sheet.xlsx", engine="openpyxl") as book:
        frame.to_excel(book, index=False)
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ | {
        "ABSENT_MODULES": json.dumps(absent_modules()),
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
    }

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *words]
        return subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, check=False
        )

    return run


def verbs_of(command, prefix=""):
    for name, inner in command.commands.items():
        if hasattr(inner, "commands"):
            yield from verbs_of(inner, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}"


def test_every_verb_is_tried():
    assert {*VERBS, *FLOWER_VERBS, *BY_IMPORT, "tune"} == set(verbs_of(get_command(app)))


def test_extras_are_absent(core_only):
    assert {"flwr", "cryptography", "httpx", "psutil", "openpyxl", "optuna", "fairlearn"} <= set(
        absent_modules()
    )
    assert core_only("-c", "import openpyxl").returncode == 1


def test_verbs_work(core_only):
    commands = [f"{verb} {words}" for verb, words in VERBS.items()]
    result = core_only(*many(commands))
    for command, (code, err) in zip(commands, answers(result.stderr), strict=True):
        assert code == 0, (command, err)


@pytest.fixture(scope="module")
def refusals(core_only):
    result = core_only(*many([*NAMING_EXTRAS]))
    streams = (answers(result.stdout), answers(result.stderr))
    return dict(zip(NAMING_EXTRAS, zip(*streams, strict=True), strict=True))


@pytest.mark.parametrize("words", NAMING_EXTRAS)
def test_verbs_name_their_extra(refusals, words):
    (code, out), (_, err) = refusals[words]
    said = EXTRA.fullmatch(err) or EXTRA.search(out)
    assert code != 0
    assert said is not None, (out, err)
    assert said[1] == NAMING_EXTRAS[words]


def test_public_names_work(core_only):
    result = core_only("-c", PUBLIC_NAMES)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("statement", "extra"),
    [("import mfairfl.flower", "flower"), ("import mfairfl; mfairfl.tune", "tune")],
)
def test_names_of_an_extra_say_so(core_only, statement, extra):
    result = core_only("-c", statement)
    last = result.stderr.splitlines()[-1]
    assert re.fullmatch(rf"ImportError: .*pip install 'mfairfl\[{extra}\]'", last), result.stderr


def test_all_other_modules_need_the_core_alone(core_only):
    modules = [
        module.name
        for module in pkgutil.walk_packages(mfairfl.__path__, "mfairfl.")
        if not module.name.startswith((*OF_EXTRAS, "mfairfl.__main__"))
    ]
    result = core_only("-c", "\n".join(f"import {module}" for module in modules))
    assert result.returncode == 0, result.stderr
