"""The round loop, driven by hand: two clients, three weights, numbers one can check on paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

import federations as fed
from mfairfl.engine.loop import federate, first_state
from mfairfl.engine.output import Output
from mfairfl.engine.state import Absent, Measure, Refusal, RunState, Score, Setup, Train
from mfairfl.errors import FederationError
from mfairfl.fairness.cells import SUMS, Statistics
from mfairfl.fairness.constraints import Goal
from mfairfl.fairness.scores import RowScores, ScoreSums
from mfairfl.models import MLP
from mfairfl.randomness import stream
from mfairfl.strategies import create
from mfairfl.strategies.base import Card, Round, Step, Strategy, Summary
from mfairfl.training.plan import Recipe, Report
from rounds import SEX, report

MODEL = MLP(inputs=2, hidden=())
START = np.array([1.0, 2.0, 3.0], np.float32)


@dataclass(frozen=True)
class Scripted(Strategy):
    """A strategy that says what it is told to say, and remembers what it saw."""

    coefficients: Sequence[float] = (0.25, 0.75)
    scale: float = 1.0
    vectors: dict[str, Sequence[float]] = field(default_factory=dict)
    seen: list[Any] = field(default_factory=list)
    jobless: bool = False
    card = Card(title="Scripted", needs="gram")

    def start(self, summary):
        return {"planned": 0, "combined": 0}

    def plan(self, state, round):
        self.seen.append(("plan", round, [m.client for m in round.measurements]))
        jobs = [] if self.jobless else round.jobs()
        if self.vectors:
            jobs = [replace(job, keep_control="c") for job in jobs]
        return {**state, "planned": state["planned"] + 1}, jobs

    def combine(self, state, round, reports, gram):
        self.seen.append(("combine", [r.client for r in reports], gram))
        return Step(
            coefficients=np.array(self.coefficients[: len(reports)]),
            state={**state, "combined": state["combined"] + 1},
            scale=self.scale,
            vectors={n: np.array(c[: len(reports)]) for n, c in self.vectors.items()},
            log={"round": round.index},
        )


@dataclass
class Listener:
    heard: list[Any] = field(default_factory=list)

    def on_start(self, setup, state):
        self.heard.append(("start", state.round))

    def on_round(self, setup, state, record):
        self.heard.append((state.round, record, state.weights.copy()))


def evenly(rows: float, loss: float, right: float = 0.5) -> Statistics:
    """Rows spread evenly over the four (group, label) strata, decisions right with a share."""
    quarter = np.full((2, 2), rows / 4)
    positives = quarter * np.array([1 - right, right])
    return Statistics(counts=quarter, positives=positives, scores=positives, losses=quarter * loss)


def summary(**rows: float) -> Summary:
    counts = {name: np.full((2, 2), n / 4) for name, n in rows.items()}
    return Summary(counts=counts, attributes=SEX, goal=Goal())


def setup(strategy: Any, **changes: Any) -> Setup:
    base = {
        "strategy": strategy,
        "size": MODEL.size,
        "recipe": Recipe(lr=0.4, lr_final=0.2, weight_decay=0),
        "rounds": 2,
        "seed": 0,
        "summary": summary(a=4, b=12),
        "splits": ("train",),
    }
    return Setup(**(base | changes))


class FakeEngine:
    """Answers a loop from a script: a loss for each measurement, reports for each request.

    Everything else is as an honest client would say it: rows as enrolled, steps and rate as asked
    for. `tamper` makes the reply of what was found.
    """

    def __init__(self, reports, losses=(1.0,), tamper=lambda ask, answers: answers):
        self.reports, self.losses, self.tamper = reports, losses, tamper
        self.requests: list[Measure | Score | Train] = []
        self._measured = 0

    def run(self, setup_, state, callbacks=()):
        self._counts = setup_.summary.counts
        loop = federate(setup_, state, callbacks)
        request = next(loop)
        while True:
            self.requests.append(request)
            try:
                request = loop.send(self.tamper(request, self._answer(request)))
            except StopIteration as stop:
                return stop.value

    def _answer(self, request):
        if isinstance(request, Train):
            return fed.by_client(as_asked(one, request) for one in self.reports(request))
        if isinstance(request, Score):
            return {
                name: dict.fromkeys(request.splits, scores_of(rows))
                for name, rows in self._counts.items()
            }
        loss = self.losses[min(self._measured, len(self.losses) - 1)]
        self._measured += 1
        return {
            name: (dict.fromkeys(request.splits, evenly(rows.sum(), loss)),) * len(request.weights)
            for name, rows in self._counts.items()
            if name not in request.without
        }


def as_asked(one, request: Train):
    """Give a report the steps and the rate of its job: two epochs, all rows in one batch."""
    plans = {job.client: job.plan for job in request.jobs}
    plan = plans.get(one.client, request.jobs[0].plan)
    return replace(one, steps=2, lr=plan.optimizer.lr)


def scores_of(rows: np.ndarray) -> ScoreSums:
    """Every row has score ½."""
    strata = np.repeat(np.arange(rows.size), rows.astype(int).ravel())
    even = RowScores.from_logits(np.zeros(len(strata)))
    return ScoreSums.from_rows(even, strata // 2, strata % 2, size=len(rows))


def state(strategy: Any, **more: Any) -> RunState:
    return RunState(round=0, weights=START.copy(), strategy=strategy.start(None), **more)


def ones(ask: Train) -> list[Report]:
    return [report(job.client, [1, 1, 1]) for job in ask.jobs]


TWO = [report("a", [4, 0, -4]), report("b", [0, 4, 8])]


def test_weights_move_by_the_coefficients_times_the_updates():
    strategy, listener = Scripted(), Listener()
    run_state = state(strategy)
    result = FakeEngine(lambda _: TWO).run(setup(strategy), run_state, [listener])
    # w' = w − (¼·[4, 0, −4] + ¾·[0, 4, 8]) = w − [1, 3, 5], twice.
    assert listener.heard[2][2].tolist() == [0, -1, -2]
    assert listener.heard[3][2].tolist() == [-1, -4, -7]
    assert result.served.members.tolist() == [[-1, -4, -7]]
    assert result.rounds == run_state.round == 2
    assert run_state.strategy == {"planned": 2, "combined": 2}
    assert result.served.members.dtype == np.float32


def test_the_scale_multiplies_the_step_and_the_coefficients_on_record():
    strategy, listener = Scripted(scale=2.0), Listener()
    FakeEngine(lambda _: TWO).run(setup(strategy, rounds=1), state(strategy), [listener])
    assert listener.heard[2][2].tolist() == [-1, -4, -7]
    assert listener.heard[2][1].coefficients == {"a": 0.5, "b": 1.5}


def test_records_say_what_happened():
    strategy, listener = Scripted(), Listener()
    engine = FakeEngine(lambda _: TWO)
    engine.run(setup(strategy), state(strategy), [listener])
    start, zero, first, second = listener.heard
    assert start == ("start", 0)
    assert [zero[0], first[0], second[0]] == [0, 1, 2]
    assert (zero[1].round, zero[1].coefficients, zero[1].norms) == (0, {}, {})
    record = second[1]
    assert (record.round, record.rounds, record.lr) == (2, 2, 0.2)
    assert first[1].lr == 0.4
    assert record.coefficients == {"a": 0.25, "b": 0.75}
    assert record.norms["a"] == pytest.approx(np.sqrt(32))
    assert record.norms["b"] == pytest.approx(np.sqrt(80))
    assert record.log == {"round": 1}
    assert set(record.measured["train"]) == {"a", "b"}
    assert record.set_aside == {}


def test_requests_come_in_the_order_measure_train_measure():
    strategy = Scripted()
    engine = FakeEngine(lambda _: TWO)
    engine.run(setup(strategy, rounds=1), state(strategy))
    kinds = [type(request).__name__ for request in engine.requests]
    assert kinds == ["Measure", "Train", "Measure", "Measure", "Score"]
    train, score = engine.requests[1], engine.requests[-1]
    assert score.splits == ("train",)
    assert (score.weights.tolist(), score.drawn) == ([0, -1, -2], False)
    assert [job.client for job in train.jobs] == ["a", "b"]
    for client in ("a", "b"):
        assert train.weights[client].tolist() == START.tolist()
    assert train.jobs[0].plan.optimizer.lr == 0.4


def test_the_strategy_sees_the_gram_matrix_of_the_updates():
    strategy = Scripted()
    FakeEngine(lambda _: TWO[::-1]).run(setup(strategy, rounds=1), state(strategy))
    _, clients, gram = strategy.seen[1]
    assert clients == ["a", "b"]  # by name, however the replies arrived
    assert gram.tolist() == [[32, -32], [-32, 80]]


def test_sums_are_exact_to_the_last_bit_of_the_weights():
    """Products and sums in float32 would miss the exact sum of 64 shares."""
    names = [f"c{i:02d}" for i in range(64)]
    rng = np.random.default_rng(0)
    shares = rng.random(64)
    updates = [report(n, rng.normal(size=3)) for n in names]
    strategy = Scripted(coefficients=shares)
    made = setup(strategy, rounds=1, summary=summary(**dict.fromkeys(names, 4)))
    result = FakeEngine(lambda _: updates[::-1]).run(made, state(strategy))
    for i in range(3):
        parts = [c * float(r.update[i]) for c, r in zip(shares, updates, strict=True)]
        assert result.served.members[0, i] == np.float32(float(START[i]) - math.fsum(parts))


def test_server_vectors_move_by_their_own_coefficients():
    strategy = Scripted(vectors={"c": (0.5, 0.25)})
    run_state = state(strategy)
    change = [np.array([2, 0, 4], np.float32), np.array([4, 8, 0], np.float32)]
    replies = [replace(r, control_change=c) for r, c in zip(TWO, change, strict=True)]
    FakeEngine(lambda _: replies).run(setup(strategy), run_state)
    # Each round adds ½·[2, 0, 4] + ¼·[4, 8, 0] = [2, 2, 2].
    assert run_state.vectors["c"].tolist() == [4, 4, 4]
    contexts = [seen[1] for seen in strategy.seen if seen[0] == "plan"]
    assert contexts[0].vectors == {}
    assert contexts[1].vectors["c"].tolist() == [2, 2, 2]


def test_a_strategy_without_jobs_is_never_asked_to_combine():
    strategy = Scripted(jobless=True)
    engine = FakeEngine(lambda _: pytest.fail("nobody was asked to train"))
    result = engine.run(setup(strategy), state(strategy))
    assert result.served.members.tolist() == [START.tolist()]
    assert [seen[0] for seen in strategy.seen] == ["plan", "plan"]


def test_no_rounds_serve_the_first_weights():
    strategy = Scripted()
    for rule in ("last", "average", "select", "mixture"):
        made = setup(strategy, rounds=0, output=Output(rule=rule))
        result = FakeEngine(lambda _: TWO).run(made, state(strategy))
        assert result.served.members.tolist() == [START.tolist()]
        assert result.served.weights.tolist() == [1.0]


# ------------------------------------------------------------------ replies that cannot be used


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (report("b", [0, np.nan, 0]), "its update holds a number that is not finite"),
        (report("b", [0, -np.inf, 0]), "its update holds a number that is not finite"),
        (
            report("b", [1, 2, 3], control_change=np.array([np.inf, 0, 0])),
            "its control change holds a number that is not finite",
        ),
        (
            report("b", [1, 2, 3], multipliers=(float("nan"),)),
            "it sends multipliers that were not asked for",
        ),
        (
            report("b", [1, 2, 3], gaps=(float("inf"),)),
            "it sends multipliers that were not asked for",
        ),
    ],
)
def test_a_bad_reply_is_set_aside_and_the_round_goes_on(bad, reason):
    strategy, listener = Scripted(), Listener()
    FakeEngine(lambda _: [TWO[0], bad]).run(setup(strategy, rounds=1), state(strategy), [listener])
    record, weights = listener.heard[2][1:]
    assert record.set_aside == {"b": reason}
    assert record.coefficients == {"a": 0.25}
    assert weights.tolist() == [0, 2, 4]  # w − ¼·[4, 0, −4]


def test_a_reply_nobody_asked_for_is_set_aside():
    strategy, listener = Scripted(), Listener()
    stranger = report("mallory", [1e6, 1e6, 1e6])
    engine = FakeEngine(lambda _: [stranger, *TWO])
    engine.run(setup(strategy, rounds=1), state(strategy), [listener])
    assert listener.heard[2][1].set_aside == {"mallory": "it was not asked to train"}
    assert listener.heard[2][2].tolist() == [0, -1, -2]


def test_of_several_replies_the_first_sound_one_counts():
    strategy, listener = Scripted(), Listener()
    replies = [report("a", [np.nan, 0, 0]), *TWO, report("a", [99, 99, 99])]
    FakeEngine(lambda _: replies).run(setup(strategy, rounds=1), state(strategy), [listener])
    assert listener.heard[2][1].set_aside == {}
    assert listener.heard[2][2].tolist() == [0, -1, -2]


def test_when_all_replies_are_bad_the_weights_stay():
    strategy, listener = Scripted(), Listener()
    engine, run_state = FakeEngine(lambda _: [report("a", [np.nan] * 3)]), state(strategy)
    engine.run(setup(strategy, rounds=1), run_state, [listener])
    assert listener.heard[2][2].tolist() == START.tolist()
    assert listener.heard[2][1].set_aside == {
        "a": "its update holds a number that is not finite",
        "b": "it sent no report",
    }
    assert run_state.strategy == {"planned": 1, "combined": 0}  # what it planned still counts


# ------------------------------------------------------------------ one of four lies

FOUR = {"a": 4, "b": 12, "c": 8, "d": 16}


def lied(kind, change):
    """Let d's answers to requests of a kind be changed."""

    def tamper(ask, answers):
        if not isinstance(ask, kind) or "d" not in answers:
            return answers
        return {**answers, "d": fed.with_lie(ask, answers["d"], lambda _, sums: change(sums))}

    return tamper


