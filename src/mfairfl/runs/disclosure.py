"""What silos withheld, as a run record has it, from the arrays in which it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from mfairfl.data import SPLITS, Attribute, Split
from mfairfl.errors import DataError
from mfairfl.fairness.cells import Cells
from mfairfl.runs.record import DisclosureFacts, WithheldCell

__all__ = ["disclosure_facts"]


def disclosure_facts(
    *,
    policy_sha256: str,
    min_rows: int,
    attributes: Sequence[Attribute],
    withheld: Mapping[Split, ArrayLike],
    rows: Mapping[Split, int],
) -> DisclosureFacts:
    """Return what a record says of one silo.

    Parameters
    ----------
    policy_sha256 : str
        Of its policy (`mfairfl.remote.policy.policy_sha256`).
    min_rows : int
        Its floor.
    attributes : sequence of Attribute
        The sensitive attributes, whose groups number the cells.
    withheld : mapping of split to array of bool (C, 2)
        Which sets of rows, by cell and label, it withheld.
    rows : mapping of split to int
        How many rows they hold together.

    Examples
    --------
    >>> found = disclosure_facts(
    ...     policy_sha256="a" * 64,
    ...     min_rows=10,
    ...     attributes=[Attribute("sex", ("F", "M"))],
    ...     withheld={"train": [[False, False], [True, False]]},
    ...     rows={"train": 7},
    ... )
    >>> found.withheld[0].cell, found.withheld[0].label, found.rows_withheld
    ({'sex': 'M'}, 0, {'train': 7})
    """
    sizes = [attribute.size for attribute in attributes]
    cells = []
    for split in (part for part in SPLITS if part in withheld):
        mask = np.asarray(withheld[split], dtype=bool)
        if mask.shape != (Cells(tuple(attributes)).size, 2):
            raise DataError(f"withheld sets of {split} rows: {mask.shape} is not (cells, 2)")
        for cell, label in np.argwhere(mask).tolist():
            codes = np.unravel_index(cell, sizes)
            groups = {a.name: a.groups[code] for a, code in zip(attributes, codes, strict=True)}
            cells.append(WithheldCell(split=split, cell=groups, label=label))
    return DisclosureFacts(
        policy_sha256=policy_sha256, min_rows=min_rows, withheld=cells, rows_withheld=dict(rows)
    )
