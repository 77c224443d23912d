"""FairFed: clients debias locally, and count less the further they are from the pooled fairness.

Y. H. Ezzeldin, S. Yan, C. He, E. Ferrara, A. S. Avestimehr: FairFed: Enabling Group Fairness in
Federated Learning. AAAI 2023.

Symbols: K clients with n_k of n rows; F_{e,g} the rate of group g in event e on the pooled rows,
F_{k,e,g} on client k's, all of thresholded decisions at w_t; Acc the pooled accuracy, Acc_k
client k's; w̄_k its weight, at first n_k/n; β the fairness budget.

Update, every round:
1. Clients train E epochs on their rows, weighted as `debias` says.
2. Δ_k = max over events and pairs of groups of |(F_{k,e,g} − F_{k,e,h}) − (F_{e,g} − F_{e,h})|, or
   |Acc_k − Acc| if the client has no pair of groups to compare.
3. w̄_k ← w̄_k − β (Δ_k − mean_j Δ_j).
4. w_{t+1} = w_t − Σ_k c_k g_k with c_k = max(w̄_k, 0) / Σ_j max(w̄_j, 0); n_k/n if all are 0.

For one attribute of two groups Δ_k is the paper's: |SPD_k − SPD| for demographic parity,
|EOD_k − EOD| for equal opportunity.

Local debiasing (several attributes add their deviations from 1):
- `"reweighting"`: a row of group g and label y weighs n_g n_y / (n n_{g,y}) by the client's own
  counts, whatever the notion (F. Kamiran, T. Calders: Data preprocessing techniques for
  classification without discrimination. 2012). It makes group and label independent in the
  training rows. Parity of decisions it cannot promise: they follow features in which the groups
  differ, and nothing feeds their rates back. On Adult it halves the gap, no more.
- `"fairbatch"`: a λ_k of the client's own, moved by its own gaps at w_t (`fairbatch`), so that the
  weights grow until the gap is gone.
- `"none"`: plain rows; β = 0 is then FedAvg. β alone moves the violation little where clients'
  gaps are much alike.

Deviations: w̄_k is kept as it is and clipped at 0 only where it is used (the paper says nothing of
negative weights); the mean of Δ is over the clients that take part; `debias` is FairBatch with
thresholded rates (`driven_by`) by default, as in `fedfb`.
"""

from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, Literal

import numpy as np

from mfairfl.fairness.cells import Statistics
from mfairfl.fairness.constraints import Constraints
from mfairfl.geometry.gram import Floats
from mfairfl.strategies.base import Card, Gram, Round, State, Step, Strategy, Summary, parameter
from mfairfl.strategies.fairbatch import Driver, FairBatch
from mfairfl.training.plan import Job, Reports, as_table