@pytest.mark.parametrize("robust", ["none", "auto"])
@pytest.mark.parametrize(
    ("tamper", "reason"),
    [
        (
            lied(Measure, lambda one: replace(one, counts=1e6 * one.counts)),
            "its measurement of train rows: its counts are not those it was enrolled with",
        ),
        (
            lied(Measure, lambda one: replace(one, **{n: 1e6 * getattr(one, n) for n in SUMS})),
            "its measurement of train rows: its counts are not those it was enrolled with",
        ),
        (
            lied(Measure, lambda one: replace(one, losses=0 * one.losses)),
            "its measurement of train rows: its loss is lower than its scores and decisions allow",
        ),
        (
            lied(Measure, lambda one: replace(one, losses=1e9 * one.losses)),
            "its measurement of train rows: its mean loss is above 10000",
        ),
        (
            lied(Train, lambda one: replace(one, update=np.float32(1e6) * one.update)),
            "its update has length 1.73e+06; 17.3 is the longest",  # √3 is that of [1, 1, 1]
        ),
        (
            lied(Train, lambda one: replace(one, update=np.float32(1e30) * one.update)),
            "its update has length 1.73e+30; 17.3 is the longest",
        ),
    ],
)
def test_a_lie_is_named_and_leaves_the_model_to_the_others(tamper, reason, robust):
    """All honest updates are [1, 1, 1], so any honest weighting gives w − [1, 1, 1] a round."""
    made = setup(create("fedavg"), summary=summary(**FOUR), robust=robust)
    engine = FakeEngine(ones, tamper=tamper)
    listener, run_state = Listener(), state(made.strategy)
    result = engine.run(made, run_state, [listener])
    assert result.served.members.tolist() == [(START - 2).tolist()]
    for _, record, _ in listener.heard[2:]:
        assert record.set_aside == {"d": reason}
        assert record.coefficients == pytest.approx({"a": 4 / 24, "b": 12 / 24, "c": 8 / 24})
    assert result.warnings == (f"d: answers refused in 2 rounds ({reason})",)
    measured_wrongly = reason.startswith("its measurement")
    assert listener.heard[1][1].set_aside == ({"d": reason} if measured_wrongly else {})
    assert result.left_out == ({"d": reason} if measured_wrongly else {})
    assert ("d" in result.measured[0]["train"]) != measured_wrongly
    assert "d" in result.scored["train"]


