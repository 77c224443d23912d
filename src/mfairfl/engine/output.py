"""Which weights are the model: last, average, select, mixture or thresholds.

Candidates are the server's weights and their moving average (decay ½ per round) of the last half
of the rounds. Choosing needs pooled counts only, so it works across silos. No test row is ever
looked at.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mfairfl.data import Attribute, Split
from mfairfl.errors import ConfigError
from mfairfl.fairness.cells import Statistics
from mfairfl.fairness.constraints import Constraints
from mfairfl.fairness.fitting import Demand
from mfairfl.fairness.tally import Tally
from mfairfl.fairness.thresholds import Thresholds
from mfairfl.geometry.gram import Floats

ClientSums = Mapping[Split, Mapping[str, Statistics]]
"""For each split, each client's sums and counts under one weight vector."""

Rule = Literal["last", "average", "select", "mixture", "thresholds"]
RULES: tuple[Rule, ...] = get_args(Rule)

Kind = Literal["single", "mixture", "ensemble", "personal"]

AVERAGE_DECAY = 0.5
UNSETTLED = 3.0  # a violation so many times the tolerance, and the least one, is worth a word


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The output rule and how much violation a chosen model may show on the choosing rows.

    Parameters
    ----------
    rule : {"last", "average", "select", "mixture", "thresholds"}
        `last`: the final weights. `average`: the mean of the last half of the rounds' weights.
        `select`: the candidate of highest accuracy whose violation is at most `tolerance`, or of
        lowest violation if there is none. `mixture`: a random choice among candidates, with the
        probabilities of highest expected accuracy within `tolerance`. `thresholds`: the final
        weights, with the thresholds that answer `demand` best.
    tolerance : float
        Largest violation for `select`, `mixture` and `thresholds`.
    demand : Demand
        What `thresholds` are asked for beside the tolerance.
    """

    rule: Rule = "last"
    tolerance: float = 0.005
    demand: Demand = field(default_factory=Demand)

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance <= 1:
            raise ConfigError(f"output.tolerance must lie in [0, 1], not {self.tolerance}")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that may be served, with its pooled counts on the rows that choose."""

    name: str
    weights: np.ndarray
    statistics: Statistics


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The model that a run serves.

    Parameters
    ----------
    kind : {"single", "mixture", "ensemble", "personal"}
        One weight vector; a random choice among several (then tallies are expected counts); the
        mean of several members' probabilities; or one model for each client.
    members : ndarray (R, m)
        Weight vectors.
    weights : ndarray (R,)
        Probabilities of a mixture's members, shares of an ensemble's.
    names : tuple of str
        Where each member comes from, for example "round 37".
    clients : tuple of str
        Whose each member is, in an ensemble and where each client has its own; else empty.
    note : str
        What the rule found, in words; empty if there is nothing to say.
    thresholds : Thresholds, optional
        How scores become decisions; None decides at score ½.
    """

    kind: Kind
    members: np.ndarray
    weights: np.ndarray
    names: tuple[str, ...]
    clients: tuple[str, ...] = ()
    note: str = ""
    thresholds: Thresholds | None = None

    def tally(
        self, measured: Sequence[ClientSums], split: Split, attributes: Sequence[Attribute]
    ) -> Tally:
        """Return the model's tally: exact counts, or expected ones if it is randomised.

        `measured` holds the sums of each member of a mixture; of any other model, its own alone.
        """
        tallies = [Tally.from_statistics(sums[split], attributes) for sums in measured]
        if self.kind != "mixture":
            return tallies[0]
        counts = np.tensordot(self.weights, [tally.counts for tally in tallies], axes=1)
        return Tally(counts, tallies[0].clients, tallies[0].attributes)

    def decision_chance(
        self,
        z: Floats,
        cells: NDArray[np.intp] | None = None,
        owners: Sequence[str] | str | None = None,
        *,
        limit: float = 0.0,
    ) -> Floats:
        """Return each row's probability of a favourable decision; 0 or 1 unless it is drawn.

        Parameters
        ----------
        z : ndarray (n,), or (R, n) for a mixture
            The logits.
        cells : ndarray (n,), optional
            Each row's cell, where thresholds depend on groups.
        owners : sequence of str, or str, optional
            Each row's client, or that of all rows, where thresholds depend on clients.
        limit : float
            The logit above which other models decide favourably.

        Examples
        --------
        >>> two = Served(kind="mixture", members=np.zeros((2, 1)), weights=np.array([0.25, 0.75]),
        ...              names=("round 1", "round 2"))
        >>> two.decision_chance(np.array([[1.0, -1.0], [1.0, 2.0]])).tolist()
        [1.0, 0.75]
        """
        if self.kind == "mixture":
            return np.asarray(np.tensordot(self.weights, z > 0, axes=1))
        if self.thresholds is not None:
            return self.thresholds.positive_probability(z, cells, owners)
        return np.asarray(z > limit, dtype=np.float64)


def draw_decisions(chance: Floats, seed: int = 0) -> NDArray[np.int8]:
    """Return decisions with these probabilities of a favourable one, 1 = favourable.

    Examples
    --------
    >>> draw_decisions(np.array([0.0, 1.0])).tolist()
    [0, 1]
    """
    draws = np.random.default_rng(seed).random(len(chance))
    return np.asarray(draws < chance, dtype=np.int8)


def single(name: str, weights: np.ndarray, note: str = "") -> Served:
    """Return one weight vector as it is served."""
    return Served(
        kind="single",
        members=np.atleast_2d(weights),
        weights=np.ones(1),
        names=(name,),
        note=note,
    )


def choose(
    output: Output, last: Served, candidates: Sequence[Candidate], constraints: Constraints
) -> Served:
    """Apply the output rule; `last` is the final weights.

    Without candidates (in a run without rounds) every rule serves the last weights.
    """
    if output.rule in ("last", "thresholds") or not candidates:
        return last
    if output.rule == "average":
        rounds = _of_rounds(candidates)
        mean = np.mean(np.stack([c.weights for c in rounds]), axis=0, dtype=np.float64)
        name = f"average of {rounds[0].name} to {rounds[-1].name}"
        return single(name, np.asarray(mean, dtype=np.float32))
    # All candidates are counted on the same rows: undefined for one is undefined for all.
    if np.isnan(constraints.violation(candidates[0].statistics)):
        note = "the violation is undefined on these rows; the last is served"
        return replace(last, note=note)
    rule = _select if output.rule == "select" else _mixture
    served = rule(output.tolerance, candidates, constraints)
    notes = [served.note, _unsettled(output.tolerance, candidates, constraints)]
    return replace(served, note="; ".join(note for note in notes if note))


def _of_rounds(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that are the weights of a round, not an average of several."""
    return [c for c in candidates if c.name.startswith("round")]


