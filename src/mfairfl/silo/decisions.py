"""A silo's part in an audit: it counts decisions on its own rows, and suppresses small counts."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from mfairfl.data import MISSING, Sensitive, Task, cells_of, features_frame
from mfairfl.data.coding import group_codes, label_codes
from mfairfl.data.columns import MOST_GROUPS, Columns
from mfairfl.data.predictions import PredictedRows, PredictionColumns, read_predictions
from mfairfl.data.sums import stand_in, value_groups
from mfairfl.engine.clients import served_logits
from mfairfl.engine.output import draw_decisions
from mfairfl.engine.state import Measure
from mfairfl.errors import DataError
from mfairfl.fairness.audit_counts import AuditCounts
from mfairfl.fairness.cells import Cells
from mfairfl.silo import refusals
from mfairfl.silo.policy import Policy, refuse_beyond
from mfairfl.silo.rows import FileMemory, Session
from mfairfl.wire import audit_messages as messages
from mfairfl.wire.packing import require
from mfairfl.wire.run_messages import Shape


def frequent_groups(
    session: Session, policy: Policy, question: messages.GroupsQuestion
) -> messages.GroupsAnswer:
    """Name the groups of sensitive columns that enough rows are in."""
    roles = refusals.require_columns_agreed(session.audit_consent, question.columns)
    file = session.audited
    rows = read_predictions(file.columns(session.settings), roles, file.name)
    groups = {}
    for column, texts in rows.groups.items():
        values, counts = np.unique(texts.astype(np.str_), return_counts=True)
        enough = counts >= policy.disclosure.min_rows
        # Rows with a value that cannot be a group's name are counted as "?".
        names = [
            str(value)
            for value in values[enough]
            if value != MISSING and value.isprintable() and len(value) <= messages.LONGEST_GROUP
        ]
        many = f"sensitive column '{column}' has more than {MOST_GROUPS} values"
        require(len(names) <= MOST_GROUPS, f"{many}; form a few groups in the file")
        groups[column] = tuple(names)
    return messages.GroupsAnswer(groups=groups)


def count_decisions(
    session: Session,
    policy: Policy,
    consent: refusals.RunConsent | None,
    question: messages.AuditQuestion,
) -> messages.AuditAnswer:
    """Count decisions by group, label and score, but for what is below the silo's floor."""
    subject, of_model = question.subject, isinstance(question.subject, messages.SentModel)
    if isinstance(subject, messages.SentModel):
        rows = _of_model(session, policy, consent, subject)
    else:
        rows = _of_predictions(session, subject, question)
    settings, disclosure, floor = session.settings, policy.disclosure, policy.disclosure.min_rows
    strata = AuditCounts.strata_of(
        rows.labels,
        sensitive_features=rows.groups,
        attributes=question.attributes,
        rows=len(rows.decisions),
    )
    content = session.audited.content()
    memory = FileMemory(settings.state, session.audited.path, content, disclosure)
    memory.count_task(rows.places, strata)
    scores = rows.scores
    if floor > 1 and scores is not None and not of_model:
        scores = _pooled_scores(scores, strata, floor)
    counts = AuditCounts.from_rows(
        rows.labels,
        rows.decisions,
        sensitive_features=rows.groups,
        clients=[settings.name] * len(rows.decisions),
        scores=scores,
        grid=question.grid,
        attributes=question.attributes,
    )
    left_out = {reason: max(count, floor - 1) for reason, count in rows.left_out.items()}
    facts = messages.SiloFacts(floor=floor, sha256=content.sha256, left_out=left_out)
    return messages.AuditAnswer.of(counts if floor == 1 else counts.suppress(floor), facts)


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


# ------------------------------------------------------------------ predictions in a file


def _of_predictions(
    session: Session, subject: PredictionColumns, question: messages.AuditQuestion
) -> PredictedRows:
    """Return the rows of a file; those in no group that was agreed on are in the group ``?``."""
    roles = refusals.require_columns_agreed(session.audit_consent, subject, question.grid)
    file = session.audited
    rows = read_predictions(file.columns(session.settings), roles, file.name)
    groups = {}
    for attribute in question.attributes:
        texts = rows.groups[attribute.name]
        agreed = np.isin(texts.astype(np.str_), attribute.groups)
        groups[attribute.name] = np.where(agreed, texts, MISSING)
    return replace(rows, groups=groups)


# ------------------------------------------------------------------ decisions of a model


def _of_model(
    session: Session, policy: Policy, consent: refusals.RunConsent | None, sent: messages.SentModel
) -> PredictedRows:
    """Return the rows with the decisions of a model that may be applied."""
    task, served = sent.task, sent.served
    refusals.require_model_agreed(session.audit_consent, task, sent.audited)
    ask = Measure((served.members,), ("test",), served.weights, None, served.thresholds)
    if consent is not None:
        consent.require_task(task)
        consent.require_model(sent.terms)
        consent.require(ask, task.attributes)
    model = sent.terms.build(len(sent.encoder.feature_names))
    refuse_beyond(policy.limits, "weights", model.size, "weights of a model")
    size = sent.members.shape[1]
    require(size == model.size, f"a model of {size} weights; it has {model.size}")
    refusals.refuse_excess(ask, policy, rows=0)
    refusals.refuse_absurd(ask, Shape(model.size, Cells(task.attributes).size), task.attributes)
    file, name = session.audited, session.audited.name
    frame = file.content().frame
    # The silo's own rules of reading come first, as in training.
    rules = task.read_as(session.settings)
    task = task.model_copy(update=dict(rules))
    size = len(frame) * sent.encoder.row_bytes // 10**6
    refuse_beyond(policy.limits, "megabytes", size, "megabytes of encoded rows")
    columns = file.columns(rules)
    inputs = sent.encoder.encode(features_frame(frame, task, name=name))
    z = served_logits(served, model, inputs, name=name)
    z = z if served.kind == "mixture" else z[0]
    rule = served.thresholds
    by_group = rule is not None and rule.reads_group
    cells = cells_of(frame, task, name=name) if by_group else None
    chance = served.decision_chance(z, cells)
    drawn = served.kind == "mixture" or rule is not None
    return PredictedRows(
        labels=_labels(columns, task, name),
        decisions=draw_decisions(chance).astype(np.int64),
        scores=chance if drawn else expit(z),
        groups={
            s.name: _groups(columns, s, name) for s in task.sensitive if s.name in sent.audited
        },
        clients=None,
        left_out={},
        places=np.arange(len(inputs)),
    )


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
    """Return each row's group, ``?`` where it is in no group of the task."""
    if sensitive.column not in columns:
        raise DataError(f"{name}: no column '{sensitive.column}', whose groups are compared")
    complete = sensitive.with_unrecorded(())
    if complete.rest is None:
        complete = complete.model_copy(update={"rest": MISSING})
    codes, resolved = group_codes(columns[sensitive.column], complete)
    return np.array(resolved.groups, dtype=object)[codes]