def test_a_loss_that_does_not_fit_the_others_does_not_order_clients():
    """It is possible, so it counts in every sum; but robust runs take the median to compare by."""

    @dataclass(frozen=True)
    class ByLoss(Scripted):
        coefficients: Sequence[float] = (0.25, 0.25, 0.25, 0.25)

        def combine(self, state, round, reports, gram):
            self.seen.append(round.losses(reports).tolist())
            return super().combine(state, round, reports, gram)

    tamper = lied(Measure, lambda one: replace(one, losses=1e3 * one.losses))
    for robust, losses in (("none", [1, 1, 1, 1000]), ("auto", [1, 1, 1, 1])):
        strategy = ByLoss()
        made = setup(strategy, rounds=1, summary=summary(**FOUR), robust=robust)
        sound = [report(name, [1, 1, 1]) for name in FOUR]
        FakeEngine(lambda _, sent=sound: sent, tamper=tamper).run(made, state(strategy))
        assert [seen for seen in strategy.seen if isinstance(seen, list)] == [losses]


# ------------------------------------------------------------------ faults, absence, suspension


def on_train(reply):
    """Let this take the place of d's answer whenever it is asked to train."""

    def tamper(ask, answers):
        if isinstance(ask, Train) and any(job.client == "d" for job in ask.jobs):
            return {**answers, "d": reply}
        return answers

    return tamper


