"""The report of a run as a typed document, from the files of run folders alone."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mfairfl import __version__
from mfairfl.data import MISSING, Encoder
from mfairfl.data.coding import TreatmentKind
from mfairfl.data.task import Bin, Task
from mfairfl.display.numbers import capital
from mfairfl.errors import ConfigError, DataError, RunDirectoryError
from mfairfl.experiments.tradeoff import Tradeoff, tradeoff
from mfairfl.fairness.thresholds import Thresholds
from mfairfl.files import read_regular_file
from mfairfl.references import known_reference
from mfairfl.report import document as forms
from mfairfl.report.comparison import (
    baseline_of,
    changes_between,
    compared_models,
    read_with_baseline,
    worsened_from,
)
from mfairfl.report.headline import run_headline
from mfairfl.report.reported_run import ReportedRun
from mfairfl.report.training_history import HISTORY, training_history
from mfairfl.report.wording import and_list, defined, is_loss, known_notion
from mfairfl.runs.directory import SCORES
from mfairfl.runs.manifest import manifest, protocol_of
from mfairfl.runs.options import dotted
from mfairfl.runs.record import ClientFacts, WithheldCell
from mfairfl.runs.reference_records import fit_on_rows_of
from mfairfl.strategies import Card, create
from mfairfl.text import one_line, some_of

_LONGEST = 2000  # characters of a text
_MANY = 5  # values that a line names
_ENCODER = "encoder.json"


def build_report(runs: Sequence[str | Path], *, references: Sequence[str] = ()) -> forms.Document:
    """Collect everything that the report of a run says.

    Parameters
    ----------
    runs : sequence of path
        Folders of finished runs. The first is judged, the others are compared with it; the first
        of them on the same rows that has no constraint on groups (FedAvg, if there is one) is the
        baseline. If there is none, that in the first run's own folder is.
    references : sequence of str
        Pooled references (`mfairfl.references.REFERENCES`) to fit on the rows of the first run,
        which must be on file.

    Raises
    ------
    RunDirectoryError
        If a folder holds no finished run, or its files cannot be read.
    ConfigError
        If a run is given twice, a reference is unknown, or the rows for it are not there.

    Examples
    --------
    >>> report = build_report(["runs/mfairfl", "runs/fedavg"])  # doctest: +SKIP
    >>> print(report.headline.verdict)  # doctest: +SKIP
    """
    wanted = [known_reference(name) for name in dict.fromkeys(references)]
    subjects = read_with_baseline(runs)
    run, baseline = subjects[0], baseline_of(subjects)
    table, aim = run.table, run.aim
    compared = compared_models(subjects, fit_on_rows_of(run.record, wanted))
    changes = [] if baseline is None else changes_between(baseline, run)
    worse = None if baseline is None else worsened_from(baseline, run)
    digests = _digests(run)
    curves, refused = _tradeoff(run)
    altered = [*_altered_files(run, digests), *refused]
    report = forms.Document(
        kind="report",
        mfairfl=__version__,
        split=run.split,
        level=table.level,
        goal=list(aim.measures),
        headline=run_headline(run, baseline, changes, worse, altered),
        overall=[*table.overall.values()],
        sections=[section.led_by(aim.notions) for section in table.sections],
        clients=table.clients,
        compared=compared,
        changes=changes,
        baseline="" if baseline is None else baseline.name,
        tradeoff=curves,
        training=training_history(run),
        data=_data_treatment(run),
        group_use=group_use(run),
        server=_server_view(run),
        withheld=[
            forms.Withheld(
                client=client,
                min_rows=facts.min_rows,
                sets=[_row_set(cell) for cell in facts.withheld],
                rows={**facts.rows_withheld},
                policy_sha256=facts.policy_sha256,
            )
            for client, facts in sorted(run.record.federation.disclosure.items())
        ],
        provenance=forms.Provenance(
            run=run.path.resolve().name,
            identity=run.record.identity,
            strategy=run.record.strategy,
            settings=dotted(run.record.config),
            seed=run.record.seed,
            data=run.record.data.model_dump(),
            files=digests,
            versions=run.record.versions,
            machine=run.record.machine.model_dump(),
        ),
    )
    return forms.Document.model_validate(_printable(defined(report).model_dump()))


def _printable(value: Any) -> Any:
    """Return plain data in which every text is one line without control characters.

    Names and values are those of files and of silos; two names may look alike once they are
    printable.
    """
    if isinstance(value, str):
        return one_line(value, _LONGEST)
    if isinstance(value, list | tuple):
        return [_printable(entry) for entry in value]
    if not isinstance(value, Mapping):
        return value
    printable: dict[str, Any] = {}
    for key, entry in value.items():
        name = shown = one_line(key, _LONGEST)
        copies = 1
        while name in printable:
            copies += 1
            name = f"{shown} ({copies})"
        printable[name] = _printable(entry)
    return printable


def _row_set(withheld: WithheldCell) -> str:
    groups = [f"{attribute} = {group}" for attribute, group in withheld.cell.items()]
    label = "favourable" if withheld.label else "unfavourable"
    return ", ".join([f"{withheld.split} rows", *groups, f"{label} label"])


# ------------------------------------------------------------------ files


def _file(run: ReportedRun, name: str) -> bytes | None:
    try:
        return read_regular_file(run.path / name)
    except OSError:
        return None


def _digests(run: ReportedRun) -> dict[str, str]:
    """Return the SHA-256 of the files that exist."""
    names = ("run.json", "model.safetensors", _ENCODER, SCORES)
    contents = {name: _file(run, name) for name in names}
    return {
        name: hashlib.sha256(data).hexdigest()
        for name, data in contents.items()
        if data is not None
    }


def _altered_files(run: ReportedRun, digests: Mapping[str, str]) -> list[str]:
    """Describe the files that are missing or are not those that the record was written with."""
    problems = []
    for name, recorded in run.record.files.items():
        if name == SCORES:
            continue  # which the report reads, and refuses itself
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


def _tradeoff(run: ReportedRun) -> tuple[Tradeoff | None, list[str]]:
    """Return what other tolerances would cost, if that is known, and why its file is refused."""
    decided = [name for name in run.aim.notions if known_notion(name) and not is_loss(name)]
    if SCORES not in run.record.files or not decided:
        return None, []
    try:
        return tradeoff([run.path], decided), []
    except DataError:  # a group without train rows: the numbers say so
        return None, []
    except RunDirectoryError as error:
        return None, [str(error).removeprefix(f"{run.path}/")]


# ------------------------------------------------------------------ data


def _data_treatment(run: ReportedRun) -> forms.DataTreatment:
    """Return which client has how many rows, and what was dropped, filled in or merged."""
    record, facts = run.record, run.record.federation
    ignored = record.task.ignore
    filled, merged = _encoded(run)
    treated = {treated.line for treated in facts.treatment}
    return forms.DataTreatment(
        rows=record.data.rows,
        clients=[_client(run, client) for client in facts.clients],
        dropped=[
            *_treated(run, "dropped"),
            *[f"columns left out on request: {', '.join(ignored)}"] * bool(ignored),
        ],
        filled=[*_treated(run, "filled"), *filled],
        merged=[*_treated(run, "merged"), *_formed_groups(record.task), *merged],
        notes=[note for note in facts.notes if note not in treated],
        warnings=facts.warnings,
    )


def _treated(run: ReportedRun, kind: TreatmentKind) -> list[str]:
    return [treated.line for treated in run.record.federation.treatment if treated.kind == kind]


def _encoded(run: ReportedRun) -> tuple[list[str], list[str]]:
    """Describe what the encoder fills in and merges; nothing if its file is no encoder."""
    try:
        encoder = Encoder.from_json(_file(run, _ENCODER) or b"", name=_ENCODER)
    except DataError:
        return [], []
    filled = [
        f"column '{number.name}': a missing number becomes {number.mean:.6g}, the mean of the "
        "train rows, and an input of its own marks it"
        for number in encoder.numeric
        if number.indicator
    ]
    merged = [
        f"column '{column.name}': values in few rows are treated as one: {_quoted(column.rare)}"
        for column in encoder.categorical
        if column.rare
    ]
    return filled, merged


def _quoted(values: Iterable[object]) -> str:
    return some_of([f"'{value}'" for value in values], _MANY)


def _client(run: ReportedRun, client: ClientFacts) -> forms.ClientRows:
    """Return a client's sizes; its base rate from the counts if its rows are elsewhere."""
    sizes = {"train": client.train, "validation": client.validation, "test": client.test}
    rows = sum(sizes.values()) if client.rows is None else client.rows
    rate = _counted_rate(run, client.name) if client.base_rate is None else client.base_rate
    return forms.ClientRows(name=client.name, rows=rows, base_rate=rate, **sizes)


