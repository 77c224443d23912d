"""What is suspicious in a table: features that mislead, and test rows that repeat train rows."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from mfairfl.data.federation import Federation
from mfairfl.data.table import Table
from mfairfl.data.values import MISSING, Floats, Integers, Labels
from mfairfl.text import some_of, words_of

TrapKind = Literal["label", "proxy", "identifier", "unique", "duplicate", "constant"]
SERIOUS: frozenset[TrapKind] = frozenset({"label", "proxy", "identifier"})
"""Kinds that make results doubtful; the others do no harm."""


_FEWER_ERRORS = 0.75  # share of the constant classifier's errors
_HIGH_AUC = 0.95
_MANY_COPIES = 0.01  # of the test rows
_MORE_PAIRS = 30  # than by chance; an occupation that goes with the rest makes 13 times as many
_ENOUGH = 20  # values that a column needs to be judged
_UNLIKE_NUMBERS, _UNLIKE_TEXTS = 0.5, 0.6  # distinct values for each value of an identifier
_ENOUGH_LABELS = 10  # rows of either label
_SAME = 0.9999  # correlation of one quantity in two units
_LONG = 6  # digits
_SAMPLE = 5000  # rows on which correlations are tried
_ID_WORDS = frozenset({"id", "ids", "uuid", "guid", "key", "index", "idx", "identifier", "ssn"})
_LAST_ID_WORDS = frozenset({"no", "nr", "num", "number"})  # EmployeeNumber, but not NumberOfCars


class Distinct(NamedTuple):
    """A column's values, told apart: each row's number among `uniques`, -1 where it is missing.

    They are numbered in the order in which they appear.
    """

    codes: Integers
    uniques: npt.NDArray[Any]
    numeric: bool

    @classmethod
    def of(cls, column: pd.Series[Any]) -> Distinct:
        """Tell the values of a column apart."""
        codes, uniques = pd.factorize(column)
        return cls(codes, np.asarray(uniques), pd.api.types.is_numeric_dtype(column))


class _ColumnSummary(NamedTuple):
    """A column without its rows; `pattern` is equal for columns that differ in names of values."""

    rows: int
    filled: int
    distinct: npt.NDArray[Any]
    pattern: bytes
    numeric: bool

    @classmethod
    def of(cls, column: Distinct) -> _ColumnSummary:
        codes, values, numeric = column
        filled = codes >= 0
        if not numeric:
            filled &= np.append(values != MISSING, False)[codes]
            values = values[values != MISSING]
        pattern = hashlib.blake2b(codes.astype(np.int32).tobytes()).digest()
        return cls(len(codes), int(filled.sum()), values, pattern, numeric)

    @property
    def constant(self) -> bool:
        """Whether several rows have one value."""
        return self.rows > 1 and len(self.distinct) == 1 and self.filled == self.rows


@dataclass(frozen=True, slots=True)
class Alone:
    """How well one column predicts the label, beside the constant classifier."""

    accuracy: float
    auc: float
    constant: float

    @property
    def suspicious(self) -> bool:
        """Whether it does so too well to be known before the label is."""
        fewer = (self.accuracy - self.constant) / (1 - self.constant)
        return fewer >= _FEWER_ERRORS or self.auc >= _HIGH_AUC


def alone(column: Distinct, y: Labels) -> Alone:
    """Judge the best rule on one column: a threshold, or an answer for each value.

    The answers for values are learned on one half of the rows and judged on the other, so that
    a value of a single row says nothing.

    Examples
    --------
    >>> y = np.array([0, 0, 1, 1] * 3, dtype=np.int8)
    >>> alone(Distinct.of(pd.Series([1.0, 2.0, 3.0, 4.0] * 3)), y)
    Alone(accuracy=1.0, auc=1.0, constant=0.5)
    """
    share = float(y.mean())
    constant = max(share, 1 - share)
    counts = _counts(column, y)
    rules = [(constant, 0.5)]
    if 2 * len(column.uniques) <= len(y):
        rules.append(_by_values(counts, share))
    if column.numeric:
        numbers = np.append(column.uniques.astype(np.float64), np.inf)
        rules.append(_by_threshold(numbers, counts.sum(axis=0)))
    return Alone(max(right for right, _ in rules), max(auc for _, auc in rules), constant)


def _counts(column: Distinct, y: Labels) -> Integers:
    """Count the rows of each half, label and value; those without a value come last.

    Every other row of a label is in the first half.
    """
    size = len(column.uniques) + 1
    half = pd.Series(y).groupby(y).cumcount().to_numpy() % 2
    places = (2 * half + y) * size + column.codes % size
    return np.bincount(places, minlength=4 * size).reshape(2, 2, size)


def _by_threshold(numbers: Floats, counts: Integers) -> tuple[float, float]:
    """Return accuracy and ROC-AUC of the number as a score; missing ones lie above all others."""
    zeros, ones = counts[:, np.argsort(numbers)]
    n = int(counts.sum())
    # Below a cut between two values unfavourable, above it favourable; or the other way round.
    right = np.append(0, np.cumsum(zeros - ones)) + ones.sum()
    auc = _auc(numbers, counts)
    return float(np.maximum(right, n - right).max() / n), max(auc, 1 - auc)


def _by_values(counts: Integers, share: float) -> tuple[float, float]:
    """Return accuracy and ROC-AUC of the label's share in each value, learned on other rows."""
    right, aucs = 0, []
    for learned, (zeros, ones) in zip(counts[::-1], counts, strict=True):
        # A value that was not seen has the overall rate.
        rates = (learned[1] + share) / (learned.sum(axis=0) + 1)
        right += int(np.where(rates > 0.5, ones, zeros).sum())
        aucs.append(_auc(rates, np.stack([zeros, ones])))
    return float(right / counts.sum()), float(np.mean(aucs))


