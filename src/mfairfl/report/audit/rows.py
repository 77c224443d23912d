"""Audit rows: a file, a frame, or columns as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from pydantic import BaseModel, ValidationError

from mfairfl.data import SPLITS, canonical_text
from mfairfl.data.frame import FileContent, read_file, read_frame
from mfairfl.data.predictions import PredictionColumns
from mfairfl.errors import ConfigError, DataError, first_problem, require_known
from mfairfl.fairness.arrays import named_columns
from mfairfl.fairness.audit_counts import ScoreGrid
from mfairfl.fairness.notions import notion
from mfairfl.report.audit.build import build_audit
from mfairfl.report.audit.document import AuditDocument, read_audit
from mfairfl.report.audit.numbers import needs_label
from mfairfl.report.audit.reading import ALL, RowReading, count_frame
from mfairfl.report.audit.settings import NOT_STATED, AuditFacts, AuditSettings, AuditSource

_Model = TypeVar("_Model", bound=BaseModel)

_ARRAYS = {"label": "y_true", "prediction": "y_pred", "score": "scores", "client": "clients"}
"""The columns that arrays become, and the arguments they come from."""


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
    baseline: AuditDocument | str | PathLike[str] | None = None,
) -> AuditDocument:
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
    baseline : AuditDocument or path
        An earlier audit, to say what changed.

    Returns
    -------
    AuditDocument
        `print` shows the summary, `write(folder)` writes page, tables and audit.json.

    Examples
    --------
    >>> found = audit(
    ...     y_true=[1, 1, 0, 0] * 9, y_pred=[1, 0, 1, 0] * 9, sensitive_features=list("fmfm") * 9
    ... )
    >>> [(one.name, one.value) for one in found.overall if "parity_diff" in one.name]
    [('demographic_parity_difference', 1.0), ('accuracy_parity_difference', 0.0)]
    """
    named: dict[str, Any] = {"label": label, "prediction": prediction, "score": score}
    named |= {"client": client, "sensitive": sensitive}
    arrays = {"y_true": y_true, "y_pred": y_pred, "scores": scores, "clients": clients}
    if rows is None:
        content, named = _from_arrays(arrays, sensitive_features, named)
    elif sensitive_features is not None or any(one is not None for one in arrays.values()):
        raise ConfigError("rows and arrays: give a file or frame and names of columns, or arrays")
    elif isinstance(rows, str | PathLike):
        content = read_file(rows)
    else:
        content = FileContent(read_frame(rows), sha256="")
    reading, settings = stated(
        **named,
        favourable=favourable,
        selected=selected,
        threshold=threshold,
        score_range=score_range,
        bins=bins or {},
        unknown=unknown,
        split=split,
        notions=notions,
        tolerance=tolerance,
        level=level,
        sex=sex,
        race=race,
        small_categories=small_categories,
        facts=facts,
    )
    return audit_content(
        content,
        reading,
        settings,
        name=Path(rows).name if isinstance(rows, str | PathLike) else "the rows",
        baseline=read_audit(Path(baseline)) if isinstance(baseline, str | PathLike) else baseline,
    )


def stated(
    *,
    sensitive: str | Sequence[str],
    sex: str | None = None,
    race: str | None = None,
    score_range: tuple[float, float] = (0.0, 1.0),
    bins: Mapping[str, Sequence[float]],
    unknown: Sequence[object] = (),
    split: str | None = None,
    notions: str | Sequence[str] = ("demographic_parity",),
    facts: AuditFacts | Mapping[str, str] | None = None,
    **others: Any,
) -> tuple[RowReading, AuditSettings]:
    """Check what was said of an audit; the arguments are those of `audit`.

    The columns of sex and race are sensitive whether they are named so or not. An audit without a
    date is of today.
    """
    groups = [sensitive] if isinstance(sensitive, str) else list(sensitive)
    groups += [name for name in (sex, race) if name is not None]
    if not groups:
        raise ConfigError("fair for whom? Name the columns of groups: sensitive= (--sensitive)")
    if split is not None:
        require_known("split", [split], (*SPLITS, ALL))
    chosen = (notions,) if isinstance(notions, str) else tuple(notions)
    of_columns = {name: others.pop(name, None) for name in PredictionColumns.model_fields}
    roles = _validated(PredictionColumns, of_columns | {"sensitive": tuple(dict.fromkeys(groups))})
    known = facts if isinstance(facts, AuditFacts) else _validated(AuditFacts, dict(facts or {}))
    if known.audit_date == NOT_STATED:
        known = known.model_copy(update={"audit_date": date.today().isoformat()})
    settings = _validated(
        AuditSettings, others | {"facts": known, "notions": chosen, "sex": sex, "race": race}
    )
    for name in settings.notions:
        if roles.label is None and needs_label(notion(name)):
            raise ConfigError(f"notion '{name}' needs labels: name their column (--label)")
    return RowReading(
        roles=roles,
        bins=bins,
        unknown=tuple(map(canonical_text, unknown)),
        grid=ScoreGrid(*score_range),
        split=split,
    ), settings


def audit_content(
    content: FileContent,
    reading: RowReading,
    settings: AuditSettings,
    *,
    name: str,
    baseline: AuditDocument | None = None,
) -> AuditDocument:
    """Audit rows that were read.

    Parameters
    ----------
    content
        The rows, and what was guessed on reading them.
    reading, settings
        What they mean, and what they are held against.
    name
        What messages and the document call them.
    """
    found = count_frame(content.frame, reading, name=name)
    source = AuditSource(
        name=name,
        rows=len(content.frame),
        sha256=content.sha256,
        left_out=dict(found.left_out),
        notes=[*content.notes, *found.notes],
    )
    built = build_audit(
        found.counts,
        settings.model_copy(update={"meaning": found.meaning}),
        sources=[source],
        above_median=found.above_median,
        baseline=baseline,
    )
    return built.with_warnings(found.warnings)


def _from_arrays(
    arrays: Mapping[str, Any], sensitive_features: Any, names: Mapping[str, Any]
) -> tuple[FileContent, dict[str, Any]]:
    """Make a frame of arrays; return it with the names of its columns."""
    if names["sensitive"] or any(names[role] is not None for role in _ARRAYS):
        raise ConfigError("names of columns need rows: pass a file or a frame first")
    if sensitive_features is None:
        raise ConfigError("fair for whom? Pass sensitive_features= (or rows and sensitive=)")
    groups = named_columns(sensitive_features, None)
    given = {role: arrays[of] for role, of in _ARRAYS.items() if arrays[of] is not None}
    if twice := sorted(groups.keys() & given.keys()):
        raise ConfigError(f"a sensitive feature is called '{twice[0]}': rename it")
    columns = {name: np.asarray(values) for name, values in (given | groups).items()}
    sizes = {name: len(values) if values.ndim == 1 else -1 for name, values in columns.items()}
    if len(set(sizes.values())) > 1 or -1 in sizes.values():
        raise DataError(f"columns differ in length: {sizes}; give one value per row in each")
    frame = read_frame(pd.DataFrame(columns))
    return FileContent(frame, sha256=""), {
        **{role: role if role in given else None for role in _ARRAYS},
        "sensitive": tuple(groups),
    }


def _validated(model: type[_Model], values: Mapping[str, Any]) -> _Model:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"audit: {first_problem(error, model)}") from None
