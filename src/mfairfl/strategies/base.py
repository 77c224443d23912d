"""What a method is: a plan for the clients and coefficients for the server.

A strategy is a frozen dataclass of hyper-parameters that derives from `Strategy`. Its state is a
plain mapping of names to numbers, strings and arrays, so checkpoints need no code of its own;
randomness comes in through the round. The server step is w' = w − scale · Σ c_k g_k.
"""

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self

import numpy as np

from mfairfl.data import Attribute
from mfairfl.errors import ConfigError
from mfairfl.fairness.cells import Cells, Statistics
from mfairfl.fairness.constraints import Constraints, Goal
from mfairfl.geometry.gram import Floats
from mfairfl.randomness import stream
from mfairfl.training.plan import Job, Optimizer, Plan, Recipe, Reports

Gram = Floats
"""The Gram matrix of the updates, (K, K), if the card needs it or its diagonal; else empty."""

State = Mapping[str, Any]
"""Names to JSON values or numpy arrays."""

Weights = Literal["size", "uniform"]
"""p_k = n_k/n, or 1/K."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What a reader should know about a method, and everything an engine asks of it.

    Parameters
    ----------
    title, paper : str
        One line each.
    protects : str
        What the method is meant to make fair.
    needs : {"gram", "norms", "none"}
        What `combine` reads of the updates: the Gram matrix, its diagonal, or nothing.
    measures : {"participants", "none"}
        Whether `plan` or `combine` reads the participants' measurements (losses, rates) at the
        server's weights; "none" spares clients a pass over their train rows in every round.
    reveals : {"individual", "sums"}
        Whether the server must see single clients' updates or only their weighted sum.
    trains_on : {"clients", "pooled"}
        Federated, or a reference that pools the rows.
    serves : {"global", "personal", "ensemble"}
        Whose model answers.
    shares : {"size", "uniform"}
        How the members of an ensemble count.
    starts : {"random", "constant"}
        Whether the first model is drawn, or answers the training data's base rate to everyone.
    steps : {"local", "gradient", "none"}
        What a round is: local epochs at every client, or one full-batch gradient, or no
        training. A method of gradients takes a server step for every local epoch of the others.
    server_steps : int, optional
        How many server steps a method of gradients takes unless rounds are stated; None: as many
        as the others' budget has local epochs.
    keeps : tuple of {"model", "control", "multipliers"}
        What clients keep between rounds: models of their own, control variates (of which they send
        the change), multipliers. What is kept never leaves them.
    moves_every : int, optional
        Clients move multipliers inside a round of more than so many epochs, and report where these
        and their gaps ended; None if they never do.
    constrained : bool
        Whether a constraint on groups is trained for.
    output : {"last", "average", "select", "thresholds"}, optional
        Output rule unless another is asked for; None means `select` for a constrained method and
        `last` for any other.
    thresholds_by : {"none", "group"}
        Whose thresholds may differ under the output rule `thresholds`, unless asked otherwise.

    Examples
    --------
    >>> Card(title="Federated averaging", paper="McMahan et al. 2017").serves
    'global'
    """

    title: str
    paper: str = "none"
    protects: str = "nothing"
    needs: Literal["gram", "norms", "none"] = "none"
    measures: Literal["participants", "none"] = "participants"
    reveals: Literal["individual", "sums"] = "sums"
    trains_on: Literal["clients", "pooled"] = "clients"
    serves: Literal["global", "personal", "ensemble"] = "global"
    shares: Weights = "size"
    starts: Literal["random", "constant"] = "random"
    steps: Literal["local", "gradient", "none"] = "local"
    server_steps: int | None = None
    keeps: tuple[Literal["model", "control", "multipliers"], ...] = ()
    moves_every: int | None = None
    constrained: bool = False
    output: Literal["last", "average", "select", "thresholds"] | None = None
    thresholds_by: Literal["none", "group"] = "none"

    @property
    def usual_rule(self) -> Literal["last", "average", "select", "thresholds"]:
        """The output rule unless another is asked for."""
        return self.output or ("select" if self.constrained else "last")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What is agreed before the first round.

    Parameters
    ----------
    counts : mapping of str to ndarray
        Training rows per (cell, label), (C, 2), for each client in name order; of all clients
        under one name, if a method trains on pooled rows.
    attributes : tuple of Attribute
        The sensitive attributes.
    goal : Goal
        What is to be fair.
    withheld : mapping of str to float
        Training rows of which a client discloses nothing but their number; they are not in
        `counts`.

    Examples
    --------
    >>> counts = {"north": np.array([[30.0, 10.0]]), "south": np.array([[50.0, 10.0]])}
    >>> summary = Summary(counts=counts, attributes=(), goal=Goal())
    >>> summary.rows("north"), summary.pooled.tolist()
    (40.0, [[80.0, 20.0]])
    """

    counts: Mapping[str, Floats]
    attributes: tuple[Attribute, ...]
    goal: Goal
    withheld: Mapping[str, float] = field(default_factory=dict)

    def rows(self, client: str) -> float:
        """Return how many rows a client trains on."""
        return float(self.counts[client].sum()) + self.withheld.get(client, 0.0)

    @property
    def pooled(self) -> Floats:
        """Training rows per (cell, label) of the whole federation."""
        return np.asarray(np.sum(list(self.counts.values()), axis=0), dtype=np.float64)

    @property
    def base_logit(self) -> float:
        """Log-odds of the favourable label; half a row each keeps it finite."""
        negatives, positives = self.pooled.sum(axis=0)
        return float(np.log((positives + 0.5) / (negatives + 0.5)))

    @property
    def constraints(self) -> Constraints:
        """The goal's constraints on this task."""
        return self.goal.constraints(self.attributes)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One client's sums and counts on its training rows, under the model that would answer them.

    That is the server's model; the whole ensemble, or the client's own model, for methods that
    serve those.

    Examples
    --------
    >>> sums = Statistics(counts=[[6, 2]], positives=[[1, 1]], scores=[[2, 1]], losses=[[2, 2]])
    >>> Measurement("north", sums).loss
    0.5
    """

    client: str
    statistics: Statistics

    @property
    def rows(self) -> float:
        """Number of rows."""
        return float(self.statistics.counts.sum())

    @property
    def loss(self) -> float:
        """Mean cross-entropy."""
        return self.statistics.mean_loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Where the run is, and what is known at the start of the round.

    Parameters
    ----------
    index, rounds : int
        This round, from 0, and their number.
    participants : tuple of str
        Clients taking part, in name order.
    plan : Plan
        The shared recipe's plan of this round; strategies change only what they must.
    rng : Generator
        Random stream of this round's server decisions.
    summary : Summary
        What was agreed before the first round.
    measurements : tuple of Measurement
        The participants' sums and counts at the server's weights w_t, if the card asks for them.
    decay : float
        This round's learning rate relative to the first round's: the shared schedule, for methods
        with a rate of their own.
    vectors : mapping
        Named server vectors (SCAFFOLD's c).
    doubted : mapping of str to float
        The loss to take instead of one that does not fit the others' (robust runs only).

    Examples
    --------
    >>> counts = {"north": np.array([[30.0, 10.0]]), "south": np.array([[50.0, 10.0]])}
    >>> this = Round(
    ...     index=0, rounds=40, participants=("north", "south"), measurements=(),
    ...     plan=Plan(epochs=2, batch_size=512), rng=np.random.default_rng(0),
    ...     summary=Summary(counts=counts, attributes=(), goal=Goal()),
    ... )
    >>> [job.client for job in this.jobs()]
    ['north', 'south']
    """

    index: int
    rounds: int
    participants: tuple[str, ...]
    plan: Plan
    rng: np.random.Generator
    summary: Summary
    measurements: tuple[Measurement, ...]
    decay: float = 1.0
    vectors: Mapping[str, np.ndarray] = field(default_factory=dict)
    doubted: Mapping[str, float] = field(default_factory=dict)

    def jobs(self, plan: Plan | None = None) -> list[Job]:
        """Return one job per participant, all with the same plan: the shared one by default."""
        return [Job(client=name, plan=plan or self.plan) for name in self.participants]

    def sgd(self, lr: float) -> Plan:
        """Return this round's plan with plain SGD that starts at rate `lr`.

        For methods whose mathematics divides updates by the local rate. Schedule and decay per
        step (rate · weight decay) stay those of the shared recipe.
        """
        shared, rate = self.plan.optimizer, lr * self.decay
        decay = shared.lr * shared.weight_decay / rate if rate else 0.0
        return replace(self.plan, optimizer=Optimizer(name="sgd", lr=rate, weight_decay=decay))

    @property
    def pooled(self) -> Statistics:
        """The sums over all measured clients."""
        return Statistics.total([m.statistics for m in self.measurements])

    @property
    def measured(self) -> dict[str, Measurement]:
        """The measurements by client."""
        return {m.client: m for m in self.measurements}

    def losses(self, reports: Reports) -> Floats:
        """Return L_k(w_t), the mean loss of each client that reported."""
        if not self.measurements:
            raise ConfigError(
                "the strategy reads losses that were not measured: give its card "
                'measures="participants"'
            )
        losses = {m.client: m.loss for m in self.measurements} | {**self.doubted}
        return np.array([losses[report.client] for report in reports])

    def shares(self, reports: Reports, weights: Weights = "size") -> Floats:
        """Return p_k of the reports: n_k/n over the clients that reported, or 1/K."""
        if weights == "uniform":
            return np.full(len(reports), 1 / len(reports))
        sizes = np.array([self.summary.rows(r.client) for r in reports], dtype=np.float64)
        return np.asarray(sizes / sizes.sum())


