"""Cases, their file, and the lines of the table."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from attacks.__main__ import main
from attacks.lies import ATTACKS
from attacks.suite import (
    AttackOutcome,
    Case,
    core,
    fits,
    read_outcomes,
    run_case,
    wider,
)
from attacks.tables import change, lines
from mfairfl.errors import RunDirectoryError

BANK = Case("bank", "fedavg", "sign-flip", "auto", rounds=2)


def test_the_core_is_every_attack_on_two_methods_with_and_without_defence():
    cases = core(data=["adult", "bank"], seeds=range(5))
    assert len(cases) == len(set(cases)) == 2 * 5 * len(ATTACKS) * 2 * 2
    assert {(case.liars, case.clients) for case in cases} == {(2, 10)}
    numbers = {(case.liars, case.clients) for case in wider()}
    assert numbers == {(2, 10), (1, 5), (1, 10), (4, 10)}


def test_an_attack_on_multipliers_needs_a_method_that_has_them():
    assert fits(Case("bank", "mfairfl", "multipliers", "none"))
    assert not fits(Case("bank", "fedavg", "multipliers", "none"))


def test_a_case_counts_honest_clients_only():
    found = run_case(BANK)
    assert found == run_case(BANK)  # it is deterministic
    assert 0.5 < found.worst <= found.accuracy < 1
    assert 0 <= found.violation < 1
    assert found.error == ""


def test_a_run_that_ends_is_an_outcome_too(monkeypatch):
    def ended(_):
        raise RunDirectoryError("ended")

    monkeypatch.setattr("attacks.suite.run_all", ended)
    found = run_case(BANK)
    assert found.error == "ended"
    assert math.isnan(found.accuracy)


def outcome(attack, accuracy, *, robust="none", seed=0, violation=0.1, **more):
    case = Case("bank", "mfairfl", attack, robust, seed=seed)
    return AttackOutcome(case=case, accuracy=accuracy, violation=violation, worst=accuracy, **more)


def test_changes_are_paired_by_seed_with_a_t_interval():
    found = [
        outcome("none", 0.80, seed=0),
        outcome("none", 0.70, seed=1),
        outcome("none", 0.75, seed=2),
        outcome("sign-flip", 0.79, robust="auto", seed=0, liars_out=42),
        outcome("sign-flip", 0.66, robust="auto", seed=1, violation=0.13),
        outcome("sign-flip", 0.75, robust="auto", seed=2),
    ]
    _, line = lines(found)
    differences = [-0.01, -0.04, 0.0]
    low, high = stats.t.interval(0.95, 2, np.mean(differences), stats.sem(differences))
    assert line.changes["accuracy"].low == pytest.approx(low)
    assert line.changes["accuracy"].high == pytest.approx(high)
    assert line.liars_out == pytest.approx(14 / (21 * 2))
    assert line.harmless(0.03)
    assert not line.harmless(0.009)


def test_attacks_inside_rounds_are_compared_with_runs_of_the_same_kind():
    found = [
        outcome("none", 0.80),
        outcome("none-in-round", 0.70),
        outcome("multipliers", 0.69, robust="auto"),
    ]
    assert lines(found)[2].changes["accuracy"].mean == pytest.approx(-0.01)
    assert math.isnan(change([]).mean)
    assert str(change([0.01])) == "+0.010"


def test_a_run_that_ended_is_never_harmless():
    lost = outcome("sign-flip", math.nan, robust="auto", error="no client is left")
    line = lines([outcome("none", 0.8), lost])[1]
    assert (line.ended, line.harmless()) == (1, False)


@pytest.mark.slow
def test_the_command_prints_a_table_and_continues_from_its_file(tmp_path, capsys):
    out = tmp_path / "attacks.csv"
    out.touch()  # an empty file counts as none
    command = ["sign-flip", "--data", "bank", "--strategy", "fedavg", "--rounds", "1"]
    command += ["--robust", "auto", "--out", str(out)]
    assert main(command) == 0
    table = capsys.readouterr().out
    assert "sign-flip" in table
    written = out.read_bytes()
    assert {outcome.case.attack for outcome in read_outcomes(out)} == {"none", "sign-flip"}
    assert main(command) == 0
    assert capsys.readouterr().out == table
    assert out.read_bytes() == written  # nothing was repeated


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nonsense"], "unknown attack 'nonsense'"),
        (["--suite", "huge"], "unknown suite 'huge'"),
        (["--liars", "10"], "at least one of 10 must be honest"),
        (["sign-flip", "--data", "bank", "--robust", "magic"], "robust"),
    ],
)
def test_errors_are_one_line(words, message, capsys, tmp_path):
    assert main([*words, "--out", str(tmp_path / "a.csv")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_file_of_something_else_is_refused(tmp_path, capsys):
    out = tmp_path / "other.csv"
    out.write_text("a,b\n1,2\n")
    assert main(["sign-flip", "--data", "bank", "--out", str(out)]) == 2
    assert "line 2 is not a result of this suite" in capsys.readouterr().err