def _auc(scores: Floats, counts: Integers) -> float:
    """Return the chance that a row with label 1 scores above one with label 0 (a tie: half).

    `counts` are the rows of either label with each score.
    """
    _, places = np.unique(scores, return_inverse=True)
    zeros, ones = (np.bincount(places, weights=rows) for rows in counts)
    pairs = zeros.sum() * ones.sum()
    below = np.cumsum(zeros) - zeros / 2
    return float(ones @ below / pairs) if pairs else 0.5


class Trap(NamedTuple):
    """A feature that should not be one, and the reason.

    The kinds: `label` decides the label, `proxy` repeats a sensitive column that is not a feature,
    `identifier` names rows, `unique` may do so, `duplicate` repeats the column `of`, `constant`
    has one value.
    """

    kind: TrapKind
    column: str
    why: str
    of: str = ""


def traps_of(table: Table) -> list[Trap]:
    """Return the features that decide the label, name rows, repeat another or say nothing.

    Of two equal columns the sensitive one stays; if that is not a feature, the other one is a
    proxy.

    Examples
    --------
    >>> from mfairfl.data import Task, table_from_frame
    >>> people = {"no": range(40), "place": "here", "pay": [1, 2, 2, 3] * 10, "y": [0, 1] * 20}
    >>> task = Task(label="y", favourable=1, sensitive=())
    >>> table = table_from_frame(pd.DataFrame(people), task)
    >>> [(trap.kind, trap.column) for trap in traps_of(table)]
    [('identifier', 'no'), ('constant', 'place')]
    """
    X, y, rules = table.X, table.y, table.task.columns
    protected = [attribute.column for attribute in table.task.sensitive]
    sensitive = dict(zip(protected, table.groups.T.astype(np.intp), strict=True))
    # Of dates and amounts, one after the other looks like numbers of rows.
    measured = {name for name, r in rules.items() if r.date or r.thousands or r.decimal}
    judged = np.bincount(y, minlength=2).min() >= _ENOUGH_LABELS
    columns: dict[str, _ColumnSummary] = {}
    traps: list[Trap] = []
    for name in map(str, X.columns):
        distinct = Distinct.of(X[name])
        columns[name] = _ColumnSummary.of(distinct)
        if judged and (rule := alone(distinct, y)).suspicious:
            why = f"accuracy {rule.accuracy:.3f}, that of the constant classifier "
            why += f"{rule.constant:.3f}; ROC-AUC {rule.auc:.3f}"
            traps.append(Trap("label", name, why))
    useful = dict(columns)
    for name, column in columns.items():
        # One of several files may hold one group alone.
        trap = None if name in sensitive else _useless(name, column, measured)
        if trap is not None:
            traps.append(trap)
            if trap.kind != "unique":
                del useful[name]
    return [*traps, *_repeats(X, useful, sensitive)]


def _useless(name: str, column: _ColumnSummary, measured: Container[str]) -> Trap | None:
    """Return the trap of a column whose values never change, or name rows."""
    if column.constant:
        only = column.distinct[0]
        return Trap("constant", name, f"{only:g}" if column.numeric else str(only))
    kind = None if name in measured else _names_rows(name, column)
    if kind is None:
        return None
    values = "whole numbers" if column.numeric else "texts"
    count = f"{len(column.distinct):,} different {values} in {column.filled:,} rows"
    return Trap(kind, name, count)


