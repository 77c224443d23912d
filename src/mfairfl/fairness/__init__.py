"""What is measured: fairness notions, tallies, metrics, their uncertainty and their limits."""

from mfairfl.fairness.cells import Cells, Grouping, Statistics
from mfairfl.fairness.constraints import Constraints
from mfairfl.fairness.frontier import FrontierPoint, frontier
from mfairfl.fairness.histogram import ScoreHistogram
from mfairfl.fairness.metrics import (
    UndefinedMetricWarning,
    accuracy,
    accuracy_parity_difference,
    accuracy_parity_loss_difference,
    accuracy_parity_ratio,
    balanced_accuracy,
    best_client_accuracy,
    client_accuracy_gap,
    client_accuracy_std,
    demographic_parity_difference,
    demographic_parity_ratio,
    equal_opportunity_difference,
    equalized_odds_difference,
    equalized_odds_ratio,
    f1,
    false_positive_rate,
    selection_rate,
    true_positive_rate,
    worst_client_accuracy,
)
from mfairfl.fairness.notions import NOTIONS, Event, Notion, notion
from mfairfl.fairness.summary import TallySummary, constant_classifier, summarise
from mfairfl.fairness.tally import Suppressed, Tally
from mfairfl.fairness.thresholds import Thresholds, fit_thresholds
from mfairfl.fairness.uncertainty import (
    Interval,
    Intervals,
    NoiseFloor,
    intervals,
    noise_floor,
    verdict,
)

__all__ = [
    "NOTIONS",
    "Cells",
    "Constraints",
    "Event",
    "FrontierPoint",
    "Grouping",
    "Interval",
    "Intervals",
    "NoiseFloor",
    "Notion",
    "ScoreHistogram",
    "Statistics",
    "Suppressed",
    "Tally",
    "TallySummary",
    "Thresholds",
    "UndefinedMetricWarning",
    "accuracy",
    "accuracy_parity_difference",
    "accuracy_parity_loss_difference",
    "accuracy_parity_ratio",
    "balanced_accuracy",
    "best_client_accuracy",
    "client_accuracy_gap",
    "client_accuracy_std",
    "constant_classifier",
    "demographic_parity_difference",
    "demographic_parity_ratio",
    "equal_opportunity_difference",
    "equalized_odds_difference",
    "equalized_odds_ratio",
    "f1",
    "false_positive_rate",
    "fit_thresholds",
    "frontier",
    "intervals",
    "noise_floor",
    "notion",
    "selection_rate",
    "summarise",
    "true_positive_rate",
    "verdict",
    "worst_client_accuracy",
]