def test_who_could_not_be_asked_is_named_and_not_blamed():
    made = setup(create("fedavg"), rounds=5, summary=summary(**FOUR))
    tamper = on_train(Absent("it is not online"))
    engine = FakeEngine(ones, tamper=tamper)
    listener, run_state = Listener(), state(made.strategy)
    result = engine.run(made, run_state, [listener])
    assert [record.set_aside for _, record, _ in listener.heard[2:]] == [
        {"d": "it is not online"}
    ] * 5
    assert run_state.standing.rounds == {}
    assert result.warnings == ()


def test_who_is_suspended_is_neither_measured_nor_asked_to_train():
    made = setup(create("fedavg"), rounds=10, summary=summary(**FOUR))
    tamper = on_train(Refusal("its message cannot be read"))
    engine = FakeEngine(ones, tamper=tamper)
    listener = Listener()
    result = engine.run(made, state(made.strategy), [listener])
    trained = [r for r in engine.requests if isinstance(r, Train)]
    assert [r.round for r in trained if any(j.client == "d" for j in r.jobs)] == [0, 1, 2, 8]
    measured = [r for r in engine.requests if isinstance(r, Measure)]
    # Before training, then after rounds 1 to 10, then the served model.
    assert ["d" in r.without for r in measured] == [
        *[False] * 4,
        *[True] * 4,
        *[False] * 2,
        True,
        False,
    ]
    reasons = [record.set_aside["d"] for _, record, _ in listener.heard[2:]]
    assert reasons[2:5] == [
        "its message cannot be read",
        *["suspended until round 9: its answers were refused"] * 2,
    ]
    assert reasons[8:] == [
        "its message cannot be read",
        "suspended until round 20: its answers were refused",
    ]
    assert result.left_out == {}  # in the end everyone is measured
    assert set(result.measured[0]["train"]) == set(FOUR)


