"""`mfairfl train` and `mfairfl predict`: a federated model, and its decisions for new rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mfairfl.cli.flags import (
    FILE_OPTIONS,
    Json,
    check_target,
    configuration,
    default_folder,
    file_format,
    option_flags,
    run_flags,
    split_names,
)
from mfairfl.cli.progress import RoundProgress, stoppable
from mfairfl.cli.show import HINT, print_json, print_text, say, terminal
from mfairfl.errors import ConfigError, DataError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from mfairfl.data.files import FileContent
    from mfairfl.fairness.results import MetricTable
    from mfairfl.runs.predictor import Predictor
    from mfairfl.runs.record import RunRecord
    from mfairfl.runs.rows import MeasuredRows, ReadRows

_SPLIT = "split"
_CSV, _PARQUET = ("", ".csv", ".txt"), (".parquet", ".pq")
RowSplit = Literal["test", "validation", "train", "all"]


@run_flags()
def train(
    file: Path | None = None,
    *,
    flags: Mapping[str, Any],
    config: Path | None = None,
    out: Path | None = None,
    plots: bool = False,
    workers: Annotated[int | None, typer.Option(min=1)] = None,
    policy: Path | None = None,
    baseline: Annotated[bool | None, typer.Option("--baseline/--no-baseline")] = None,
    json: bool = False,
) -> None:
    """Train a federated model, measure it, and write a run folder.

    Repeat the command to resume an interrupted run.

    Parameters
    ----------
    file : CONFIG.toml
        Settings; flags override them.

    Run
    ---
    config
        Same as the argument CONFIG.toml.
    out
        Run folder; by default runs/DATA-STRATEGY-SCHEME-sSEED.
    plots
        Draw rounds.svg and clients.svg into the run folder.
    workers
        Threads for the clients; by default all processors. The result does not depend on it.
    policy
        A policy.toml: clients disclose what it allows, as silos with this policy do.
    baseline
        Train FedAvg beside, on the same rows, to show what fairness costs; by default with a file
        of your own.
    json
        Print only run.json.

    Examples
    --------
    mfairfl train --data adult --heterogeneity high
    mfairfl train my.toml --rounds 2 --set strategy.weights=uniform
    mfairfl train --csv people.csv --label hired --favourable yes --sensitive sex
    mfairfl train --data adult --policy policy.toml
    """
    if file is not None and config is not None:
        raise ConfigError(f"{file} and --config {config}: give one of them")
    settings = configuration(file or config, flags)
    folder = default_folder(settings) if out is None else out
    from mfairfl.runs.directory import RunDirectory  # noqa: PLC0415 - loads PyTorch
    from mfairfl.runs.execute import (  # noqa: PLC0415
        RunRequest,
        run_requests,
        with_baseline,
    )
    from mfairfl.runs.silo_runs import run_under_policy  # noqa: PLC0415
    from mfairfl.silo.policy import read_policy  # noqa: PLC0415

    def stopped() -> str:
        done = RunDirectory(folder).committed()
        if done is None:
            return "stopped before the first round; repeat the command to start"
        return f"stopped after round {done}; repeat the command to resume"

    with stoppable(stopped), RoundProgress(terminal(stderr=True), folder, quiet=json) as progress:
        request = RunRequest(config=settings, out=folder, callbacks=(progress,))
        if policy is None:
            run, *_ = run_requests(with_baseline(request, baseline), workers=workers)
        else:
            rules, requests = read_policy(policy), with_baseline(request, baseline or False)
            run, *_ = [run_under_policy(item, rules) for item in requests]
    if not progress.started:
        say(f"{folder}: already complete; this is its result")
    from mfairfl.cli.run_result import print_run  # noqa: PLC0415 - loads pandas

    print_run(run.record, folder, as_json=json)
    if plots:
        from mfairfl.report.figures import draw_training  # noqa: PLC0415

        say(f"figures: {', '.join(map(str, draw_training(folder)))}")


# ------------------------------------------------------------------ decisions for rows


@option_flags(FILE_OPTIONS)
def predict(
    run: Path,
    *,
    csv: Path,
    out: Path,
    keep: list[str] | None = None,
    threshold: float | None = None,
    decisions: Literal["labels", "binary"] = "labels",
    client: str | None = None,
    split: RowSplit = "all",
    flags: Mapping[str, Any],
    force: bool = False,
    trust: bool = False,
    json: Json = False,
) -> None:
    """Write a score and a decision for each row, and measure them if labels are present.

    Columns: row (from 0), those to keep, score (probability of the favourable label, or of a
    favourable decision if decisions are random or depend on the group), decision (a label value),
    favourable (1 for the favourable decision, else 0). Values that are missing or were not seen in
    training are counted. In CSV, text that a spreadsheet would run as a formula is prefixed with
    an apostrophe.

    The file that the run was trained on is recognised by its SHA-256. A column split then shows
    which rows are train, validation and test rows, and the numbers are those of the test rows.

    Parameters
    ----------
    run
        Run folder of `mfairfl train`.
    csv
        Rows with the columns the run was trained on: CSV, Parquet, ...
    out
        File to write: .csv or .parquet.
    keep : NAME,...
        Columns to copy: id,name; may be repeated.
    threshold
        Score above which a decision is favourable; 0.5 if omitted.
    decisions
        Write decisions as values of the label, or as 0 and 1.
    client
        Client whose model decides all rows, if each client has its own.
    split
        Rows to decide, if this is the file that the run was trained on.
    force
        Replace an existing file.
    trust
        Import the module that the run names as its model.

    Examples
    --------
    mfairfl predict runs/adult --csv new.csv --out scores.csv
    mfairfl predict runs/adult --csv new.parquet --out scores.parquet --keep id
    mfairfl predict runs/adult --csv new.csv --out scores.csv --force --json
    mfairfl predict runs/people --csv people.csv --split test --keep sex,hired --out scores.csv
    """
    check_target(out, "choose another --out, or add --force to replace it", replace=force)
    if out.suffix.lower() not in (*_CSV, *_PARQUET):
        raise ConfigError(f"{out}: cannot write '{out.suffix}'; let --out end in .csv or .parquet")
    from mfairfl.data.files import read_file  # noqa: PLC0415 - only when called
    from mfairfl.runs.record import RunRecord, StoredTable, reported  # noqa: PLC0415

    record = RunRecord.read(run)
    content = read_file(csv, file_format(flags))
    from mfairfl.runs.outcome import AdviceSettings, model_warnings  # noqa: PLC0415
    from mfairfl.runs.predictor import load  # noqa: PLC0415 - loads PyTorch

    predictor = load(run, trust=trust)
    name, frame = str(csv), content.frame
    copied = split_names(keep or (), frame.columns)
    places, splits, warnings = _chosen_rows(record, content, name, split=split, copied=copied)
    if len(places) < len(frame):
        frame = frame.iloc[places]
    rows = predictor.read(frame, name=name)
    table = predictor.predict_frame(
        rows, keep=copied, labels=decisions == "labels", threshold=threshold, client=client
    ).assign(row=places)
    measured_split, measurable = None, rows
    if splits is not None:
        table[_SPLIT], measured_split = splits, reported(set(splits))
        measurable = predictor.read(frame[splits == measured_split], name=name)
    _write(out, table)
    facts = {
        "out": str(out),
        "rows": len(table),
        "favourable": int(table["favourable"].sum()),
        "kept": copied,
        "threshold": threshold,
        "missing": rows.missing,
        "unseen": rows.unseen,
        "notes": [*content.notes, *rows.notes],
        "kind": predictor.served.kind,
        "warnings": warnings,
        "measured_split": measured_split,
        "metrics": None,
    }
    metrics = None
    if measured := _measured(predictor, measurable, threshold=threshold, client=client):
        # Beside the constant classifier of the run's train rows.
        metrics = measured.table(majority=record.tallies["train"])
        facts |= StoredTable.of(metrics).model_dump(mode="json")
        facts["measured_rows"] = measured.tally.n
        what = f"{measured_split or 'labelled'} rows"
        warnings += model_warnings(metrics, measured.tally, AdviceSettings.of(record), rows=what)
    if json:
        print_json(facts)
    else:
        _print_prediction(predictor, facts, rows.notes, metrics)


def _measured(predictor: Predictor, rows: ReadRows, **choice: Any) -> MeasuredRows | None:
    try:
        return predictor.measure(rows, **choice)
    except DataError as error:
        say(f"warning: scores are written but not measured: {error}")
    return None


def _print_prediction(
    predictor: Predictor,
    facts: Mapping[str, Any],
    notes: Sequence[str],
    metrics: MetricTable | None,
) -> None:
    """Print what was decided, by which rule, and the numbers of the rows that have a label."""
    for warning in facts["warnings"]:
        print_text(f"warning: {warning}")
    favoured = f"{predictor.task.label} = {predictor.task.favourable}"
    rows, favourable = facts["rows"], facts["favourable"]
    typer.echo(f"{facts['out']}: {rows:,} rows, {favourable:,} decided {favoured}")
    for note in notes:
        typer.echo(f"note: {note}")
    threshold = facts["threshold"]
    if threshold is not None:
        typer.echo(f"decided above {threshold:g}; the run measured decisions above 0.5")
    if predictor.randomised:
        typer.echo("the model is randomised: decisions were drawn at random with seed 0")
    if metrics is not None:
        split = facts["measured_split"] or "labelled"
        _print_measured(f"{facts['measured_rows']:,} {split} rows", metrics)


def _chosen_rows(
    record: RunRecord, content: FileContent, name: str, *, split: RowSplit, copied: Sequence[str]
) -> tuple[NDArray[np.intp], NDArray[np.object_] | None, list[str]]:
    """Return the numbers of the rows to decide, their splits if they are known, and warnings."""
    import numpy as np  # noqa: PLC0415 - only when called

    from mfairfl.runs.record import reported  # noqa: PLC0415
    from mfairfl.runs.rows import splits_of_rows  # noqa: PLC0415

    places, warnings = np.arange(len(content.frame)), []
    try:
        splits = splits_of_rows(record, content, name=name)
    except DataError as error:
        if split != "all":
            raise
        return places, None, [str(error)]
    if splits is None:
        if split != "all":
            raise DataError(f"{name}: not the file that the run was trained on; leave --split out")
        return places, None, []
    if _SPLIT in copied:
        raise DataError(
            f"{name}: the column '{_SPLIT}' cannot be kept: the scores have one of that name; "
            "rename it"
        )
    if split != "all":
        places = np.flatnonzero(splits == split)
        if not len(places):
            raise DataError(f"{name}: the run has no {split} rows; choose another --split")
    splits = splits[places]
    if trained := int((splits == "train").sum()):
        warnings.append(
            f"{name} is the file that the run was trained on, and {trained:,} of {len(places):,} "
            "rows are train rows, on which a model looks better than on new ones. The numbers "
            f"below are of the {reported(set(splits))} rows alone"
        )
    return places, splits, warnings


def _write(out: Path, table: pd.DataFrame) -> None:
    from mfairfl.files import write_atomically  # noqa: PLC0415 - only when called
    from mfairfl.text import formula_safe_frame  # noqa: PLC0415

    if out.suffix.lower() in _PARQUET:
        data = table.to_parquet(index=False)
    else:
        data = formula_safe_frame(table).to_csv(index=False, lineterminator="\n").encode()
    write_atomically(out, data)


def _print_measured(rows: str, table: MetricTable) -> None:
    from mfairfl.cli.run_result import group_sizes, print_numbers  # noqa: PLC0415

    groups = group_sizes(table)
    typer.echo(f"measured on {rows}" + f" ({groups})" * bool(groups))
    if len(table.clients) == 1:  # nothing to compare
        overall = {n: value for n, value in table.overall.items() if "client_acc" not in n}
        table = replace(table, overall=overall)
    print_numbers(table)
    print_text(HINT)
