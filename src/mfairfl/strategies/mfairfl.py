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
   caused in the last round; then μ ← Σ (n_k/n) μ_k. [·] keeps |μ_j| n/n_{e,g} ≤ `prices.cap`.
3. Clients in ascending order of L_k; the ⌊βK + ½⌋ of lowest loss give way to every other client
   i ≠ k, in order, until cos(g_k, g_i) reaches the goal φ̂_ki (Algorithm 2, printed Eq. 17);
   φ̂ ← δφ̂ + (1 − δ)φ.
4. ḡ = Σ p_k g_k' rescaled to |Σ p_k g_k|; w_{t+1} = w_t − ḡ.

Deviations (each is a hyper-parameter):
- Multipliers are signed, driven by thresholded rates (`multiplier`, `prices.driven_by`): λ ≥ 0 on
  |d| can only grow and flips sign as a whole when d does, so it oscillates.
- Where errors of a group must rise, only false positives are priced (`prices.one_sided`); what
  pushes both labels of a group is bounded (`prices.shared_cap`).
- α follows from the tolerance; without one it is a standard error of the gap on the train rows.
- The constraint is on the pooled data (`scope`), counts are sent, a client is never adjusted
  against itself, goals are clipped to [`goals.floor`, `goals.cap`] when used, p_k = n_k/n
  (`weights`).
- `client_parity` > 0 adds the clients' own error gaps as further constraints.

`mfairfl-paper` is the literal reading: λ ≥ 0 on |d| of smooth rates, one full-batch gradient of
every client per server step, p_k = 1/K. Unless rounds are stated it takes 200 server steps, as
many as the paper's 10 rounds of 20 epochs, and serves the last model. It still deviates:
- λ, and what is priced, is kept at 0 or above: as printed, a negative λ would reward gaps.
- Goals are clipped to [0, .999] when used. The text asks for φ̂ ≥ 0, which its moving average does
  not give; at φ̂ = 1 the printed coefficient divides by 0.
- η = .3: the paper does not report its own, and with the rates of its Table S1 (.001 to .02) 200
  full-batch steps hardly leave the start. Nor does it report γ; .05 is of FPFL's grid.
