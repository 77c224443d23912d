"""What every strategy and notion must keep, as checks for your own ones.

`check_strategy(MyRule())` trains small federations and says which promise is broken, if one is.
With pytest, one test for each promise:

    @pytest.mark.parametrize("check", mfairfl.testing.STRATEGY_CHECKS)
    def test_my_rule_keeps(check):
        check(MyRule())
"""

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import FrozenInstanceError, dataclass, field, fields, is_dataclass, replace
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from mfairfl.data import Federation, Task, partition, table_from_frame
from mfairfl.engine.checkpoint import dump, parse
from mfairfl.engine.embedded import Member, run_all, splits_of, summarize
from mfairfl.engine.loop import Result
from mfairfl.engine.output import Output
from mfairfl.engine.state import Ask, Replies, RoundRecord, RunState, Setup, Train
from mfairfl.errors import MfairflError
from mfairfl.fairness.cells import Cells, Statistics
from mfairfl.fairness.constraints import Constraints, Goal
from mfairfl.fairness.notions import Notion
from mfairfl.models import MLP
from mfairfl.strategies.base import Card, Strategy
from mfairfl.strategies.registry import create
from mfairfl.training.execution import steady_arithmetic
from mfairfl.training.plan import Job, Recipe

TASK = Task(label="hired", favourable="yes", sensitive=("sex", "age"), client="site")
SITES = {"east": 90, "north": 70, "south": 40, "west": 60}
ROUNDS = 3

T = TypeVar("T")
Tamper = Callable[[int, dict[str, Any]], dict[str, Any]]


class BrokenPromiseError(MfairflError, AssertionError):
    """A strategy or notion breaks a promise that all others keep; the message names it."""


def check_strategy(strategy: Strategy | type[Strategy] | str) -> None:
    """Check that a strategy keeps what mfairfl promises of every strategy.

    Parameters
    ----------
    strategy : Strategy, class or str
        An object, a class with defaults for all hyper-parameters, or a name.

    Raises
    ------
    BrokenPromiseError
        The first promise that is broken, and how.

    Examples
    --------
    >>> check_strategy("fedavg")
    """
    if isinstance(strategy, str):
        strategy = create(strategy)
    elif isinstance(strategy, type):
        strategy = strategy()
    for check in STRATEGY_CHECKS:
        check(strategy)


def check_notion(notion: Notion) -> None:
    """Check that a notion's violation and prices agree with their definitions.

    Examples
    --------
    >>> from mfairfl.fairness import notion
    >>> check_notion(notion("eo"))
    """
    for check in NOTION_CHECKS:
        check(notion)


# ------------------------------------------------------------------ small federations


def people(seed: int = 7, sites: Mapping[str, int] = SITES) -> pd.DataFrame:
    """Draw applicants of several sites; north has no women, and south hired nobody.

    Examples
    --------
    >>> people(sites={"east": 3}).columns.tolist()
    ['skill', 'years', 'job', 'sex', 'age', 'site', 'hired']
    """
    rng, n = np.random.default_rng(seed), sum(sites.values())
    site = np.repeat(list(sites), list(sites.values()))
    male = (rng.random(n) < 0.5) | (site == "north")
    old = rng.random(n) < 0.4
    skill, years = rng.normal(size=n), rng.exponential(5, size=n).round(1)
    hired = (skill + 0.6 * male - 0.3 * old + 0.5 * rng.normal(size=n) > 0.3) & (site != "south")
    return pd.DataFrame(
        {
            "skill": skill.round(4),
            "years": years,
            "job": rng.choice(["clerk", "cook", "nurse"], size=n),
            "sex": np.where(male, "M", "F"),
            "age": np.where(old, "old", "young"),
            "site": site,
            "hired": np.where(hired, "yes", "no"),
        }
    )


def people_federation(
    frame: pd.DataFrame | None = None, *, validation: float = 0.0, seed: int = 0
) -> Federation:
    """Return `people` as clients, one for each site."""
    table = table_from_frame(people() if frame is None else frame, TASK, name="people")
    return partition(table, "column", seed=seed, validation=validation)