def _names_rows(name: str, column: _ColumnSummary) -> Literal["identifier", "unique"] | None:
    """Return whether a column's values name rows, or may do so."""
    count = len(column.distinct)
    least = _UNLIKE_NUMBERS if column.numeric else _UNLIKE_TEXTS
    if column.filled < _ENOUGH or count < least * column.filled:
        return None
    if not column.numeric:
        return "identifier"
    low, high = column.distinct.min(), column.distinct.max()
    if low < 0 or (column.distinct != np.round(column.distinct)).any():
        return None
    words = words_of(name)  # PassengerId and account_no are called identifiers
    if _ID_WORDS & set(words) or _LAST_ID_WORDS & set(words[-1:]) or _given_out(column):
        return "identifier"
    # As many digits everywhere, and more than amounts tend to have.
    equally_long = len(f"{low:.0f}") == len(f"{high:.0f}") >= _LONG
    return "unique" if count == column.filled and equally_long else None


def _given_out(column: _ColumnSummary) -> bool:
    """Return whether whole numbers repeat far less often than measured ones would.

    Of all measurements on an interval the evenly spread ones repeat least; numbers that repeat
    much less than even those were given out one by one.
    """
    places = float(column.distinct.max() - column.distinct.min()) + 1
    distinct = -places * np.expm1(column.filled * np.log1p(-1 / max(places, 2)))
    repeats = column.filled - distinct
    return bool(repeats >= 10 and column.filled - len(column.distinct) < repeats / 4)


def _repeats(
    X: pd.DataFrame, columns: Mapping[str, _ColumnSummary], sensitive: Mapping[str, Integers]
) -> Iterator[Trap]:
    """Yield columns that repeat another: its values, other names of them, another unit."""
    hidden = {
        _ColumnSummary.of(Distinct.of(pd.Series(codes))).pattern: name
        for name, codes in sensitive.items()
        if name not in X.columns
    }
    first: dict[bytes, str] = {}
    numbers: list[str] = []
    for name in sorted(columns, key=lambda name: name not in sensitive):
        column = columns[name]
        # Columns without equal values are "recodings" of each other, whatever they hold.
        recurring = column.filled >= _ENOUGH and 2 * len(column.distinct) <= column.filled
        pattern = column.pattern if recurring else name.encode()
        if pattern in hidden:
            yield Trap("proxy", name, f"one value for each group of {hidden[pattern]}")
        elif pattern in first:
            other = first[pattern]
            yield Trap("duplicate", name, f"one value for each of {other}", other)
        else:
            first[pattern] = name
            numbers += [name] * (column.numeric and column.filled >= _ENOUGH)
    yield from _same_numbers(X, numbers)