- α is as above, counts are sent, and a client is never adjusted against itself.
"""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from mfairfl.errors import ConfigError
from mfairfl.fairness.cells import Statistics
from mfairfl.geometry.conflicts import Conflicts, diminish_conflicts, rescaling
from mfairfl.geometry.gram import Floats
from mfairfl.strategies import base
from mfairfl.strategies.base import Card, Gram, Round, State, Step, Strategy, Summary, parameter
from mfairfl.strategies.lagrangian import LITERAL_STEPS, Lagrangian
from mfairfl.training.plan import Controller, Job, Plan, Prices, Reports, adapted_gain, as_table

_ORDERS: dict[str, Any] = {"objective": "loss", "reversed-kept": "reversed"}
"""The order of targets, by the orders that say more than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goals:
    """The pairwise cosine goals φ̂.

    Parameters
    ----------
    floor, cap : float
        Range of the goals when used.
    convention : {"paper", "gradvac"}
        Whether δ weights the old or the new cosine in the moving average.
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    floor: float = 0.0
    cap: float = 0.9
    convention: Literal["paper", "gradvac"] = "paper"

    def __post_init__(self) -> None:
        if not -1 < self.floor <= self.cap < 1:
            raise ConfigError(
                "strategy.goals: −1 < floor ≤ cap < 1 must hold, not floor = "
                f"{self.floor} and cap = {self.cap}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MFairFL(Strategy):
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
    shrink : float
        Factor on a signed multiplier's step when its gap changes sign; it recovers by 1.2 per
        round, up to γ. 1 keeps the step.
    every : int
        Epochs between signed multipliers' steps inside a round; without effect if a round is not
        longer. The paper's multipliers move once per round.
    prices : Prices
        Which rates move the multipliers, and how multipliers become prices on rows.
    client_parity : float
        Multiplier step of the clients' error gaps; 0 leaves them unconstrained.
    beta, delta : float
        β, share of clients adjusted; δ, rate of the goals' moving average.
    goals : Goals
        Range and moving average of the cosine goals.
    order : {"loss", "objective", "reversed", "reversed-kept", "random", "fixed"}
        Order of the targets: ascending L_k; ascending J_k as it is trained at the start of the
        round; descending, random or client order, while who keeps the update still follows the
        losses; `reversed-kept` is descending for both.
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
    gamma: float = parameter(1.0, grid=(0.25, 0.5, 1.0, 2.0), least=0)
    damping: float = parameter(0.0, least=0)
    shrink: float = parameter(0.5, above=0, most=1)  # a step of 0 would never recover
    every: int = parameter(5, least=1)
    prices: Prices = field(default_factory=Prices)
    client_parity: float = parameter(0.0, least=0)
    beta: float = parameter(0.8, grid=(0.2, 0.4, 0.6, 0.8, 1.0), least=0, most=1)
    delta: float = parameter(0.1, grid=(0.001, 0.01, 0.1), least=0, most=1)
    goals: Goals = field(default_factory=Goals)
    order: Literal["loss", "objective", "reversed", "reversed-kept", "random", "fixed"] = "loss"
    descent_guard: bool = False
    weights: base.Weights = "size"
    update: Literal["local", "gradient"] = "local"
    eta: float = parameter(0.3, least=0)

    @property
    def card(self) -> Card:
        """The literal form takes gradients; a constraint can be switched off."""
        moving = self.constraint and self.update == "local" and self.multiplier == "signed"
        literal = self.update == "gradient" and self.multiplier == "paper"
        return Card(
            title="Fairness multipliers, conflict step",
            paper="Su et al. 2024",
            protects="groups and clients",
            needs="gram",
            reveals="individual",
            steps=self.update,
            server_steps=LITERAL_STEPS if literal else None,
            keeps=("multipliers",) if moving and self.scope == "local" else (),
            moves_every=self.every if moving and self.scope == "global" else None,
            constrained=self.constraint,
            output="last" if literal else None,
        )

    def __post_init__(self) -> None:
        """Check bounds, and what clients that keep their multipliers to themselves exclude."""
        Strategy.__post_init__(self)  # `super()` does not know a class with slots
        if not (self.constraint and self.scope == "local"):
            return
        # The server can neither damp nor rank by multipliers that it never sees.
        for name, needed in {"update": "local", "multiplier": "signed", "damping": 0.0}.items():
            value = getattr(self, name)
            if value != needed:
                raise ConfigError(
                    f"strategy.scope = 'local' needs strategy.{name} = {needed!r}, not {value!r}"
                )
        if self.order == "objective":
            raise ConfigError("strategy.scope = 'local' needs an order other than 'objective'")

    def between_rounds(self, epochs: int) -> Self:
        """Multipliers move inside a round only where it is longer than `every` epochs."""
        return replace(self, every=max(self.every, epochs))

    def start(self, summary: Summary) -> State:
        """All multipliers and goals start at 0."""
        count, names = len(summary.constraints), sorted(summary.counts)
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

    def plan(self, state: State, round: Round) -> tuple[State, list[Job]]:
        """Move the multipliers by the pooled gaps and price every client's rows (steps 1, 2)."""
        pricing = _Pricing(self, self._moved(state, round), round)
        return pricing.state, [
            Job(client=m.client, plan=pricing.plan(m)) for m in round.measurements
        ]

    def _moved(self, state: State, round: Round) -> State:
        law, pooled = self.law(round.summary), round.pooled
        clients, moved = [m.client for m in round.measurements], dict(state)
        if self.constraint and self.scope == "global":
            gaps = law.gaps(pooled)
            moved["gain"] = adapted_gain(state["gain"], gaps, state["gaps"], self.shrink)
            moved["gaps"] = gaps
            moved["multipliers"] = law.moved(state["multipliers"], pooled, moved["gain"])
            # Other clients' gap says nothing about what averaging did.
            followed = state["tracked_on"] == clients
            moved["shift"] = gaps - state["tracked"] if followed else np.zeros_like(gaps)
        if self.client_parity:
            rates = np.array([self._error(m.statistics) for m in round.measurements])
            index = [state["clients"].index(client) for client in clients]
            multipliers = state["client_multipliers"].copy()
            multipliers[index] += self.client_parity * (self._error(pooled) - rates)
            moved["client_multipliers"] = multipliers
        return moved

    def law(self, summary: Summary) -> Lagrangian:
        """Return how the group multipliers move and what they cost."""
        return Lagrangian.of(
            summary,
            gamma=self.gamma,
            damping=self.damping,
            multiplier=self.multiplier,
            pricing=self.prices,
        )

    def _error(self, statistics: Statistics) -> float:
        hard = self.prices.driven_by == "hard"
        chosen = statistics.positives if hard else statistics.scores
        wrong = chosen[:, 0] + statistics.counts[:, 1] - chosen[:, 1]
        return float(wrong.sum() / statistics.counts.sum())

    def combine(self, state: State, round: Round, reports: Reports, gram: Gram) -> Step:
        """Adjust, average and rescale the updates, in coefficients (steps 3, 4)."""
        p, scale = round.shares(reports, self.weights), 1.0
        if self.update == "gradient":
            scale = self.eta
        law = self.law(round.summary)
        log = law.log(state["multipliers"], round.pooled)
        after = dict(state)
        if self.scope == "global" and all(report.multipliers for report in reports):
            after |= _followed(state, law, round, reports)
        if not self.conflict:
            return Step(p, after, scale, log=log)
        names = [report.client for report in reports]
        index = np.ix_(*[[state["clients"].index(name) for name in names]] * 2)
        goals = state["goals"].copy()
        used = np.clip(goals[index], self.goals.floor, self.goals.cap)
        conflicts = self._conflicts(state, round, reports, gram, goals[index])
        goals[index] = conflicts.goals
        c = p  # exactly, where no client gave way
        if conflicts.conflicts.any():
            c = rescaling(gram, conflicts.coefficients, p) * conflicts.coefficients
        guarded = self.descent_guard and float(p @ gram @ c) <= 0
        log |= {**conflicts.log(gram, used, names), "guarded": guarded}
        return Step(p if guarded else c, {**after, "goals": goals}, scale, log=log)

    def _conflicts(
        self, state: State, round: Round, reports: Reports, gram: Gram, goals: Floats
    ) -> Conflicts:
        """Order the clients and turn those of low loss towards the others (Algorithm 2)."""
        ranks = round.losses(reports)
        if self.order == "objective":
            pricing, measured = _Pricing(self, state, round), round.measured
            ranks = np.array([pricing.objective(measured[report.client]) for report in reports])
        return diminish_conflicts(
            gram,
            ranks,
            goals,
            beta=self.beta,
            delta=self.delta,
            rng=round.rng,
            weights=round.shares(reports, self.weights),
            convention=self.goals.convention,
            goal_floor=self.goals.floor,
            goal_cap=self.goals.cap,
            order=_ORDERS.get(self.order, self.order),
            kept="order" if self.order == "reversed-kept" else "loss",
        )


