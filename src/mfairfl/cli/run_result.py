"""A finished run in the terminal: its numbers, clients and groups, and what they mean."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import typer

from mfairfl.cli.show import HINT, print_note, print_rows, print_table, print_text, print_worse
from mfairfl.display import Cell, DisplayTable, Head
from mfairfl.display.numbers import DECIMAL
from mfairfl.display.tables import Entry
from mfairfl.errors import ConfigError
from mfairfl.experiments.study_tables import short_name
from mfairfl.fairness.fitting import By
from mfairfl.fairness.measuring import has_noise_floor
from mfairfl.fairness.results import Measured, MetricTable, Slice
from mfairfl.glossary import explain
from mfairfl.report import comparison
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.record import RunRecord, ServedFacts

_OVERALL = ("accuracy", "balanced_accuracy", "roc_auc", "loss", "expected_calibration_error")
_LABELS = {"loss": "log-loss"}
_CLIENTS = ("client_accuracy_gap", "client_accuracy_std", "worst_client_accuracy")
_RATES = {
    "accuracy": "accuracy",
    "selected": "selection_rate",
    "true pos.": "true_positive_rate",
    "false pos.": "false_positive_rate",
    "base rate": "base_rate",
    "calib. error": "expected_calibration_error",
}


def print_run(record: RunRecord, folder: Path, *, as_json: bool) -> None:
    """Print a finished run: its run.json as it is, or its numbers and notes for a reader."""
    if as_json:
        typer.echo(record.to_json(), nl=False)
        return
    table = record.table(record.reported)
    # First of all: whatever makes the numbers below worth less than they look.
    warnings = [*record.warnings, record.served.note, *record.federation.warnings]
    for warning in filter(None, warnings):
        print_text(f"warning: {warning}")
    typer.echo(
        f"{record.strategy} on {record.data.name}, {record.rounds} rounds, seed {record.seed}; "
        f"favourable: {record.task.label} = {record.task.favourable}"
    )
    print_text(
        f"measured on {table.rows:,} {record.reported} rows of {len(table.clients)} clients "
        f"({group_sizes(table)})"
    )
    print_numbers(table, record.goal)
    _print_clients(table, record.goal)
    _print_groups(table)
    _print_cost(folder)
    typer.echo(f"served model: {_served(record.served)} (rule {record.served.rule})")
    print_note(_meaning(record.served.rule))
    for note in record.federation.notes:
        typer.echo(f"note: {note}")
    typer.echo(
        f"files: {folder}/ (run.json, rounds.csv, clients.csv, {', '.join(sorted(record.files))})"
    )
    typer.echo(f"next, the report: mfairfl report {shlex.quote(str(folder))}")
    print_text(HINT)


def _print_cost(folder: Path) -> None:
    """Print what fairness cost and what got worse, if a baseline was trained beside."""
    if RunDirectory(folder).baseline is None:
        return
    run, baseline = comparison.read_with_baseline([folder])
    changes = comparison.changes_between(baseline, run)
    print_text(comparison.cost_sentence(run, baseline, changes))
    worse = comparison.worsened_from(baseline, run)
    print_worse(comparison.worse_sentence(baseline, worse), worse or [])
    typer.echo(f"baseline: {baseline.path}/")


_THRESHOLDS: dict[By, str] = {
    "none": "one threshold for everyone",
    "group": "a threshold for each group",
    "client": "a threshold for each client",
    "both": "a threshold for each group of each client",
}


def _served(served: ServedFacts) -> str:
    """Describe whose model decides."""
    names = ", ".join(dict.fromkeys(served.names))
    if served.kind == "mixture":
        return f"{names}, one of them drawn at random for each decision"
    if served.kind == "ensemble":
        return f"{len(served.clients)} clients' own models, averaged, at {names}"
    if served.kind == "personal":
        return f"a model of its own for each of {len(served.clients)} clients, at {names}"
    if served.thresholds is None:
        return names
    whose = _THRESHOLDS["group" if served.fit is None else served.fit.by]
    return f"{names}, with {whose}"


def print_numbers(table: MetricTable, goal: Sequence[str] = ()) -> None:
    """Print the numbers of all rows, with intervals and noise floors."""
    rows: list[list[Entry]] = []
    undefined = []
    for name in _shown(table, goal):
        label = _LABELS.get(name, name)
        mark, aim = (" *", "the goal of this run: ") if name in goal else ("", "")
        head = Cell(label + mark, meaning=aim + _meaning(name))
        rows.append([head, *_cells(table[name]), DECIMAL.one(table.constant_classifier.get(name))])
        numbers = {label: table[name]}
        for section in table.sections if len(table.sections) > 1 else ():
            for number in section.measures:
                if number.name == name:
                    rows.append([f"  {section.attribute}", *_cells(number), ""])
                    numbers[f"{section.attribute}.{label}"] = number
        undefined += [(place, n.undefined) for place, n in numbers.items() if n.value is None]
    columns = [
        Head("number", numeric=False),
        Head("value", numeric=False),
        Head(f"{table.level:.0%} interval", "plausible values", numeric=False),
        Head("noise floor", "if exactly fair"),
        Head("constant classifier", "same for all"),
    ]
    print_table(DisplayTable(columns=columns, rows=rows))
    # Below the table: a reason is a sentence, too long for a cell.
    for place, reason in undefined:
        print_text(f"{place}: undefined ({reason})")


def _cells(number: Measured) -> list[str]:
    """Return value, interval and noise floor."""
    value = "undefined" if number.value is None else DECIMAL.one(number.value)
    return [value, _interval(number), DECIMAL.one(number.noise_floor)]


def _interval(number: Measured) -> str:
    return DECIMAL.span(number.interval) or "-"


def _shown(table: MetricTable, goal: Sequence[str]) -> list[str]:
    """Return the numbers that are shown: of the goal also difference and ratio."""
    names = list(_OVERALL)
    for name, measure in table.overall.items():
        notion, _, kind = name.rpartition("_")
        # A custom notion may not be registered here; its floor is recorded anyway.
        with_floor = measure.noise_floor is not None or has_noise_floor(name)
        if kind != "violation" or not (with_floor or name in goal):
            continue
        names += [name, *([f"{notion}_difference", f"{notion}_ratio"] if name in goal else [])]
    return [name for name in (*names, *_CLIENTS) if name in table.overall]


def _meaning(word: str) -> str:
    """Return what a word means as part of a line, without capital and full stop."""
    try:
        short = explain(word).short
    except ConfigError:  # of a notion that was registered where the run was made
        short = explain(word.rpartition("_")[2]).short
    return short[0].lower() + short[1:].rstrip(".")


def group_sizes(table: MetricTable) -> str:
    """Return the number of rows of each group.

    Examples
    --------
    >>> from mfairfl.fairness import MetricTable
    >>> rows = {"sensitive_features": {"sex": ["f"] + ["m"] * 1200}}
    >>> group_sizes(MetricTable.from_predictions([1] * 1201, [1] * 1201, **rows))
    'sex: f (1), m (1,200)'
    """
    return "; ".join(
        f"{section.attribute}: "
        + ", ".join(f"{group.name} ({group.rows:,})" for group in section.groups)
        for section in table.sections
    )


def _print_clients(table: MetricTable, goal: Sequence[str]) -> None:
    """Print a row for each client; one that lacks a group has no violation."""
    violations = {
        f"{short_name(name.removesuffix('_violation'))} violation *": name for name in goal
    }
    words = {"AUC": "roc_auc", "selected": "selection_rate", "base rate": "base_rate"}
    numbers = {"AUC": "roc_auc", **violations, **words}
    heads = ["client", "rows", "accuracy", "interval", *numbers]
    rows: list[list[Entry]] = []
    for client in table.clients:
        accuracy = client["accuracy"]
        rows.append([client.name, client.rows, DECIMAL.one(accuracy.value), _interval(accuracy)])
        rows[-1] += _values(client, numbers.values())
    _print_meanings(words)
    print_rows(heads, rows, numeric=[1, 2, *range(4, len(heads))])


def _print_groups(table: MetricTable) -> None:
    heads = ["attribute", "group", "rows", *_RATES]
    rows = [
        [section.attribute, group.name, group.rows, *_values(group, _RATES.values())]
        for section in table.sections
        for group in section.groups
    ]
    _print_meanings({word: _RATES[word] for word in ("true pos.", "false pos.", "calib. error")})
    print_rows(heads, rows, numeric=range(2, len(heads)))


def _values(part: Slice, names: Iterable[str]) -> list[Entry]:
    return [DECIMAL.one(part.get(name).value) for name in names]


def _print_meanings(words: Mapping[str, str]) -> None:
    """Print what the headings of a table mean: each with its word of the glossary."""
    for heading, word in words.items():
        print_note(f"{heading}: {_meaning(word)}")
