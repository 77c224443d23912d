"""How each column is read, and what is odd about features: alone, and between clients."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from mfairfl.checks import Finding, Level, codes
from mfairfl.checks.codes import MissingCodes
from mfairfl.data import SPLITS, Federation, Table, Task, differences
from mfairfl.data.columns import Column
from mfairfl.data.differences import ClientColumn
from mfairfl.data.partition import rows_by_name
from mfairfl.data.quality import Trap, TrapKind, trap_lines
from mfairfl.data.values import Reading

# ------------------------------------------------------------------ how columns are read

Role = Literal["label", "client", "sensitive", "feature", "ignored"]
Kind = Literal["number", "category", "date", "text"]
_MOST_LEVELS = 0.5  # of the rows: more distinct texts are names
_COUNTED_AS = {"category": "level", "text": "text", "date": "date", "number": "number"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts:
    """How one column is read.

    Parameters
    ----------
    type : str
        ``number``, ``category``, ``date``, or ``text``: hardly a value occurs twice.
    distinct : int
        Different values.
    low, high : float, optional
        Ends of a range of numbers.
    example : str
        The first value.
    """

    name: str
    role: Role
    type: Kind
    missing: int
    distinct: int
    low: float | None
    high: float | None
    example: str

    @property
    def extent(self) -> str:
        """The range of numbers, or how many values there are."""
        if self.low is not None and self.high is not None:
            ends = [_plain(self.low), _plain(self.high)]
            return " to ".join(dict.fromkeys(ends))
        return f"{self.distinct:,} {_COUNTED_AS[self.type]}{'s' * (self.distinct != 1)}"


def _plain(number: float) -> str:
    """Write whole numbers in full, unless they are huge, and others with six digits."""
    return f"{number:.0f}" if number.is_integer() and abs(number) < 1e12 else f"{number:.6g}"


def column_facts(
    frame: pd.DataFrame, task: Task, name: str = "frame", reading: Reading | None = None
) -> list[ColumnFacts]:
    """Return how a task reads each column of a frame; `reading` overrides how it reads cells.

    Examples
    --------
    >>> people = pd.DataFrame({"age": [31, 45, None], "sex": ["f", "m", "f"], "hired": [1, 0, 0]})
    >>> task = Task(label="hired", favourable=1, sensitive=("sex",))
    >>> for facts in column_facts(people, task):
    ...     print(facts.name, facts.role, facts.type, facts.missing, facts.extent, facts.example)
    age feature number 1 31 to 45 31
    sex sensitive category 0 2 levels f
    hired label category 0 2 levels 1
    """
    # One column after the other, so that the work on one is not kept in memory.
    rules = task.read_as(reading).rules
    return [_facts(Column(name, frame[c], rules(str(c))), task) for c in frame.columns]


def _facts(column: Column, task: Task) -> ColumnFacts:
    gaps, distinct = column.missing, len(column.levels)
    kind = _kind(column, task, distinct)
    missing, low, high = int(gaps.sum()), None, None
    if kind == "number":
        numbers = column.numbers[~np.isnan(column.numbers)]
        missing = len(column.numbers) - len(numbers)
        if len(numbers):
            low, high = float(numbers.min()), float(numbers.max())
    return ColumnFacts(
        name=column.name,
        role=_role(column.name, task),
        type=kind,
        missing=missing,
        distinct=distinct,
        low=low,
        high=high,
        example=column.text(int(gaps.argmin())),  # "?" if there is no value
    )


def _role(name: str, task: Task) -> Role:
    named: dict[Role, Collection[str | None]] = {
        "label": (task.label,),
        "client": (task.client,),
        "sensitive": [sensitive.column for sensitive in task.sensitive],
        "ignored": task.ignore,
        "feature": task.features,
    }
    unnamed: Role = "ignored" if task.has_roles else "feature"
    return next((role for role, names in named.items() if name in names), unnamed)


def _kind(column: Column, task: Task, distinct: int) -> Kind:
    groups = {s.column for s in task.sensitive} - {s.column for s in task.sensitive if s.bins}
    if column.name in {task.label, task.client, *(task.categorical or ()), *groups}:
        return "category"
    if column.dated:
        return "date"
    if column.recognised is not None:
        return "number"
    values = sum(column.levels.values())
    return "text" if distinct > max(_MOST_LEVELS * values, 10) else "category"


def frame_of(table: Table) -> pd.DataFrame:
    """Return a table's columns as a frame, for data of which there is no file."""
    task = table.task
    extra: dict[str, object] = {}
    for i, sensitive in enumerate(task.sensitive):
        if sensitive.column not in table.X.columns:
            extra[sensitive.column] = np.array(table.attributes[i].groups)[table.groups[:, i]]
    if task.client is not None:
        extra[task.client] = table.clients
    extra[task.label] = np.array([task.unfavourable, task.favourable])[table.y]
    return pd.concat([table.X, pd.DataFrame(extra)], axis=1)


# ------------------------------------------------------------------ what is odd about features

ClientRowNumbers = Mapping[str, npt.NDArray[np.int64]]
"""The numbers of each client's rows in the table."""

