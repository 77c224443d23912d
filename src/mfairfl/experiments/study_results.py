"""What a study found: one row per run, and the tables and figures made from them."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from mfairfl.experiments import histories, study_tables
from mfairfl.experiments.figures import plot_client_bars, plot_pareto, save_figure
from mfairfl.experiments.study import Study, Trial
from mfairfl.experiments.study_tables import TableLayout
from mfairfl.experiments.tabulate import Published, tabulate
from mfairfl.fairness import frontier
from mfairfl.fairness.rates import decision_notions
from mfairfl.fairness.results import MetricTable
from mfairfl.files import write_atomically
from mfairfl.runs.outcome import nearly_constant
from mfairfl.runs.record import RunRecord
from mfairfl.runs.reference_records import ReferenceRecord
from mfairfl.text import formula_safe_frame, formula_unsafe, markdown_escaped

_OVERALL = ("accuracy", "balanced_accuracy", "true_positive_rate", "selection_rate")
_SCORES = ("roc_auc", "loss", "expected_calibration_error")  # not in records of earlier versions
_CLIENTS = ("client_accuracy_std", "client_accuracy_gap")
_WIDEST, _STEPS = 0.3, 61  # where a frontier line ends, and its points
_KINDS = ("svg", "png")
_TEXT = ("protocol", "data", "split", "strategy", "notion", "metric", "attribute", "mark")

PublishedFor = Callable[[TableLayout], Published]
"""Finds the published numbers of a table."""
Sections = Callable[[pd.DataFrame, TableLayout], Sequence[str]]
"""Writes further paragraphs for the Markdown page of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResult:
    """What a study found; `print` shows its main table.

    Parameters
    ----------
    folder : Path
        Where tables, figures and runs are.
    runs : DataFrame
        One row per run, and per pooled reference (`pooled_reference`): test metrics, noise
        floors, frontier, hyper-parameters, provenance. For curves, one row per round of each run.
    table : DataFrame
        One row per number of the table: mean, standard deviation and tests over seeds. For
        curves, the epochs that each method needs.
    text : str
        The main table.
    """

    folder: Path
    runs: pd.DataFrame
    table: pd.DataFrame
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedStudy:
    """A study whose runs and pooled references are all finished, with their records."""

    name: str
    study: Study
    runs: Sequence[tuple[Trial, RunRecord]]
    folder: Path
    references: Sequence[tuple[Trial, ReferenceRecord]]

    def layout(self) -> TableLayout:
        """Return how the study's table is laid out."""
        study = self.study
        cards = {trial.strategy: trial.config.strategy.create().card for trial, _ in self.runs}
        return TableLayout(
            name=self.name,
            title=study.title,
            strategies=study.labels,
            notions=study.notions,
            data=tuple(d.label for d in study.data),
            splits=study.splits,
            protocols=study.protocols,
            reference=study.tested_against,
            pooled_references=study.references,
            attributes={trial.data: _attributes(record) for trial, record in self.runs},
            # As in the paper: an ensemble of clients' models and pooled rows have no clients.
            without_clients=tuple(
                name
                for name, card in cards.items()
                if card.serves == "ensemble" or card.trains_on == "pooled"
            ),
        )

    def directory(self, trial: Trial) -> Path:
        """Return the run directory of a trial."""
        return trial.directory(self.folder / "runs")


def write_table(done: FinishedStudy, published: PublishedFor, sections: Sections) -> StudyResult:
    """Write rows, table and figures into the study's folder."""
    layout, folder = done.layout(), done.folder
    finished: list[tuple[Trial, RunRecord | ReferenceRecord]] = [*done.runs, *done.references]
    frame = pd.DataFrame([_row(trial, record) for trial, record in finished])
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(frame, folder / f"{done.name}-runs")
    long = tabulate(frame, layout, published(layout))
    for suffix, content in (
        ("md", study_tables.write_markdown(long, layout, sections=sections(long, layout))),
        ("csv", csv_of(long)),
        ("tex", study_tables.write_latex(long, layout)),
    ):
        write_atomically(folder / f"{done.name}.{suffix}", content.encode())
    for protocol, split in product(layout.protocols, layout.splits):
        _draw(done, frame, layout, protocol, split)
    return StudyResult(
        folder=folder, runs=frame, table=long, text=study_tables.write_text(long, layout)
    )


