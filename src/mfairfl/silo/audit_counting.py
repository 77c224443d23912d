"""A silo's part in an audit: it counts its own rows, and lets out what passes its floor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from mfairfl.data import MISSING, Attribute, Sensitive, Task, cells_of, features_frame
from mfairfl.data.binning import stand_in, value_groups
from mfairfl.data.coding import group_codes, label_codes
from mfairfl.data.columns import MOST_GROUPS, Column, Columns, columns_of
from mfairfl.data.files import FileContent, read_file
from mfairfl.data.predictions import PredictionColumns, read_predictions
from mfairfl.engine.clients import served_logits
from mfairfl.engine.output import draw_decisions
from mfairfl.engine.state import Measure
from mfairfl.errors import ConfigError, DataError, MessageError
from mfairfl.fairness.audit_counts import AuditCounts
from mfairfl.fairness.cells import Cells
from mfairfl.models import Model
from mfairfl.silo.audit_consent import (
    AuditConsent,
    require_columns_agreed,
    require_model_agreed,
    require_scores_agreed,
)
from mfairfl.silo.consent import RunConsent
from mfairfl.silo.policy import Policy
from mfairfl.silo.refusals import refuse_absurd, refuse_excess
from mfairfl.silo.release import FileMemory
from mfairfl.silo.silo_file import SiloSettings
from mfairfl.silo.usage import refuse_beyond
from mfairfl.wire.audit_answers import (
    LONGEST_GROUP,
    SiloCounts,
    SiloFacts,
    pack_counts,
    pack_groups,
)
from mfairfl.wire.audit_questions import AuditAsk, SentModel, unpack_audit, unpack_groups_ask
from mfairfl.wire.codec import Packet, Shape


def answer_groups(settings: SiloSettings, policy: Policy, header: Mapping[str, Any]) -> Packet:
    """Name the groups of sensitive columns that enough rows are in."""
    own = _consent(settings)
    asked = require_columns_agreed(own, unpack_groups_ask(header))
    rows = read_predictions(_columns(settings, _read(settings)), asked, _path(settings).name)
    found = {}
    for column, texts in rows.groups.items():
        values, counts = np.unique(texts.astype(np.str_), return_counts=True)
        enough = counts >= policy.disclosure.min_rows
        named = [str(value) for value in values[enough] if _is_name(value)]
        if len(named) > MOST_GROUPS:
            raise MessageError(
                f"sensitive column '{column}' has more than {MOST_GROUPS} values; form a few "
                "groups in the file"
            )
        found[column] = named
    return pack_groups(found)


def _is_name(value: str) -> bool:
    """Say whether a value can be the name of a group; rows with others are counted as ``?``."""
    return value != MISSING and value.isprintable() and len(value) <= LONGEST_GROUP


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Rows that can be counted.

    Parameters
    ----------
    content : FileContent
        The file they are in.
    places : ndarray (n,)
        Where they are in it.
    labels, decisions, groups, scores
        As `AuditCounts.from_rows` takes them.
    of_model : bool
        Whether the scores are those of a model that came with the request.
    left_out : mapping of str to int
        Rows that cannot be counted, by reason.
    """

    content: FileContent
    places: NDArray[np.intp]
    labels: NDArray[np.object_] | None
    decisions: NDArray[Any]
    groups: Mapping[str, NDArray[np.object_]]
    scores: NDArray[np.float64] | None
    of_model: bool
    left_out: Mapping[str, int] = field(default_factory=dict)


def answer_audit(
    settings: SiloSettings, policy: Policy, consent: RunConsent | None, packet: Packet
) -> tuple[Packet, NDArray[np.int64]]:
    """Count decisions by group, label and score, but for what is below the silo's floor.

    Returns the answer, and the rows per group and label that it tells.
    """
    own = _consent(settings)
    try:
        ask = unpack_audit(packet)
    except (ConfigError, DataError) as error:  # about numbers in the message: no rows are read
        raise MessageError(f"an 'audit' message: {error}") from None
    if isinstance(ask.subject, SentModel):
        rows = _of_model(settings, policy, consent, ask.subject)
    else:
        require_scores_agreed(own, ask.subject.threshold, ask.grid)
        rows = _of_predictions(settings, ask, require_columns_agreed(own, ask.subject))
    disclosure, content = policy.disclosure, rows.content
    floor = disclosure.min_rows
    strata = AuditCounts.strata_of(
        rows.labels,
        sensitive_features=rows.groups,
        attributes=ask.attributes,
        rows=len(rows.decisions),
    )
    memory = FileMemory(settings.state, _path(settings), content, disclosure)
    memory.count_task(rows.places, strata)
    if floor > 1 and rows.scores is not None and not rows.of_model:
        rows = replace(rows, scores=_pooled_scores(rows.scores, strata, floor))
    counts = _counts(settings, ask, rows)
    counts = counts if floor == 1 else counts.suppress(floor)
    left_out = {reason: max(count, floor - 1) for reason, count in rows.left_out.items()}
    facts = SiloFacts(floor=floor, sha256=content.sha256, left_out=left_out)
    return pack_counts(SiloCounts(counts, facts)), counts.rows


def _counts(settings: SiloSettings, ask: AuditAsk, rows: _Rows) -> AuditCounts:
    return AuditCounts.from_rows(
        rows.labels,
        rows.decisions,
        sensitive_features=rows.groups,
        clients=[settings.name] * len(rows.decisions),
        scores=rows.scores,
        grid=ask.grid,
        attributes=ask.attributes,
    )


