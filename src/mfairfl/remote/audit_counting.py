"""A silo's part in an audit: it counts its own rows, and lets out what passes its floor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from mfairfl.data import MISSING, Attribute, Sensitive, Task, cells_of, features_frame
from mfairfl.data.binning import stand_in, value_groups
from mfairfl.data.columns import MOST_GROUPS, Column, Columns, columns_of, group_codes
from mfairfl.data.frame import FileContent, read_file
from mfairfl.data.labels import label_codes
from mfairfl.data.predictions import PredictionColumns, read_predictions
from mfairfl.engine.serving import decision_chance, draw_decisions, served_logits
from mfairfl.engine.state import Measure
from mfairfl.errors import ConfigError, DataError, MessageError
from mfairfl.fairness.audit_counts import AuditCounts
from mfairfl.fairness.cells import Cells
from mfairfl.guard.row_sets import NOWHERE, RowClasses
from mfairfl.models import Model
from mfairfl.remote.audit_answers import (
    LONGEST_GROUP,
    SiloCounts,
    SiloFacts,
    pack_counts,
    pack_groups,
)
from mfairfl.remote.audit_consent import (
    AuditConsent,
    require_columns_agreed,
    require_model_agreed,
)
from mfairfl.remote.audit_questions import AuditAsk, SentModel, unpack_audit, unpack_groups_ask
from mfairfl.remote.codec import Packet, Shape
from mfairfl.remote.disclosed import Disclosed, keyed_sha256, open_account
from mfairfl.remote.ledger import RowSetFacts
from mfairfl.remote.policy import Policy
from mfairfl.remote.refusals import refuse_absurd, refuse_excess
from mfairfl.remote.silo_file import SiloSettings, require_consent
from mfairfl.remote.usage import refuse_beyond

__all__ = ["answer_audit", "answer_groups"]


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
    settings: SiloSettings, policy: Policy, packet: Packet
) -> tuple[Packet, list[RowSetFacts]]:
    """Count decisions by group, label and score, but for what is below the silo's floor.

    Returns the answer, and the sets of rows that it is about.
    """
    own = _consent(settings)
    try:
        ask = unpack_audit(packet)
    except (ConfigError, DataError) as error:  # about numbers in the message: no rows are read
        raise MessageError(f"an 'audit' message: {error}") from None
    if isinstance(ask.subject, SentModel):
        rows = _of_model(settings, policy, ask.subject)
    else:
        rows = _of_predictions(settings, ask, require_columns_agreed(own, ask.subject))
    floor, sha256 = policy.disclosure.min_rows, rows.content.sha256
    told = {reason: max(count, floor - 1) for reason, count in rows.left_out.items()}
    if floor == 1:
        facts = SiloFacts(floor=floor, sha256=sha256, left_out=told)
        return pack_counts(SiloCounts(_counts(settings, ask, rows), facts)), []
    account = open_account(
        settings.state, _path(settings), sha256, len(rows.content.frame), policy.disclosure
    )
    facts = SiloFacts(floor=floor, sha256=keyed_sha256(settings.state, sha256), left_out=told)
    found = _with_floor(settings, ask, rows, account)
    return pack_counts(SiloCounts(found, facts)), account.used


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


def _with_floor(
    settings: SiloSettings, ask: AuditAsk, rows: _Rows, account: Disclosed
) -> AuditCounts:
    """Count rows, but for groups and labels that the account does not let out."""
    size = 3 * Cells(ask.attributes).size
    if len(rows.decisions) < account.floor:  # nothing is told, so the account need not know
        every = np.ones((1, size // 3, 3), dtype=bool)
        return _counts(settings, ask, rows).without(every, account.floor)
    strata = AuditCounts.strata_of(
        rows.labels,
        sensitive_features=rows.groups,
        attributes=ask.attributes,
        rows=len(rows.decisions),
    )
    candidate = _candidate("groups and labels", account, rows, strata)
    account.count_task(np.where(candidate.parts == NOWHERE, NOWHERE, candidate.classes))
    (groups,) = account.admit([candidate])
    told = np.ones(size, dtype=bool)
    told[: len(groups)] = groups != NOWHERE
    if rows.scores is not None and not rows.of_model:
        rows = replace(rows, scores=_pooled_scores(rows, strata, told, account))
    hidden = ~told & (np.bincount(strata, minlength=size) > 0)
    return _counts(settings, ask, rows).without(hidden.reshape(1, -1, 3), account.floor)


def _candidate(
    what: str, account: Disclosed, rows: _Rows, classes: NDArray[np.intp], **options: bool
) -> RowClasses:
    """Return classes of the counted rows; those below 0 are in none."""
    parts, own = np.full(account.rows, NOWHERE, np.int32), np.zeros(account.rows, np.int32)
    inside = classes >= 0
    parts[rows.places[inside]], own[rows.places[inside]] = 0, classes[inside]
    return RowClasses(f"{what} of an audit", parts, own, **options)


def _pooled_scores(
    rows: _Rows, strata: NDArray[np.intp], told: NDArray[np.bool_], account: Disclosed
) -> NDArray[np.float64]:
    """Return scores in which enough rows of a group and label have each one."""
    scores = np.array(rows.scores, dtype=np.float64)
    own = [np.flatnonzero(strata == one) for one in np.unique(strata[told[strata]])]
    candidates, classes = [], []
    for members in own:
        found = np.full(len(strata), NOWHERE, dtype=np.intp)
        found[members] = value_groups(scores[members], account.floor, account.floor)
        candidates.append(_candidate("scores", account, rows, found, ordered=True))
        classes.append(found[members])
    for members, found, groups in zip(own, classes, account.admit(candidates), strict=True):
        each = groups[found]
        for group in np.unique(each):
            same = members[each == group]
            scores[same] = stand_in(scores[same], account.floor)[0]
    return scores


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
    return read_file(_path(settings), **asdict(given))


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


def _of_model(settings: SiloSettings, policy: Policy, sent: SentModel) -> _Rows:
    task = sent.task
    require_model_agreed(_consent(settings), task, sent.audited)
    require_consent(settings, task)
    model = sent.terms.build(len(sent.encoder.feature_names))
    _refuse_much(policy, sent, model)
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
    chance = decision_chance(sent.served, z, cells)
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


def _refuse_much(policy: Policy, sent: SentModel, model: Model) -> None:
    """Refuse a model that is too large, or that no honest coordinator sends."""
    refuse_beyond(policy.limits, "weights", model.size, "weights of a model")
    members, rule = sent.served.members, sent.served.thresholds
    if members.shape[1] != model.size:
        raise MessageError(f"a model of {members.shape[1]} weights; it has {model.size}")
    asked = Measure((members,), ("test",), sent.served.weights, None, rule)
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
    codes, resolved, _ = group_codes(column, known)
    return np.array(resolved.groups, dtype=object)[codes]
