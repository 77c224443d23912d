"""What one client's rows hold and the others' do not."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from mfairfl.checks.missing import MissingCodes, find_missing_codes
from mfairfl.data import SPLITS, Federation, Table
from mfairfl.data.differences import FEW_ROWS, Difference, Held, find_differences
from mfairfl.data.partition import rows_by_name

ClientRowNumbers = Mapping[str, npt.NDArray[np.int64]]
"""The numbers of each client's rows in the table."""


def rows_by_client(data: Table | Federation) -> dict[str, npt.NDArray[np.int64]]:
    """Return the rows of each client; of a table without clients, none."""
    if isinstance(data, Federation):
        shards = {c.name: [c.shard(split).rows for split in SPLITS] for c in data.clients}
        return {name: np.sort(np.concatenate(rows)) for name, rows in shards.items()}
    if data.clients is None:
        return {}
    return rows_by_name(data.clients)


def compare_clients(table: Table, clients: ClientRowNumbers) -> list[Difference]:
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
    columns = {name: _held(table.X[name], clients) for name in table.X.columns}
    return find_differences(columns, sensitive=[s.column for s in table.task.sensitive])


def _held(column: pd.Series, clients: ClientRowNumbers) -> dict[str, Held]:
    if pd.api.types.is_numeric_dtype(column):
        numbers = column.to_numpy(dtype=np.float64)
        return {client: Held.numbers(numbers[rows]) for client, rows in clients.items()}
    codes, levels = pd.factorize(column)
    counted = {c: np.bincount(codes[rows], minlength=len(levels)) for c, rows in clients.items()}
    return {
        client: Held.categories(dict(zip(map(str, levels), counts.tolist(), strict=True)))
        for client, counts in counted.items()
    }


def missing_codes_by_client(table: Table, clients: ClientRowNumbers) -> list[MissingCodes]:
    """Find codes of missing values in all rows, and those that one client alone uses."""
    found = find_missing_codes(table.X)
    known = {one.column for one in found}
    # A text that may mean missing is known from all rows, whoever uses it.
    numbers = table.X.select_dtypes("number").drop(columns=list(known), errors="ignore")
    for rows in clients.values():
        if len(rows) < FEW_ROWS or len(clients) < 2:
            continue
        others = np.ones(len(table), dtype=bool)
        others[rows] = False
        for one in find_missing_codes(numbers.iloc[rows]):
            elsewhere = table.X[one.column][others].isin(_as_held(one, table))
            if one.column not in known and one.rows > 1 and not elsewhere.any():
                found.append(one)
                known.add(one.column)
    return [one._replace(clients=_where(one, table, clients)) for one in found]


def _as_held(one: MissingCodes, table: Table) -> list[str] | list[float]:
    """Return the codes as the column has them."""
    numeric = pd.api.types.is_numeric_dtype(table.X[one.column])
    return [float(code) for code in one.codes] if numeric else list(one.codes)


def _where(one: MissingCodes, table: Table, clients: ClientRowNumbers) -> tuple[str, ...]:
    """Name the clients that use the codes, unless most do."""
    held = table.X[one.column].isin(_as_held(one, table)).to_numpy()
    users = tuple(client for client, rows in clients.items() if held[rows].any())
    return users if 2 * len(users) <= len(clients) else ()
