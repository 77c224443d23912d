"""FedFB: the server steers FairBatch's group weights from the clients' pooled sums.

Y. Zeng, H. Chen, K. Lee: Improving Fairness via Federated Learning. 2021 (arXiv 2110.15545).

Symbols: constraint j = (event e, group z) with its mass λ_j, at first p_j = n_{e,z}/n; A[c, y] the
weight of a row in cell c with label y that λ stands for; t = 1, 2, … the round; a the step.

Update, every round:
1. λ ← λ ± (a/√t) · (gap of each group at w_t, from pooled sums), within bounds; A from λ (the rule
   for each notion is in `fairbatch`).
2. nc_k = Σ_i A_i over client k's rows. It trains J_k = (1/nc_k) Σ_i A_i CE_i: A divided by the
   client's mean weight.
3. w_{t+1} = w_t − Σ_k c_k g_k with c_k = nc_k / Σ_j nc_j, so that Σ c_k J_k is the pooled weighted
   loss. λ = p (a = 0) is FedAvg.

`parity = "client"` makes the clients the groups: λ_k on the simplex, at first n_k/n, moved by the
client's loss (or error) above the overall one; c_k = λ_k / Σ_j λ_j and the plain loss.

Deviations:
- Several groups are compared with one another, not with group 0; several attributes add their
  deviations (`fairbatch`). For one attribute of two groups the rule is the paper's.
- Thresholded rates move λ (`driven_by`). The paper's cross-entropies (`"loss"`) come to rest where
  losses balance, and decisions need not: on Adult they leave ten times the violation.
- λ moves before the clients train, from sums at w_t, and stays put for gaps up to the run's
  tolerance α; the paper moves it afterwards and has no tolerance.
- Weights can shift mass between rows, not raise the errors of a group that is easy to predict:
  accuracy parity is out of reach where one group is (`results/group-fair.md`).
"""

from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, Literal

import numpy as np

from mfairfl.fairness.cells import Statistics
from mfairfl.geometry.gram import Floats
from mfairfl.strategies.base import Card, Gram, Round, State, Step, Strategy, Summary, parameter
from mfairfl.strategies.fairbatch import Driver, FairBatch, moves, with_sum
from mfairfl.training.plan import Job, Reports, as_table


@dataclass(frozen=True, slots=True, kw_only=True)
class FedFB(Strategy):
    """Group weights steered by the server.

    Parameters
    ----------
    step : float
        a: λ moves by a/√t times the gap in round t.
    driven_by : {"rates", "loss"}
        Whether thresholded decisions or, as in the paper, cross-entropies are compared.
    parity : {"group", "client"}
        Whether groups or clients are to fare alike.
    """

    step: float = parameter(0.5, grid=(0.001, 0.05, 0.08, 0.1, 0.2, 0.5, 1.0, 2.0), least=0)
    driven_by: Driver = "rates"
    parity: Literal["group", "client"] = "group"

    @property
    def card(self) -> Card:
        """Where clients are the groups, no group is constrained."""
        return Card(
            title="Row weights steered by the server",
            paper="Zeng et al. 2021",
            protects="groups or clients",
            constrained=self.parity == "group",
        )

    def start(self, summary: Summary) -> State:
        """Every row weighs 1."""
        names = sorted(summary.counts)
        rows = np.array([summary.counts[name].sum() for name in names])
        return {
            "lambda": self._rule(summary).masses(),
            "clients": names,
            "client_lambda": rows / rows.sum(),
        }

    def _rule(self, summary: Summary) -> FairBatch:
        return FairBatch.of(summary, summary.pooled, self.driven_by)

    def plan(self, state: State, round: Round) -> tuple[State, list[Job]]:
        """Move λ by the gaps at w_t and weigh every client's rows."""
        step, rule = self.step / sqrt(round.index + 1), self._rule(round.summary)
        if self.parity == "client":
            lam = self._client_lambda(state, round, step)
            return {**state, "client_lambda": lam}, round.jobs()
        lam = rule.moved(state["lambda"], round.pooled, step)
        table, jobs = rule.weights(lam), []
        for m in round.measurements:
            mean = float((table * m.statistics.counts).sum()) / m.rows
            # Where all rows weigh 0 the client counts for nothing, whatever it trains.
            scaled = as_table(table / mean if mean > 0 else table)
            jobs.append(Job(client=m.client, plan=replace(round.plan, loss_table=scaled)))
        return {**state, "lambda": lam}, jobs

    def combine(self, state: State, round: Round, reports: Reports, gram: Gram) -> Step:
        """c_k = nc_k / Σ nc_j over reports; nc_k = λ_k where clients are the groups."""
        if self.parity == "client":
            lam = dict(zip(state["clients"], state["client_lambda"].tolist(), strict=True))
            nc = np.array([lam[r.client] for r in reports])
            log: dict[str, Any] = {"lambda": lam}
        else:
            constraints, measured = round.summary.constraints, round.measured
            table = self._rule(round.summary).weights(state["lambda"])
            counts = [measured[r.client].statistics.counts for r in reports]
            nc = np.array([float((table * n).sum()) for n in counts])
            violation = constraints.violation(round.pooled)
            log = {
                "constraints": [" | ".join(label) for label in constraints.labels],
                "lambda": state["lambda"].tolist(),
                "loss_weights": table.tolist(),
                "violation_hard": None if np.isnan(violation) else violation,
            }
        total = float(nc.sum())
        return Step(nc / total if total > 0 else nc, log=log)

    def _client_lambda(self, state: State, round: Round, step: float) -> Floats:
        """Move λ_k by F_k − F; λ ≥ 0 keeps its sum, and absent clients keep theirs."""
        rows = [m.rows for m in round.measurements]
        q = np.array(rows) / sum(rows)
        rates = np.array([self._rate(m.statistics) for m in round.measurements])
        index = [state["clients"].index(m.client) for m in round.measurements]
        lam = np.array(state["client_lambda"])
        after = np.maximum(lam[index] + step * moves(rates - q @ rates, q), 0.0)
        lam[index] = with_sum(after, float(lam[index].sum()))
        return lam

    def _rate(self, statistics: Statistics) -> float:
        """Return F_k: the mean loss, or the share of wrong decisions."""
        wrong = statistics.losses
        if self.driven_by == "rates":
            chosen, n = statistics.positives, statistics.counts
            wrong = np.column_stack([chosen[:, 0], n[:, 1] - chosen[:, 1]])
        return float(wrong.sum() / statistics.counts.sum())