def test_faults_of_the_last_answers_are_in_the_result():
    made = setup(create("fedavg"), rounds=1, summary=summary(**FOUR))

    def tamper(ask, answers):
        if not isinstance(ask, Score):
            return answers
        missing = {"c": Refusal("its message cannot be read"), "d": Absent("it is not online")}
        return {**answers, **missing}

    engine = FakeEngine(ones, tamper=tamper)
    result = engine.run(made, state(made.strategy))
    assert result.left_out == {"c": "its message cannot be read", "d": "it is not online"}
    assert result.warnings == ()  # the rounds are over: nothing is held against them


def test_without_any_usable_scores_the_run_ends_in_one_line():
    made = setup(create("fedavg"), rounds=1, summary=summary(**FOUR))

    def tamper(ask, answers):
        return {} if isinstance(ask, Score) else answers

    engine = FakeEngine(ones, tamper=tamper)
    with pytest.raises(FederationError, match=r"^most clients' scores cannot be used"):
        engine.run(made, state(made.strategy))


def test_a_round_that_leaves_only_suspended_measurements_ends_in_one_line():
    """D fails to train for the third time while nobody else can be measured."""
    made = setup(create("fedavg"), rounds=6, summary=summary(**FOUR))
    blame = on_train(Refusal("its message cannot be read"))

    def tamper(ask, answers):
        if isinstance(ask, Measure) and trained[0] == 3:
            return {"d": answers["d"]}
        trained[0] += isinstance(ask, Train)
        return blame(ask, answers)

    trained = [0]
    engine = FakeEngine(ones, tamper=tamper)
    with pytest.raises(FederationError) as caught:
        engine.run(made, state(made.strategy))
    assert str(caught.value) == ("round 3: no client with train rows can take part")