@dataclass
class _Watch:
    """Callback that keeps records, weights and checkpoints of every round."""

    records: list[RoundRecord] = field(default_factory=list)
    weights: list[np.ndarray] = field(default_factory=list)
    dumps: list[bytes] = field(default_factory=list)

    def on_start(self, setup: Setup, state: RunState) -> None:
        pass

    def on_round(self, setup: Setup, state: RunState, record: RoundRecord) -> None:
        del setup
        self.records.append(record)
        self.weights.append(state.weights.copy())
        try:
            self.dumps.append(dump(state, "watch"))
        except (TypeError, ValueError) as error:
            how = f"{error}; use numbers, strings, lists, dicts and arrays"
            raise _UnkeptError(f"its state is not plain data: {how}") from error


@dataclass(frozen=True)
class _SmallRun:
    """A strategy on a small federation."""

    strategy: Strategy
    federation: Federation = field(default_factory=people_federation)
    changes: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> MLP:
        return MLP(inputs=self.federation.pool.inputs.width, hidden=(4,))

    @property
    def setup(self) -> Setup:
        pooled = self.strategy.card.trains_on == "pooled"
        base = Setup(
            strategy=self.strategy,
            size=self.model.size,
            recipe=Recipe(**{"local_epochs": 2, "batch_size": 20, "lr": 0.02, **self.recipe}),
            rounds=ROUNDS,
            seed=0,
            summary=summarize(self.federation, Goal(), pooled=pooled),
            splits=splits_of(self.federation),
        )
        return replace(base, **self.changes)

    def member(self) -> Member:
        return Member(setup=self.setup, model=self.model, federation=self.federation)

    def run(
        self, tamper: Tamper | None = None, state: RunState | None = None
    ) -> tuple[Result, _Watch]:
        """Run it, with reports by client that `tamper(round, reports)` changes on their way."""
        watch = _Watch()

        def arriving(ask: Ask, replies: Replies, _: RunState) -> Replies:
            if tamper is None or not isinstance(ask, Train):
                return replies
            return tamper(ask.round, dict(replies))

        member = replace(self.member(), state=state, callbacks=[watch], tamper=arriving)
        with steady_arithmetic():
            (result,) = run_all([member])
        return result, watch


def _bits(result: Result) -> bytes:
    return result.served.members.tobytes() + result.served.weights.tobytes()


class _UnkeptError(Exception):
    """How a promise is broken; `_promise` adds the name of the strategy or notion."""


def _promise(text: str) -> Callable[[Callable[[T], None]], Callable[[T], None]]:
    """Make a check say which promise is broken, by whom and how, in one line."""

    def named(check: Callable[[T], None]) -> Callable[[T], None]:
        @wraps(check)
        def checked(thing: T) -> None:
            try:
                check(thing)
            except Exception as error:
                name = thing.name if isinstance(thing, Notion) else type(thing).__name__
                how = " ".join(str(error).split())
                if not isinstance(error, _UnkeptError):
                    how = f"it raised {type(error).__name__}: {how}"
                raise BrokenPromiseError(f"{name} breaks '{text}': {how}") from error

        return checked

    return named


def _require(holds: object, how: str) -> None:
    if not holds:
        raise _UnkeptError(how)


def _require_equal(after: Any, before: Any, how: str) -> None:
    """Compare plain data and the arrays in it; nan is equal to nan."""
    try:
        np.testing.assert_equal(after, before)
    except AssertionError as error:
        raise _UnkeptError(how) from error