def _counted_rate(run: ReportedRun, name: str) -> float | None:
    favourable = rows = 0.0
    for tally in run.record.tallies.values():
        if name in tally.clients:
            labels = tally.counts[tally.clients.index(name)].sum(axis=(0, 2))
            favourable, rows = favourable + float(labels[1]), rows + float(labels.sum())
    return favourable / rows if rows else None


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
        return f"'{group.name}' is {_quoted(group.values)}"
    if group.min is None:
        return f"'{group.name}' is up to {group.max:g}"
    if group.max is None:
        return f"'{group.name}' is from {group.min:g}"
    return f"'{group.name}' is {group.min:g} to {group.max:g}"


# ------------------------------------------------------------------ use of groups


def group_use(run: ReportedRun) -> forms.GroupUse:
    """Describe whether a decision needs the group or the client, and what for."""
    task, stored, fit = run.record.task, run.record.served.thresholds, run.record.served.fit
    rule = None if stored is None else Thresholds.from_json(stored)
    thresholds, by_client = rule is not None and rule.reads_group, bool(rule and rule.clients)
    if not task.sensitive:
        sentence = (
            "No sensitive attribute was named: nothing is known about how decisions use groups."
        )
        return forms.GroupUse(reads_group=False, sentence=sentence, details=[])
    columns = list(dict.fromkeys(sensitive.column for sensitive in task.sensitive))
    features = task.features * task.sensitive_as_features
    inputs = [column for column in columns if column in features]
    proxies = [f"{capital(line)}." for line in _treated(run, "proxy")]
    by_group = ["Scores become decisions by a threshold for each group."] * thresholds
    if rule is not None and rule.randomised:
        share = f"{fit.drawn:.1%} of people" if fit is not None else "Some people"
        by_group.append(f"{share} are decided at random, between two thresholds.")
    if by_client and fit is not None:
        by_group.append(
            "Each client has thresholds of its own: another client, drawn at random, would decide "
            f"{fit.otherwise:.1%} of people otherwise. A client that took no part decides by the "
            "thresholds for everyone."
        )
    if inputs:
        details = [f"Inputs of the model: {and_list(inputs)}.", *by_group, *proxies]
    else:
        details = [
            f"Not an input of the model: {and_list(columns)}.",
            *by_group,
            *proxies,
            "Other columns may still reveal the group: leaving a column out does not make a model "
            "blind to it.",
        ]
    how = {
        (True, True): "the model reads it, and the threshold depends on the group",
        (True, False): "the model reads it like any other column",
        (False, True): "the threshold depends on the group, though the model does not read it",
        (False, False): "",
    }[bool(inputs), thresholds]
    sentence = (
        f"Decisions read {and_list(columns)}: {how}. Whether that is lawful depends on the use; a "
        "person's group must be known to decide."
        if how
        else f"Decisions do not read {and_list(columns)}: neither the model nor the decision rule "
        "uses it."
    )
    if by_client:
        sentence += " They also depend on the client that decides."
    return forms.GroupUse(
        reads_group=bool(how), reads_client=by_client, sentence=sentence, details=details
    )