@dataclass(frozen=True, slots=True)
class Step:
    """The server's answer: w' = w − scale · Σ c_k g_k.

    Parameters
    ----------
    coefficients : ndarray (K,)
        c, aligned with the reports.
    state : mapping, optional
        The strategy's new state; None leaves it as `plan` returned it.
    scale : float
        Common factor.
    vectors : mapping of str to ndarray (K,)
        For each named server vector, the coefficients of the reports' control changes added to it.
    log : mapping
        What an auditor may want to see of this round: plain numbers and names.

    Examples
    --------
    >>> Step(np.array([0.25, 0.75]), log={"heard": "south"}).scale
    1.0
    """

    coefficients: Floats
    state: State | None = None
    scale: float = 1.0
    vectors: Mapping[str, Floats] = field(default_factory=dict)
    log: Mapping[str, Any] = field(default_factory=dict)


class Strategy:
    """A method: frozen hyper-parameters, three pure functions, no hidden state.

    Derive a frozen dataclass from it, give it a `card` (a class attribute, or a property where it
    depends on hyper-parameters) and a `combine`. A server rule is `combine` alone: by default
    nothing is remembered and every participant trains the shared plan from the server's weights.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class Median(Strategy):
    ...     card = Card(title="Only the client of median loss counts")
    ...
    ...     def combine(self, state, round, reports, gram):
    ...         middle = np.argsort(round.losses(reports))[len(reports) // 2]
    ...         return Step(np.eye(len(reports))[middle])
    """

    __slots__ = ()

    @property
    def card(self) -> Card:
        """What a reader and an engine should know about the method."""
        raise NotImplementedError(f"{type(self).__name__} has no card; add card = Card(title=…)")

    def __post_init__(self) -> None:
        """Check every hyper-parameter against the bounds of its `parameter`."""
        for f in fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            _check_bounds(f.name, getattr(self, f.name), f.metadata)

    def start(self, summary: Summary) -> State:
        """Return the state before the first round."""
        del summary
        return {}

    def plan(self, state: State, round: Round) -> tuple[State, list[Job]]:
        """Return what each participant trains, given the participants' measurements."""
        return state, round.jobs()

    def combine(self, state: State, round: Round, reports: Reports, gram: Gram) -> Step:
        """Return how much each report counts."""
        raise NotImplementedError(f"{type(self).__name__} has no combine")

    def between_rounds(self, epochs: int) -> Self:
        """Return the method with multipliers that never move inside a round of so many epochs.

        For clients that can train a plan but cannot move multipliers while they do.
        """
        del epochs
        return self