def _same_numbers(X: pd.DataFrame, names: list[str]) -> Iterator[Trap]:
    """Yield numbers that are another column's in another unit."""
    if len(names) < 2:
        return
    sample = X[names].iloc[:: max(1, len(X) // _SAMPLE)].astype(np.float64)
    with np.errstate(all="ignore"):  # a column may be constant in the sample
        correlations = np.corrcoef(sample.fillna(sample.mean()), rowvar=False)
    repeats: set[str] = set()
    for i, j in zip(*np.nonzero(np.triu(np.abs(correlations) > _SAME, k=1)), strict=True):
        first, second = names[i], names[j]
        if not {first, second} & repeats and _same(X[first], X[second]):
            repeats.add(second)
            yield Trap("duplicate", second, f"correlation 1 with {first}", first)


def _same(a: pd.Series[Any], b: pd.Series[Any]) -> bool:
    """Return whether two columns are one quantity, by ranks too: huge values prove nothing."""
    pairs = pd.concat([a, b], axis=1).dropna()
    if len(pairs) < max(_ENOUGH, 0.99 * max(a.count(), b.count())):
        return False
    return all(abs(rows.corr().to_numpy()[0, 1]) > _SAME for rows in (pairs, pairs.rank()))


_LINES: dict[TrapKind, tuple[str, str, str]] = {
    "label": (
        "predicts the label alone",
        "predict the label alone",
        "list in ignore what is not known before the decision",
    ),
    "proxy": (
        "repeats a sensitive column that is kept out",
        "repeat sensitive columns that are kept out",
        "list it in ignore",
    ),
    "identifier": ("names rows", "name rows", "list it in ignore"),
    "unique": ("may name rows", "may name rows", "if so, list it in ignore"),
    "duplicate": ("repeats another", "repeat others", "list it in ignore"),
    "constant": ("never changes", "never change", "list it in ignore"),
}


def trap_lines(traps: Iterable[Trap]) -> list[tuple[TrapKind, str]]:
    """Return what is suspicious and what to do, in one line for all columns of a kind.

    Examples
    --------
    >>> traps = [Trap("constant", "Over18", "Y"), Trap("identifier", "no", "9 different texts")]
    >>> for kind, line in trap_lines(traps):
    ...     print(line)
    column 'no' names rows (9 different texts): list it in ignore
    column 'Over18' never changes (Y): list it in ignore
    """
    alike: dict[TrapKind, list[Trap]] = {kind: [] for kind in _LINES}
    for trap in traps:
        alike[trap.kind].append(trap)
    lines: list[tuple[TrapKind, str]] = []
    for kind, (verb, verbs, fix) in _LINES.items():
        if len(alike[kind]) == 1:
            trap = alike[kind][0]
            lines.append((kind, f"column '{trap.column}' {verb} ({trap.why}): {fix}"))
        elif alike[kind]:
            named = some_of([f"{trap.column} ({trap.why})" for trap in alike[kind]], most=10)
            line = f"{len(alike[kind])} columns {verbs}: {named}: {fix.replace(' it ', ' them ')}"
            lines.append((kind, line))
    return lines


@dataclass(frozen=True, slots=True)
class Copies:
    """Test rows with the features and the label of some train row.

    Parameters
    ----------
    test, copied : int
        Test rows, and those of them that equal a train row.
    pairs, expected : float
        Pairs of equal rows in the table, and about how many different people would make.
    """

    test: int
    copied: int
    pairs: float
    expected: float

    @property
    def by_chance(self) -> bool:
        """Whether coarse columns explain them: different people, equal in what was asked."""
        return self.pairs <= _MORE_PAIRS * self.expected

    @property
    def serious(self) -> bool:
        """Whether enough test rows were seen in training to flatter the result."""
        return not self.by_chance and self.copied > _MANY_COPIES * self.test

    @property
    def line(self) -> str:
        """The count in words, and what to do about it."""
        if not self.copied:
            return "no test row equals a train row"
        share = self.copied / max(self.test, 1)
        count = f"{self.copied:,} of {self.test:,} test rows ({share:.1%}) equal a train row"
        if self.by_chance:
            return f"{count} in features and label, as people do where columns have few values"
        return f"{count} in features and label: leave repeated rows out of the file"


def copies_of(table: Table, federation: Federation) -> Copies:
    """Count the test rows that equal a train row, of any client.

    Rows that agree in all columns but the finest one agree in that one too about as often as any
    two rows do, if they are of different people; if they are copies, they always do.

    Examples
    --------
    >>> from mfairfl.data import partition, table_from_frame, task_from_roles
    >>> people = pd.DataFrame({"x": [*range(20)] * 2, "sex": list("fm") * 20})
    >>> people["hired"] = people["x"] % 3 // 2
    >>> table = table_from_frame(people, task_from_roles(people, label="hired", sensitive="sex"))
    >>> copies = copies_of(table, partition(table, "iid", clients=2))
    >>> copies.test, copies.pairs
    (8, 20.0)
    """
    n = len(table)
    # A random number for each value: their sum is equal for equal rows, and for no others.
    rng = np.random.default_rng(0)
    marks = rng.integers(2**64, size=2, dtype=np.uint64)[table.y]
    fewest, finest = float("inf"), np.zeros_like(marks)
    for name in table.X.columns:
        column = Distinct.of(table.X[name])
        of_column = rng.integers(2**64, size=len(column.uniques) + 1, dtype=np.uint64)
        marks += of_column[column.codes]
        if (pairs := _pairs(column.codes + 1)) < fewest:
            fewest, finest = pairs, of_column[column.codes]
    rows = pd.factorize(marks)[0]
    train, test = (rows[federation.pooled(split).rows] for split in ("train", "test"))
    seen = np.zeros(n, dtype=bool)
    seen[train] = True
    return Copies(
        test=len(test),
        copied=int(seen[test].sum()),
        pairs=_pairs(rows),
        expected=_pairs(pd.factorize(marks - finest)[0]) * (fewest / max(n * (n - 1) / 2, 1)),
    )


def _pairs(codes: Integers) -> float:
    """Count the pairs of equal codes, which are numbers from 0."""
    counts = np.bincount(codes).astype(np.float64)
    return float((counts * (counts - 1) / 2).sum())
