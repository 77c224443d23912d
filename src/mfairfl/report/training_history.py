"""How training went, from rounds.csv and clients.csv, in the words of a report."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Mapping, Sequence
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
    """Read how training went; nothing is known of a run that keeps no history."""
    rounds, clients = (run.path / name for name in HISTORY)
    if not (rounds.exists() or clients.exists()):
        return TrainingHistory(
            rounds=[],
            served=[],
            curves={},
            multipliers={},
            conflicts=[],
            coefficients={},
            set_aside=[],
        )
    try:
        rows, held = read_rows(rounds), read_rows(clients)
        numbers = [int(row["round"]) for row in rows]
        logs = [_log(row) for row in rows]
        return TrainingHistory(
            rounds=numbers,
            served=_served(run.record.served, numbers),
            curves=_curves(run, rows),
            multipliers=_multipliers(run, logs),
            conflicts=_conflicts(logs),
            coefficients=_coefficients(held, numbers),
            set_aside=_set_aside(held),
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


def _served(served: ServedFacts, known: Sequence[int]) -> list[int]:
    """Return the rounds behind "round 22", "average 30" or "average of round 21 to round 40"."""
    found: set[int] = set()
    for name in served.names:
        ends = [int(number) for number in re.findall(r"\d{1,9}", name)]
        if ends:
            found |= {one for one in known if ends[0] <= one <= ends[-1]}
    return sorted(found)


def _curves(run: ReportedRun, rows: Rows) -> dict[str, list[Number]]:
    """Return accuracy and the goal's violation of each split; the worst notion's of several."""
    curves = {}
    for split in SPLITS:
        goal = [f"{split}_{name}" for name in run.aim.measures]
        named = [f"{split}_violation"] if f"{split}_violation" in rows[0] else goal
        columns = {"accuracy": [f"{split}_accuracy"], "violation": named}
        for what, sources in columns.items():
            if all(source in rows[0] for source in sources):
                values = [[_number(row[source]) for source in sources] for row in rows]
                curves[f"{split}_{what}"] = [_highest(each) for each in values]
    return curves


def _highest(values: Sequence[Number]) -> Number:
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


def _number(text: str) -> Number:
    value = number_in(text)
    return value if math.isfinite(value) else None


def _multipliers(run: ReportedRun, logs: Sequence[Mapping[str, Any]]) -> dict[str, list[Number]]:
    """Return each constraint's multiplier by round; none for methods without."""
    logged = [log for log in logs if "multipliers" in log and "constraints" in log]
    if not logged:
        return {}
    names = list(dict.fromkeys(name for log in logged for name in log["constraints"]))
    said = _constraint_words(run, names)
    found: dict[str, list[Number]] = {said[name]: [] for name in names}
    for log in logs:
        pairs = dict(zip(log.get("constraints", ()), log.get("multipliers", ()), strict=True))
        for name in names:
            found[said[name]].append(_plain(pairs.get(name)))
    return found


def _plain(value: Any) -> Number:
    known = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if known else None


def _constraint_words(run: ReportedRun, names: Sequence[str]) -> dict[str, str]:
    """Turn "demographic_parity | all | sex | Female" into "sex Female", or more if need be."""
    cells = Cells(run.record.task.attributes)
    groups = {
        f"{grouping.name} | {group}": f"{grouping.name} {group}"
        for grouping in cells.groupings(intersections=True)
        for group in grouping.groups
    }
    parts = {name: [*name.split(" | ", 2), "", ""][:3] for name in names}
    several = len({notion for notion, _, _ in parts.values()}) > 1
    found = {}
    for name, (notion, event, rest) in parts.items():
        words = [groups.get(rest, rest.replace(" | ", " "))]
        words += _among(notion, event)
        words += [plain_name(notion)] * several
        found[name] = ", ".join(filter(None, words)) or name
    return found if len(set(found.values())) == len(found) else {name: name for name in names}


def _among(notion: str, event: str) -> list[str]:
    item = known_notion(notion)
    if item is None or len(item.events) == 1:
        return []
    return [f"among {one.whom}" for one in item.events if one.name == event] or [event]


def _conflicts(logs: Sequence[Mapping[str, Any]]) -> list[Number]:
    if not any("conflicts" in log for log in logs):
        return []
    return [_plain(log.get("conflicts")) for log in logs]


def _coefficients(rows: Rows, rounds: Sequence[int]) -> dict[str, list[Number]]:
    """Return how much each client counted, None in rounds in which it did not."""
    known = {
        (row["client"], int(row["round"])): _number(row["coefficient"])
        for row in rows
        if "coefficient" in row
    }
    names = sorted({name for name, _ in known})
    return {name: [known.get((name, one)) for one in rounds] for name in names}


def _set_aside(rows: Rows) -> list[str]:
    """Say whose answers were not used, why, and in which rounds."""
    found: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        if why := row.get("set_aside", ""):
            found.setdefault((row["client"], why), []).append(int(row["round"]))
    return [f"{client}: {why} ({_rounds(in_)})" for (client, why), in_ in found.items()]


def _rounds(numbers: Sequence[int]) -> str:
    """Write rounds as ranges.

    Examples
    --------
    >>> _rounds([3]), _rounds([1, 2, 3, 7])
    ('round 3', 'rounds 1 to 3, 7')
    """
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    said = ", ".join(f"{r[0]} to {r[-1]}" if len(r) > 1 else f"{r[0]}" for r in ranges)
    return f"round{'s' * (len(numbers) > 1)} {said}"
