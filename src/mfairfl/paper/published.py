"""The numbers that the mFairFL paper printed (`published.toml`), to stand beside ours."""

from __future__ import annotations

import tomllib
from importlib import resources
from itertools import product

from mfairfl.experiments.study_tables import TableLayout
from mfairfl.experiments.tabulate import Published

_DATA = ("adult", "compas", "bank")
_VIOLATIONS = tuple(
    f"{notion}_violation" for notion in ("demographic_parity", "equalized_odds", "accuracy_parity")
)

# A metric, and 1 or 2 for the attributes S1 or S2 where violations are printed for each.
_Columns = tuple[tuple[str, int], ...]
_CLIENTS: _Columns = (("accuracy", 0), ("client_accuracy_std", 0))
_BY_NOTION: _Columns = (_CLIENTS[0], *((name, 0) for name in _VIOLATIONS), _CLIENTS[1])
_BY_ATTRIBUTE: _Columns = (_CLIENTS[0], *product(_VIOLATIONS, (1, 2)), _CLIENTS[1])

_COLUMNS = {
    "table-1": _BY_NOTION,
    "table-2": _CLIENTS,
    "table-3": _BY_NOTION,
    "table-s2": _BY_NOTION,
    "table-s3": _BY_ATTRIBUTE,
}
PUBLISHED_TABLES = tuple(_COLUMNS)


def published_for(table: str, layout: TableLayout) -> Published:
    """Return the numbers of a table of the paper by the names of ours; cenfair is its CenFL.

    The first split of the layout is the paper's.

    Examples
    --------
    >>> layout = TableLayout(
    ...     name="table-1", title="Table 1", strategies=("mfairfl",), data=("adult",),
    ...     notions=("demographic_parity",), splits=("high",), protocols=("10x20",),
    ... )
    >>> published_for("table-1", layout)["adult", "high", "mfairfl", "accuracy", ""]
    0.792
    """
    file = resources.files("mfairfl.paper") / "published.toml"
    printed = tomllib.loads(file.read_text(encoding="utf-8"))[table]
    published = {}
    for line in printed.strip().splitlines():
        strategy, *cells = line.split()
        places = product(_DATA, _COLUMNS[table])
        for (data, (metric, number)), cell in zip(places, cells, strict=True):
            attributes = ("", *layout.named_attributes(data))
            if cell not in ("-", "?") and number < len(attributes):
                place = (data, layout.splits[0], strategy, metric, attributes[number])
                published[place] = float(cell)
    return published
