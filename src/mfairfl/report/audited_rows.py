"""Audit rows: a file, a frame or columns as they are, counted by groups, labels and decisions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mfairfl.data import MISSING, SPLITS, Attribute, predictions
from mfairfl.data.agreement import MOST_CELLS
from mfairfl.data.coding import ORDERED_LABELS
from mfairfl.data.columns import MOST_GROUPS, Column, Columns, columns_of, require_columns
from mfairfl.data.files import FileContent, read_file, read_frame
from mfairfl.data.values import Reading
from mfairfl.errors import ConfigError, DataError
from mfairfl.fairness.audit_counts import AuditCounts
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.tally import named_columns
from mfairfl.report.audit_document import build_audit
from mfairfl.report.audit_settings import (
    ALL,
    AuditFacts,
    AuditMeaning,
    AuditSource,
    RowOptions,
    validated,
)
from mfairfl.report.bias_tables import Selections
from mfairfl.report.document import Document

MOST_COUNTS = 5_000
"""Clients times combinations of groups: intervals draw each of them two thousand times."""
_MOST_NUMBERS = 20  # values of a column of numbers that are taken for groups
_UNKNOWN = frozenset(
    {"unknown", "not stated", "not specified", "not disclosed", "prefer not to say", "undisclosed"}
    | {"na", "n/a", "nan", "null", "none", "missing", "-", "no answer", "declined"}
)
"""Groups of these names are probably none."""


def audit(
    rows: Any = None,
    *,
    sensitive: str | Sequence[str] = (),
    label: str | None = None,
    prediction: str | None = None,
    score: str | None = None,
    client: str | None = None,
    y_true: Any = None,
    y_pred: Any = None,
    sensitive_features: Any = None,
    scores: Any = None,
    clients: Any = None,
    favourable: object = None,
    selected: object = None,
    threshold: float | None = None,
    score_range: tuple[float, float] = (0.0, 1.0),
    bins: Mapping[str, Sequence[float]] | None = None,
    unknown: Sequence[object] = (),
    split: str | None = None,
    notions: str | Sequence[str] = ("demographic_parity",),
    tolerance: float | None = None,
    level: float = 0.95,
    sex: str | None = None,
    race: str | None = None,
    small_categories: str | None = None,
    facts: AuditFacts | Mapping[str, str] | None = None,
    baseline: Document | str | PathLike[str] | None = None,
) -> Document:
    """Audit any model's decisions, with or without labels and scores.

    Give rows and the names of their columns, or the columns themselves.

    Parameters
    ----------
    rows : path or frame
        A file (CSV, Excel, JSON, Parquet), or a pandas, polars or pyarrow frame.
    sensitive, label, prediction, score, client : str
        Columns of `rows`: groups (one or more), what was true, what was decided, a score, whose
        each row is.
    y_true, y_pred, sensitive_features, scores, clients : array-like
        The same as values, instead of `rows`; as in `mfairfl.fairness`.
    favourable, selected
        The label and the decision that are good for a person. Detected where they are 0 and 1 or
        the like; `favourable` also applies to decisions that are written like labels.
    threshold : float
        Without decisions: a score above it is a favourable one.
    score_range : (float, float)
        The lowest and the highest possible score.
    bins : mapping
        Cuts of sensitive columns of numbers: ``{"age": [40, 60]}``.
    unknown : sequence
        Values that mean "not known", in any column, besides empty cells and ``?``.
    split : {"test", "validation", "train", "all"}
        Which rows to audit, where a column `split` holds train, validation and test (as `mfairfl
        predict` writes it); train rows are refused unless "train" or "all" is given.
    notions : str or sequence of str
        What the verdict is about.
    tolerance : float
        The largest acceptable violation; without it there is no verdict.
    level : float
        Confidence level of intervals.
    sex, race : str
        Sensitive columns for tables in the form of 6 RCNY §5-301.
    small_categories : str
        Why categories under 2 % of the rows are left out of the ratios of these tables.
    facts : AuditFacts or mapping
        What is printed beside them: tool, data_source, data_kind, distribution_date, audit_date.
    baseline : Document or path
        An earlier audit, to say what changed.

    Returns
    -------
    Document
        `print` shows the summary, `write(folder)` writes page, tables and audit.json.

    Examples
    --------
    >>> document = audit(
    ...     y_true=[1, 1, 0, 0] * 9, y_pred=[1, 0, 1, 0] * 9, sensitive_features=list("fmfm") * 9
    ... )
    >>> [(one.name, one.value) for one in document.overall if "parity_diff" in one.name]
    [('demographic_parity_difference', 1.0), ('accuracy_parity_difference', 0.0)]
    """
    keywords = {
        name: value
        for name, value in locals().items()
        if name in RowOptions.model_fields and value is not None
    }
    arrays = {"label": y_true, "prediction": y_pred, "score": scores, "client": clients}
    name = "the rows"
    if rows is None:
        content, columns = _from_arrays(arrays, sensitive_features, keywords)
        keywords |= columns
    elif any(array is not None for array in (sensitive_features, *arrays.values())):
        raise ConfigError("rows and arrays: give a file or frame and names of columns, or arrays")
    elif isinstance(rows, str | PathLike):
        content, name = read_file(rows), Path(rows).name
    else:
        content = FileContent(read_frame(rows), sha256="")
    options = validated(RowOptions, keywords)
    earlier = Document.read(Path(baseline)) if isinstance(baseline, str | PathLike) else baseline
    return audit_content(content, options, name=name, baseline=earlier)


def audit_content(
    content: FileContent, options: RowOptions, *, name: str, baseline: Document | None = None
) -> Document:
    """Audit rows that were read.

    Parameters
    ----------
    content
        The rows, and what was guessed on reading them.
    options
        What they mean, and what they are held against.
    name
        What messages and the document call them.
    """
    named = options.columns()
    require_columns(content.frame.columns, [*named.named, *options.bins], name)
    reading = Reading(missing_codes=options.unknown)
    columns = dict(columns_of(content.frame, name, reading))
    columns, notes, warnings = _of_split(columns, options.split, named, name)
    for column, cuts in options.bins.items():
        if column not in named.sensitive:
            raise ConfigError(f"bins of '{column}': it is not a sensitive column")
        columns[column] = _binned(columns[column], cuts)
    roles = predictions.as_predicted(columns, named)
    rows = predictions.read_predictions(columns, roles, name)
    attributes = _attributes(columns, rows, options.bins, name)
    _check_size(rows, attributes, name)

    def count(decisions: Any, scores: Any = None) -> AuditCounts:
        return AuditCounts.from_rows(
            rows.labels,
            decisions,
            sensitive_features=rows.groups,
            attributes=attributes,
            clients=rows.clients,
            scores=scores,
            grid=options.grid(),
        )

    source = AuditSource(
        name=name,
        rows=len(content.frame),
        sha256=content.sha256,
        left_out={**rows.left_out},
        notes=[*content.notes, *notes, *_doubtful_groups(attributes)],
    )
    document = build_audit(
        count(rows.decisions, rows.scores),
        options.settings(_meaning(columns, rows, named, roles)),
        sources=[source],
        above_median=None if rows.scores is None else Selections.above_exact(rows.scores, count),
        baseline=baseline,
    )
    return document.with_warnings(warnings)


def _from_arrays(
    arrays: Mapping[str, Any], sensitive_features: Any, keywords: Mapping[str, Any]
) -> tuple[FileContent, dict[str, Any]]:
    """Make a frame of arrays; return it with the names of its columns."""
    if any(keywords.get(role) for role in ("sensitive", *arrays)):
        raise ConfigError("names of columns need rows: pass a file or a frame first")
    if sensitive_features is None:
        raise ConfigError("fair for whom? Pass sensitive_features= (or rows and sensitive=)")
    groups = named_columns(sensitive_features, None)
    values = {role: array for role, array in arrays.items() if array is not None}
    if twice := sorted(groups.keys() & values.keys()):
        raise ConfigError(f"a sensitive feature is called '{twice[0]}': rename it")
    columns = {name: np.asarray(array) for name, array in (values | groups).items()}
    sizes = {name: len(column) if column.ndim == 1 else -1 for name, column in columns.items()}
    if len(set(sizes.values())) > 1 or -1 in sizes.values():
        raise DataError(f"columns differ in length: {sizes}; give one value per row in each")
    frame = read_frame(pd.DataFrame(columns))
    names = {role: role for role in values} | {"sensitive": tuple(groups)}
    return FileContent(frame, sha256=""), names


# ------------------------------------------------------------------ splits


def _of_split(
    columns: dict[str, Column], split: str | None, roles: predictions.PredictionColumns, name: str
) -> tuple[dict[str, Column], list[str], list[str]]:
    """Return the columns with the rows that were chosen, a note and a warning about them."""
    column = predictions.split_column(columns, roles)
    if column is None and split not in (None, ALL):
        raise DataError(
            f"{name}: no column '{predictions.SPLIT}' that holds {', '.join(SPLITS)} and nothing "
            "else; leave split= (--split) out"
        )
    if column is None or split is None:
        return columns, [], []
    counted = (column.texts == split) | (split == ALL)
    if not counted.any():
        raise DataError(f"{name}: no row of split '{split}'; choose another (--split)")
    note = f"only rows of split '{split}' are counted: {counted.sum():,} of {len(counted):,}"
    trained = int((column.texts[counted] == "train").sum())
    warning = (
        f"{trained:,} of {counted.sum():,} rows are train rows: a model looks better on them "
        "than on new ones"
    )
    chosen = {
        key: values.take(counted) for key, values in columns.items() if key != predictions.SPLIT
    }
    return chosen, [note] * (split != ALL), [warning] * (trained > 0)


# ------------------------------------------------------------------ groups


def _binned(column: Column, cuts: Sequence[float]) -> Column:
    """Return the column with names of intervals instead of numbers.

    Examples
    --------
    >>> _binned(Column("people", pd.Series(["39", "40", "60", ""], name="age")), [40, 60]).texts
    array(['under 40', '40 to under 60', '60 and over', '?'], dtype=object)
    """
    if not cuts or list(cuts) != sorted(set(cuts)):
        raise ConfigError(f"bins of '{column.name}': give ascending numbers, such as 40,60")
    numbers, names = column.numbers, np.array([*_bin_names(cuts), MISSING], dtype=object)
    place = np.where(np.isnan(numbers), len(cuts) + 1, np.searchsorted(cuts, numbers, "right"))
    texts = pd.Series(names[place], index=column.series.index, name=column.name)
    return replace(column, series=texts)


def _bin_names(cuts: Sequence[float]) -> list[str]:
    edges = [f"{cut:g}" for cut in cuts]
    between = [f"{low} to under {high}" for low, high in pairwise(edges)]
    return [f"under {edges[0]}", *between, f"{edges[-1]} and over"]


def _attributes(
    columns: Columns,
    rows: predictions.PredictedRows,
    bins: Mapping[str, Sequence[float]],
    name: str,
) -> tuple[Attribute, ...]:
    """Return the groups that occur: bins and numbers in their order, ``?`` last."""
    attributes = []
    for column, texts in rows.groups.items():
        groups = predictions.ordered_groups({*texts} - {MISSING})
        numbers = columns[column].recognised is not None
        if column in bins:
            groups = [group for group in _bin_names(bins[column]) if group in groups]
        if not groups:
            raise DataError(f"{name}: sensitive column '{column}' has no value: leave it out")
        if len(groups) > (_MOST_NUMBERS if numbers else MOST_GROUPS):
            raise DataError(
                f"{name}: sensitive column '{column}' has {len(groups)} values ('{groups[0]}', "
                f"'{groups[1]}', ...): form a few groups, of numbers by bins (--bins "
                f'"{column}=40,60")'
            )
        attributes.append(Attribute(column, (*groups, *[MISSING] * (MISSING in texts))))
    return tuple(attributes)


def _check_size(
    rows: predictions.PredictedRows, attributes: tuple[Attribute, ...], name: str
) -> None:
    cells = Cells(attributes).size
    if cells > MOST_CELLS:
        raise DataError(
            f"{name}: the sensitive columns make {cells:,} combinations of groups, at most "
            f"{MOST_CELLS:,} can be compared: name fewer columns, or form larger groups"
        )
    crossed = Cells(attributes).grouping(*(attribute.name for attribute in attributes)).groups
    if len(set(crossed)) < len(crossed):
        twice = next(group for group in crossed if crossed.count(group) > 1)
        raise DataError(f"{name}: two combinations of groups are called '{twice}': rename a group")
    clients = 1 if rows.clients is None else len(set(rows.clients.tolist()))
    if clients > 1 and clients * cells > MOST_COUNTS:
        raise DataError(
            f"{name}: {clients:,} clients × {cells:,} combinations of groups are too many to "
            "compare: leave the client column out, or form larger groups"
        )


def _doubtful_groups(attributes: Sequence[Attribute]) -> list[str]:
    """Return a note on each group whose name suggests that the group is not known."""
    return [
        f"'{group}' is counted as a group of '{attribute.name}'; if it means that the group is "
        f"not known, add --unknown '{group}'"
        for attribute in attributes
        for group in attribute.recorded
        if group.casefold() in _UNKNOWN
    ]


# ------------------------------------------------------------------ labels and decisions


def _meaning(
    columns: Columns,
    rows: predictions.PredictedRows,
    named: predictions.PredictionColumns,
    roles: predictions.PredictionColumns,
) -> AuditMeaning:
    """Return which values are the favourable ones: as stated, or as detected."""
    favourable = selected = ""
    if roles.label is not None:
        favourable = roles.favourable or _second(columns[roles.label])
    if named.prediction is not None:
        column = columns[named.prediction]
        chosen = column.texts[rows.places[rows.decisions == 1]]
        selected = named.selected or next(iter(chosen), "") or _second(column) or favourable
    return AuditMeaning(
        label=named.label or "",
        favourable=favourable,
        prediction=named.prediction or "",
        selected=selected,
        score=named.score or "",
        threshold=named.threshold,
        client=named.client or "",
    )


def _second(column: Column) -> str:
    """Return the favourable one of two values such as 0 and 1; empty if they are others."""
    levels = set(column.levels)
    return next((pair[1] for pair in ORDERED_LABELS if levels <= set(pair)), "")