def test_when_nobody_can_take_part_the_run_ends_in_one_line():
    strategy = Scripted()
    made = setup(strategy, summary=summary(a=0, b=0))
    with pytest.raises(
        FederationError, match=r"^round 0: no client with train rows can take part"
    ):
        FakeEngine(lambda _: []).run(made, state(strategy))


# ------------------------------------------------------------------ who takes part


def _participants(seed: int, share: float, rounds: int = 6) -> list[tuple[str, ...]]:
    names = [f"c{i}" for i in range(8)]
    strategy = Scripted(coefficients=[0.125] * 8)
    made = setup(
        strategy,
        rounds=rounds,
        seed=seed,
        participation=share,
        summary=summary(**dict.fromkeys(names, 4)),
    )
    engine = FakeEngine(ones)
    engine.run(made, state(strategy))
    return [seen[1].participants for seen in strategy.seen if seen[0] == "plan"]


def test_participants_are_drawn_by_seed_and_round():
    drawn = _participants(0, 0.5)
    assert drawn == _participants(0, 0.5)
    assert drawn != _participants(1, 0.5)
    assert all(len(set(names)) == 4 for names in drawn)
    assert all(list(names) == sorted(names) for names in drawn)
    assert len(set(drawn)) > 1  # not the same half each round
    # A longer run draws the same clients in the same rounds.
    assert _participants(0, 0.5, rounds=9)[:6] == drawn
    # The draw of round 2 is a function of seed and round alone.
    order = stream(0, "participants", 2).permutation(8)[:4]
    assert drawn[2] == tuple(f"c{i}" for i in sorted(order))


@pytest.mark.parametrize(("share", "count"), [(1.0, 8), (0.01, 1), (0.5, 4), (0.8, 6)])
def test_the_share_decides_how_many_take_part(share, count):
    assert {len(names) for names in _participants(3, share)} == {count}


def test_a_client_without_training_rows_takes_no_part():
    strategy = Scripted()
    made = setup(strategy, rounds=1, summary=summary(a=4, b=0))
    FakeEngine(lambda _: TWO[:1]).run(made, state(strategy))
    assert strategy.seen[0][1].participants == ("a",)


def test_measurements_are_those_of_the_participants():
    strategy = Scripted()
    FakeEngine(lambda _: TWO).run(setup(strategy, rounds=1, participation=0.5), state(strategy))
    _, context, measured = strategy.seen[0]
    assert measured == list(context.participants)
    assert len(measured) == 1


# ------------------------------------------------------------------ when it ends


@pytest.mark.parametrize(
    ("losses", "patience", "rounds"),
    [
        # Losses after rounds 0, 1, 2, …; the loss before training is not compared.
        ((9, 5, 4, 4, 4, 3, 2), 2, 4),
        ((9, 5, 4, 4, 3, 3, 3), 2, 6),
        ((9, 5, 6, 6, 6, 6, 6), 1, 2),
        ((9, 5, 6, 6, 6, 6, 6), None, 6),
    ],
)
def test_it_stops_after_some_rounds_without_a_lower_loss(losses, patience, rounds):
    strategy = Scripted()
    engine = FakeEngine(lambda _: TWO, losses=losses)
    result = engine.run(setup(strategy, rounds=6, patience=patience), state(strategy))
    assert result.rounds == rounds