def write_curves(done: FinishedStudy) -> StudyResult:
    """Write every round's test numbers, their curves, and the epochs each method needs."""
    parts = [
        histories.read_history(done.directory(trial)).assign(**_place(trial))
        for trial, _ in done.runs
    ]
    history, folder, study = pd.concat(parts, ignore_index=True), done.folder, done.study
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(history, folder / f"{done.name}-rounds")
    data = [d.label for d in study.data]
    for protocol in study.protocols:
        figure = histories.plot_convergence(history, data=data, protocol=protocol)
        save_figure(figure, folder / f"{done.name}-{protocol}", kinds=_KINDS)
    epochs = histories.epochs_to_best(history)
    text = f"# {markdown_escaped(study.title)}\n\n{histories.write_epochs_markdown(epochs)}"
    write_atomically(folder / f"{done.name}.md", text.encode())
    write_atomically(folder / f"{done.name}.csv", csv_of(epochs).encode())
    return StudyResult(folder=folder, runs=history, table=epochs, text=text)


def _attributes(record: RunRecord | ReferenceRecord) -> tuple[str, ...]:
    return tuple(s.name or s.column for s in record.task.sensitive)


def _place(trial: Trial) -> dict[str, Any]:
    names = ("data", "split", "protocol", "strategy", "notion", "seed")
    return {name: getattr(trial, name) for name in names}


def _row(trial: Trial, record: RunRecord | ReferenceRecord) -> dict[str, Any]:
    test = record.table("test")
    return {
        **_place(trial),
        **_numbers(record, test),
        "constant_accuracy": _number(test.constant_classifier["accuracy"]),
        "pooled_reference": trial.pooled,
        # What makes good numbers doubtful.
        "unsettled": isinstance(record, RunRecord) and "settled" in record.served.note,
        "near_constant": nearly_constant(test),
        "hyper_parameters": _hyper_parameters(trial, record),
        "identity": record.identity,
        "data_sha256": record.data.sha256,
        "version": record.versions["mfairfl"],
    }


def _numbers(record: RunRecord | ReferenceRecord, test: MetricTable) -> dict[str, float]:
    """Return the numbers that a study shows of a model, by their columns."""
    train = record.table("train")
    # Those of losses have no floor.
    violations = [
        name for item in decision_notions() if (name := f"{item.name}_violation") in test.overall
    ]
    losses = [n for n in test.overall if n.endswith("_violation") and n not in violations]
    overall = (*_OVERALL, *violations, *losses, *_CLIENTS, "worst_client_accuracy", *_SCORES)
    numbers = {name: _number(test.get(name).value) for name in overall}
    for name in violations:
        numbers[f"largest_client_{name}"] = _largest_at_a_client(test, name)
    attributes = _attributes(record)
    if len(attributes) > 1:
        for name, attribute in product(violations, attributes):
            numbers[f"{name}[{attribute}]"] = _number(test.measures(attribute)[name].value)
    for name in (*violations, *_CLIENTS):
        numbers[f"floor_{name}"] = _number(test[name].noise_floor)
    for name in violations:
        # The best accuracy that any classifier could have at the run's own violations.
        notion = name.removesuffix("_violation")
        numbers[f"frontier_{name}"] = _best(record, notion, test[name].value)
    return numbers | {f"train_{n}": _number(train[n].value) for n in ("accuracy", *violations)}


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _largest_at_a_client(table: MetricTable, name: str) -> float:
    """Return the largest violation on one client's rows, of the clients that have every group."""
    values = [_number(client.get(name).value) for client in table.clients]
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def _best(record: RunRecord | ReferenceRecord, notion: str, bound: float | None) -> float:
    """Return the best accuracy on the test rows within a bound; nan if that is undefined."""
    bounds: dict[str, Any] = {notion: bound}
    return math.nan if bound is None else frontier(record.tallies["test"], **bounds).accuracy