# ------------------------------------------------------------------ server


def _server_view(run: ReportedRun) -> forms.ServerView:
    """Describe what the server saw, as far as method and settings are known."""
    record, card = run.record, _card(run)
    if card is None:
        sentence = (
            f"What crossed is not known: the method {record.strategy} is not installed here."
        )
        return forms.ServerView(sentence=sentence)
    if record.config.get("masked"):
        return forms.ServerView(
            sentence="Silos sent counts by group as sums under masks, which mfairfl 0.7 had; "
            "updates and losses crossed singly. The report of that version lists all that crossed."
        )
    try:
        terms = protocol_of(record.config, rule=record.served.rule, splits=record.intervals)
    except (KeyError, TypeError, ValidationError):
        return forms.ServerView(sentence="What crossed is not known: the settings were altered.")
    if record.federation.scheme == "silos":
        sentence = (
            "The rows stayed with the silos. By the protocol of this run each of them sent what "
            "is listed here; its own ledger has every answer that it gave."
        )
    else:
        sentence = (
            "All rows were in one place, where the clients were simulated. Of clients with files "
            "of their own the server would see what is listed here."
        )
    return forms.ServerView(sentence=sentence, lines=list(manifest(card, terms)))


def _card(run: ReportedRun) -> Card | None:
    """Return the method's card with the hyper-parameters of the run, if they still exist."""
    if run.card is None:
        return None
    settings = run.record.config["strategy"]
    try:
        chosen = {key: value for key, value in settings.items() if key != "name"}
        return create(run.record.strategy, **chosen).card
    except ConfigError:
        return run.card
