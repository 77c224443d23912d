"""A strategy or notion that breaks a promise is told which, by name."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from mfairfl.fairness import Event, Notion
from mfairfl.strategies import Card, Step, Strategy
from mfairfl.testing import BrokenPromiseError, check_notion, check_strategy
from mfairfl.training.plan import Controller

CARD = Card(title="A rule of one's own")


@dataclass(frozen=True)
class Mean(Strategy):
    card = CARD

    def combine(self, state, round, reports, gram):
        return Step(round.shares(reports))


def test_a_sound_rule_passes_as_object_class_and_name():
    check_strategy(Mean())
    check_strategy(Mean)
    check_strategy("fedavg")


@dataclass
class Thawed(Strategy):
    q: float = 1.0

    card = CARD

    def combine(self, state, round, reports, gram):
        return Step(round.shares(reports))


@dataclass(frozen=True)
class Anonymous(Strategy):
    def combine(self, state, round, reports, gram):
        return Step(round.shares(reports))


@dataclass(frozen=True)
class Breathless(Mean):
    card = Card(title="")


@dataclass(frozen=True)
class Exploding(Mean):
    def combine(self, state, round, reports, gram):
        return Step(np.full(len(reports), np.inf))


@dataclass(frozen=True)
class Chatty(Mean):
    def combine(self, state, round, reports, gram):
        return Step(round.shares(reports), log={"p": round.shares(reports)})


@dataclass(frozen=True)
class Meddling(Mean):
    def start(self, summary):
        return {"seen": []}

    def combine(self, state, round, reports, gram):
        state["seen"].append(round.index)
        return Step(round.shares(reports))


@dataclass(frozen=True)
class Short(Mean):
    def combine(self, state, round, reports, gram):
        return Step(round.shares(reports)[:1])


@dataclass(frozen=True)
class Climbing(Mean):
    def combine(self, state, round, reports, gram):
        return Step(-round.shares(reports))


@dataclass(frozen=True)
class Remembering(Mean):
    calls: list = field(default_factory=list, compare=False)

    def combine(self, state, round, reports, gram):
        self.calls.append(0)
        return Step(round.shares(reports) / (1 + len(self.calls) % 2))


@dataclass(frozen=True)
class Demanding(Mean):
    def combine(self, state, round, reports, gram):
        if len(reports) < len(round.participants):
            raise RuntimeError("where is everybody?")
        return Step(round.shares(reports))


@dataclass(frozen=True)
class Partial(Mean):
    def combine(self, state, round, reports, gram):
        first = np.zeros(len(reports))
        first[0] = 1.0
        return Step(first)


@dataclass(frozen=True)
class Hoarding(Mean):
    def plan(self, state, round):
        return {"seen": {round.index}}, round.jobs()


@dataclass(frozen=True)
class Secretive(Mean):
    def plan(self, state, round):
        return state, [replace(job, keep="mine") for job in round.jobs()]


@dataclass(frozen=True)
class Telling(Mean):
    def plan(self, state, round):
        count = len(round.summary.constraints)
        zeros = (0.0,) * count
        controller = Controller(goal=round.summary.goal, multipliers=zeros, step=zeros)
        return state, round.jobs(replace(round.plan, controller=controller))


@dataclass(frozen=True)
class Idle(Mean):
    card = Card(title="Nobody trains", steps="none")


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (Thawed, "Thawed breaks 'describes itself': the dataclass is not frozen"),
        (Anonymous, "Anonymous breaks 'describes itself': .*Anonymous has no card"),
        (Breathless, "Breathless breaks 'describes itself': title, paper and protects"),
        (Exploding, "Exploding breaks 'functions are pure.*: a coefficient is not finite"),
        (Chatty, "Chatty breaks .*: Step.log is not plain, finite data"),
        (Meddling, "Meddling breaks 'functions are pure.*: combine changes the state"),
        (Short, r"Short breaks 'functions are pure.*: coefficients of shape \(1,\) for 4"),
        (Climbing, "Climbing breaks 'training lowers the loss'"),
        (Remembering, "Remembering breaks 'same seed, same bits'"),
        (Demanding, "Demanding breaks 'a bad reply never breaks a round': .*where is everybody"),
        (Partial, "Partial breaks 'equal clients count equally'"),
        (Secretive, "Secretive breaks 'the card says .*: a job keeps 'mine', .* lacks 'model'"),
        (Telling, "Telling breaks 'the card says .*: clients report multipliers, and the card"),
        (Idle, "Idle breaks 'the card says what .*: clients train, and the card has steps="),
        (Hoarding, "Hoarding breaks .*: its state is not plain data: .*set"),
    ],
)
def test_a_broken_rule_is_told_what_it_breaks(broken, told):
    with pytest.raises(BrokenPromiseError, match=told) as caught:
        check_strategy(broken())
    assert "\n" not in str(caught.value)


def test_a_notion_of_ones_own_passes():
    check_notion(Notion("predictive_equality", (Event("y=0", (0,)),), "selection"))


def test_a_notion_that_measures_something_else_is_told(monkeypatch):
    own = Notion("predictive_equality", (Event("y=0", (0,)),), "selection")
    monkeypatch.setattr(
        "mfairfl.testing.Constraints.violation", lambda self, sums, kind="hard": 0.0
    )
    with pytest.raises(BrokenPromiseError, match="predictive_equality breaks 'violation'"):
        check_notion(own)
