"""When good fairness numbers are worthless, and what to try next: said before any number.

A model that selects everyone, or decides by lot, violates no notion. What is looked at are the
rows that are reported, test rows if there are any; intervals tell chance apart:

* decisions that are nearly constant;
* a balanced accuracy that is not above ½ beyond its interval;
* an accuracy below that of the constant classifier. Among the rows that the two decide differently
  the model is then right less often than not (Wilson's interval of that share is below ½:
  McNemar's test). If the run is constrained and its scores tell the labels apart (the interval of
  ROC-AUC is above ½), accuracy was given up for the constraint; else training has failed.
"""

from __future__ import annotations

from dataclasses import dataclass

from mfairfl.fairness.rates import pooled_table
from mfairfl.fairness.tally import Tally
from mfairfl.fairness.uncertainty import wilson
from mfairfl.runs.record import Evaluation, Metrics, RunRecord

NEAR_CONSTANT = 0.01  # a model that selects fewer (or all but fewer) hardly decides anything
_FEW = 100  # rows: below, an interval is wide whatever the model


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a run was asked for, as far as advice depends on it.

    Attributes
    ----------
    constrained
        Whether training or the output rule gives up accuracy for fairness.
    notions
        Names of the notions whose violation was to be low.
    tolerance
        How low: `output.tolerance`.
    """

    constrained: bool
    notions: tuple[str, ...]
    tolerance: float


def asked_of(record: RunRecord) -> Asked:
    """Return what a finished run was asked for, as far as its record says."""
    return Asked(
        constrained=record.served.rule not in ("last", "average"),
        notions=tuple(record.config["fairness"]["notion"]),
        tolerance=record.served.tolerance,
    )


def nearly_constant(metrics: Metrics) -> bool:
    """Return whether nearly everyone gets the same decision.

    Examples
    --------
    >>> [nearly_constant(Metrics(selection_rate=rate)) for rate in (0.0, 0.2, 0.995)]
    [True, False, True]
    """
    rate = metrics.get("selection_rate")
    return rate is not None and not NEAR_CONSTANT <= rate <= 1 - NEAR_CONSTANT


def doubts(found: Evaluation, tally: Tally, asked: Asked, *, rows: str) -> list[str]:
    """Say what makes the numbers of a model worthless, the worst first; empty if nothing does.

    Parameters
    ----------
    found
        The numbers.
    tally
        The counts they come from.
    asked
        What the run was asked for.
    rows
        What the rows are called, for example ``test rows``.
    """
    lines = []
    if "finite" in found.metrics.undefined.get("loss", ""):
        lines.append(
            "the loss of the served model is not a finite number: training diverged; lower "
            "training.lr"
        )
    table = pooled_table(tally.counts)
    balanced = found.intervals.get("balanced_accuracy")
    if nearly_constant(found.metrics):
        lines.append(
            f"the model decides alike for nearly everyone: it selects {table[:, 1].sum():,.0f} of "
            f"{tally.n:,} {rows}, so low violations say nothing. {_advice(found, asked)}"
        )
    elif balanced is not None and balanced[0] <= 0.5:
        few = f"; {tally.n} rows are also few to tell by" if tally.n < _FEW else ""
        value = f"{found.metrics['balanced_accuracy']:.4f}"
        lines.append(
            "the model is not shown to decide better than by lot: balanced accuracy "
            f"{value} ({balanced[0]:.4f} to {balanced[1]:.4f}) on {tally.n:,} {rows}, so low "
            f"violations say little. {_advice(found, asked)}{few}"
        )
    elif _below_constant(found, tally):
        lines.append(_price(found, asked, rows))
    return lines


def _below_constant(found: Evaluation, tally: Tally) -> bool:
    """Whether the constant classifier is right more often, beyond chance."""
    majority = int(found.constant_classifier.get("selection_rate") == 1.0)
    other = 1 - majority
    decided_otherwise = pooled_table(tally.counts)[:, other]
    _, upper = wilson(decided_otherwise[other], decided_otherwise.sum())
    return bool(upper < 0.5)


def _price(found: Evaluation, asked: Asked, rows: str) -> str:
    """Say that accuracy is below the constant classifier's, and why."""
    ours, constant = found.metrics["accuracy"], found.constant_classifier["accuracy"]
    both = (
        f"accuracy {ours:.4f} on {rows} is below the {constant:.4f} of giving everyone the "
        "commoner label"
    )
    if asked.constrained and _ranks(found):
        return (
            f"{both}. That is the price of the constraint ({' and '.join(asked.notions)}), not a "
            f"failure of training: the scores tell the labels apart ({_area(found)}). A larger "
            f"output.tolerance (now {asked.tolerance:g}) or fairness.alpha, or another notion, "
            "costs less; strategy fedavg shows the accuracy without a constraint"
        )
    return f"{both}. {_advice(found, asked)}"


def _advice(found: Evaluation, asked: Asked) -> str:
    """Say what to try, by what the scores show."""
    if not _ranks(found):
        interval = found.intervals.get("roc_auc")
        fault = "do not tell the labels apart"
        if interval is not None and interval[1] < 0.5:
            fault = "rank the labels the wrong way round"
        return (
            f"Its scores {fault} ({_area(found)}): try more training.rounds or another "
            "training.lr, and check label and features with `mfairfl doctor`"
        )
    apart = f"Its scores do tell the labels apart ({_area(found)})"
    if asked.constrained:
        return (
            f"{apart}, so the constraint asks too much of the decisions: raise output.tolerance "
            f"(now {asked.tolerance:g}) or fairness.alpha, or choose another notion"
        )
    return (
        f"{apart}, but the threshold of ½ does not: try more training.rounds, check the balance "
        "of the labels, or decide by the scores at another threshold"
    )


def _ranks(found: Evaluation) -> bool:
    """Whether scores are higher for favourable labels, beyond chance."""
    interval = found.intervals.get("roc_auc")
    return interval is not None and interval[0] > 0.5


def _area(found: Evaluation) -> str:
    value, interval = found.metrics.get("roc_auc"), found.intervals.get("roc_auc")
    if value is None or interval is None:
        return "ROC-AUC undefined"
    return f"ROC-AUC {value:.4f}, {interval[0]:.4f} to {interval[1]:.4f}"
