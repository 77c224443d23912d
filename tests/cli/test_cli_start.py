"""Help, versions, and that they come without waiting for PyTorch."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer

import mfairfl
from mfairfl.cli import app

VERBS = [
    *("train", "predict", "audit", "compare", "tune", "reproduce", "init", "doctor", "explain"),
    "strategies",
]


def test_help_names_every_verb(cli):
    answer = cli("--help")
    assert answer.code == 0
    for verb in [*VERBS, "data"]:
        assert verb in answer.out


def test_no_arguments_show_the_help(cli):
    assert cli().out == cli("--help").out


@pytest.mark.parametrize(
    "verb",
    [
        *([v] for v in VERBS),
        *(["data", v] for v in ("list", "describe", "fetch", "verify")),
        *(["deploy", v] for v in ("local", "init")),
    ],
)
def test_each_help_ends_with_examples(cli, verb):
    answer = cli(*verb, "--help")
    assert answer.code == 0
    _, _, examples = answer.out.partition("Examples:")
    assert examples.count("mfairfl " + " ".join(verb)) >= 2


def test_every_argument_and_flag_is_explained():
    group = typer.main.get_command(app)
    verbs = [*group.commands.values()]
    verbs += [verb for one in verbs for verb in getattr(one, "commands", {}).values()]
    assert len(verbs) > 25
    for verb in verbs:
        for parameter in verb.params:
            assert parameter.help, (verb.name, parameter.name)


def test_version(cli):
    assert cli("--version").out == f"mfairfl {mfairfl.__version__}\n"


REFUSALS = [
    "train nofile.toml",
    "train --data adult --strategy fedvag",
    "train --data adult --set training.rouns=3",
    "train --data adult --set strategy.betta=1",
    "train --data adult --notion eqodds",
    "train --data adult --rounds few",
    "train --data adult --rouns 3",
    "train --data adul",
    "train --csv nofile.csv --label y --favourable 1 --sensitive s",
    "train",
    "doctor nofile.toml",
    "init --csv nofile.csv --label y --favourable 1 --sensitive s",
    "tune --data adult --strategy fedvag",
    "deploy local --data adul",
    "compare nofile.toml",
    "predict norun --csv nofile.csv --out p.csv",
    "audit nofile.csv --prediction D --sensitive S",
    "audit P.csv --prediction D --sensitive S --bins age",
    "audit P.csv --prediction D --sensitive S --baseline nofile",
    "reproduce table1",
    "strategies fedvag",
    "explain nosefloor",
    "data describe adul",
]


@pytest.mark.slow
def test_help_lists_and_refusals_do_not_wait_for_torch(tmp_path):
    code = (
        "import sys; from mfairfl.cli import main\n"
        "assert main(['--help']) == 0 and main(['train', '--help']) == 0\n"
        "assert main(['explain', 'noise-floor']) == 0\n"
        "assert 'pandas' not in sys.modules and 'numpy' not in sys.modules\n"
        "assert main(['data', 'list']) == 0 and main(['strategies']) == 0\n"
        "assert main(['explain']) == 0 and main(['explain', 'dp_ratio', '--json']) == 0\n"
        "slow = {'torch', 'scipy.optimize', 'scipy.stats', 'matplotlib', 'flwr', 'optuna',\n"
        "        'sklearn'}\n"
        "assert not slow & sys.modules.keys(), 'lists'\n"
        f"for line in {REFUSALS}:\n"
        "    assert main(line.split()) == 2, line\n"
        "    assert not slow & sys.modules.keys(), (line, slow & sys.modules.keys())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    refused = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(refused) == len(REFUSALS)


def test_windows_is_refused_in_one_line(cli, monkeypatch):
    monkeypatch.setattr("platform.system", lambda: "Windows")
    answer = cli("train", "--data", "adult")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == (
        "error: mfairfl needs a POSIX system: silos fork; use Linux or macOS, or WSL\n"
    )


def test_module_entry_point_gives_one_line_and_code_2():
    done = subprocess.run(
        [sys.executable, "-m", "mfairfl", "data", "describe", "adlt"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "error: unknown data set 'adlt': did you mean 'adult'? "
        "(known: acs-income, adult, bank, compas, german)\n"
    )
