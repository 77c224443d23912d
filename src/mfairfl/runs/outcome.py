"""The record of a run as it is made: its identity at the start, numbers and warnings at the end.

Good fairness numbers can be worthless: a model that selects everyone, or guesses, violates no
notion. Such models are warned about before any number is shown, on the rows that are reported
(test rows if there are any), where intervals rule out chance:

* decisions that are nearly constant;
* a balanced accuracy that is not above ½ beyond its interval;
* an accuracy below that of the constant classifier. Among the rows that the two decide differently
  the model is then right less often than not (Wilson's interval of that share is below ½:
  McNemar's test). If the run is constrained and its scores tell the labels apart (the interval of
  ROC-AUC is above ½), accuracy was given up for the constraint; else training has failed.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING

import numpy as np

from mfairfl.data import Task
from mfairfl.engine.output import Output, Rule
from mfairfl.failpoints import failpoint
from mfairfl.fairness.fitting import FittedThresholds
from mfairfl.fairness.rates import pooled_table
from mfairfl.fairness.results import MetricTable
from mfairfl.fairness.tally import Tally
from mfairfl.fairness.uncertainty import wilson
from mfairfl.runs import record as facts
from mfairfl.runs.config import Config
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.stored_scores import scores_of

if TYPE_CHECKING:  # reading warnings needs no PyTorch
    from mfairfl.engine.loop import Result
    from mfairfl.engine.state import Setup
    from mfairfl.models import Model

_HARDLY = 0.001  # an excess that nobody would notice
NEAR_CONSTANT = 0.01  # a model that selects fewer (or all but fewer) hardly decides anything
_FEW = 100  # rows: below, an interval is wide whatever the model

_version = cache(metadata.version)  # parses a file: longer than a round of a small run


def library_versions(*libraries: str) -> dict[str, str]:
    """Return the versions of Python and of installed libraries."""
    return {"python": platform.python_version(), **{name: _version(name) for name in libraries}}


def started_record(
    config: Config, task: Task, federation: facts.FederationFacts, module: str | None = None
) -> facts.StartedRecord:
    """Return the record of a run that has not finished.

    `module` names the factory of a model that is code, and therefore not in the configuration.
    """
    settings = config.model_dump(mode="json")
    if module is not None:
        settings["model"] = {"kind": "module", "factory": module}
    # Rows in memory come with a task, a split and a seed that the configuration does not know.
    split = [federation.scheme, federation.seed, federation.options]
    rows = [federation.sha256, task.model_dump(mode="json"), *split, module]
    return facts.StartedRecord(
        status="running",
        identity=config.identity(json.dumps(rows, sort_keys=True)),
        config=settings,
        seed=config.seed,
        versions=library_versions("mfairfl", "torch", "numpy", "scipy", "pandas", "safetensors"),
        data=facts.DataFacts.of(federation),
        task=task,
        federation=federation,
    )


def finish_run(
    started: facts.StartedRecord,
    setup: Setup,
    model: Model,
    result: Result,
    *,
    timing: facts.Timing,
    directory: RunDirectory | None,
) -> facts.RunRecord:
    """Return the record of a finished run, written with its model if there is a directory."""
    failpoint("run.trained")
    files = {}
    if directory is not None:
        files = directory.write_model(result.served) | directory.write_scores(scores_of(result))
    served, output, training = result.served, setup.output, started.config["training"]
    tallies, tables = {}, {}
    for split in setup.splits:
        tallies[split] = served.tally(result.measured, split, setup.summary.attributes)
        tables[split] = MetricTable.from_tally(
            tallies[split],
            scores=result.scored[split],
            randomised=served.kind == "mixture",
            majority=tallies["train"],
        )
    stored = {split: dict(facts.StoredTable.of(table)) for split, table in tables.items()}
    parts = {
        part: {split: numbers[part] for split, numbers in stored.items()}
        for part in facts.StoredTable.model_fields
    }
    shown = facts.reported(tables)
    advice = AdviceSettings(
        constrained=setup.strategy.card.constrained or _chooses(output.rule),
        notions=tuple(item.name for item in setup.summary.constraints.notions),
        tolerance=output.tolerance,
    )
    left_out = [
        f"{client}: not in the final numbers ({reason})"
        for client, reason in sorted(result.left_out.items())
    ]
    record = facts.RunRecord(
        **dict(started) | {"status": "complete"} | parts,
        rounds=result.rounds,
        epochs_per_round=training["local_epochs"] * training["rounds"] // (setup.rounds or 1),
        model=facts.ModelFacts(**{"size": model.size, **model.describe()}),
        served=_served_facts(setup, result),
        warnings=[
            *model_warnings(tables[shown], tallies[shown], advice, rows=f"{shown} rows"),
            *_rule_warnings(output, result.fitted, blind=started.config["fairness"]["blind"]),
            *left_out,
            *result.warnings,
        ],
        tallies=tallies,
        timing=timing,
        machine=facts.MachineFacts.here(),
        files=files,
    )
    failpoint("run.served")
    if directory is not None:
        record.write(directory.path)
    return record


def _served_facts(setup: Setup, result: Result) -> facts.ServedFacts:
    """Return which weights are the model, and how their scores become decisions."""
    served, output, fitted = result.served, setup.output, result.fitted
    return facts.ServedFacts(
        kind=served.kind,
        names=served.names,
        clients=served.clients,
        weights=tuple(served.weights.tolist()),
        rule=output.rule,
        tolerance=output.tolerance,
        margin=setup.margin,
        dead_zone=setup.summary.goal.dead_zone,
        note=served.note,
        thresholds=None if served.thresholds is None else served.thresholds.to_json(),
        fit=None if fitted is None else facts.ThresholdFit.of(output.demand, fitted),
    )


# ------------------------------------------------------------------ warnings


def _rule_warnings(
    output: Output, fitted: FittedThresholds | None, *, blind: bool
) -> Iterator[str]:
    """Yield what a reader should know of the bounds that fitted thresholds were to meet."""
    if fitted is None:
        return
    if fitted.enlargement:
        yield (
            "no thresholds meet all that was asked for: every bound was enlarged by "
            f"{fitted.enlargement:.4f} (relax)"
        )
    if fitted.excess > _HARDLY:
        yield (
            "one threshold each cannot meet the bounds without a much less accurate model: one is "
            f"exceeded by {fitted.excess:.4f} on the rows they were fitted to; randomise = true "
            "(--randomise) meets all"
        )
    if blind and output.demand.reads_client:
        yield (
            "decisions are blind to the group, but read the client, which may stand for it where "
            "groups are spread unevenly over clients"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceSettings:
    """The settings of a run that advice depends on.

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

    @classmethod
    def of(cls, record: facts.RunRecord) -> AdviceSettings:
        """Return those of a finished run, as far as its record has them."""
        return cls(
            constrained=_chooses(record.served.rule),
            notions=tuple(record.config["fairness"]["notion"]),
            tolerance=record.served.tolerance,
        )


