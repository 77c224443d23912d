"""Whether decisions read a person's group, and what else gives it away."""

from __future__ import annotations

from mfairfl.report.document import GroupUse
from mfairfl.report.reported_run import ReportedRun
from mfairfl.report.wording import and_list


def group_use(run: ReportedRun) -> GroupUse:
    """Say whether a decision needs the group, as an input or to choose a threshold."""
    task, served = run.record.task, run.record.served
    features = {*(task.numeric or ()), *(task.categorical or ())}
    columns = [s.column for s in task.sensitive]
    if not columns:
        said = "No sensitive attribute was named: nothing is known about how decisions use groups."
        return GroupUse(reads_group=False, sentence=said, details=[])
    inputs = [c for c in columns if c in features and task.sensitive_as_features]
    thresholds = served.thresholds is not None
    named = and_list(dict.fromkeys(columns))
    details = []
    if inputs:
        details.append(f"Inputs of the model: {and_list(dict.fromkeys(inputs))}.")
    else:
        details.append(f"Not an input of the model: {named}.")
    if thresholds:
        details.append(
            "Scores become decisions by a threshold for each group; near it, decisions may be "
            "drawn at random."
        )
    details += [_capital(one.line) for one in run.record.federation.treatment
                if one.kind == "proxy"]  # fmt: skip
    if not inputs:
        details.append(
            "Other columns may still tell the group: leaving a column out does not make a model "
            "blind to it."
        )
    return GroupUse(
        reads_group=bool(inputs) or thresholds,
        sentence=_sentence(named, inputs=bool(inputs), thresholds=thresholds),
        details=details,
    )


def _sentence(named: str, *, inputs: bool, thresholds: bool) -> str:
    if inputs and thresholds:
        how = "the model reads it, and the threshold depends on the group"
    elif inputs:
        how = "the model reads it like any other column"
    elif thresholds:
        how = "the threshold depends on the group, though the model does not read it"
    else:
        return f"Decisions do not read {named}: neither the model nor the decision rule uses it."
    return (
        f"Decisions read {named}: {how}. Whether that is lawful depends on the use; a person's "
        "group must be known to decide."
    )


def _capital(line: str) -> str:
    return f"{line[:1].upper()}{line[1:]}."
