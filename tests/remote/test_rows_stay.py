"""A coordinator that chooses its messages gets no row out of a silo with the default policy.

The same attacks on a silo without a floor show that they work.
"""

from __future__ import annotations

import pytest

import attackers
import further_attackers
from attackers import CATEGORICAL, NAME, OPEN, Claim, Line, carry_out, judge, rare_values
from mfairfl.remote.policy import Policy
from mfairfl.remote.silo_file import SiloSettings

FRAME = attackers.made_up_file()
ATTACKS = attackers.ATTACKS | further_attackers.FURTHER

# Rows of 90 that each attack recovers where nothing is held back, at least, with this many
# messages; and where the silo has agreed to one task, with its label, its groups and no others.
# Without the second the task makes no difference, or leaves nothing to recover.
FEW_MESSAGES = 120
SUCCESS = {
    "lone rows": (25, 13),
    "differences of sums": (25, 15),
    "logits of cells": (90, 6),
    "priced gradients": (70, 1),
    "two prices": (30, 1),
    "last batches": (55, None),
    "lone remainders": (9, None),
    "nested batches": (70, None),
    "gaps of groups": (55, None),
    "prices of groups": (50, None),
    "shifted groups": (9, None),
    "selected rows": (7, None),
    "subtracted rows": (18, None),
    "reasons of refusals": (15, None),
    "audited cells": (30, None),
}
ON_AN_AGREED_TASK = [name for name, (_, least) in SUCCESS.items() if least]


def silo(folder, *, agreed=False):
    """A silo's settings: with its file, its consent to audits, and maybe to one task."""
    task = None
    if agreed:
        task = folder / "run.toml"
        task.write_text(
            '[task]\nlabel = "hired"\nfavourable = "yes"\n'
            'sensitive = [{column = "sex"}, {column = "country"}]\n'
        )
    consent = {
        "label": attackers.LABEL,
        "favourable": attackers.FAVOURABLE,
        "prediction": attackers.DECISION,
        "selected": attackers.FAVOURABLE,
        "sensitive": CATEGORICAL,
    }
    return SiloSettings(
        name=NAME,
        csv=attackers.silo_file(folder, FRAME),
        state=folder / "state",
        task=task,
        audit=consent,
    )


@pytest.mark.parametrize("name", ATTACKS)
def test_without_a_floor_the_attack_works(tmp_path, name):
    verdict = carry_out(ATTACKS[name], Line(silo(tmp_path), OPEN, budget=FEW_MESSAGES), FRAME)
    assert verdict.recovered >= SUCCESS[name][0]
    assert verdict.wrong == 0


@pytest.mark.parametrize("name", ON_AN_AGREED_TASK)
def test_without_a_floor_it_works_on_an_agreed_task_too(tmp_path, name):
    line = Line(silo(tmp_path, agreed=True), OPEN, budget=FEW_MESSAGES)
    verdict = carry_out(ATTACKS[name], line, FRAME)
    assert verdict.recovered >= SUCCESS[name][1]


@pytest.mark.parametrize("agreed", [False, True], ids=["any task", "agreed task"])
@pytest.mark.parametrize("name", ATTACKS)
def test_by_default_no_row_is_recovered(tmp_path, name, agreed):
    line = Line(silo(tmp_path, agreed=agreed), Policy())
    assert carry_out(ATTACKS[name], line, FRAME).recovered == 0


VALUES = {
    "cuts": (further_attackers.ordered_values, 4),
    "profiles": (further_attackers.profiled_values, 40),
    "presence": (further_attackers.present_values, 40),
    "extremes": (further_attackers.extreme_values, 2),
}


@pytest.mark.parametrize("name", VALUES)
def test_without_a_floor_values_of_few_rows_are_found(tmp_path, name):
    attack, least = VALUES[name]
    found = rare_values(attack(Line(silo(tmp_path), OPEN)), FRAME)
    assert found >= least


@pytest.mark.parametrize("name", VALUES)
def test_by_default_no_value_of_few_rows_is_found(tmp_path, name):
    attack, _ = VALUES[name]
    assert rare_values(attack(Line(silo(tmp_path), Policy())), FRAME) == 0


OLD = 69


def test_without_a_floor_reading_numbers_as_dates_counts_the_oldest(tmp_path):
    line = Line(silo(tmp_path), OPEN)
    assert 0 < further_attackers.reread_count(line) <= (FRAME["age"] >= OLD).sum() < 10


def test_by_default_no_way_of_reading_numbers_counts_a_few(tmp_path):
    assert not further_attackers.reread_count(Line(silo(tmp_path), Policy()))


def test_every_attack_is_known_to_work():
    assert SUCCESS.keys() == ATTACKS.keys()


def test_the_judge_counts_rows_and_what_fits_none():
    first = FRAME.iloc[0]
    numbers = {name: float(first[name]) for name in attackers.NUMERIC}
    texts = {name: first[name] for name in CATEGORICAL}
    off = numbers | {"income": numbers["income"] * (1 + 1e-5)}
    assert judge([Claim(numbers), Claim(numbers, texts)], FRAME).recovered == 1
    assert judge([Claim(categorical=texts)], FRAME).recovered == 1
    assert judge([Claim(off)], FRAME) == attackers.Verdict(0, 1, 0)
    assert judge([Claim(numbers, texts | {"sex": "?"})], FRAME) == attackers.Verdict(0, 1, 0)
    assert judge([Claim({"age": numbers["age"]})], FRAME) == attackers.Verdict(0, 0, 0)


def test_an_attacker_has_so_many_messages_and_no_more(tmp_path):
    line = Line(silo(tmp_path), OPEN, budget=30)
    found = carry_out(attackers.lone_rows, line, FRAME)
    assert found.messages == 30
    assert 0 < found.recovered <= 30
