"""Audit rows: a file, a frame, or columns as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mfairfl.data.files import FileContent, read_file, read_frame
from mfairfl.errors import ConfigError, DataError
from mfairfl.fairness.arrays import named_columns
from mfairfl.report.audit.build import build_audit
from mfairfl.report.audit_settings import AuditFacts, AuditSource, RowOptions, validated
from mfairfl.report.counted_rows import count_frame
from mfairfl.report.document import Document


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
        The label and the decision that are good for a person. Found out where they are 0 and 1 or
        the like; `favourable` holds for decisions that are written like labels.
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
        predict` writes it); train rows are refused unless "train" or "all" is said.
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
    >>> found = audit(
    ...     y_true=[1, 1, 0, 0] * 9, y_pred=[1, 0, 1, 0] * 9, sensitive_features=list("fmfm") * 9
    ... )
    >>> [(one.name, one.value) for one in found.overall if "parity_diff" in one.name]
    [('demographic_parity_difference', 1.0), ('accuracy_parity_difference', 0.0)]
    """
    given = {
        name: value
        for name, value in locals().items()
        if name in RowOptions.model_fields and value is not None
    }
    arrays = {"label": y_true, "prediction": y_pred, "score": scores, "client": clients}
    name = "the rows"
    if rows is None:
        content, columns = _from_arrays(arrays, sensitive_features, given)
        given |= columns
    elif any(array is not None for array in (sensitive_features, *arrays.values())):
        raise ConfigError("rows and arrays: give a file or frame and names of columns, or arrays")
    elif isinstance(rows, str | PathLike):
        content, name = read_file(rows), Path(rows).name
    else:
        content = FileContent(read_frame(rows), sha256="")
    options = validated(RowOptions, given)
    earlier = Document.read(Path(baseline)) if isinstance(baseline, str | PathLike) else baseline
    return audit_content(content, options, name=name, baseline=earlier)


def audit_content(
    content: FileContent,
    options: RowOptions,
    *,
    name: str,
    baseline: Document | None = None,
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
    counted = count_frame(content.frame, options, name=name)
    source = AuditSource(
        name=name,
        rows=len(content.frame),
        sha256=content.sha256,
        left_out=dict(counted.left_out),
        notes=[*content.notes, *counted.notes],
    )
    built = build_audit(
        counted.counts,
        options.settings(counted.meaning),
        sources=[source],
        above_median=counted.above_median,
        baseline=baseline,
    )
    return built.with_warnings(counted.warnings)


def _from_arrays(
    arrays: Mapping[str, Any], sensitive_features: Any, given: Mapping[str, Any]
) -> tuple[FileContent, dict[str, Any]]:
    """Make a frame of arrays; return it with the names of its columns."""
    if any(given.get(role) for role in ("sensitive", *arrays)):
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