def _pooled_scores(
    scores: NDArray[np.float64], strata: NDArray[np.intp], floor: int
) -> NDArray[np.float64]:
    """Return scores of which each is that of enough rows of a group and label."""
    pooled = scores.copy()
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        groups = value_groups(scores[members], floor, floor)
        for group in np.unique(groups):
            same = members[groups == group]
            pooled[same] = stand_in(scores[same], floor)[0]
    return pooled


def _consent(settings: SiloSettings) -> AuditConsent:
    if settings.audit is None:
        raise MessageError(
            f"'{settings.name}' takes part in no audit: its silo.toml has no section [audit]"
        )
    return settings.audit


def _path(settings: SiloSettings) -> Path:
    return _consent(settings).file or settings.csv


def _read(settings: SiloSettings) -> FileContent:
    own = _consent(settings)
    given = settings.format if own.file is None else own.format
    return read_file(_path(settings), given)


def _columns(settings: SiloSettings, content: FileContent) -> Columns:
    return columns_of(content.frame, _path(settings).name, settings)


# ------------------------------------------------------------------ predictions in a file


def _of_predictions(settings: SiloSettings, ask: AuditAsk, roles: PredictionColumns) -> _Rows:
    content = _read(settings)
    rows = read_predictions(_columns(settings, content), roles, _path(settings).name)
    return _Rows(
        content=content,
        places=rows.places,
        labels=rows.labels,
        decisions=rows.decisions,
        groups={a.name: _known(rows.groups[a.name], a) for a in ask.attributes},
        scores=rows.scores,
        of_model=False,
        left_out=rows.left_out,
    )


def _known(texts: NDArray[np.object_], attribute: Attribute) -> NDArray[np.object_]:
    """Return the rows' groups; what is not among those that were agreed on is not known."""
    known = np.isin(texts.astype(np.str_), attribute.groups)
    return np.where(known, texts, MISSING)


# ------------------------------------------------------------------ decisions of a model


def _of_model(
    settings: SiloSettings, policy: Policy, consent: RunConsent | None, sent: SentModel
) -> _Rows:
    task = sent.task
    require_model_agreed(_consent(settings), task, sent.audited)
    asked = Measure(
        (sent.served.members,), ("test",), sent.served.weights, None, sent.served.thresholds
    )
    if consent is not None:
        consent.require_task(task)
        consent.require_model(sent.terms)
        consent.require(asked, task.attributes)
    model = sent.terms.build(len(sent.encoder.feature_names))
    _refuse_much(policy, sent, model, asked)
    content = _read(settings)
    # The silo's own rules of reading come first, as in training.
    task = task.model_copy(update=dict(task.read_as(settings)))
    name = _path(settings).name
    size = len(content.frame) * sent.encoder.row_bytes // 10**6
    refuse_beyond(policy.limits, "megabytes", size, "megabytes of encoded rows")
    columns = columns_of(content.frame, name, task)
    inputs = sent.encoder.encode(features_frame(content.frame, task, name=name))
    z = served_logits(sent.served, model, inputs, name=name)
    z = z if sent.served.kind == "mixture" else z[0]
    cells = None
    if sent.served.thresholds is not None:
        cells = cells_of(content.frame, task, name=name)
    chance = sent.served.decision_chance(z, cells)
    drawn = sent.served.kind == "mixture" or sent.served.thresholds is not None
    audited = [s for s in task.sensitive if s.name in sent.audited]
    return _Rows(
        content=content,
        places=np.arange(len(inputs)),
        labels=_labels(columns, task, name),
        decisions=draw_decisions(chance),
        groups={s.name: _groups(columns, s, name) for s in audited},
        scores=chance if drawn else expit(z),
        of_model=True,
    )


def _refuse_much(policy: Policy, sent: SentModel, model: Model, asked: Measure) -> None:
    """Refuse a model that is too large, or that no honest coordinator sends."""
    refuse_beyond(policy.limits, "weights", model.size, "weights of a model")
    members = sent.served.members
    if members.shape[1] != model.size:
        raise MessageError(f"a model of {members.shape[1]} weights; it has {model.size}")
    refuse_excess(asked, policy, rows=0)
    refuse_absurd(asked, Shape(model.size, Cells(sent.task.attributes).size), sent.task.attributes)


def _labels(columns: Columns, task: Task, name: str) -> NDArray[np.object_] | None:
    """Return 0 or 1, or None where the label is not known."""
    if task.label not in columns:
        return None
    column = columns[task.label]
    codes = label_codes(column.levels, task)
    if odd := [text for text in column.levels if text not in codes]:
        raise DataError(
            f"{name}: column '{task.label}' holds '{odd[0]}', neither '{task.favourable}' nor "
            f"'{task.unfavourable}'"
        )
    return np.array([codes.get(text) for text in column.texts], dtype=object)


def _groups(columns: Columns, sensitive: Sensitive, name: str) -> NDArray[np.object_]:
    """Return each row's group; what is in no group of the task is not known."""
    if sensitive.column not in columns:
        raise DataError(f"{name}: no column '{sensitive.column}', whose groups are compared")
    known = sensitive.with_unrecorded(())
    if known.rest is None:
        known = known.model_copy(update={"rest": MISSING})
    column: Column = columns[sensitive.column]
    codes, resolved = group_codes(column, known)
    return np.array(resolved.groups, dtype=object)[codes]