def _hyper_parameters(trial: Trial, record: RunRecord | ReferenceRecord) -> str:
    """Return the settings needed to repeat the run, beside data, split, budget and seed."""
    if isinstance(record, ReferenceRecord):
        return json.dumps(record.settings, sort_keys=True)
    training, strategy = trial.config.training, trial.config.strategy
    settings = {
        "training": training.model_dump(mode="json", exclude={"rounds", "local_epochs"}),
        "strategy": strategy.model_dump(mode="json"),
    }
    return json.dumps(settings, sort_keys=True)


def _draw(
    done: FinishedStudy, frame: pd.DataFrame, layout: TableLayout, protocol: str, split: str
) -> None:
    """Draw accuracy against violation for each notion, the clients, the multipliers."""
    words = [done.name, *[split] * (len(layout.splits) > 1), protocol]

    def save(figure: Figure, what: str) -> None:
        save_figure(figure, done.folder / "-".join([*words, what]), kinds=_KINDS)

    for notion in layout.notions:
        figure = plot_pareto(
            frame,
            data=layout.data,
            split=split,
            protocol=protocol,
            notion=notion,
            frontiers=_frontiers(done, split, notion),
            reference=layout.reference,
            pooled=layout.pooled_references,
        )
        save(figure, study_tables.short_name(notion).lower())
    here = [
        (trial, record)
        for trial, record in done.runs
        if (trial.protocol, trial.split) == (protocol, split)
        and trial.notion in ("", *layout.notions[:1])
    ]
    clients = [
        {**_place(trial), "client": client.name, "accuracy": client["accuracy"].value}
        for trial, record in here
        for client in record.table("test").clients
    ]
    save(plot_client_bars(pd.DataFrame(clients)), "clients")
    multipliers = _multipliers(done, [trial for trial, _ in here], layout.reference)
    if len(multipliers):
        save(histories.plot_multipliers(multipliers), "multipliers")


def _multipliers(done: FinishedStudy, trials: Sequence[Trial], reference: str) -> pd.DataFrame:
    """Return the reference's multipliers over rounds, of each data set the first seed's."""
    firsts: dict[str, Trial] = {}
    for trial in trials:
        if trial.notion and trial.strategy == reference:
            firsts.setdefault(trial.data, trial)
    parts = [
        histories.multiplier_history(done.directory(trial)).assign(run=data)
        for data, trial in firsts.items()
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _frontiers(done: FinishedStudy, split: str, notion: str) -> dict[str, tuple[Any, Any]]:
    """Return each data set's best accuracy at every violation, on the first seed's rows."""
    bounds, frontiers = np.linspace(0, _WIDEST, _STEPS), {}
    for trial, record in done.runs:
        if trial.split == split and trial.data not in frontiers:
            best = [_best(record, notion, float(bound)) for bound in bounds]
            frontiers[trial.data] = (bounds, np.array(best))
    return frontiers


# ------------------------------------------------------------------ CSV and Parquet


def write_rows(frame: pd.DataFrame, path: Path) -> None:
    """Write CSV and Parquet, numbers in full; the same rows are the same bytes."""
    text = formula_safe_frame(frame).to_csv(index=False, lineterminator="\n")
    write_atomically(Path(f"{path}.csv"), text.encode())
    write_atomically(Path(f"{path}.parquet"), frame.to_parquet(index=False))


def csv_of(frame: pd.DataFrame) -> str:
    r"""Return a frame as CSV, numbers with six digits.

    Examples
    --------
    >>> csv_of(pd.DataFrame({"metric": ["accuracy"], "mean": [1 / 3], "std": [None]}))
    'metric,mean,std\naccuracy,0.333333,\n'
    """
    safe = formula_safe_frame(frame)
    return safe.to_csv(index=False, lineterminator="\n", float_format="%.6g")


def read_csv(path: Path) -> pd.DataFrame:
    """Read what `csv_of` returned: an empty notion, attribute or mark is text, not missing."""
    kinds = dict.fromkeys(_TEXT, str)
    frame = pd.read_csv(path, keep_default_na=False, na_values=[""], dtype=kinds)
    frame = frame.fillna(dict.fromkeys(_TEXT, ""))
    names = [name for name in _TEXT if name in frame.columns]
    return frame.assign(**{name: frame[name].map(formula_unsafe) for name in names})
