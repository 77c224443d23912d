"""How often each group has the favourable label, and what that means for a notion of fairness.

Say groups g have n_g of n rows and base rates b_g, not all equal. Then, on these rows:

* Equal selection rates s (demographic parity) make at least |b_g − s| n_g errors in each group,
  and in total at least min over s of Σ n_g |b_g − s| / n, which is attained at some s = b_g.
* Decisions without errors have equal error rates and true and false positive rates, and select at
  the rates b_g: equalized odds, equal opportunity and accuracy parity allow that.
* Equal rates a = P(ŷ=1 | y=1) and c = P(ŷ=1 | y=0) select b_g a + (1 − b_g) c, the same for all g
  only if a = c, and are right in b_g a + (1 − b_g)(1 − c), only if a = 1 − c: both if a = c = ½.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mfairfl.data import Table
from mfairfl.display.numbers import SHARE
from mfairfl.fairness.notions import Notion, notion
from mfairfl.text import some_of

_MOST = 10  # groups that a line names
_ALTERNATIVES = (
    "Equalized odds, equal opportunity and accuracy parity do not rule out perfect decisions; "
    "only coin tosses meet these and demographic parity at once"
)
_ALLOWED = (
    "Perfect decisions give groups these unequal shares of favourable ones, which this goal "
    "allows and demographic parity does not"
)


def price_of_parity(rows: NDArray[np.int64], favourable: NDArray[np.int64]) -> float:
    """Return the lowest share of errors that decisions can have which select groups equally often.

    Parameters
    ----------
    rows, favourable
        Of each group: all rows, at least one, and those with the favourable label.

    Examples
    --------
    >>> price_of_parity(np.array([100, 300]), np.array([80, 90]))  # 100 × (.8 − .3) of 400
    0.125
    """
    rates = favourable / rows
    errors = np.abs(rates[:, None] - rates) @ rows
    return float(errors.min() / rows.sum())


def base_rate_lines(table: Table, notions: Sequence[str]) -> Iterator[tuple[float, str]]:
    """Yield, for each attribute, the price of parity if it is a goal, and base rates in words.

    What they mean for notions is said once, with the first attribute whose groups differ.
    """
    label = f"{table.task.label} = {table.task.favourable}"
    parity = next((name for name in notions if _equals_shares(notion(name))), None)
    meaning = f". {_ALLOWED if parity is None else _ALTERNATIVES}"
    for attribute, codes in zip(table.attributes, table.groups.T, strict=True):
        rows = np.bincount(codes, minlength=attribute.size)
        favourable = np.bincount(codes, weights=table.y, minlength=attribute.size)
        named = np.array([group in attribute.recorded for group in attribute.groups]) & (rows > 0)
        if named.sum() < 2:
            continue
        groups = [
            f"{SHARE.one(favourable[g] / rows[g])} of {rows[g]:,} rows ({attribute.groups[g]})"
            for g in np.flatnonzero(named).tolist()
        ]
        line = f"{attribute.name}: {label} in {some_of(groups, _MOST)}"
        price = price_of_parity(rows[named], favourable[named])
        if not price:
            yield 0.0, line
            continue
        if parity is not None:
            aim = parity.replace("_", " ")
            wrong = f"at least {SHARE.one(price)} of them are decided wrongly"
            line += f"; exact {aim} means that {wrong}"
        yield (0.0 if parity is None else price), line + meaning
        meaning = ""


def _equals_shares(item: Notion) -> bool:
    """Return whether groups must be selected equally often, whatever their labels are."""
    return item.statistic == "selection" and any(len(event.labels) == 2 for event in item.events)