def _chooses(rule: Rule) -> bool:
    """Return whether an output rule gives up accuracy for fairness."""
    return rule not in ("last", "average")


def nearly_constant(table: MetricTable) -> bool:
    """Return whether almost everyone gets the same decision.

    Examples
    --------
    >>> [
    ...     nearly_constant(MetricTable.from_predictions([1, 0], decisions))
    ...     for decisions in ([0, 0], [1, 0])
    ... ]
    [True, False]
    """
    rate = table.get("selection_rate").value
    return rate is not None and not NEAR_CONSTANT <= rate <= 1 - NEAR_CONSTANT


def model_warnings(
    numbers: MetricTable, tally: Tally, settings: AdviceSettings, *, rows: str
) -> list[str]:
    """Return what makes the numbers of a model worthless, the worst first, and what to try next.

    Parameters
    ----------
    numbers
        The numbers.
    tally
        The counts they come from.
    settings
        Settings of the run.
    rows
        What the rows are called, for example ``test rows``.
    """
    lines = []
    if "finite" in numbers.get("loss").undefined:
        lines.append(
            "the loss of the served model is not a finite number: training diverged; lower "
            "training.lr"
        )
    table = pooled_table(tally.counts)
    balanced = numbers.get("balanced_accuracy").interval
    if nearly_constant(numbers):
        lines.append(
            "the model gives almost everyone the same decision: it selects "
            f"{table[:, 1].sum():,.0f} of {tally.n:,} {rows}, so low violations say nothing. "
            f"{_advice(numbers, settings)}"
        )
    elif balanced is not None and balanced[0] <= 0.5:
        few = f"; {tally.n} rows are also too few to be sure" if tally.n < _FEW else ""
        value = f"{numbers['balanced_accuracy'].value:.4f}"
        lines.append(
            "the model does no better than random guessing, as far as can be shown: balanced "
            f"accuracy {value} ({balanced[0]:.4f} to {balanced[1]:.4f}) on {tally.n:,} {rows}, so "
            f"low violations say little. {_advice(numbers, settings)}{few}"
        )
    elif _below_constant(numbers, table):
        lines.append(_price(numbers, settings, rows))
    return lines


