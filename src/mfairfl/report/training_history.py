"""How training went, round by round, from rounds.csv and clients.csv."""

import csv
import json
import math
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from mfairfl.data import SPLITS
from mfairfl.errors import RunDirectoryError
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.results import Number
from mfairfl.report.document import TrainingHistory
from mfairfl.report.reported_run import ReportedRun
from mfairfl.report.wording import known_notion, plain_name
from mfairfl.runs.history import number_in, read_rows
from mfairfl.runs.record import ServedFacts

HISTORY = ("rounds.csv", "clients.csv")
"""The files that training is read from."""

Rows = list[dict[str, str]]
# Whatever a file holds that no run wrote. UnicodeDecodeError is a ValueError.
_NOT_OURS = (AttributeError, csv.Error, KeyError, RecursionError, TypeError, ValueError)


def training_history(run: ReportedRun) -> TrainingHistory:
    """Read how training went; the history of a run without these files is empty."""
    rounds, clients = (run.path / name for name in HISTORY)
    if not (rounds.exists() or clients.exists()):
        return TrainingHistory()
    try:
        rows, client_rows = read_rows(rounds), read_rows(clients)
        numbers = [int(row["round"]) for row in rows]
        logs = [_log(row) for row in rows]
        return TrainingHistory(
            rounds=numbers,
            served=_served(run.record.served, numbers),
            curves=_curves(rows),
            multipliers=_multipliers(run, logs),
            conflicts=_conflicts(logs),
            coefficients=_coefficients(client_rows, numbers),
            set_aside=_set_aside(client_rows),
        )
    except _NOT_OURS as error:
        problem = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise RunDirectoryError(
            f"{rounds} or {clients.name}: not what a run writes ({problem}); restore it or train "
            "again"
        ) from None


def _log(row: Mapping[str, str]) -> dict[str, Any]:
    log = json.loads(row["log"]) if row.get("log") else {}
    if not isinstance(log, dict):
        raise TypeError("a log that is not a table")
    return log


def _served(served: ServedFacts, rounds: Sequence[int]) -> list[int]:
    """Return the rounds behind "round 22", "average 30" or "average of round 21 to round 40"."""
    spans = [[int(number) for number in re.findall(r"\d{1,9}", name)] for name in served.names]
    return [
        number
        for number in rounds
        if any(span and span[0] <= number <= span[-1] for span in spans)
    ]


def _curves(rows: Rows) -> dict[str, list[Number]]:
    names = [f"{split}_{measure}" for split in SPLITS for measure in ("accuracy", "violation")]
    return {
        name: [_finite(number_in(row[name])) for row in rows] for name in names if name in rows[0]
    }


def _multipliers(run: ReportedRun, logs: Sequence[Mapping[str, Any]]) -> dict[str, list[Number]]:
    """Return each constraint's multiplier by round; none for methods without."""
    by_round = [
        dict(zip(log["constraints"], log["multipliers"], strict=True))
        if {"constraints", "multipliers"} <= log.keys()
        else {}
        for log in logs
    ]
    names = list(dict.fromkeys(name for values in by_round for name in values))
    labels = _constraint_labels(run, names) if names else {}
    return {labels[name]: [_finite(values.get(name)) for values in by_round] for name in names}


def _conflicts(logs: Sequence[Mapping[str, Any]]) -> list[Number]:
    if not any("conflicts" in log for log in logs):
        return []
    return [_finite(log.get("conflicts")) for log in logs]


def _finite(value: Any) -> Number:
    is_number = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if is_number else None


def _constraint_labels(run: ReportedRun, names: Sequence[str]) -> dict[str, str]:
    """Turn "demographic_parity | all | sex | Female" into "sex Female", or more if need be."""
    cells = Cells(run.record.task.attributes)
    groups = {
        f"{grouping.name} | {group}": f"{grouping.name} {group}"
        for grouping in cells.groupings(intersections=True)
        for group in grouping.groups
    }
    parts = {name: [*name.split(" | ", 2), "", ""][:3] for name in names}
    several = len({notion for notion, _, _ in parts.values()}) > 1
    labels = {}
    for name, (notion, event, group) in parts.items():
        words = [groups.get(group, group.replace(" | ", " ")), _among(notion, event)]
        words += [plain_name(notion)] * several
        labels[name] = ", ".join(filter(None, words)) or name
    return labels if len(set(labels.values())) == len(labels) else {name: name for name in names}


def _among(notion: str, event: str) -> str:
    """Return among whom a notion compares groups in an event; empty if it has one event."""
    item = known_notion(notion)
    if item is None or len(item.events) == 1:
        return ""
    whom = {candidate.name: candidate.whom for candidate in item.events}
    return f"among {whom[event]}" if event in whom else event


def _coefficients(rows: Rows, rounds: Sequence[int]) -> dict[str, list[Number]]:
    """Return how much each client counted; None in rounds without its update."""
    coefficients = {
        (row["client"], int(row["round"])): _finite(number_in(row["coefficient"]))
        for row in rows
        if "coefficient" in row
    }
    clients = sorted({client for client, _ in coefficients})
    return {client: [coefficients.get((client, n)) for n in rounds] for client in clients}


def _set_aside(rows: Rows) -> list[str]:
    """Return whose answers were not used, why, and in which rounds."""
    rounds: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        if reason := row.get("set_aside", ""):
            rounds.setdefault((row["client"], reason), []).append(int(row["round"]))
    return [
        f"{client}: {reason} ({_ranges(numbers)})" for (client, reason), numbers in rounds.items()
    ]


def _ranges(rounds: Sequence[int]) -> str:
    """Write rounds as ranges.

    Examples
    --------
    >>> _ranges([3]), _ranges([1, 2, 3, 7])
    ('round 3', 'rounds 1 to 3, 7')
    """
    ranges = []
    for _, run in groupby(enumerate(sorted(rounds)), key=lambda place: place[1] - place[0]):
        numbers = [str(number) for _, number in run]
        ranges.append(" to ".join(dict.fromkeys((numbers[0], numbers[-1]))))
    return f"round{'s' * (len(rounds) > 1)} {', '.join(ranges)}"