def _unsettled(tolerance: float, candidates: Sequence[Candidate], constraints: Constraints) -> str:
    """Return a note if the last quarter of the rounds went in and out of the tolerance."""
    rounds = _of_rounds(candidates)
    late = rounds[len(rounds) // 2 :]
    violations = [constraints.violation(c.statistics) for c in late]
    if not late or max(violations) <= max(UNSETTLED * tolerance, UNSETTLED * min(violations)):
        return ""
    return (
        f"training had not settled: the models of {late[0].name} to {late[-1].name} violate "
        f"between {min(violations):.4f} and {max(violations):.4f}"
    )


def _select(tolerance: float, candidates: Sequence[Candidate], constraints: Constraints) -> Served:
    """Serve the most accurate within the tolerance, else the least violating; ties: the latest."""
    violations = [constraints.violation(c.statistics) for c in candidates]
    accuracies = [c.statistics.accuracy for c in candidates]
    within = [i for i, v in enumerate(violations) if v <= tolerance]
    if within:
        best = candidates[max(within, key=lambda i: (accuracies[i], i))]
        return single(best.name, best.weights)
    least = min(range(len(candidates)), key=lambda i: (violations[i], -accuracies[i], -i))
    note = (
        f"no model of the last rounds is within {tolerance:g}, the output rule's tolerance; the "
        f"one of lowest violation is served, {violations[least]:.4f}"
    )
    return single(candidates[least].name, candidates[least].weights, note)


def _mixture(
    tolerance: float, candidates: Sequence[Candidate], constraints: Constraints
) -> Served:
    """Maximise Σ π_r acc_r subject to |Σ π_r d_{r,j}| ≤ tolerance: gaps are linear in π."""
    from scipy.optimize import linprog  # noqa: PLC0415 - slow to load, rarely needed

    gaps = np.array([constraints.gaps(c.statistics) for c in candidates]).T
    gaps = gaps[~np.isnan(gaps).any(axis=1)]
    accuracies = np.array([c.statistics.accuracy for c in candidates])
    total = np.ones((1, len(candidates)))
    both = np.vstack([gaps, -gaps])
    bound = np.full(len(both), tolerance)
    answer = linprog(-accuracies, A_ub=both, b_ub=bound, A_eq=total, b_eq=[1.0])
    note = ""
    if answer.status == 2:  # infeasible: ask for the smallest violation instead
        cost = np.append(np.zeros(len(candidates)), 1.0)
        slack = np.hstack([both, -np.ones((len(both), 1))])
        answer = linprog(
            cost,
            A_ub=slack,
            b_ub=np.zeros(len(both)),
            A_eq=np.append(total, [[0.0]], axis=1),
            b_eq=[1.0],
        )
        note = f"no mixture is within the tolerance {tolerance:g}; served is the least violating"
    if answer.x is None:
        raise ConfigError(f"output rule 'mixture': the linear programme failed: {answer.message}")
    probability = np.maximum(answer.x[: len(candidates)], 0.0)
    drawn = [int(i) for i in np.flatnonzero(probability > 1e-9)]
    if len(drawn) == 1:
        return single(candidates[drawn[0]].name, candidates[drawn[0]].weights, note)
    return Served(
        kind="mixture",
        members=np.stack([candidates[i].weights for i in drawn]),
        weights=probability[drawn] / probability[drawn].sum(),
        names=tuple(candidates[i].name for i in drawn),
        note=note,
    )