def _below_constant(numbers: MetricTable, table: np.ndarray) -> bool:
    """Return whether the constant classifier is right more often, beyond chance."""
    majority = int(numbers.constant_classifier.get("selection_rate") == 1.0)
    decided_otherwise = table[:, 1 - majority]
    _, upper = wilson(decided_otherwise[1 - majority], decided_otherwise.sum())
    return bool(upper < 0.5)


def _price(numbers: MetricTable, settings: AdviceSettings, rows: str) -> str:
    """Return why accuracy may be below the constant classifier's."""
    accuracy, constant = numbers["accuracy"].value, numbers.constant_classifier["accuracy"]
    both = (
        f"accuracy {accuracy:.4f} on {rows} is below the {constant:.4f} of giving everyone the "
        "commoner label"
    )
    if settings.constrained and _ranks(numbers):
        return (
            f"{both}. That is the price of the constraint ({' and '.join(settings.notions)}), "
            f"not a failure of training: the scores tell the labels apart ({_area(numbers)}). A "
            f"larger tolerance (training aimed at {settings.tolerance:g}) or another notion costs "
            "less; strategy fedavg shows the accuracy without a constraint"
        )
    return f"{both}. {_advice(numbers, settings)}"


def _advice(numbers: MetricTable, settings: AdviceSettings) -> str:
    """Return what to try, by what the scores show."""
    if not _ranks(numbers):
        interval = numbers.get("roc_auc").interval
        fault = "do not tell the labels apart"
        if interval is not None and interval[1] < 0.5:
            fault = "rank the labels the wrong way round"
        return (
            f"Its scores {fault} ({_area(numbers)}): try more training.rounds or another "
            "training.lr, and check label and features with `mfairfl doctor`"
        )
    apart = f"Its scores do tell the labels apart ({_area(numbers)})"
    if settings.constrained:
        return (
            f"{apart}, so the constraint asks too much of the decisions: raise the tolerance "
            f"(training aimed at {settings.tolerance:g}) or choose another notion"
        )
    return (
        f"{apart}, but the threshold of ½ does not: try more training.rounds, check the balance "
        "of the labels, or decide by the scores at another threshold"
    )


def _ranks(numbers: MetricTable) -> bool:
    """Return whether scores are higher for favourable labels, beyond chance."""
    interval = numbers.get("roc_auc").interval
    return interval is not None and interval[0] > 0.5


def _area(numbers: MetricTable) -> str:
    area = numbers.get("roc_auc")
    if area.value is None or area.interval is None:
        return "ROC-AUC undefined"
    return f"ROC-AUC {area.value:.4f}, {area.interval[0]:.4f} to {area.interval[1]:.4f}"
