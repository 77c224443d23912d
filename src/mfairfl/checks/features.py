"""Findings about a table's features, alone and between clients: what `init` and `doctor` share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from mfairfl.checks.categories import code_lines, find_codes
from mfairfl.checks.finding import Finding
from mfairfl.checks.missing import MissingCodes, missing_code_lines
from mfairfl.checks.silos import ClientRowNumbers, compare_clients, missing_codes_by_client
from mfairfl.data import Table
from mfairfl.data.differences import difference_lines
from mfairfl.data.quality import Trap, TrapKind, trap_lines

_CHECKS: dict[TrapKind, tuple[Literal["note", "warn"], str]] = {
    "label": ("warn", "leakage"),
    "proxy": ("warn", "leakage"),
    "identifier": ("warn", "identifiers"),
    "unique": ("note", "identifiers"),
    "duplicate": ("note", "duplicates"),
    "constant": ("note", "constants"),
}


def examine_features(
    table: Table, clients: ClientRowNumbers, traps: Sequence[Trap]
) -> list[Finding]:
    """Return what is odd about features, alone and between clients.

    Parameters
    ----------
    table
        A table that a task was applied to.
    clients
        The rows of each client (`rows_by_client`); none or one compares nothing.
    traps
        What `traps_of` found among the features; the values of one that names rows say no more.
    """
    names = [trap.column for trap in traps if trap.kind == "identifier"]
    kept = replace(table, X=table.X.drop(columns=names))
    differences = compare_clients(kept, clients)
    codes = missing_codes_by_client(kept, clients)
    protected = {sensitive.column for sensitive in table.task.sensitive}
    # A text is a category of its own either way; a number is taken at its value.
    twisted = [one for one in codes if one.others or one.column in protected]
    return [
        *(Finding(*_CHECKS[kind], line) for kind, line in trap_lines(traps)),
        *(Finding(*_silo_check(kind), line) for kind, line in difference_lines(differences)),
        *_missing("warn", twisted),
        *_missing("note", [one for one in codes if one not in twisted]),
        *(Finding("note", "codes", line) for line in code_lines(find_codes(kept.X))),
    ]


def _silo_check(kind: str) -> tuple[Literal["note", "warn"], str]:
    return "note" if kind == "client" else "warn", "silos"


def _missing(level: Literal["note", "warn"], found: list[MissingCodes]) -> list[Finding]:
    return [Finding(level, "missing codes", line) for line in missing_code_lines(found)]
