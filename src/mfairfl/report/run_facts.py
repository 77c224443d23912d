"""What the files of a run say beside its numbers: data, use of groups, server, provenance."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from mfairfl.data import MISSING, Encoder
from mfairfl.data.task import Bin, Task
from mfairfl.display.numbers import capital
from mfairfl.errors import ConfigError, DataError
from mfairfl.files import read_regular_file
from mfairfl.report.document import DataTreatment, GroupUse, Provenance, ServerView, Withheld
from mfairfl.report.reported_run import ReportedRun
from mfairfl.report.training_history import HISTORY
from mfairfl.report.wording import and_list
from mfairfl.runs.manifest import manifest, protocol_of
from mfairfl.runs.options import dotted
from mfairfl.runs.record import ClientFacts, WithheldCell
from mfairfl.strategies import Card, create
from mfairfl.text import some_of

_MANY = 5  # values that a line names
_SILOS = "silos"  # the scheme of clients with files of their own
_ENCODER = "encoder.json"
_FILES = ("run.json", "model.safetensors", _ENCODER)


# ------------------------------------------------------------------ data


def data_treatment(run: ReportedRun) -> DataTreatment:
    """Return which client has how many rows, and what was dropped, filled in or merged."""
    record, facts, encoder = run.record, run.record.federation, _encoder(run)
    dropped, filled, merged = (
        [line.line for line in facts.treatment if line.kind == kind]
        for kind in ("dropped", "filled", "merged")
    )
    if record.task.ignore:
        dropped.append(f"columns left out on request: {', '.join(record.task.ignore)}")
    by_kind = {line.line for line in facts.treatment}
    return DataTreatment(
        rows=record.data.rows,
        clients=[_client(run, client) for client in facts.clients],
        dropped=dropped,
        filled=[*filled, *_filled_numbers(encoder)],
        merged=[*merged, *_formed_groups(record.task), *_rare_levels(encoder)],
        notes=[note for note in facts.notes if note not in by_kind],
        warnings=facts.warnings,
    )


def _encoder(run: ReportedRun) -> Encoder | None:
    """Read how features became numbers; None if the file is missing or unreadable."""
    data = _file(run, _ENCODER)
    try:
        return None if data is None else Encoder.from_json(data, name=_ENCODER)
    except DataError:
        return None


def _client(run: ReportedRun, client: ClientFacts) -> dict[str, Any]:
    """Return a client's sizes; its base rate from the counts if its rows are elsewhere."""
    sizes = {"train": client.train, "validation": client.validation, "test": client.test}
    rows = sum(sizes.values()) if client.rows is None else client.rows
    rate = _counted_rate(run, client.name) if client.base_rate is None else client.base_rate
    return {"name": client.name, "rows": rows, **sizes, "base_rate": rate}


def _counted_rate(run: ReportedRun, name: str) -> float | None:
    favourable = rows = 0.0
    for tally in run.record.tallies.values():
        if name in tally.clients:
            labels = tally.counts[tally.clients.index(name)].sum(axis=(0, 2))
            favourable, rows = favourable + float(labels[1]), rows + float(labels.sum())
    return favourable / rows if rows else None


def _filled_numbers(encoder: Encoder | None) -> Iterator[str]:
    for column in encoder.numeric if encoder else ():
        if column.indicator:
            yield (
                f"column '{column.name}': a missing number becomes {column.mean:.6g}, the mean of "
                "the train rows, and an input of its own marks it"
            )


def _rare_levels(encoder: Encoder | None) -> Iterator[str]:
    for column in encoder.categorical if encoder else ():
        if column.rare:
            named = some_of([f"'{level}'" for level in column.rare], _MANY)
            yield f"column '{column.name}': values in few rows are treated as one: {named}"


def _formed_groups(task: Task) -> Iterator[str]:
    """Describe which values form a group of a sensitive attribute."""
    for sensitive in task.sensitive:
        groups = [_bin(group) for group in sensitive.bins if group.name != MISSING]
        if sensitive.rest is not None:
            groups.append(f"'{sensitive.rest}' is every other value")
        if groups:
            yield f"sensitive attribute '{sensitive.name}': {'; '.join(groups)}"


def _bin(group: Bin) -> str:
    if group.values is not None:
        values = some_of([f"'{value}'" for value in group.values], _MANY)
        return f"'{group.name}' is {values}"
    if group.min is None:
        return f"'{group.name}' is up to {group.max:g}"
    if group.max is None:
        return f"'{group.name}' is from {group.min:g}"
    return f"'{group.name}' is {group.min:g} to {group.max:g}"


# ------------------------------------------------------------------ use of groups


