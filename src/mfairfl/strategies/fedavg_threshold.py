"""FedAvg with group thresholds: a strong baseline of group fairness.

M. Hardt, E. Price, N. Srebro: Equality of Opportunity in Supervised Learning. NeurIPS 2016; on a
federated average (McMahan et al., AISTATS 2017), fitted from counts that clients add up.

Symbols: z a person's logit under the final model, c its cell (the groups of all sensitive
attributes), θ_{c,r} thresholds with probabilities π_{c,r}.

Update: FedAvg. After the last round every client counts its training (or validation) rows by cell,
label and bin of the logit; the server adds the histograms and solves one linear programme:

  maximise   E[accuracy]   over π,   P(ŷ = 1 | z, c) = Σ_r π_{c,r} [z ≥ θ_{c,r}],
  subject to |F_e − F_{e,g}| ≤ tolerance for every event e and group g of the chosen notions.

Deviations: a fixed grid of 2,048 bins of the logit takes the place of the exact ROC curve, so that
histograms add up over clients; several notions and attributes are constraints of one programme;
accuracy parity of the error rate is supported, that of the loss is not (no threshold changes a
loss). Each group has one threshold, and a bound that this cannot meet may be exceeded, as the
record says; `output.randomise` draws decisions at random instead, as the paper does. Deciding
needs the person's group, as with every method whose model has the sensitive columns as inputs
(the default). It is the output rule `thresholds` with `by = "group"`.
"""

from dataclasses import dataclass

from mfairfl.strategies.base import Card
from mfairfl.strategies.fedavg import FedAvg


@dataclass(frozen=True, slots=True, kw_only=True)
class FedAvgThreshold(FedAvg):
    """FedAvg, served with a threshold for each group.

    The tolerance is the output rule's, as for every method.

    Parameters
    ----------
    weights : {"size", "uniform"}
        p_k = n_k/n or 1/K.
    """

    card = Card(
        title="FedAvg with a threshold per group",
        paper="Hardt et al. 2016",
        protects="groups",
        measures="none",
        output="thresholds",
        thresholds_by="group",
    )
