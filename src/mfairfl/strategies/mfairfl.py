"""mFairFL: clients train under fairness multipliers, the server lessens their conflicts.

C. Su, G. Yu, J. Wang, H. Li, Q. Li, H. Yu: Multi-dimensional Fair Federated Learning. AAAI 2024.

Symbols: K clients with n_k of n rows, weights p_k; constraint j with signed gap
d_j = F_e − F_{e,g} and multiplier μ_j, tolerance α; client objective
J_k = mean over its rows of [A[c, y]·CE + B[c, y]·σ(z)] with prices A, B of the multipliers; update
g_k = w_t − w_k (or ∇J_k); L_k the client's loss at w_t; φ̂ the pairwise cosine goals.

Update, every round:
1. d from the clients' pooled counts at w_t; μ ← [μ + a γ (n_e/n) dead(d, α)]; prices from μ. The
   gain a_j ≤ 1 of a multiplier is halved when its gap changes sign and else recovers.
2. Clients train J_k for E epochs; every `every` epochs they follow the pooled gap on their own:
   μ_k ← [μ_k + a γ (n_e/n) dead(d + (d_k − d_k(w_t)) + b, α)], with b the shift that averaging
   caused in the last round; then μ ← Σ (n_k/n) μ_k. [·] keeps |μ_j| n/n_{e,g} ≤ `price_cap`.
3. Clients in ascending order of L_k; the ⌊βK + ½⌋ of lowest loss give way to every other client
   i ≠ k, in order, until cos(g_k, g_i) reaches the goal φ̂_ki (Algorithm 2, printed Eq. 17);
   φ̂ ← δφ̂ + (1 − δ)φ.
4. ḡ = Σ p_k g_k' rescaled to |Σ p_k g_k|; w_{t+1} = w_t − ḡ.

Deviations (each is a hyper-parameter; `mfairfl-paper` is the literal reading):
- Multipliers are signed, driven by thresholded rates (`multiplier`, `driven_by`): λ ≥ 0 on |d| can
  only grow and flips sign as a whole when d does, so it oscillates.
- Where errors of a group must rise, only false positives are priced (`one_sided`).
- The constraint is on the pooled data (`scope`), counts are sent, a client is never adjusted
  against itself, goals are clipped to [`goal_floor`, `goal_cap`] when used, p_k = n_k/n
  (`weights`).
- `client_parity` > 0 adds the clients' own error gaps as further constraints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from mfairfl.errors import ConfigError
from mfairfl.fairness.cells import Statistics
from mfairfl.fairness.constraints import Constraints
from mfairfl.geometry.conflicts import diminish_conflicts, rescaling
from mfairfl.strategies.base import Card, Context, Measurement, State, Step, Summary, shares
from mfairfl.strategies.lagrangian import Lagrangian, pooled
from mfairfl.strategies.logs import conflict_log, fairness_log
from mfairfl.strategies.pricing import Pricing
from mfairfl.training.controller import adapted
from mfairfl.training.plan import Job, Plan, Report

__all__ = ["MFairFL"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class MFairFL:
    """Fairness multipliers and conflict surgery.

    Parameters
    ----------
    constraint, conflict : bool
        Switch off the group constraint, or the conflict step, to see what the other does.
    multiplier : {"signed", "paper"}
        Two-sided multipliers, or the paper's λ ≥ 0 on |d|.
    scope : {"global", "local"}
        Constrain the pooled data, or each client's own.
    gamma : float
        γ, the multiplier step of a round.
    damping : float
        c: prices use μ + c·(n_e/n)·d, with d at the start of the round (a quadratic penalty's
        gradient); for the paper's multipliers max(0, λ + c(|d| − α)).
    driven_by : {"hard", "smooth"}
        Whether thresholded or smooth rates move the multipliers; weights always follow the smooth.
    one_sided : bool
        Price only false positives where errors must rise.
    price_cap, counter_cap : float
        Bounds of prices that push rows towards their label, and away from it; signed multipliers
        of decisions stay within what a price may show.
    shrink : float
        Factor on a signed multiplier's step when its gap changes sign; it recovers by 1.2 a round
        up to γ. 1 keeps the step.
    every : int
        Epochs between signed multipliers' steps inside a round; without effect if a round is not
        longer. The paper's multipliers move once a round.
    client_parity : float
        Multiplier step of the clients' error gaps; 0 leaves them unconstrained.
    beta, delta : float
        β, share of clients adjusted; δ, rate of the goals' moving average.
    convention : {"paper", "gradvac"}
        Whether δ weights the old or the new cosine.
    order : {"loss", "reversed", "random", "fixed"}
        Order of the targets.
    kept : {"loss", "order"}
        Whether who keeps the update follows the losses or the order.
    ordering : {"loss", "objective"}
        Order by L_k, or by J_k as it is trained at the start of the round.
    goal_floor, goal_cap : float
        Range of the cosine goals when used.
    descent_guard : bool
        Fall back to the plain average where the step would not descend along it.
    weights : {"size", "uniform"}
        p_k = n_k/n or 1/K.
    update : {"local", "gradient"}
        E local epochs, or one full-batch gradient per client and server step.
    eta : float
        Server step of `update = "gradient"`.
    """

    constraint: bool = True
    conflict: bool = True
    multiplier: Literal["signed", "paper"] = "signed"
    scope: Literal["global", "local"] = "global"
    gamma: float = field(default=1.0, metadata={"grid": (0.25, 0.5, 1.0, 2.0)})
    damping: float = 0.0
    driven_by: Literal["hard", "smooth"] = "hard"
    one_sided: bool = True
    price_cap: float = 20.0
    counter_cap: float = 5.0
    shrink: float = 0.5
    every: int = 5
    client_parity: float = 0.0
    beta: float = field(default=0.8, metadata={"grid": (0.2, 0.4, 0.6, 0.8, 1.0)})
    delta: float = field(default=0.1, metadata={"grid": (0.001, 0.01, 0.1)})
    convention: Literal["paper", "gradvac"] = "paper"
    order: Literal["loss", "reversed", "random", "fixed"] = "loss"
    kept: Literal["loss", "order"] = "loss"
    ordering: Literal["loss", "objective"] = "loss"
    goal_floor: float = 0.0
    goal_cap: float = 0.9
    descent_guard: bool = False
    weights: Literal["size", "uniform"] = "size"
    update: Literal["local", "gradient"] = "local"
    eta: float = 0.3

    card: ClassVar[Card] = Card(
        title="Fairness multipliers, conflict step",
        paper="Su et al. 2024",
        protects="groups and clients",
        needs="gram",
        reveals="individual",
        constrained=True,
    )

    def __post_init__(self) -> None:
        for name in ("gamma", "damping", "client_parity", "price_cap", "counter_cap", "eta"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"strategy.{name} must be at least 0, not {getattr(self, name)}")
        if self.every < 1:
            raise ConfigError(f"strategy.every must be at least 1, not {self.every}")
        for name in ("beta", "delta"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"strategy.{name} must lie in [0, 1], not {getattr(self, name)}")
        if not 0 < self.shrink <= 1:  # a step of 0 would never recover
            raise ConfigError(f"strategy.shrink must lie in (0, 1], not {self.shrink}")
        if not -1 < self.goal_floor <= self.goal_cap < 1:
            raise ConfigError(
                "strategy.goal_floor and strategy.goal_cap: −1 < floor ≤ cap < 1 must hold, not "
                f"{self.goal_floor} and {self.goal_cap}"
            )
        if self.constraint and self.scope == "local":
            self._check_local_scope()

    def _check_local_scope(self) -> None:
        """Clients keep their multipliers to themselves: the server can neither damp nor rank."""
        needed = {"update": "local", "multiplier": "signed", "damping": 0.0, "ordering": "loss"}
        for name, value in needed.items():
            if getattr(self, name) != value:
                raise ConfigError(
                    f"strategy.scope = 'local' needs strategy.{name} = {value!r}, "
                    f"not {getattr(self, name)!r}"
                )

    def start(self, summary: Summary) -> State:
        """All multipliers and goals start at 0."""
        count, names = len(_constraints(summary)), sorted(summary.counts)
        return {
            "multipliers": np.zeros(count),
            "gain": np.ones(count),
            "gaps": np.zeros(count),
            "tracked": np.zeros(count),
            "tracked_on": [],
            "shift": np.zeros(count),
            "clients": names,
            "client_multipliers": np.zeros(len(names)),
            "goals": np.zeros((len(names), len(names))),
        }

    def plan(
        self, state: State, context: Context, measurements: Sequence[Measurement]
    ) -> tuple[State, list[Job]]:
        """Move the multipliers by the pooled gaps and price every client's rows."""
        law, whole = self._law(context.summary), pooled(measurements)
        names = [m.client for m in measurements]
        moved = dict(state)
        if self.constraint and self.scope == "global":
            gaps = law.gaps(whole)
            moved["gain"] = adapted(state["gain"], gaps, state["gaps"], self.shrink)
            moved["gaps"] = gaps
            moved["multipliers"] = law.moved(state["multipliers"], whole, moved["gain"])
            # The gap of other clients is no news about what averaging did.
            followed = state["tracked_on"] == names
            moved["shift"] = gaps - state["tracked"] if followed else np.zeros_like(gaps)
        if self.client_parity:
            rates = np.array([self._error(m.statistics) for m in measurements])
            index = [state["clients"].index(name) for name in names]
            moved["client_multipliers"] = state["client_multipliers"].copy()
            moved["client_multipliers"][index] += self.client_parity * (self._error(whole) - rates)
        pricing = Pricing(self, law, context.summary.goal, moved, whole, names)
        return moved, [self._job(m.client, pricing.plan(m, context.plan)) for m in measurements]

    def combine(
        self,
        state: State,
        context: Context,
        measurements: Sequence[Measurement],
        reports: Sequence[Report],
        gram: NDArray[np.float64] | None,
    ) -> Step:
        """Return the coefficients of the adjusted, averaged and rescaled updates."""
        if gram is None:
            raise ValueError("mfairfl needs the Gram matrix of the updates")
        p, names = shares(measurements, reports, self.weights), [r.client for r in reports]
        law, whole = self._law(context.summary), pooled(measurements)
        measured = [m.client for m in measurements]
        pricing = Pricing(self, law, context.summary.goal, state, whole, measured)
        scale = self.eta if self.update == "gradient" else 1.0
        log = fairness_log(state, law, whole)
        followed = dict(state)
        if self.scope == "global" and all(report.multipliers for report in reports):
            followed |= _followed(state, law, measurements, reports)
        if not self.conflict:
            return Step(coefficients=p, state=followed, scale=scale, log=log)
        index = np.ix_(*[[state["clients"].index(name) for name in names]] * 2)
        used = np.clip(state["goals"][index], self.goal_floor, self.goal_cap)
        known = {m.client: m for m in measurements}
        found = diminish_conflicts(
            gram,
            [pricing.rank(known[name]) for name in names],
            state["goals"][index],
            beta=self.beta,
            delta=self.delta,
            order=self.order,
            rng=context.rng,
            weights=p,
            convention=self.convention,
            kept=self.kept,
            goal_floor=self.goal_floor,
            goal_cap=self.goal_cap,
        )
        goals = state["goals"].copy()
        goals[index] = found.goals
        c = p  # exactly, where nobody gave way
        if found.conflicts.any():
            c = rescaling(gram, found.coefficients, p) * found.coefficients
        guarded = self.descent_guard and float(p @ gram @ c) <= 0
        return Step(
            coefficients=p if guarded else c,
            state={**followed, "goals": goals},
            scale=scale,
            log={**log, **conflict_log(found, gram, used, names), "guarded": guarded},
        )

    def _law(self, summary: Summary) -> Lagrangian:
        return Lagrangian(
            constraints=_constraints(summary),
            alpha=summary.goal.alpha,
            gamma=self.gamma,
            damping=self.damping,
            multiplier=self.multiplier,
            driven_by=self.driven_by,
            one_sided=self.one_sided,
            price_cap=self.price_cap,
            counter_cap=self.counter_cap,
        )

    def _error(self, statistics: Statistics) -> float:
        chosen = statistics.positives if self.driven_by == "hard" else statistics.scores
        wrong = chosen[:, 0] + statistics.counts[:, 1] - chosen[:, 1]
        return float(wrong.sum() / statistics.counts.sum())

    def _job(self, client: str, plan: Plan) -> Job:
        if self.update == "gradient":
            plan = replace(plan, optimizer=replace(plan.optimizer, name="gradient"))
        return Job(client=client, plan=plan)


def _constraints(summary: Summary) -> Constraints:
    return summary.goal.constraints(summary.attributes)


def _followed(
    state: State,
    law: Lagrangian,
    measurements: Sequence[Measurement],
    reports: Sequence[Report],
) -> dict[str, Any]:
    """Take over what the clients' controllers ended in: μ ← Σ (n_k/n) μ_k."""
    p = shares(measurements, reports, "size")
    damping = law.signed(np.zeros_like(state["multipliers"]), pooled(measurements))
    return {
        # They started at the damped ones, μ + c·(n_e/n)·d.
        "multipliers": p @ np.array([r.multipliers for r in reports]) - damping,
        "tracked_on": [m.client for m in measurements],
        # Without the shift that was added: next round's shift is what averaging did anew.
        "tracked": p @ np.array([r.gaps for r in reports]) - state["shift"],
    }
