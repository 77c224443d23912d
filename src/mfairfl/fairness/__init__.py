"""What is measured: fairness notions, tallies, metrics, their uncertainty and their limits."""

from mfairfl.fairness.cells import Cells, Grouping, Statistics
from mfairfl.fairness.constraints import Constraints
from mfairfl.fairness.frontier import FrontierPoint, frontier
from mfairfl.fairness.group_metrics import (
    accuracy_parity_difference,
    accuracy_parity_loss_violation,
    accuracy_parity_ratio,
    accuracy_parity_violation,
    demographic_parity_difference,
    demographic_parity_ratio,
    demographic_parity_violation,
    equal_opportunity_difference,
    equal_opportunity_ratio,
    equal_opportunity_violation,
    equalized_odds_difference,
    equalized_odds_ratio,
    equalized_odds_violation,
)
from mfairfl.fairness.histogram import ScoreHistogram
from mfairfl.fairness.metrics import (
    UndefinedMetricWarning,
    accuracy,
    balanced_accuracy,
    best_client_accuracy,
    client_accuracy_gap,
    client_accuracy_std,
    f1,
    false_positive_rate,
    selection_rate,
    true_positive_rate,
    worst_client_accuracy,
)
from mfairfl.fairness.notions import (
    NOTIONS,
    Event,
    Notion,
    available_notions,
    notion,
    register_notion,
)
from mfairfl.fairness.rates import constant_classifier
from mfairfl.fairness.results import Measured, MetricTable, Section, Slice
from mfairfl.fairness.scores import RowScores, ScoreSums
from mfairfl.fairness.tally import Suppressed, Tally
from mfairfl.fairness.thresholds import Thresholds, fit_thresholds
from mfairfl.fairness.uncertainty import Interval, verdict

__all__ = [
    "NOTIONS",
    "Cells",
    "Constraints",
    "Event",
    "FrontierPoint",
    "Grouping",
    "Interval",
    "Measured",
    "MetricTable",
    "Notion",
    "RowScores",
    "ScoreHistogram",
    "ScoreSums",
    "Section",
    "Slice",
    "Statistics",
    "Suppressed",
    "Tally",
    "Thresholds",
    "UndefinedMetricWarning",
    "accuracy",
    "accuracy_parity_difference",
    "accuracy_parity_loss_violation",
    "accuracy_parity_ratio",
    "accuracy_parity_violation",
    "available_notions",
    "balanced_accuracy",
    "best_client_accuracy",
    "client_accuracy_gap",
    "client_accuracy_std",
    "constant_classifier",
    "demographic_parity_difference",
    "demographic_parity_ratio",
    "demographic_parity_violation",
    "equal_opportunity_difference",
    "equal_opportunity_ratio",
    "equal_opportunity_violation",
    "equalized_odds_difference",
    "equalized_odds_ratio",
    "equalized_odds_violation",
    "f1",
    "false_positive_rate",
    "fit_thresholds",
    "frontier",
    "notion",
    "register_notion",
    "selection_rate",
    "true_positive_rate",
    "verdict",
    "worst_client_accuracy",
]