@pytest.mark.parametrize("loss", [np.nan, np.inf, 2e4])
def test_a_step_that_breaks_the_model_is_taken_back(loss):
    strategy, listener = Scripted(), Listener()
    engine = FakeEngine(lambda _: TWO, losses=(9, 5, loss, 5, 5))
    result = engine.run(setup(strategy, rounds=3), state(strategy), [listener])
    (_, first, moved), (_, second, kept), (_, third, last) = listener.heard[2:]
    assert "undone" not in first.log
    assert "its measurement of train rows" in second.log["undone"]
    assert "undone" not in third.log
    assert np.array_equal(moved, kept)  # the second step is taken back, the third one counts
    assert not np.array_equal(kept, last)
    assert result.rounds == 3
    assert result.warnings == (
        "training diverged in 1 of 3 rounds, and these steps were taken back; lower training.lr",
    )


@pytest.mark.parametrize("loss", [np.nan, np.inf, 2e4])
def test_a_model_that_nobody_can_measure_ends_the_run_in_one_line(loss):
    strategy = Scripted()
    with pytest.raises(FederationError) as caught:
        FakeEngine(lambda _: TWO, losses=(loss,)).run(setup(strategy), state(strategy))
    reason = "a number is not finite" if loss != 2e4 else "its mean loss is above 10000"
    assert str(caught.value) == (
        "round 0: most clients' measurements cannot be used (a: its measurement of train rows: "
        f"{reason}); if it is the same with all, training has diverged: lower training.lr"
    )


def test_early_stopping_remembers_across_a_restart():
    strategy = Scripted()
    resumed = replace(state(strategy), round=3, best_loss=1.0, best_round=2)
    engine = FakeEngine(lambda _: TWO, losses=(5, 4, 3, 2))
    result = engine.run(setup(strategy, rounds=9, patience=2), resumed)
    assert result.rounds == 4


def test_a_resumed_run_does_not_tell_of_the_past():
    strategy, listener = Scripted(), Listener()
    resumed = replace(state(strategy), round=1)
    FakeEngine(lambda _: TWO).run(setup(strategy), resumed, [listener])
    assert [heard[0] for heard in listener.heard] == ["start", 2]


def test_an_exception_of_a_callback_ends_the_run():
    class Angry(Listener):
        def on_round(self, setup, state, record):
            raise OSError("disk full")

    strategy = Scripted()
    with pytest.raises(OSError, match="disk full"):
        FakeEngine(lambda _: TWO).run(setup(strategy), state(strategy), [Angry()])


# ------------------------------------------------------------------ what it serves


def test_the_bank_holds_the_last_half_and_their_moving_average():
    strategy = Scripted()
    run_state = state(strategy)
    made = setup(strategy, rounds=4, output=Output(rule="average"))
    result = FakeEngine(lambda _: TWO).run(made, run_state)
    names = [candidate.name for candidate in run_state.bank]
    assert names == ["round 3", "average 3", "round 4", "average 4"]
    # Weights after rounds 1 … 4 fall by [1, 3, 5] each; the moving average starts at round 1's
    # and is halved towards each next: first numbers 0, −1, −2, −3 give 0, −.5, −1.25, −2.125.
    first = [float(candidate.weights[0]) for candidate in run_state.bank]
    assert first == [-2, -1.25, -3, -2.125]
    # `average` is the plain mean of rounds 3 and 4.
    assert result.served.members.tolist() == [[-2.5, -8.5, -14.5]]
    assert result.served.names == ("average of round 3 to round 4",)


def test_validation_rows_choose_where_there_are_any():
    strategy = Scripted()
    assert setup(strategy).held_out == "train"
    assert setup(strategy, splits=("train", "validation", "test")).held_out == "validation"


def test_the_first_state_draws_weights_by_seed():
    made = setup(Scripted())
    assert np.array_equal(first_state(made, MODEL).weights, MODEL.init(stream(0, "init")))
    assert not np.array_equal(
        first_state(made, MODEL).weights, first_state(replace(made, seed=1), MODEL).weights
    )


def test_contexts_count_rounds_from_zero():
    strategy = Scripted()
    FakeEngine(lambda _: TWO).run(setup(strategy), state(strategy))
    contexts = [seen[1] for seen in strategy.seen if seen[0] == "plan"]
    assert [(c.index, c.rounds) for c in contexts] == [(0, 2), (1, 2)]
    assert isinstance(contexts[0], Round)
    draws = [c.rng.random() for c in contexts]
    assert draws == [stream(0, "server", r).random() for r in (0, 1)]
