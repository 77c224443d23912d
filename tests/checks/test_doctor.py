"""`mfairfl.doctor` from Python: files, configurations, failures."""

from __future__ import annotations

import re

import pytest

import mfairfl
from mfairfl.checks import Finding, by_weight
from mfairfl.cli import main
from mfairfl.fairness.notions import REGISTRY as NOTIONS
from mfairfl.plugins import MODELS
from mfairfl.runs.config import make_config
from mfairfl.strategies.registry import METHODS

ROWS = "x,sex,hired\n" + "\n".join(
    f"{i % 7},{'f' if i % 2 else 'm'},{'yes' if i % 3 else 'no'}" for i in range(60)
)
TASK = {"label": "hired", "favourable": "yes", "sensitive": ["sex"]}


@pytest.fixture
def config(tmp_path):
    (tmp_path / "rows.csv").write_text(ROWS, encoding="utf-8")
    return make_config({"data": {"csv": str(tmp_path / "rows.csv")}, "task": TASK})


def test_findings_of_a_configuration_print_as_lines(config):
    findings = mfairfl.doctor(config)
    assert {finding.level for finding in findings} <= {"ok", "note", "warn"}
    label = next(finding for finding in findings if finding.check == "label")
    assert str(label) == "ok    label: hired = yes (favourable) in 66.7% of the rows"
    # About a fifth of 30 rows of each sex are test rows: fewer than 30.
    (small,) = [f.message for f in findings if f.level == "warn" and f.check == "groups"]
    assert re.match(
        r"sex: fewer than 30 test rows of f \(\d\), m \(\d\): too few to distinguish", small
    )


def test_a_file_gives_the_findings_of_its_contents(config, tmp_path):
    path = tmp_path / "my.toml"
    path.write_text(
        '[data]\ncsv = "rows.csv"\n[task]\nlabel = "hired"\nfavourable = "yes"\n'
        'sensitive = ["sex"]\n',
        encoding="utf-8",
    )
    theirs = mfairfl.doctor(config)
    ours = mfairfl.doctor(str(path))
    assert [f for f in ours if f.check != "settings"] == [
        f for f in theirs if f.check != "settings"
    ]


def test_unusable_input_is_the_first_finding(config, tmp_path):
    first, *_ = mfairfl.doctor(tmp_path / "absent.toml")
    assert (first.level, first.check) == ("fail", "input")
    assert "absent.toml: no such file" in first.message
    task = config.task.model_copy(update={"favourable": "maybe"})
    first, *others = mfairfl.doctor(config.model_copy(update={"task": task}))
    assert first.level == "fail"
    assert {finding.level for finding in others} == {"ok"}


def test_findings_come_in_the_order_of_their_weight(config):
    levels = [finding.level for finding in mfairfl.doctor(config)]
    assert levels == sorted(levels, key=["fail", "warn", "note", "ok"].index)
    given = [
        Finding("ok", "leakage", ""),
        Finding("note", "data", ""),
        Finding("note", "codes", ""),
        Finding("warn", "groups", ""),
        Finding("warn", "missing codes", ""),
        Finding("warn", "leakage", ""),
        Finding("warn", "data", ""),
        Finding("fail", "input", ""),
    ]
    assert [(f.level, f.check) for f in by_weight(given)] == [
        ("fail", "input"),
        ("warn", "data"),
        ("warn", "leakage"),
        ("warn", "missing codes"),
        ("warn", "groups"),
        ("note", "codes"),
        ("note", "data"),
        ("ok", "leakage"),
    ]


# ------------------------------------------------------------------ code that a file names

CODE = """
from dataclasses import dataclass
from pathlib import Path
from torch import nn
from mfairfl.fairness import Event, Notion
from mfairfl.strategies.fedavg import FedAvg

Path(MARKER).touch()

@dataclass(frozen=True, slots=True)
class Own(FedAvg):
    pass

OWN = Notion("own_notion", (Event("y=0", (0,)),), "selection")

def net(inputs):
    return nn.Linear(inputs, 1)
"""


@pytest.fixture
def code(write_module, tmp_path):
    """A module that leaves a mark when it is imported."""
    marker = tmp_path / "imported"
    name = write_module(CODE.replace("MARKER", repr(str(marker))))
    yield name, marker
    for registry in (METHODS, MODELS, NOTIONS):
        for added in [n for n in registry.added() if n.startswith(name) or n == "own_notion"]:
            registry.remove(added)


TOML = """
[data]
csv = "rows.csv"
[task]
label = "hired"
favourable = "yes"
sensitive = ["sex"]
columns."x.y".missing_codes = ["-9"]
[training]
rounds = 1
"""
NAMING = {
    "strategy.name": '[strategy]\nname = "{}:Own"\nweights = "uniform"\n',
    "model.kind": '[model]\nkind = "{}:net"\n',
    "fairness.notion": '[fairness]\nnotion = ["dp", "{}:OWN"]\n',
}


@pytest.mark.parametrize("key", NAMING)
def test_named_code_is_listed_and_not_imported(tmp_path, code, key, capsys):
    module, marker = code
    rows = ROWS.replace("x,sex", "x.y,sex", 1)
    (tmp_path / "rows.csv").write_text(rows, encoding="utf-8")
    path = tmp_path / "my.toml"
    path.write_text(TOML + NAMING[key].format(module), encoding="utf-8")
    findings = mfairfl.doctor(path)
    (note,) = [f for f in findings if f.check == "code"]
    assert note.level == "note"
    assert note.message.startswith(f"{key} names code outside mfairfl, {module}:")
    assert f"`mfairfl train` imports {module};" in note.message
    # The rest goes on as far as it can.
    assert {"label", "clients", "groups", "noise floor"} <= {f.check for f in findings}
    assert not {"server sees", "cost"} & {f.check for f in findings}
    assert main(["doctor", str(path)]) == 0
    assert str(note) in capsys.readouterr().out
    assert not marker.exists()
    mfairfl.train(config=path)
    assert marker.exists()
    # Once it is imported, it is known like any other.
    assert "cost" in {f.check for f in mfairfl.doctor(path)}


def test_data_from_named_code_are_listed_and_not_imported(tmp_path, code, capsys):
    module, marker = code
    path = tmp_path / "my.toml"
    path.write_text(f'[data]\nname = "{module}:ROWS"\n', encoding="utf-8")
    assert main(["doctor", str(path)]) == 0
    assert f"data.name names code outside mfairfl, {module}:ROWS" in capsys.readouterr().out
    assert {f.level for f in mfairfl.doctor(path)} == {"note", "ok"}
    assert not marker.exists()


def test_other_mistakes_in_a_file_with_code_are_found(tmp_path, code):
    module, marker = code
    path = tmp_path / "my.toml"
    path.write_text(f'[strategy]\nname = "{module}:Own"\n[training]\nrouns = 3\n', "utf-8")
    first, *_ = mfairfl.doctor(path)
    assert (first.level, first.check) == ("fail", "input")
    assert "did you mean 'training.rounds'" in first.message
    assert not marker.exists()
