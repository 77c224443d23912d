"""What was done to the data before training, from the record and the encoder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mfairfl.data import MISSING, Encoder
from mfairfl.data.task import Bin, Sensitive, Task
from mfairfl.report.document import DataTreatment
from mfairfl.report.reported_run import ReportedRun
from mfairfl.runs.record import ClientFacts
from mfairfl.text import some_of

_MANY = 5  # values that a line names


def data_treatment(run: ReportedRun, encoder: Encoder | None) -> DataTreatment:
    """Put together who held what, and what was dropped, filled in or made one.

    Parameters
    ----------
    run : ReportedRun
        The run.
    encoder : Encoder, optional
        How its features became numbers; None if its file is gone.
    """
    record, facts = run.record, run.record.federation
    lines: dict[str, list[str]] = {"dropped": [], "filled": [], "merged": []}
    for one in facts.treatment:
        if one.kind in lines:
            lines[one.kind].append(one.line)
    said = {one.line for one in facts.treatment}
    ignored = [f"columns left out on request: {', '.join(record.task.ignore)}"]
    return DataTreatment(
        rows=record.data.rows,
        clients=[_client(run, client) for client in facts.clients],
        dropped=[*lines["dropped"], *ignored[: len(record.task.ignore)]],
        filled=[*lines["filled"], *_fillings(encoder)],
        merged=[*lines["merged"], *_groups(record.task), *_rare_levels(encoder)],
        notes=[note for note in facts.notes if note not in said],
        warnings=facts.warnings,
    )


def _client(run: ReportedRun, client: ClientFacts) -> dict[str, Any]:
    """Return a client's sizes; its base rate from the counts if its rows are elsewhere."""
    sizes = {"train": client.train, "validation": client.validation, "test": client.test}
    rows = sum(sizes.values()) if client.rows is None else client.rows
    rate = _counted_rate(run, client.name) if client.base_rate is None else client.base_rate
    return {"name": client.name, "rows": rows, **sizes, "base_rate": rate}


def _counted_rate(run: ReportedRun, name: str) -> float | None:
    favourable = rows = 0.0
    for tally in run.record.tallies.values():
        if name in tally.clients:
            labels = tally.counts[tally.clients.index(name)].sum(axis=(0, 2))
            favourable, rows = favourable + float(labels[1]), rows + float(labels.sum())
    return favourable / rows if rows else None


def _fillings(encoder: Encoder | None) -> Iterator[str]:
    """Say what a missing number becomes, where some are missing."""
    for column in encoder.numeric if encoder else ():
        if column.indicator:
            yield (
                f"column '{column.name}': a missing number becomes {column.mean:.6g}, the mean of "
                "the train rows, and an input of its own marks it"
            )


def _rare_levels(encoder: Encoder | None) -> Iterator[str]:
    """Say which categories share one input."""
    for column in encoder.categorical if encoder else ():
        if column.rare:
            named = some_of([f"'{level}'" for level in column.rare], _MANY)
            yield f"column '{column.name}': values in few rows are treated as one: {named}"


def _groups(task: Task) -> Iterator[str]:
    """Say which values form a group of a sensitive attribute."""
    for sensitive in task.sensitive:
        formed = [one for one in sensitive.bins if one.name != MISSING]
        if formed or sensitive.rest is not None:
            yield (
                f"sensitive attribute '{sensitive.name}': "
                f"{'; '.join([*map(_bin, formed), *_rest(sensitive)])}"
            )


def _bin(one: Bin) -> str:
    if one.values is not None:
        values = some_of([f"'{value}'" for value in one.values], _MANY)
        return f"'{one.name}' is {values}"
    low, high = one.min, one.max
    if low is None or high is None:
        return (
            f"'{one.name}' is up to {high:g}" if low is None else f"'{one.name}' is from {low:g}"
        )
    return f"'{one.name}' is {low:g} to {high:g}"


def _rest(sensitive: Sensitive) -> list[str]:
    return [] if sensitive.rest is None else [f"'{sensitive.rest}' is every other value"]
