"""Which replies count, and what is said of the others."""

from __future__ import annotations

import numpy as np
import pytest

from mfairfl.guard.acceptance import accept, measurable
from rounds import measured, report

NOT_FINITE = [np.nan, np.inf, -np.inf]
UPDATE_NOT_FINITE = "its update holds a number that is not finite"
GAP_NOT_FINITE = "a multiplier or gap it reports is not finite"


def test_sound_reports_come_in_the_order_of_their_names():
    sent = [report("c", (3, 3)), report("a", (1, 1)), report("b", (2, 2))]
    accepted, set_aside = accept(sent, "abc", 2)
    assert [one.client for one in accepted] == ["a", "b", "c"]
    assert accepted == [sent[1], sent[2], sent[0]]
    assert set_aside == {}


def test_who_was_not_asked_and_who_sent_nothing_are_named():
    accepted, set_aside = accept([report("b"), report("stranger")], ["a", "b"], 2)
    assert [one.client for one in accepted] == ["b"]
    assert set_aside == {"a": "it sent no report", "stranger": "it was not asked to train"}
    assert list(set_aside) == ["a", "stranger"]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"update": (1.0,)}, "its update has shape (1,); the model has 2 weights"),
        ({"update": ((1.0, 2.0),)}, "its update has shape (1, 2); the model has 2 weights"),
        *(({"update": (1.0, x)}, UPDATE_NOT_FINITE) for x in NOT_FINITE),
        (
            {"control_change": np.ones(3, np.float32)},
            "its control change has shape (3,); the model has 2 weights",
        ),
        (
            {"control_change": np.array([np.nan, 0], np.float32)},
            "its control change holds a number that is not finite",
        ),
        *(({"multipliers": (0.0, x)}, GAP_NOT_FINITE) for x in NOT_FINITE),
        ({"gaps": (np.nan,)}, GAP_NOT_FINITE),
    ],
)
def test_a_report_that_would_poison_the_model_is_set_aside(wrong, reason):
    accepted, set_aside = accept([report("a", **wrong), report("b")], "ab", 2)
    assert [one.client for one in accepted] == ["b"]
    assert set_aside == {"a": reason}


def test_a_client_counts_once_with_its_first_sound_report():
    bad, first, second = report("a", (np.nan, 0)), report("a", (1, 1)), report("a", (2, 2))
    accepted, set_aside = accept([bad, first, second], "a", 2)
    assert accepted == [first]
    assert set_aside == {}  # it did send one that counts


def test_without_any_report_everyone_is_named():
    assert accept([], "ba", 2) == ([], dict.fromkeys("ab", "it sent no report"))


@pytest.mark.parametrize("loss", NOT_FINITE)
def test_who_cannot_be_ranked_is_left_out(loss):
    sent = [report(name) for name in "abc"]
    kept, set_aside = measurable(
        sent, {"d": "it sent no report"}, measured([0.5, loss, 0.1, loss])
    )
    assert [one.client for one in kept] == ["a", "c"]
    assert set_aside == {
        "b": "its loss at the server's weights is not finite",
        "d": "it sent no report",  # the first reason stays
    }


def test_finite_losses_leave_everything_as_it_was():
    sent, before = [report("a"), report("b")], {"c": "it sent no report"}
    kept, set_aside = measurable(sent, before, measured([0.0, 1e300]))
    assert kept == sent
    assert set_aside == before