def _require_sound(result: Result, watch: _Watch) -> None:
    """All rounds took place; weights, coefficients and logs are finite, plain numbers."""
    _require(result.rounds == ROUNDS, f"it ended after {result.rounds} rounds")
    finite = np.isfinite(result.served.members).all()
    _require(finite, "the served model holds a number that is not finite")
    for record in watch.records:
        finite = all(map(np.isfinite, record.coefficients.values()))
        _require(finite, "a coefficient is not finite")
        try:
            json.dumps(record.log, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise _UnkeptError(f"Step.log is not plain, finite data ({error})") from error


# ------------------------------------------------------------------ what a strategy keeps


@_promise("describes itself")
def describes_itself(strategy: Strategy) -> None:
    """Describe itself on a card; a frozen dataclass, equal by its hyper-parameters."""
    _require(is_dataclass(strategy), "it is not a dataclass")
    card = strategy.card
    _require(isinstance(card, Card), "its card is not a Card")
    lines = (card.title, card.paper, card.protects)
    one_line_each = all(line.strip() == line != "" and "\n" not in line for line in lines)
    _require(one_line_each, "title, paper and protects of the card are one line each")
    _require(replace(strategy) == strategy, "a copy is not equal to it")  # type: ignore[type-var]
    for hyper_parameter in fields(strategy):  # type: ignore[arg-type]  # a dataclass, as checked
        try:
            setattr(strategy, hyper_parameter.name, None)
        except FrozenInstanceError:
            continue
        raise _UnkeptError("the dataclass is not frozen")


@_promise("a missing group, class or row never breaks a round")
def survives_hard_clients(strategy: Strategy) -> None:
    """Train with a client that lacks a group, one that lacks a class, and one of a single row."""
    _require_sound(*_SmallRun(strategy).run())
    sites = {"east": 50, "solo": 1, "west": 40}
    _require_sound(*_SmallRun(strategy, people_federation(people(sites=sites))).run())


@_promise("training lowers the loss")
def learns(strategy: Strategy) -> None:
    """Lower the loss on the training rows."""
    if strategy.card.starts == "constant":
        return
    _, watch = _SmallRun(strategy, recipe={"lr": 0.05}).run()
    measured = [record.measured["train"].values() for record in watch.records]
    first, *_, last = (sum(sums.losses.sum() for sums in clients) for clients in measured)
    how = f"the training loss went from {first:.3f} to {last:.3f} in {ROUNDS} rounds"
    _require(last < first, how)


@_promise("same seed, same bits")
def repeats_itself(strategy: Strategy) -> None:
    """Give the same bits for the same seed: alone, again, beside others, in any client order."""
    run = _SmallRun(strategy)
    expected = _bits(run.run()[0])
    again = "a second run with the same seed differs: is there state or randomness of its own?"
    _require(_bits(run.run()[0]) == expected, again)
    other = _SmallRun(strategy, changes={"seed": 1, "rounds": ROUNDS + 1})
    with steady_arithmetic():
        together = run_all([run.member(), other.member()])
    beside = _bits(together[0]) == expected
    _require(beside, "a run beside another differs from the run alone")
    turned = replace(run.federation, clients=run.federation.clients[::-1])
    same = _bits(_SmallRun(strategy, turned).run()[0]) == expected
    _require(same, "the order in which clients are listed changes the result")


def _observed(strategy: Strategy, **functions: Callable[..., Any]) -> Strategy:
    """Return the strategy with other functions in place of its own."""
    methods = {name: staticmethod(function) for name, function in functions.items()}
    observed: Any = type(type(strategy).__name__, (type(strategy),), methods)
    names = [parameter.name for parameter in fields(strategy)]  # type: ignore[arg-type]
    copy: Strategy = observed(**{name: getattr(strategy, name) for name in names})
    return copy


@_promise("functions are pure and fit the reports")
def is_pure(strategy: Strategy) -> None:
    """Leave state, round and reports as they were given."""

    def plan(state: Any, round_: Any) -> Any:
        before = deepcopy(dict(state))
        planned = strategy.plan(state, round_)
        _require_equal(dict(state), before, "plan changes the state it is given; return a new one")
        return planned

    def combine(state: Any, round_: Any, reports: Any, gram: Any) -> Any:
        before = deepcopy((dict(state), gram, [r.update for r in reports]))
        step = strategy.combine(state, round_, reports, gram)
        after = (dict(state), gram, [r.update for r in reports])
        how = "combine changes the state, Gram matrix or updates it is given"
        _require_equal(after, before, how)
        shape = np.shape(step.coefficients)
        fits = shape == (len(reports),)
        _require(fits, f"coefficients of shape {shape} for {len(reports)} reports")
        _require(np.isfinite(step.coefficients).all(), "a coefficient is not finite")
        return step

    _SmallRun(_observed(strategy, plan=plan, combine=combine)).run()


def _require_announced(card: Card, job: Job) -> None:
    """Require that the card names what a job keeps, and lets it report multipliers."""
    moving = job.plan.controller
    slot = None if moving is None else moving.slot
    slots = {"model": job.keep, "control": job.keep_control, "multipliers": slot}
    for kind, name in slots.items():
        named = name is None or kind in card.keeps
        _require(named, f"a job keeps '{name}', and the card's keeps lacks {kind!r}")
    if job.send and moving is not None and slot is None:
        reported = card.moves_every is not None and card.moves_every < job.plan.epochs
        how = "clients report multipliers, and the card's moves_every does not let them"
        _require(reported, how)


@_promise("the card says what clients keep and send")
def says_what_crosses(strategy: Strategy) -> None:
    """Name on the card what jobs keep, and what they report beside updates."""
    card = strategy.card

    def plan(state: Any, round_: Any) -> Any:
        state, jobs = strategy.plan(state, round_)
        _require(not jobs or card.steps != "none", 'clients train, and the card has steps="none"')
        for job in jobs:
            _require_announced(card, job)
        return state, jobs

    _SmallRun(_observed(strategy, plan=plan)).run()


@_promise("a bad reply never breaks a round")
def stands_bad_replies(strategy: Strategy) -> None:
    """Do without replies that are missing, late, doubled or not finite."""
    run = _SmallRun(strategy)
    _require_sound(*run.run(lambda _, r: {name: r[name] for name in r if name != "east"}))
    result, watch = run.run(lambda *_: {})
    _require_sound(result, watch)
    still = all(np.array_equal(w, watch.weights[0]) for w in watch.weights)
    _require(still, "without any reply the weights moved")
    expected = _bits(run.run()[0])
    doubled = _bits(run.run(lambda _, r: {name: 2 * r[name] for name in reversed(r)})[0])
    _require(doubled == expected, "replies that come twice, in another order, change the result")

    def spoiled(round_: int, replies: dict[str, Any]) -> dict[str, Any]:
        nan = [replace(r, update=np.full_like(r.update, np.nan)) for r in replies.get("west", ())]
        return {**replies, "west": nan} if round_ == 1 else replies

    def absent(round_: int, replies: dict[str, Any]) -> dict[str, Any]:
        return {name: r for name, r in replies.items() if name != "west" or round_ != 1}

    how = "an update that is not finite is not as if it had never come"
    _require(_bits(run.run(spoiled)[0]) == _bits(run.run(absent)[0]), how)


@_promise("partial participation")
def takes_part_of_the_clients(strategy: Strategy) -> None:
    """Train with the clients that were drawn for a round only."""
    result, watch = _SmallRun(strategy, changes={"participation": 0.5}).run()
    _require_sound(result, watch)
    most = max(len(record.coefficients) for record in watch.records)
    _require(most <= 2, f"{most} clients counted where 2 were drawn")


@_promise("equal clients count equally")
def treats_equal_clients_alike(strategy: Strategy) -> None:
    """Give clients with the same rows the same coefficient."""
    single = people_federation(people(sites={"east": 60}))
    east = single.clients[0]
    three = replace(single, clients=tuple(replace(east, name=name) for name in "abc"))
    # Full batches leave no random order; one round, before any state tells the clients apart.
    run = _SmallRun(strategy, three, {"rounds": 1}, {"optimizer": "gradient"})
    for record in run.run()[1].records:
        values = list(record.coefficients.values())
        same = not values or np.allclose(values, values[:1], rtol=1e-9, atol=0)
        _require(same, f"three clients with the same rows count {values}")


@_promise("stopping and going on gives the same bits")
def resumes(strategy: Strategy) -> None:
    """Go on after any round from its checkpoint, to the same bits."""
    run = _SmallRun(strategy, changes={"output": Output(rule="last"), "participation": 0.8})
    result, watch = run.run()
    for stopped, data in enumerate(watch.dumps):
        state = parse(data, "watch")
        _require(dump(state, "watch") == data, "its state changes when stored")
        same = _bits(run.run(state=state)[0]) == _bits(result)
        _require(same, f"stopped after round {stopped} and resumed, the result differs")


STRATEGY_CHECKS: tuple[Callable[[Strategy], None], ...] = (
    describes_itself,
    is_pure,
    says_what_crosses,
    survives_hard_clients,
    learns,
    repeats_itself,
    stands_bad_replies,
    takes_part_of_the_clients,
    treats_equal_clients_alike,
    resumes,
)
"""One function for each promise, in the order in which `check_strategy` looks at them."""


# ------------------------------------------------------------------ what a notion keeps


def _sums(seed: int, cells: int) -> Statistics:
    rng = np.random.default_rng(seed)
    counts = rng.integers(5, 40, size=(cells, 2)).astype(float)
    share = rng.random((3, cells, 2))
    return Statistics(
        counts=counts,
        positives=np.floor(counts * share[0]),
        scores=counts * share[1],
        losses=counts * share[2],
    )


@_promise("violation")
def violation_is_the_largest_gap(notion: Notion) -> None:
    """Equal the definition: max over events and groups of |overall − group|, by hand."""
    cells = Cells(people_federation().attributes)
    for seed in range(5):
        sums, gaps = _sums(seed, cells.size), []
        wrong = np.column_stack([sums.positives[:, 0], sums.counts[:, 1] - sums.positives[:, 1]])
        per_row = {"selection": sums.positives, "error": wrong, "loss": sums.losses}
        values = per_row[notion.statistic]
        members = [member for item in cells.groupings() for member in item.membership]
        for event in notion.events:
            labels = list(event.labels)
            overall = values[:, labels].sum() / sums.counts[:, labels].sum()
            for member in members:
                rows = np.ix_(np.flatnonzero(member), np.array(labels))
                gaps.append(abs(overall - values[rows].sum() / sums.counts[rows].sum()))
        violation = Constraints(cells, notion).violation(sums)
        same = np.isclose(violation, max(gaps), atol=1e-12)
        _require(same, f"{violation} is not the largest gap, {max(gaps)}")


@_promise("prices")
def prices_decompose(notion: Notion) -> None:
    """Price rows so that their mean is Σ μ d, up to a constant: what clients train on."""
    cells = Cells(people_federation().attributes)
    constraints = Constraints(cells, notion)
    mu = np.random.default_rng(0).normal(size=len(constraints))
    sums, other = _sums(1, cells.size), _sums(2, cells.size)
    other = replace(other, counts=sums.counts, positives=np.minimum(other.positives, sums.counts))
    score, loss = constraints.prices(mu, sums.counts)

    def priced(s: Statistics) -> float:
        return float((score * s.scores + loss * s.losses).sum() / s.counts.sum())

    change = mu @ (constraints.gaps(other, "smooth") - constraints.gaps(sums, "smooth"))
    moved = priced(other) - priced(sums)
    same = np.isclose(moved, change, atol=1e-9)
    _require(same, f"the priced mean moves by {moved}, the constraints by {change}")


NOTION_CHECKS: tuple[Callable[[Notion], None], ...] = (
    violation_is_the_largest_gap,
    prices_decompose,
)
"""One function for each promise of a notion."""