def group_use(run: ReportedRun) -> GroupUse:
    """Describe whether a decision needs the group, as an input or to choose a threshold."""
    task, served = run.record.task, run.record.served
    features = {*(task.numeric or ()), *(task.categorical or ())}
    columns = list(dict.fromkeys(sensitive.column for sensitive in task.sensitive))
    if not columns:
        return GroupUse(
            reads_group=False,
            sentence="No sensitive attribute was named: nothing is known about how decisions use "
            "groups.",
            details=[],
        )
    inputs = [c for c in columns if c in features and task.sensitive_as_features]
    thresholds = served.thresholds is not None
    details = [
        f"Inputs of the model: {and_list(inputs)}."
        if inputs
        else f"Not an input of the model: {and_list(columns)}."
    ]
    if thresholds:
        details.append(
            "Scores become decisions by a threshold for each group; near it, decisions may be "
            "drawn at random."
        )
    proxies = [line.line for line in run.record.federation.treatment if line.kind == "proxy"]
    details += [f"{capital(line)}." for line in proxies]
    if not inputs:
        details.append(
            "Other columns may still reveal the group: leaving a column out does not make a model "
            "blind to it."
        )
    return GroupUse(
        reads_group=bool(inputs) or thresholds,
        sentence=_use_sentence(and_list(columns), inputs=bool(inputs), thresholds=thresholds),
        details=details,
    )


def _use_sentence(columns: str, *, inputs: bool, thresholds: bool) -> str:
    if inputs and thresholds:
        how = "the model reads it, and the threshold depends on the group"
    elif inputs:
        how = "the model reads it like any other column"
    elif thresholds:
        how = "the threshold depends on the group, though the model does not read it"
    else:
        return f"Decisions do not read {columns}: neither the model nor the decision rule uses it."
    return (
        f"Decisions read {columns}: {how}. Whether that is lawful depends on the use; a person's "
        "group must be known to decide."
    )


# ------------------------------------------------------------------ server


def server_view(run: ReportedRun) -> ServerView:
    """Describe what the server saw, as far as method and settings are known."""
    record, card = run.record, _card(run)
    if card is None:
        return ServerView(
            sentence=f"What crossed is not known: the method {record.strategy} is not installed "
            "here."
        )
    if record.config.get("masked"):
        return ServerView(
            sentence="Silos sent counts by group as sums under masks, which mfairfl 0.7 had; "
            "updates and losses crossed singly. The report of that version lists all that crossed."
        )
    try:
        terms = protocol_of(record.config, rule=record.served.rule, splits=record.intervals)
    except (KeyError, TypeError, ValidationError):
        return ServerView(sentence="What crossed is not known: the settings were altered.")
    if record.federation.scheme == _SILOS:
        sentence = (
            "The rows stayed with the silos. By the protocol of this run each of them sent what "
            "is listed here; its own ledger has every answer that it gave."
        )
    else:
        sentence = (
            "All rows were in one place, where the clients were simulated. Of clients with files "
            "of their own the server would see what is listed here."
        )
    return ServerView(sentence=sentence, lines=list(manifest(card, terms)))


def _card(run: ReportedRun) -> Card | None:
    """Return the method's card with the hyper-parameters of the run, if they still exist."""
    settings = run.record.config["strategy"]
    if run.card is None:
        return None
    try:
        chosen = {key: value for key, value in settings.items() if key != "name"}
        return create(run.record.strategy, **chosen).card
    except ConfigError:
        return run.card


def withheld_by_silos(run: ReportedRun) -> list[Withheld]:
    """Return what each silo withheld."""
    return [
        Withheld(
            client=client,
            min_rows=facts.min_rows,
            sets=[_row_set(cell) for cell in facts.withheld],
            rows={**facts.rows_withheld},
            policy_sha256=facts.policy_sha256,
        )
        for client, facts in sorted(run.record.federation.disclosure.items())
    ]


def _row_set(withheld: WithheldCell) -> str:
    groups = [f"{attribute} = {group}" for attribute, group in withheld.cell.items()]
    label = "favourable" if withheld.label else "unfavourable"
    return ", ".join([f"{withheld.split} rows", *groups, f"{label} label"])


# ------------------------------------------------------------------ provenance


def provenance(run: ReportedRun) -> Provenance:
    """Collect identity, settings, hashes, versions and machine."""
    record = run.record
    return Provenance(
        run=run.path.resolve().name,
        identity=record.identity,
        strategy=record.strategy,
        settings=dotted(record.config),
        seed=record.seed,
        data=record.data.model_dump(),
        files=_digests(run),
        versions=record.versions,
        machine=record.machine.model_dump(),
    )


def altered_files(run: ReportedRun) -> list[str]:
    """Describe the files that are missing or are not those that the record was written with."""
    digests, problems = _digests(run), list[str]()
    for name, recorded in run.record.files.items():
        if name not in digests:
            problems.append(f"{name} is missing: the model that was measured cannot be checked")
        elif digests[name] != recorded:
            problems.append(
                f"{name} is not the file that was measured: its SHA-256 begins with "
                f"{digests[name][:12]}, that in run.json with {recorded[:12]}"
            )
    if not any((run.path / name).exists() for name in HISTORY):
        problems.append(f"{and_list(HISTORY)} are missing: how training went is not known")
    return problems


def _digests(run: ReportedRun) -> dict[str, str]:
    """Return the SHA-256 of the files that exist."""
    contents = {name: _file(run, name) for name in _FILES}
    return {
        name: hashlib.sha256(data).hexdigest()
        for name, data in contents.items()
        if data is not None
    }


def _file(run: ReportedRun, name: str) -> bytes | None:
    try:
        return read_regular_file(run.path / name)
    except OSError:
        return None
