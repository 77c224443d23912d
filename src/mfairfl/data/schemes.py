"""The schemes by which rows are dealt: each gives codes per row and shares, codes × clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mfairfl.data.table import Table
from mfairfl.errors import DataError, unknown

__all__ = ["SCHEMES", "Codes", "Request", "Scheme", "Shares"]

Codes = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]

_HIGH = ((0.5, 0.1, 0.1, 0.2, 0.1), (0.1, 0.4, 0.3, 0.1, 0.1))
_LOW = ((0.3, 0.3, 0.2, 0.1, 0.1), (0.1, 0.2, 0.2, 0.2, 0.3))
# The client-fairness experiment as its text says it: 40 % of group 0 and 60 % of group 1 unused.
_CF_LITERAL = ((0.5, 0.1, 0.0, 0.0, 0.0), (0.0, 0.0, 0.1, 0.2, 0.1))
_DEFAULT_CLIENTS = 5


@dataclass(frozen=True, slots=True)
class Request:
    """What a scheme gets to see."""

    table: Table
    attribute: int
    clients: int | None
    rng: np.random.Generator
    options: Mapping[str, Any]

    @property
    def count(self) -> int:
        """How many clients to make."""
        return _DEFAULT_CLIENTS if self.clients is None else self.clients


@dataclass(frozen=True, slots=True)
class Scheme:
    """A rule, the options it takes with their defaults, and what helps against empty clients."""

    rule: Callable[[Request], tuple[Codes, Shares, tuple[str, ...]]]
    options: Mapping[str, Any]
    remedy: str


def _published(matrix: tuple[tuple[float, ...], ...]) -> Scheme:
    def rule(request: Request) -> tuple[Codes, Shares, tuple[str, ...]]:
        shares = np.array(matrix)
        if request.count != shares.shape[1]:
            raise DataError(
                f"clients={request.count}: this split is published for {shares.shape[1]} clients; "
                "leave clients out, or use scheme 'ratio' with ratios="
            )
        attribute = request.table.attributes[request.attribute]
        group = request.options["group"]
        if group is None:
            group = attribute.groups[0]
        elif group not in attribute.groups:
            raise DataError(unknown(f"group of {attribute.name}", str(group), attribute.groups))
        codes = request.table.groups[:, request.attribute] != attribute.groups.index(group)
        note = f"group 0 of the split is {attribute.name} {group}, group 1 is the rest"
        return codes.astype(np.int64), shares, (note,)

    return Scheme(rule, {"group": None}, "use more rows or scheme 'iid'")


def _ratio(request: Request) -> tuple[Codes, Shares, tuple[str, ...]]:
    attribute = request.table.attributes[request.attribute]
    ratios = request.options["ratios"]
    wanted = f"{attribute.size} rows ({', '.join(attribute.groups)}) with one share a client"
    if ratios is None:
        raise DataError(f"scheme 'ratio' needs ratios=: {wanted}")
    try:
        shares = np.array(ratios, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"ratios={ratios!r}: not a matrix of numbers; give {wanted}") from error
    if shares.ndim != 2 or len(shares) != attribute.size or shares.shape[1] == 0:
        raise DataError(f"ratios has shape {shares.shape}: give {wanted}")
    if request.clients not in (None, shares.shape[1]):
        raise DataError(f"ratios has {shares.shape[1]} columns but clients={request.clients}")
    for group, row in zip(attribute.groups, shares, strict=True):
        if not (np.isfinite(row).all() and (row >= 0).all() and row.sum() <= 1 + 1e-9):
            raise DataError(
                f"ratios of group '{group}' are {row.tolist()}: give shares from 0 that sum to at "
                "most 1"
            )
    return request.table.groups[:, request.attribute].astype(np.int64), shares, ()


def _dirichlet(request: Request) -> tuple[Codes, Shares, tuple[str, ...]]:
    on, alpha = request.options["on"], _positive(request.options, "alpha")
    if on not in ("label", "group"):
        raise DataError(unknown("value of on=", str(on), ("label", "group")))
    if on == "label":
        codes, size = request.table.y.astype(np.int64), 2
    else:
        codes = request.table.groups[:, request.attribute].astype(np.int64)
        size = request.table.attributes[request.attribute].size
    return codes, request.rng.dirichlet(np.full(request.count, alpha), size=size), ()


def _iid(request: Request) -> tuple[Codes, Shares, tuple[str, ...]]:
    shares = np.full((1, request.count), 1 / request.count)
    return np.zeros(len(request.table), np.int64), shares, ()


def _size_skew(request: Request) -> tuple[Codes, Shares, tuple[str, ...]]:
    sizes = np.arange(1, request.count + 1) ** -_positive(request.options, "skew")
    return np.zeros(len(request.table), np.int64), (sizes / sizes.sum())[np.newaxis], ()


def _positive(options: Mapping[str, Any], key: str) -> float:
    value = options[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < np.inf:
        raise DataError(f"{key}={value!r}: give a number above 0")
    return float(value)


SCHEMES: dict[str, Scheme] = {
    "high": _published(_HIGH),
    "low": _published(_LOW),
    "cf-literal": _published(_CF_LITERAL),
    "ratio": Scheme(_ratio, {"ratios": None}, "give the client a share above 0"),
    "dirichlet": Scheme(
        _dirichlet, {"on": "label", "alpha": 0.5}, "raise alpha, lower clients or change the seed"
    ),
    "iid": Scheme(_iid, {}, "lower clients"),
    "size-skew": Scheme(_size_skew, {"skew": 1.0}, "lower skew or clients"),
}