_TRAP_CHECKS: dict[TrapKind, tuple[Level, str]] = {
    "label": ("warn", "leakage"),
    "proxy": ("warn", "leakage"),
    "identifier": ("warn", "identifiers"),
    "unique": ("note", "identifiers"),
    "duplicate": ("note", "duplicates"),
    "constant": ("note", "constants"),
}


def feature_findings(
    table: Table, clients: ClientRowNumbers, traps: Sequence[Trap]
) -> list[Finding]:
    """Return what is odd about features, alone and between clients.

    Parameters
    ----------
    table
        A table that a task was applied to.
    clients
        The rows of each client (`rows_by_client`); with none or one nothing is compared.
    traps
        What `traps_of` found among the features; the values of an identifier say no more.
    """
    identifiers = [trap.column for trap in traps if trap.kind == "identifier"]
    table = replace(table, X=table.X.drop(columns=identifiers))
    findings = [Finding(*_TRAP_CHECKS[kind], line) for kind, line in trap_lines(traps)]
    for kind, line in differences.difference_lines(compare_clients(table, clients)):
        findings.append(Finding("note" if kind == "client" else "warn", "silos", line))
    # A text is a category of its own either way; a number is taken at its value.
    sensitive = {sensitive.column for sensitive in table.task.sensitive}
    coded = missing_codes_by_client(table, clients)
    serious = [c for c in coded if c.others or c.column in sensitive]
    harmless = [c for c in coded if c not in serious]
    findings += [Finding("warn", "missing codes", m) for m in codes.missing_code_lines(serious)]
    findings += [Finding("note", "missing codes", m) for m in codes.missing_code_lines(harmless)]
    return findings + codes.category_code_findings(table.X)


def rows_by_client(data: Table | Federation) -> dict[str, npt.NDArray[np.int64]]:
    """Return the rows of each client; of a table without clients, none."""
    if isinstance(data, Federation):
        shards = {c.name: [c.shard(split).rows for split in SPLITS] for c in data.clients}
        return {name: np.sort(np.concatenate(rows)) for name, rows in shards.items()}
    return {} if data.clients is None else rows_by_name(data.clients)


def compare_clients(table: Table, clients: ClientRowNumbers) -> list[differences.Difference]:
    """Compare each feature between clients.

    Examples
    --------
    >>> from mfairfl.data import table_from_frame, task_from_roles
    >>> rows = pd.DataFrame({"height": [171.0, 180, 160, 175] * 20, "sex": list("fm") * 40})
    >>> rows["site"], rows["hired"] = ["a"] * 40 + ["b"] * 40, [0, 1, 1, 0] * 20
    >>> rows.loc[rows["site"] == "b", "height"] /= 100
    >>> task = task_from_roles(rows, label="hired", sensitive="sex", client="site")
    >>> table = table_from_frame(rows, task)
    >>> print(compare_clients(table, rows_by_client(table))[0].message.split(":")[0])
    column 'height' is about 1.73 at most clients, but not at a (173, 100 times as much)
    """
    if len(clients) < 2:
        return []
    columns = {name: _by_client(table.X[name], clients) for name in table.X.columns}
    sensitive = [s.column for s in table.task.sensitive]
    return differences.find_differences(columns, sensitive=sensitive)


def _by_client(column: pd.Series, clients: ClientRowNumbers) -> dict[str, ClientColumn]:
    if pd.api.types.is_numeric_dtype(column):
        numbers = column.to_numpy(dtype=np.float64)
        return {client: ClientColumn.numbers(numbers[rows]) for client, rows in clients.items()}
    numbered, levels = pd.factorize(column)
    names, described = list(map(str, levels)), {}
    for client, rows in clients.items():
        counts = np.bincount(numbered[rows], minlength=len(names)).tolist()
        described[client] = ClientColumn.categories(dict(zip(names, counts, strict=True)))
    return described


def missing_codes_by_client(table: Table, clients: ClientRowNumbers) -> list[MissingCodes]:
    """Find codes of missing values in all rows, and those that one client alone uses."""
    columns = {column.column: column for column in codes.find_missing_codes(table.X)}
    # Texts that may mean missing were found in all rows, whichever client uses them.
    numbers = table.X.select_dtypes("number").drop(columns=list(columns), errors="ignore")
    enough = [rows for rows in clients.values() if len(rows) >= differences.FEW_ROWS]
    for rows in enough if len(clients) > 1 else ():
        for column in codes.find_missing_codes(numbers.iloc[rows]):
            elsewhere = np.delete(_has_code(column, table), rows).any()
            if column.rows > 1 and not elsewhere:
                columns.setdefault(column.column, column)
    return [_with_clients(column, table, clients) for column in columns.values()]


def _with_clients(column: MissingCodes, table: Table, clients: ClientRowNumbers) -> MissingCodes:
    """Name the clients that use codes, unless most do."""
    coded = _has_code(column, table)
    users = tuple(client for client, rows in clients.items() if coded[rows].any())
    return column._replace(clients=users) if 2 * len(users) <= len(clients) else column


def _has_code(column: MissingCodes, table: Table) -> npt.NDArray[np.bool_]:
    """Return which rows have one of the codes."""
    cells = table.X[column.column]
    numeric = pd.api.types.is_numeric_dtype(cells)
    return cells.isin([float(code) if numeric else code for code in column.codes]).to_numpy()