@dataclass(frozen=True, slots=True, kw_only=True)
class FairFed(Strategy):
    """Fairness-aware aggregation with local debiasing.

    Parameters
    ----------
    beta : float
        β, the fairness budget. It adds up over rounds: at β = 1 a client that is .01 further away
        than the mean loses a weight of .4 in 40 rounds, and small clients drop out for good.
    debias : {"reweighting", "fairbatch", "none"}
        How clients weigh their rows.
    step : float
        a of `debias = "fairbatch"`: λ_k moves by a/√t times the gap in round t.
    driven_by : {"rates", "loss"}
        Whether decisions or cross-entropies move λ_k.
    """

    beta: float = parameter(0.1, grid=(0.01, 0.05, 0.1, 1.0, 2.0, 5.0), least=0)
    debias: Literal["reweighting", "fairbatch", "none"] = "fairbatch"
    step: float = parameter(0.5, least=0)
    driven_by: Driver = "rates"

    card = Card(
        title="Clients count by gap, and debias",
        paper="Ezzeldin et al. 2023",
        protects="groups",
        constrained=True,
    )

    def start(self, summary: Summary) -> State:
        """w̄_k = n_k/n, kept as rows n·w̄_k; every client's rows weigh 1."""
        names = sorted(summary.counts)
        counts = [summary.counts[name] for name in names]
        rules = [FairBatch.of(summary, n, self.driven_by) for n in counts]
        return {
            "clients": names,
            # In rows: β = 0 then divides the very numbers that FedAvg does.
            "weights": np.array([n.sum() for n in counts], dtype=np.float64),
            "lambda": np.array([rule.masses() for rule in rules]),
        }

    def plan(self, state: State, round: Round) -> tuple[State, list[Job]]:
        """Every client weighs its rows by its own counts or its own gaps."""
        if self.debias == "none":
            return state, round.jobs()
        lam, jobs = np.array(state["lambda"]), []
        for m in round.measurements:
            counts = m.statistics.counts
            if self.debias == "fairbatch":
                k = state["clients"].index(m.client)
                rule = FairBatch.of(round.summary, counts, self.driven_by)
                lam[k] = rule.moved(lam[k], m.statistics, self.step / sqrt(round.index + 1))
                table = rule.weights(lam[k])
            else:
                table = reweighting(round.summary.constraints, counts)
            plan = replace(round.plan, loss_table=as_table(table))
            jobs.append(Job(client=m.client, plan=plan))
        return {**state, "lambda": lam}, jobs

    def combine(self, state: State, round: Round, reports: Reports, gram: Gram) -> Step:
        """Move w̄ by the clients' distance from the pooled fairness, then normalise it."""
        constraints, pooled = round.summary.constraints, round.pooled
        deltas = np.array(
            [distance(constraints, m.statistics, pooled) for m in round.measurements]
        )
        n, place = float(round.summary.pooled.sum()), state["clients"].index
        weights = state["weights"].copy()
        weights[[place(m.client) for m in round.measurements]] -= (
            self.beta * n * (deltas - deltas.mean())
        )
        used = np.maximum(weights[[place(r.client) for r in reports]], 0.0)
        total = float(used.sum())
        c = used / total if total > 0 else round.shares(reports)
        names = [m.client for m in round.measurements]
        log: dict[str, Any] = {
            "distances": dict(zip(names, deltas.tolist(), strict=True)),
            "weights": dict(zip(state["clients"], (weights / n).tolist(), strict=True)),
        }
        if self.debias == "fairbatch":
            log["constraints"] = [" | ".join(label) for label in constraints.labels]
            log["lambda"] = dict(zip(state["clients"], state["lambda"].tolist(), strict=True))
        return Step(c, state={**state, "weights": weights}, log=log)


def distance(constraints: Constraints, client: Statistics, pooled: Statistics) -> float:
    """Return Δ_k: how far a client's gaps between groups are from the pooled ones.

    Within an event, the largest |(F_{k,g} − F_{k,h}) − (F_g − F_h)| over pairs of groups is the
    range of F_{k,g} − F_g. Groups the client lacks are left out; without any pair left, the
    accuracies are compared.

    Examples
    --------
    >>> from mfairfl.data import Attribute
    >>> from mfairfl.fairness.constraints import Goal
    >>> constraints = Goal(notions=("dp",)).constraints((Attribute("sex", ("F", "M")),))
    >>> def decided(positives):
    ...     n = np.full((2, 2), 10.0)
    ...     return Statistics(counts=n, positives=positives, scores=n / 2, losses=n)
    >>> client, pooled = decided([[2, 6], [4, 8]]), decided([[3, 5], [2, 4]])
    >>> round(distance(constraints, client, pooled), 12)  # |(.4 − .6) − (.4 − .3)|
    0.3
    """
    shift = constraints.rates(client)[1] - constraints.rates(pooled)[1]
    blocks = [label[:3] for label in constraints.labels]
    spans = []
    for block in dict.fromkeys(blocks):
        inside = shift[[other == block for other in blocks]]
        defined = inside[~np.isnan(inside)]
        if defined.size > 1:
            spans.append(float(np.ptp(defined)))
    return max(spans) if spans else abs(client.accuracy - pooled.accuracy)


def reweighting(constraints: Constraints, counts: Floats) -> Floats:
    """Return n_g n_y / (n n_{g,y}) per (cell, label): group and label become independent.

    The n are those of the rows of which the attribute is recorded; the others weigh 1.

    Examples
    --------
    >>> from mfairfl.data import Attribute
    >>> from mfairfl.fairness.constraints import Goal
    >>> constraints = Goal().constraints((Attribute("sex", ("F", "M")),))
    >>> reweighting(constraints, np.array([[30.0, 10.0], [30.0, 30.0]])).tolist()
    [[0.8, 1.6], [1.2, 0.8]]
    """
    table = np.ones_like(counts)
    for grouping in constraints.groupings:
        groups = grouping.membership @ counts
        if not groups.any():  # the client has not recorded the attribute
            continue
        expected = groups.sum(axis=0) / groups.sum()
        independent = groups.sum(axis=1, keepdims=True) * expected
        weight = np.divide(independent, groups, out=np.ones_like(groups), where=groups > 0)
        table += grouping.membership.T @ (weight - 1)
    return np.maximum(table, 0.0)