def _followed(state: State, law: Lagrangian, round: Round, reports: Reports) -> dict[str, Any]:
    """Take over what the clients' controllers ended in: μ ← Σ (n_k/n) μ_k."""
    p = round.shares(reports)
    damping = law.signed(np.zeros_like(state["multipliers"]), round.pooled)
    return {
        # They started at the damped ones, μ + c·(n_e/n)·d.
        "multipliers": p @ np.array([r.multipliers for r in reports]) - damping,
        "tracked_on": [m.client for m in round.measurements],
        # Without the shift that was added: next round's shift is what averaging did anew.
        "tracked": p @ np.array([r.gaps for r in reports]) - state["shift"],
    }


class _Pricing:
    """What a round's multipliers mean for the rows of each client."""

    def __init__(self, rule: MFairFL, state: State, round: Round) -> None:
        self._rule, self.state, self._round = rule, state, round
        self._law, self._pooled = rule.law(round.summary), round.pooled

    def plan(self, m: base.Measurement) -> Plan:
        """Return the client's plan: prices in its tables, or a controller that moves them."""
        plan = self._round.plan
        controller = self._controller(m, plan.epochs)
        loss, score = self._tables(m, groups=controller is None)
        plan = replace(
            plan, controller=controller, loss_table=as_table(loss), score_table=as_table(score)
        )
        return plan.by_gradient() if self._rule.update == "gradient" else plan

    def objective(self, m: base.Measurement) -> float:
        """Return J_k as it is trained at the start of the round."""
        (loss, score), sums = self._tables(m, groups=True), m.statistics
        return float((loss * sums.losses + score * sums.scores).sum() / m.rows)

    def _tables(self, m: base.Measurement, *, groups: bool) -> tuple[Floats, Floats]:
        """Return A and B; `groups` says whether the group constraints are priced in them."""
        score = self._parity_price(m)
        loss = np.ones_like(score)
        if groups and self._rule.constraint and self._rule.scope == "global":
            signed = self._law.signed(self.state["multipliers"], self._pooled)
            on_score, on_loss = self._law.prices(signed, self._pooled.counts, self._scale(m))
            return loss + on_loss, score + on_score
        return loss, score

    def _scale(self, m: base.Measurement) -> float:
        """Return (n_k/n)/p_k."""
        if self._rule.weights == "size":
            return 1.0
        return float(len(self._round.measurements) * m.rows / self._pooled.counts.sum())

    def _parity_price(self, m: base.Measurement) -> Floats:
        """Return the price on σ of the clients' error gaps: u_k = Σ_j μ_j − μ_k n/n_k.

        The sum is over the clients whose rows make up n.
        """
        mu = dict(zip(self.state["clients"], self.state["client_multipliers"], strict=True))
        share, cap = m.rows / self._pooled.counts.sum(), self._rule.prices.counter_cap
        u = sum(mu[other.client] for other in self._round.measurements) - mu[m.client] / share
        u = float(np.clip(self._scale(m) * u, -cap, cap))
        # As for groups: where errors must rise, price false positives only.
        both = u > 0 or not self._rule.prices.one_sided
        return np.tile([u, -u if both else 0.0], (len(self._pooled.counts), 1))

    def _controller(self, m: base.Measurement, epochs: int) -> Controller | None:
        """Return the multipliers' moves inside the round, if there are any."""
        rule, law, goal = self._rule, self._law, self._round.summary.goal
        if not rule.constraint or rule.update == "gradient":
            return None
        every = min(rule.every, epochs)
        if rule.scope == "local":
            counts = m.statistics.counts
            return law.local_controller(goal, counts, every=every, shrink=rule.shrink)
        if rule.multiplier == "paper" or epochs <= rule.every:
            return None
        return Controller(
            goal=goal,
            multipliers=tuple(law.signed(self.state["multipliers"], self._pooled)),
            step=tuple(self.state["gain"] * law.steps(self._pooled.counts)),
            offset=tuple(law.gaps(self._pooled) + self.state["shift"]),
            every=every,
            relative=True,
            counts=as_table(self._pooled.counts),
            prices=rule.prices,
            scale=self._scale(m),
        )
