"""Words are found however they are spelt, and say what the code computes."""

from __future__ import annotations

import re
import shlex
import tomllib
from importlib.resources import files
from inspect import signature
from pathlib import Path

import fairlearn.metrics as fl
import numpy as np
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from mfairfl import fairness, strategies
from mfairfl.cli import app
from mfairfl.data import Attribute
from mfairfl.data.partition import SCHEMES
from mfairfl.engine.defence import ROBUST, STRIKES, TERM
from mfairfl.engine.output import RULES
from mfairfl.errors import ConfigError
from mfairfl.fairness import Event, MetricTable, Notion, register_notion
from mfairfl.fairness.constraints import Goal
from mfairfl.fairness.scores import CALIBRATION_BINS, LOGIT_BINS
from mfairfl.glossary import entries, explain, fixed_entries, key_of
from mfairfl.references import REFERENCES
from mfairfl.runs.config import make_config

ROOT = Path(__file__).parents[1]
ENTRIES = {entry.name: entry for entry in entries()}
KINDS = ("violation", "difference", "ratio")
PARITY = Goal().constraints((Attribute("sex", ("F", "M")),))


def headings(page):
    """Return the anchors that GitHub gives a page's headings."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", head).strip().lower().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=lambda entry: entry.name)
def test_an_entry_is_a_sentence_some_more_and_targets_that_exist(entry):
    assert re.fullmatch(r"[A-Z0-9].*\.", entry.short)
    assert len(entry.short) <= 160
    assert entry.text.endswith(".")
    assert "\n" not in entry.short + entry.text
    assert entry.see
    for target in entry.see:
        if target.startswith("mfairfl "):
            command, (verb, *words) = typer.main.get_command(app), shlex.split(target)[1:]
            command.commands[verb].make_context(verb, words)
        elif target.startswith("docs/"):
            page, _, anchor = target.partition("#")
            assert (ROOT / page).is_file(), target
            assert not anchor or anchor in headings(ROOT / page), target
        else:
            assert explain(target).name == target
            assert target != entry.name


def test_no_two_words_are_spelt_alike():
    words = tomllib.loads(files("mfairfl").joinpath("glossary.toml").read_text("utf-8"))
    names = [n for word in words["word"] for n in [word["name"], *word.get("aliases", ())]]
    generated = [name for name in ENTRIES if name not in fixed_entries()]
    keys = [key_of(name) for name in [*names, *generated, "dp", "eo", "eopp", "ap", "ap-loss"]]
    assert len(set(keys)) == len(keys)


@given(st.sampled_from(sorted(ENTRIES)), st.randoms(use_true_random=False))
def test_capitals_and_separators_do_not_matter(name, rng):
    def other(letter):
        return rng.choice(" -_") if letter in " -_" else rng.choice([letter, letter.swapcase()])

    assert explain("".join(map(other, name))) == ENTRIES[name]


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("dp", "demographic_parity"),
        ("EO violation", "equalized_odds_violation"),
        ("eopp-ratio", "equal_opportunity_ratio"),
        ("ap_loss_violation", "accuracy_parity_loss_violation"),
        ("confidence interval", "interval"),
        ("withheld", "suppressed"),
        ("fishers exact test", "Fisher's exact test"),
        ("loss", "log-loss"),
        ("selected", "selection rate"),
    ],
)
def test_aliases(said, meant):
    assert explain(said) == ENTRIES[meant]


@pytest.mark.parametrize(
    ("said", "meant"), [("noise flor", "noise floor"), ("Equalised_Odds", "equalized_odds")]
)
def test_an_unknown_word_is_answered_with_the_nearest(said, meant):
    with pytest.raises(ConfigError, match=f"did you mean '{meant}'") as caught:
        explain(said)
    assert "`mfairfl explain` lists all" in str(caught.value)
    assert len(str(caught.value)) < 120


def test_a_loss_has_a_violation_only():
    with pytest.raises(ConfigError):
        explain("accuracy_parity_loss_ratio")


# ------------------------------------------------------------- what results show is explained


def test_every_number_of_a_run_is_explained():
    y, p, s = np.array([1, 0, 1, 0]), np.array([1, 1, 0, 0]), list("aabb")
    table = MetricTable.from_predictions(
        y, p, sensitive_features=s, clients=list("uvuv"), draws=10
    )
    slices = [*table.clients, *table.sections[0].groups]
    names = {*table.overall, *(name for part in slices for name in part.numbers)}
    for name in [*names, "roc_auc", "loss", "expected_calibration_error"]:
        assert explain(name).short


@pytest.mark.parametrize("name", [*RULES, *strategies.available(), "ensemble", "personal"])
def test_every_rule_and_method_is_explained(name):
    assert explain(name).name == name


# ------------------------------------------------------------- words say what is computed

# What the generated words mean, row by row: which rows, and which value each has.
AMONG = {
    "": [lambda y: np.full(y.shape, True)],
    "among people whose true label is favourable": [lambda y: y == 1],
    "among people whose true label is unfavourable": [lambda y: y == 0],
    "among people of the same true label": [lambda y: y == 1, lambda y: y == 0],
}
COMPARES = {
    "the share of people who get the favourable decision": lambda y, p: p == 1,
    "the share of people who are decided wrongly": lambda y, p: y != p,
    "the share of people who are decided correctly": lambda y, p: y == p,
}
MEASURES = {
    "Largest gap between a group and everyone in": lambda all_, g: max(abs(all_ - v) for v in g),
    "Highest minus lowest group in": lambda all_, g: max(g) - min(g),
    "Lowest divided by highest group in": lambda all_, g: min(g) / max(g),
}


def number_in_words(short, y, p, s):
    """Compute what a sentence says, rate by rate."""
    begin = next(words for words in MEASURES if short.startswith(words))
    compared, _, among = short.removeprefix(begin).strip().partition(";")[0].partition(", ")
    found = []
    for rows in (choose(y) for choose in AMONG[among]):
        value = COMPARES[compared](y, p)
        groups = [value[rows & (s == group)].mean() for group in np.unique(s)]
        found.append(MEASURES[begin](value[rows].mean(), groups))
    return min(found) if begin.startswith("Lowest") else max(found)


OWN = Notion("predictive_equality", (Event("y=0", (0,)),), "selection")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*fairness.NOTIONS[:4], OWN.name])
def test_the_words_of_a_measure_give_its_number(new_names, name, kind):
    register_notion(OWN)
    rng = np.random.default_rng(5)
    y, p, s = rng.integers(0, 2, 300), rng.integers(0, 2, 300), rng.choice(list("fmx"), 300)
    table = MetricTable.from_predictions(y, p, sensitive_features=s, draws=10)
    said = number_in_words(explain(f"{name}_{kind}").short, y, p, s)
    assert table[f"{name}_{kind}"].value == pytest.approx(said, abs=1e-12)


def test_the_words_of_rates_give_their_numbers():
    y, p = np.array([1, 1, 1, 0, 0, 0, 0]), np.array([1, 0, 1, 1, 0, 0, 0])
    assert explain("true positive rate").text.startswith("P(ŷ=1 | y=1)")
    assert fl.true_positive_rate(y, p) == fairness.true_positive_rate(y, p)
    assert explain("false positive rate").text.startswith("P(ŷ=1 | y=0)")
    assert fl.false_positive_rate(y, p) == fairness.false_positive_rate(y, p)
    assert explain("balanced accuracy").text.startswith(
        "(true positive rate + 1 − false positive rate) / 2"
    )
    assert fairness.balanced_accuracy(y, p) == pytest.approx((2 / 3 + 1 - 1 / 4) / 2)


def test_a_notion_of_mixed_events_names_them_all():
    both = Notion("own", (Event("all", (0, 1)), Event("y=1", (1,))), "error")
    assert both.among == "among everyone or among people whose true label is favourable"


# ------------------------------------------------------------- numbers in words are the code's


def test_numbers_in_words_are_those_of_the_code():
    draws = signature(MetricTable.from_tally).parameters["draws"].default
    assert f"{draws:,} times" in explain("noise floor").text
    level = signature(MetricTable.from_tally).parameters["level"].default
    assert f"{level:.0%}".replace("%", " %") in explain("confidence level").short
    assert f"{LOGIT_BINS:,} bins" in explain("roc auc").text
    assert f"{CALIBRATION_BINS} bins" in explain("calibration").text
    assert f"After {STRIKES} rounds in a row" in explain("standing").text
    assert f"for {TERM} rounds" in explain("standing").text
    config = make_config({"data": {"name": "adult"}})
    assert f"there are {config.training.rounds}" in explain("round").text
    assert f"makes {config.training.local_epochs} in each" in explain("local epoch").text
    few = np.full((2, 2), 9.0)
    assert f"at most {config.allowed(PARITY, [], few).dead_zone}" in explain("dead zone").text


@pytest.mark.parametrize(
    ("notion", "rule", "words"),
    [
        ("dp", "select", "0.005 unless set"),
        ("eo", "select", "0.01 for notions"),
        ("dp", "thresholds", "0.005 unless set"),
    ],
)
def test_the_default_tolerance_is_the_one_in_words(notion, rule, words):
    said = {"data": {"name": "adult"}, "fairness": {"notion": [notion]}, "output": {"rule": rule}}
    assert make_config(said).allowed(PARITY, []).output == float(words.split()[0])
    assert f" {words}" in explain("tolerance").text


def test_lists_in_words_are_complete():
    assert all(f"`{rule}`" in explain("output rule").text for rule in RULES)
    assert all(f"`{rule}`" in explain("robust").text for rule in ROBUST)
    assert all(f"`{name}`" in explain("pooled reference").text for name in REFERENCES)
    named = set(re.findall(r"`([\w-]+)`", explain("heterogeneity").text)) - {"column"}
    assert named <= set(SCHEMES)


# ------------------------------------------------------------- of other packages


@pytest.fixture
def announced(tmp_path, monkeypatch, write_module):
    """A distribution with a notion and a strategy, and with ones that do not load."""
    module = write_module(
        "from dataclasses import dataclass\n"
        "from mfairfl.fairness import Event, Notion\n"
        "from mfairfl.strategies import Card, Strategy\n"
        "OWN = Notion('own_equality', (Event('y=0', (0,)),), 'error')\n"
        "@dataclass(frozen=True)\n"
        "class Mine(Strategy):\n"
        "    card = Card(title='Mine alone', protects='clients')\n"
    )
    folder = tmp_path / "site" / "strangers-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: strangers\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(
        f"[mfairfl.notions]\nown_equality = {module}:OWN\nlost = nowhere_at_all:thing\n"
        f"[mfairfl.strategies]\nmine-alone = {module}:Mine\n"
    )
    monkeypatch.syspath_prepend(str(folder.parent))


def test_what_other_packages_announce_is_explained_too(announced, new_names):
    assert explain("own equality").short == (
        "Fair if groups do not differ in the share of people who are decided wrongly, among "
        "people whose true label is unfavourable."
    )
    assert explain("own_equality_ratio").short.startswith(
        "Lowest divided by highest group in the share of people who are decided correctly"
    )
    mine = explain("mine-alone")
    assert mine.short == "A method: mine alone."
    assert mine.text.startswith("It is meant to be fair to clients.")  # without a docstring


def test_what_cannot_be_loaded_is_left_out_with_a_warning(announced, new_names):
    with pytest.warns(UserWarning, match="notion lost is left out: .*nowhere_at_all"):
        names = [entry.name for entry in entries()]
    assert {"own_equality_violation", "mine-alone"} <= set(names)
    assert not any(name.startswith("lost") for name in names)
