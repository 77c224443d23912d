"""Help, versions, and that they come without waiting for PyTorch."""

from __future__ import annotations

import subprocess
import sys

import pytest

import mfairfl

VERBS = ["train", "predict", "compare", "tune", "reproduce", "init", "doctor", "strategies"]


def test_help_names_every_verb(cli):
    answer = cli("--help")
    assert answer.code == 0
    for verb in [*VERBS, "data"]:
        assert verb in answer.out


def test_no_arguments_show_the_help(cli):
    assert cli().out == cli("--help").out


@pytest.mark.parametrize(
    "verb",
    [*([v] for v in VERBS), *(["data", v] for v in ("list", "describe", "fetch", "verify"))],
)
def test_each_help_ends_with_examples(cli, verb):
    answer = cli(*verb, "--help")
    assert answer.code == 0
    _, _, examples = answer.out.partition("Examples:")
    assert examples.count("mfairfl " + " ".join(verb)) >= 2


def test_version(cli):
    assert cli("--version").out == f"mfairfl {mfairfl.__version__}\n"


def test_quick_commands_do_not_load_torch():
    code = (
        "import sys; from mfairfl.cli import main\n"
        "assert main(['--help']) == 0 and main(['train', '--help']) == 0\n"
        "assert 'pandas' not in sys.modules\n"
        "assert main(['data', 'list']) == 0 and main(['strategies']) == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


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
        "(known: adult, bank, compas, german)\n"
    )
