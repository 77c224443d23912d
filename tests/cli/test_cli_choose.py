"""`mfairfl choose`: what is said before and after, what is written, and what is refused."""

from __future__ import annotations

import json

import pytest

CHOOSE = ("choose", "--csv", "people.csv", "--methods", "fpfl", "--folds", "2", "--workers", "1")


@pytest.mark.slow
def test_a_choice_is_a_run_that_can_be_reported_and_used(cli, csv, flags):
    answer = cli(*CHOOSE, *flags, "--at-most", "dp 0.3", "--out", "chosen")
    assert answer.code == 0, answer.err
    first = answer.err.index("warning: too few rows to show a violation of at most 0.3")
    assert first < answer.err.index("choose: 0/")  # before any round
    for word in ("fedavg with one threshold at 0.3", "reads the group", "chosen", "test rows"):
        assert word in answer.out
    folder = csv.parent / "chosen"
    choice = json.loads((folder / "choice.json").read_text(encoding="utf-8"))
    assert choice["at_most"] == 0.3
    assert choice["reason"].split()[0] in ("fedavg", "fpfl")
    assert cli("report", "chosen").code == 0
    assert cli("predict", "chosen", "--csv", "people.csv", "--out", "p.csv").code == 0

    again = cli(
        *CHOOSE, *flags, "--at-most", "dp 0.3", "--out", "chosen", "--json"
    )  # the same run
    assert again.code == 0, again.err
    assert json.loads(again.out) == choice


@pytest.mark.slow
def test_a_loss_of_accuracy_for_the_configured_notion(cli, csv, flags):
    answer = cli(*CHOOSE, *flags, "--lose-at-most", "0.05", "--notion", "eopp", "--json")
    assert answer.code == 0, answer.err
    choice = json.loads(answer.out)
    assert choice["lose_at_most"] == 0.05
    assert set(choice["measured"]) == {"accuracy", "equal_opportunity_violation"}
    assert (csv.parent / "runs" / "choose-people-column-s0" / "choice.json").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "give at_most, such as 'dp 0.05', or lose_at_most"),
        (("--at-most", "dp"), "dp: write a notion and a number"),
        (("--at-most", "dp 0.1", "--notion", "eo"), "--notion: --at-most names the notion"),
        (("--at-most", "dp 0.1", "--set", "output.rule=last"), "output.rule: is what `choose`"),
        (("--at-most", "dp 0.1", "--blind", "--by", "group"), "fairness.blind"),
        (("--at-most", "ap-loss 0.1"), "thresholds change decisions, not losses"),
        (("--at-most", "dp 0.1", "--tolerance", "0.1"), "No such option: --tolerance"),
    ],
)
def test_what_is_refused(cli, csv, task_flags, words, problem):
    answer = cli("choose", "--csv", csv, *task_flags, *words)
    assert answer.code == 2
    assert problem in answer.err
