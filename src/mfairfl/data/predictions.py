"""A file of any model's predictions: what was true, what was decided, for whom, row by row."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from mfairfl.data.coding import ORDERED_LABELS, label_codes, spelling
from mfairfl.data.columns import Column, Columns, require_columns
from mfairfl.data.federation import SPLITS
from mfairfl.data.task import Task
from mfairfl.data.values import MISSING, Floats, Integers, Mask, StrictModel, Text, Texts
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
            raise ConfigError(
                "no decisions: name their column (prediction), or a column of scores and a "
                "threshold"
            )
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

    labels: Texts | None
    decisions: Integers
    scores: Floats | None
    groups: Mapping[str, Texts]
    clients: Texts | None
    left_out: Mapping[str, int]
    places: Integers


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
    for reason, gap in _gaps(columns, roles):
        if count := int((gap & ~lost).sum()):
            left_out[reason] = count
        lost |= gap
    if lost.all():
        raise DataError(f"{table}: no row can be counted ({', '.join(left_out)}): fill it in")
    columns = {name: columns[name].take(~lost) for name in roles.named}
    return PredictedRows(
        labels=None if roles.label is None else _labels(columns[roles.label], roles),
        decisions=_decisions(columns, roles),
        scores=None if roles.score is None else columns[roles.score].numbers,
        groups={name: columns[name].texts for name in roles.sensitive},
        clients=None if roles.client is None else columns[roles.client].texts,
        left_out=left_out,
        places=np.flatnonzero(~lost),
    )


def _gaps(columns: Columns, roles: PredictionColumns) -> Iterator[tuple[str, Mask]]:
    """Yield what rows lack that cannot be counted without it, and which rows."""
    if roles.prediction is not None:
        yield "no decision", columns[roles.prediction].missing
    if roles.score is not None:
        yield "no score", columns[roles.score].missing_number
    if roles.client is not None:
        yield "no client", columns[roles.client].missing


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
    good = [text for text, value in code.items() if value == "1"]
    if len(good) > 1 or all(text == value for text, value in code.items()):
        return None
    good = good or [text for text in column.levels if meaning(text) not in bad]
    if len(good) != 1:
        raise _undecided(column, "good for a person", "favourable")
    return good[0]


def _undecided(column: Column, what: str, key: str) -> DataError:
    return DataError(
        f"{column.table}: which value of '{column.name}' is {what}? Set {key} "
        f"(values: {some_of(list(column.levels))})"
    )


def _labels(column: Column, roles: PredictionColumns) -> Texts:
    """Return 1 for the favourable label, 0 for the other one and None where it is missing."""
    if roles.favourable is None:
        codes = _pair(column)
        if codes is None:
            raise _undecided(column, "good for a person", "favourable")
    else:
        codes = _codes(column, roles.favourable) or _only_other(column, roles.favourable)
    if codes is None:
        raise DataError(
            f"{column.table}: '{column.name}' holds {some_of(list(column.levels))}: a label has "
            f"two values, one of them '{roles.favourable}' (favourable)"
        )
    return column.each(codes.get, object)


def _decisions(columns: Columns, roles: PredictionColumns) -> Integers:
    """Return 1 for favourable decisions: as stated, as labels are written, or 1 and not 0."""
    if roles.prediction is None:
        return (columns[str(roles.score)].numbers > (roles.threshold or 0.0)).astype(np.int64)
    column, selected, favourable = columns[roles.prediction], roles.selected, roles.favourable
    levels = some_of(list(column.levels))
    if selected is not None:
        codes = _codes(column, selected, others_unfavourable=True) or _only_other(column, selected)
        if codes is None:
            raise DataError(
                f"{column.table}: '{column.name}' never holds '{selected}' (selected), but "
                f"{levels}"
            )
    else:
        codes, like_labels = _pair(column), _codes(column, favourable)
        if codes and like_labels not in (None, codes):
            raise DataError(
                f"{column.table}: '{column.name}' holds {levels}, and the favourable label is "
                f"'{favourable}': say which decision is favourable: selected (--selected)"
            )
        codes = codes or like_labels or _only_other(column, favourable)
    if codes is None:
        raise _undecided(column, "a favourable decision", "selected")
    return column.each(codes.get, object).astype(np.int64)


def _pair(column: Column) -> dict[str, int] | None:
    """Return codes if the values are a pair whose second one is favourable in any column."""
    levels = column.levels.keys()
    pair = next((pair for pair in ORDERED_LABELS if levels <= set(pair)), None)
    return None if pair is None else {text: pair.index(text) for text in levels}


def _codes(column: Column, favourable: str | None, **options: bool) -> dict[str, int] | None:
    """Return 1 for the favourable value and 0 for others; None unless that codes every value."""
    if favourable is None:
        return None
    task = Task(label=column.name, favourable=favourable, sensitive=(), **options)
    codes = label_codes(column.levels, task)
    return codes if len(codes) == len(column.levels) else None


def _only_other(column: Column, favourable: str | None) -> dict[str, int] | None:
    """Of a file that never holds the favourable value, the only one is the other."""
    levels = column.levels
    if favourable is None or len(levels) > 1 or spelling(favourable) in map(spelling, levels):
        return None
    return dict.fromkeys(levels, 0)
