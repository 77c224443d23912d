"""`mfairfl predict`: scores and decisions for new rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mfairfl.cli.flags import Delimiter, Encoding, Json, check_target
from mfairfl.cli.show import group_sizes, print_json, print_numbers, say
from mfairfl.errors import DataError

if TYPE_CHECKING:
    from mfairfl.runs.record import Evaluation

__all__ = ["predict"]


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of `mfairfl train`.")],
    *,
    csv: Annotated[Path, typer.Option(help="Rows with the columns the run was trained on.")],
    out: Annotated[Path, typer.Option(help="CSV file to write.")],
    client: Annotated[
        str | None,
        typer.Option(help="Whose model decides every row, if each client has its own."),
    ] = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    trust: Annotated[
        bool, typer.Option("--trust", help="Import the module that the run names as its model.")
    ] = False,
    json: Json = False,
) -> None:
    """Write a score and a decision for each row, and measure them if labels are present.

    Columns: row (from 0), score (probability of the favourable label, or of a favourable decision
    if decisions are random or depend on the group), decision (a label value), favourable (0 or 1).

    Examples
    --------
    mfairfl predict runs/adult --csv new.csv --out scores.csv
    mfairfl predict runs/adult --csv new.csv --out scores.csv --force --json
    """
    check_target(out, "choose another --out, or add --force to replace it", replace=force)
    import pandas as pd  # noqa: PLC0415 - only when called

    from mfairfl.data import read_frame  # noqa: PLC0415
    from mfairfl.files import write_atomically  # noqa: PLC0415
    from mfairfl.runs.record import RunRecord  # noqa: PLC0415

    record, name = RunRecord.read(run), str(csv)
    frame = read_frame(csv, delimiter=delimiter, encoding=encoding)
    from mfairfl.runs.predictor import load  # noqa: PLC0415 - loads PyTorch

    predictor = load(run, trust=trust)
    score = predictor.predict_proba(frame, client=client, name=name)[:, 1]
    favourable = predictor.predict(frame, client=client, name=name)
    decision = [predictor.classes[one] for one in favourable]
    columns = {"row": range(len(frame)), "score": score, "decision": decision}
    table = pd.DataFrame(columns | {"favourable": favourable})
    write_atomically(out, table.to_csv(index=False, lineterminator="\n").encode())
    try:
        rows = predictor.measure(frame, client=client, name=name)
    except DataError as error:
        say(f"warning: scores are written but not measured: {error}")
        rows = None
    # Beside the constant classifier of the run's train rows.
    found = None if rows is None else rows.evaluate(majority=record.tallies["train"])
    decided = int(favourable.sum())
    if json:
        facts = {"out": str(out), "rows": len(frame), "favourable": decided}
        measured: dict[str, Any] = {"metrics": None}
        if rows is not None and found is not None:
            measured = {"measured_rows": rows.tally.n, **found.model_dump(mode="json")}
        print_json({**facts, "kind": predictor.served.kind, **measured})
        return
    task = predictor.task
    typer.echo(f"{out}: {len(frame):,} rows, {decided:,} decided {task.label} = {task.favourable}")
    if predictor.randomised:
        typer.echo("the model is randomised: decisions were drawn at random with seed 0")
    if rows is not None and found is not None:
        _print_measured(rows.tally.n, found)


def _print_measured(rows: int, found: Evaluation) -> None:
    groups = group_sizes(found.metrics)
    typer.echo(f"measured on {rows:,} labelled rows" + f" ({groups})" * bool(groups))
    if len(found.metrics.by_client) == 1:  # nothing to compare
        kept = {name: value for name, value in found.metrics if "client_acc" not in name}
        found = found.model_copy(update={"metrics": type(found.metrics)(**kept)})
    print_numbers(found)
