"""docs/tuning.md: its snippet prints what it shows, its searches are read as it says."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest

from mfairfl.cli import main
from mfairfl.cli.studies import parse_search
from mfairfl.experiments.search.space import Choices, Range, check_space
from mfairfl.runs.config import make_config
from mfairfl.strategies import create

PAGE = Path(__file__).parents[2] / "docs" / "tuning.md"
TEXT = PAGE.read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `--search (\S+)` \| (.*) \|$", TEXT, flags=re.M))
FILES = re.findall(r"`([^`]+)`", "".join(re.findall(r"^\| (`[a-z].*?) \|", TEXT, flags=re.M)))


def test_the_page_prints_what_it_shows():
    blocks = re.findall(r"^```python\n(.*?)^```$", TEXT, flags=re.M | re.S)
    test = doctest.DocTestParser().get_doctest("".join(blocks), {}, PAGE.name, str(PAGE), 0)
    printed = []
    failed, tried = doctest.DocTestRunner().run(test, out=printed.append)
    assert tried == 6
    assert failed == 0, "".join(printed)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("strategy.beta=0.4,0.8", Choices((0.4, 0.8))),
        ("training.lr=0.001:0.1:log", Range(0.001, 0.1, log=True)),
        ("training.weight_decay=0.5:5.0", Range(0.5, 5.0)),
        ("training.local_epochs=1:10", Range(1, 10)),
        ("model.hidden=[32,32],[64]", Choices(([32, 32], [64]))),
        ("training.lr=0.002", Choices((0.002,))),
    ],
)
def test_the_searches_mean_what_the_table_says(text, part):
    found = parse_search([text])
    assert list(found.values()) == [part]
    check_space(make_config({}), found)
    whole = isinstance(part, Range) and part.whole
    assert ("whole" in ROWS[text], "logarithmic" in ROWS[text]) == (whole, text.endswith(":log"))
    assert len(ROWS) == 6


@pytest.mark.parametrize("name", ["qffl", "scaffold", "mfairfl-paper", "fpfl-paper"])
def test_methods_with_a_rate_of_their_own(name):
    key = "lr" if name in ("qffl", "scaffold") else "eta"
    assert f"`{name}`" in TEXT
    assert hasattr(create(name), key)
    (text,) = re.findall(rf"`(strategy\.{key}=\S+)`", TEXT)
    check_space(make_config({"strategy": {"name": name}}), parse_search([text]))


@pytest.mark.slow
def test_the_commands_run_and_leave_the_files_named(tmp_path, monkeypatch, one_process, capsys):
    monkeypatch.chdir(tmp_path)
    Path("my.toml").write_text(
        '[data]\nname = "adult"\n[clients]\nscheme = "high"\n[model]\nkind = "logistic"\n'
        '[training]\nrounds = 1\nlocal_epochs = 1\n[strategy]\nname = "fedavg"\n',
        encoding="utf-8",
    )
    tune, train = re.findall(r"^mfairfl (.* runs/search.*)$", TEXT, flags=re.M)[:2]
    assert main([*shlex.split(tune), "--trials", "1"]) == 0
    assert main(shlex.split(train)) == 0
    capsys.readouterr()
    left = {path.name + "/" * path.is_dir() for path in Path("runs/search").iterdir()}
    assert left - {".lock", "owner.txt"} == set(FILES)
