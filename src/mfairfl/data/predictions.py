"""A file of any model's predictions: what was true, what was decided, for whom, row by row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from mfairfl.data.coding import ORDERED_LABELS, label_codes, spelling
from mfairfl.data.columns import Column, Columns, require_columns
from mfairfl.data.federation import SPLITS
from mfairfl.data.task import Task
from mfairfl.data.values import MISSING, StrictModel, Text
from mfairfl.errors import ConfigError, DataError
from mfairfl.text import some_of

# As `mfairfl predict` calls its columns.
_DECISION, _FAVOURABLE, SPLIT = "decision", "favourable", "split"

_Name = Annotated[str, Field(min_length=1, max_length=1000)]


class PredictionColumns(StrictModel):
    """What the columns of a file of predictions mean.

    Parameters
    ----------
    sensitive
        Columns whose values are the groups that are compared.
    prediction
        Column of decisions. Without it a score above `threshold` is a favourable decision.
    label
        Column of what was true; a row without a value has an unknown label.
    favourable
        The label that is good for a person; needed unless labels are 0/1 or the like.
    selected
        The decision that is good for a person, if decisions are not written like labels or 0/1;
        every other one is not.
    score
        Column of scores.
    client
        Column of the client of each row.

    Examples
    --------
    >>> PredictionColumns(sensitive=("sex",), prediction="decision").label is None
    True
    """

    sensitive: tuple[_Name, ...] = Field(min_length=1, max_length=64)
    prediction: _Name | None = None
    label: _Name | None = None
    favourable: Text | None = None
    selected: Text | None = None
    score: _Name | None = None
    threshold: float | None = None
    client: _Name | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.prediction is None and (self.score is None or self.threshold is None):
            raise ConfigError("no decisions: give prediction, or score and threshold")
        if self.prediction is not None and self.threshold is not None:
            raise ConfigError("prediction and threshold: give only one of them")
        if twice := [name for name in self.named if self.named.count(name) > 1]:
            raise ConfigError(f"column '{twice[0]}' is named for two things")
        return self

    @property
    def named(self) -> tuple[str, ...]:
        """All columns that are read."""
        others = filter(None, (self.prediction, self.label, self.score, self.client))
        return (*self.sensitive, *others)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PredictedRows:
    """Rows with a decision, as `AuditCounts.from_rows` takes them.

    Attributes
    ----------
    labels
        0, 1 or None where unknown; None if there is no column of labels.
    decisions
        0 or 1.
    scores
        Numbers, if there is a column of them.
    groups
        The text of each sensitive column, ``?`` where nothing is recorded.
    clients
        The client of each row, if there is a column of them.
    left_out
        Rows of the file that are not among these, by reason.
    places
        Where each row is in the file, from 0.
    """

    labels: npt.NDArray[np.object_] | None
    decisions: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64] | None
    groups: Mapping[str, npt.NDArray[np.object_]]
    clients: npt.NDArray[np.object_] | None
    left_out: Mapping[str, int]
    places: npt.NDArray[np.intp]


def read_predictions(columns: Columns, roles: PredictionColumns, table: str) -> PredictedRows:
    """Read predictions; rows without a decision or a score are left out, and counted.

    What `mfairfl predict` writes is understood as it is (`as_predicted`). Train rows
    (`split_column`) are refused: take them, or the column, away before.

    Parameters
    ----------
    columns
        Of the file (`columns_of`).
    table
        What messages call the file.

    Examples
    --------
    >>> import pandas as pd
    >>> from mfairfl.data.columns import columns_of
    >>> frame = pd.DataFrame({"sex": ["f", "m"], "hired": ["yes", ""], "decision": [1, 0]})
    >>> roles = PredictionColumns(
    ...     sensitive=("sex",), label="hired", favourable="yes", prediction="decision"
    ... )
    >>> rows = read_predictions(columns_of(frame, "people"), roles, "people")
    >>> rows.labels.tolist(), rows.decisions.tolist()
    ([1, None], [1, 0])
    """
    require_columns(columns, roles.named, table)
    splits = split_column(columns, roles)
    if splits is not None and (trained := int((splits.texts == "train").sum())):
        raise DataError(
            f"{table}: {trained:,} of {len(splits.series):,} rows are train rows (column "
            f"'{SPLIT}'), on which a model looks better than on new ones: audit only test rows, "
            "split='test' (--split test), or accept train rows, split='all' (--split all)"
        )
    roles = as_predicted(columns, roles)
    lost, left_out = np.zeros(len(columns[roles.sensitive[0]].series), dtype=bool), {}
    needed = {"decision": roles.prediction, "score": roles.score, "client": roles.client}
    for value, name in needed.items():
        if name is not None:
            gap = columns[name].missing_number if value == "score" else columns[name].missing
            left_out[f"no {value}"] = int((gap & ~lost).sum())
            lost |= gap
    left_out = {reason: count for reason, count in left_out.items() if count}
    if lost.all():
        raise DataError(f"{table}: no row can be counted ({', '.join(left_out)}): fill it in")
    columns = {name: columns[name].take(~lost) for name in roles.named}
    scores = None if roles.score is None else columns[roles.score].numbers
    labels = None
    if roles.prediction is None:
        decisions = np.asarray(scores) > (roles.threshold or 0.0)
    else:
        column = columns[roles.prediction]
        decisions = column.each(_decision_codes(column, roles).get, object)
    if roles.label is not None:
        column = columns[roles.label]
        labels = column.each(_label_codes(column, roles).get, object)
    return PredictedRows(
        labels=labels,
        decisions=decisions.astype(np.int64),
        scores=scores,
        groups={name: columns[name].texts for name in roles.sensitive},
        clients=None if roles.client is None else columns[roles.client].texts,
        left_out=left_out,
        places=np.flatnonzero(~lost),
    )


def ordered_groups(groups: Iterable[str]) -> list[str]:
    """Return groups in the order in which tables show them: numbers as numbers, texts as texts.

    Examples
    --------
    >>> ordered_groups({"10", "9"}), ordered_groups({"10", "9", "x"})
    (['9', '10'], ['10', '9', 'x'])
    """
    texts = sorted(groups)
    numbers = all(text.removeprefix("-").replace(".", "", 1).isdecimal() for text in texts)
    return sorted(texts, key=float) if numbers else texts


def split_column(columns: Columns, roles: PredictionColumns) -> Column | None:
    """Return the column that marks train rows, if there is one.

    It is called `split` and holds train, validation, test and empty cells, nothing else; a column
    that has another role does not count.

    Examples
    --------
    >>> import pandas as pd
    >>> from mfairfl.data.columns import columns_of
    >>> roles = PredictionColumns(sensitive=("sex",), prediction="decision")
    >>> columns = columns_of(pd.DataFrame({"split": ["train", "A/B"]}), "people")
    >>> split_column(columns, roles) is None
    True
    """
    column = None if SPLIT in roles.named else columns.get(SPLIT)
    if column is None or not column.levels or not set(column.levels) <= set(SPLITS):
        return None
    return column


def as_predicted(columns: Columns, roles: PredictionColumns) -> PredictionColumns:
    """Read decisions by the column that `mfairfl predict` writes beside them.

    Its `favourable` marks every decision as favourable or not, so nothing has to be guessed from
    how labels and decisions are written. Columns of other tools, and roles that name the
    favourable decision themselves, stay as they are.

    Raises
    ------
    DataError
        If the favourable label is one that the file decides as unfavourable, or is unknown.

    Examples
    --------
    >>> import pandas as pd
    >>> from mfairfl.data.columns import columns_of
    >>> decided = {"decision": ["No", "Yes"], "favourable": [1, 0]}
    >>> frame = pd.DataFrame(decided | {"left": ["Yes", "No"]})
    >>> roles = PredictionColumns(sensitive=("sex",), prediction="decision", label="left")
    >>> read = as_predicted(columns_of(frame, "people"), roles)
    >>> read.prediction, read.selected, read.favourable
    ('favourable', '1', 'No')
    """
    written = {_DECISION, _FAVOURABLE}
    if roles.selected is not None or roles.prediction not in written:
        return roles
    if not written <= columns.keys() or written & ({*roles.named} - {roles.prediction}):
        return roles
    decided, worth = columns[_DECISION].texts.tolist(), columns[_FAVOURABLE].texts.tolist()
    pairs = set(zip(decided, worth, strict=True)) - {(MISSING, MISSING)}
    code = dict(pairs)
    if len(code) < len(pairs) or not set(code.values()) <= {"0", "1"}:
        return roles
    good = roles.favourable
    if roles.label is not None:
        good = _favourable_label(columns[roles.label], code, good)
    update = {"prediction": _FAVOURABLE, "selected": "1", "favourable": good}
    return roles.model_copy(update=update)


def _favourable_label(column: Column, code: Mapping[str, str], stated: str | None) -> str | None:
    """Return the favourable label of decisions with these codes; None if they do not show it."""
    binary = all(text == value for text, value in code.items())
    good = [text for text, value in code.items() if value == "1"]
    # Decisions that are 0 and 1 may stand beside labels in words, where 0 is not "no".
    meaning = str if code.keys() <= {"0", "1"} else spelling
    bad = {meaning(text) for text, value in code.items() if value == "0"}
    if stated is not None:
        if meaning(stated) in bad:
            raise DataError(
                f"{column.table}: favourable is '{stated}', but the column '{_FAVOURABLE}' says "
                f"that deciding '{stated}' is not; leave favourable (--favourable) out, or say "
                "which decision is (--selected)"
            )
        return stated
    if binary or len(good) > 1:
        return None
    others = [text for text in column.levels if meaning(text) not in bad]
    if not good and len(others) != 1:
        raise _which_is_favourable(column)
    return (good or others)[0]


def _which_is_favourable(column: Column) -> DataError:
    return DataError(
        f"{column.table}: which value of '{column.name}' is good for a person? Set favourable "
        f"(values: {some_of(list(column.levels))})"
    )


def _label_codes(column: Column, roles: PredictionColumns) -> Mapping[str, int]:
    """Return 1 for the favourable label and 0 for the other one."""
    levels = list(column.levels)
    if roles.favourable is None:
        if (pair := _pair(levels)) is None:
            raise _which_is_favourable(column)
        return pair
    codes = label_codes(levels, _as_task(column, roles.favourable))
    known = codes if len(codes) == len(levels) else _only_other(levels, roles.favourable)
    if known is None:
        raise DataError(
            f"{column.table}: '{column.name}' holds {some_of(levels)}: a label has two values, "
            f"one of them '{roles.favourable}' (favourable)"
        )
    return known


def _decision_codes(column: Column, roles: PredictionColumns) -> Mapping[str, int]:
    """Return 1 for favourable decisions: as stated, as labels are written, or 1 and not 0."""
    levels = list(column.levels)
    if roles.selected is not None:
        task = _as_task(column, roles.selected, others_unfavourable=True)
        stated = label_codes(levels, task) or _only_other(levels, roles.selected)
        if stated is None:
            raise DataError(
                f"{column.table}: '{column.name}' never holds '{roles.selected}' (selected), but "
                f"{some_of(levels)}"
            )
        return stated
    pair, like_labels = _pair(levels), None
    if roles.favourable is not None:
        codes = label_codes(levels, _as_task(column, roles.favourable))
        like_labels = codes if len(codes) == len(levels) else None
    if pair is not None and like_labels not in (None, pair):
        raise DataError(
            f"{column.table}: '{column.name}' holds {some_of(levels)}, and the favourable label "
            f"is '{roles.favourable}': say which decision is favourable: selected (--selected)"
        )
    decided = pair or like_labels
    if decided is None and roles.favourable is not None:
        decided = _only_other(levels, roles.favourable)
    if decided is None:
        raise DataError(
            f"{column.table}: which value of '{column.name}' is a favourable decision? Set "
            f"selected (values: {some_of(levels)})"
        )
    return decided


def _as_task(column: Column, favourable: str, **options: bool) -> Task:
    return Task(label=column.name, favourable=favourable, sensitive=(), **options)


def _pair(levels: list[str]) -> dict[str, int] | None:
    """Return codes of values whose second one is the favourable one, whatever they are about."""
    pair = next((pair for pair in ORDERED_LABELS if set(levels) <= set(pair)), None)
    return None if pair is None else {text: pair.index(text) for text in levels}


def _only_other(levels: list[str], favourable: str) -> dict[str, int] | None:
    """Of a file that never holds the favourable value, the only one is the other."""
    rare = len(levels) <= 1 and spelling(favourable) not in map(spelling, levels)
    return dict.fromkeys(levels, 0) if rare else None