def parameter(
    default: Any,
    *,
    grid: tuple[Any, ...] | None = None,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
) -> Any:
    """Return a hyper-parameter's dataclass field: default, values worth trying, bounds.

    Parameters
    ----------
    grid : tuple, optional
        Values a tuner should try.
    least, above, most : float, optional
        The value must be at least, greater than, at most.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class Powered(Strategy):
    ...     q: float = parameter(1.0, grid=(0.1, 1.0), least=0)
    >>> Powered(q=-1)
    Traceback (most recent call last):
    ...
    mfairfl.errors.ConfigError: strategy.q must be at least 0, not -1
    """
    bounds = {"grid": grid, "least": least, "above": above, "most": most}
    metadata = {name: value for name, value in bounds.items() if value is not None}
    return field(default=default, metadata=metadata)


_BOUNDS = {
    "least": (operator.ge, "at least"),
    "above": (operator.gt, "greater than"),
    "most": (operator.le, "at most"),
}
"""What must hold of a value and its bound (nan fails all), and how messages say it."""


def _check_bounds(name: str, value: Any, bounds: Mapping[str, Any]) -> None:
    for kind, (holds, rule) in _BOUNDS.items():
        if kind in bounds and not holds(value, bounds[kind]):
            raise ConfigError(f"strategy.{name} must be {rule} {bounds[kind]}, not {value}")


def by_client(reports: Reports, values: Iterable[float]) -> dict[str, float]:
    """Return a number of each report by client, for logs."""
    return {report.client: float(x) for report, x in zip(reports, values, strict=True)}


def trial_jobs(
    strategy: Strategy,
    recipe: Recipe,
    attributes: tuple[Attribute, ...],
    goal: Goal,
    *,
    index: int = 0,
    rounds: int = 1,
) -> list[Job]:
    """Return what a strategy asks of a client in a round, as it plans for made-up counts.

    Only settings can be read from the jobs: their prices and multipliers mean nothing.
    """
    client, counts = "one", np.full((Cells(attributes).size, 2), 100.0)
    chance = Statistics(
        counts=counts, positives=counts / 2, scores=counts / 2, losses=counts * np.log(2)
    )
    summary = Summary(counts={client: counts}, attributes=attributes, goal=goal)
    trial = Round(
        index=index,
        rounds=rounds,
        participants=(client,),
        plan=recipe.plan(index, rounds),
        rng=stream(0),
        summary=summary,
        measurements=(Measurement(client, chance),),
        decay=recipe.decay(index, rounds),
    )
    return strategy.plan(strategy.start(summary), trial)[1]
