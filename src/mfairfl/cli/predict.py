"""`mfairfl predict`: scores and decisions for new rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mfairfl.cli.flags import Delimiter, Encoding, Json, check_target
from mfairfl.cli.show import group_sizes, print_json, print_numbers, say
from mfairfl.errors import DataError

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
    json: Json = False,
) -> None:
    """Write a score and a decision for each row, and measure them if labels are present.

    Columns: row (from 0), score (probability of the favourable label, or of a favourable decision
    if decisions are random or depend on the group), decision (a label value), favourable (0 or 1).
    """
    check_target(out, "choose another --out, or add --force to replace it", replace=force)
    import pandas as pd  # noqa: PLC0415 - the rest loads PyTorch

    from mfairfl.data import read_frame  # noqa: PLC0415
    from mfairfl.files import write_atomically  # noqa: PLC0415
    from mfairfl.runs.predictor import load  # noqa: PLC0415

    predictor, name = load(run), str(csv)
    frame = read_frame(csv, delimiter=delimiter, encoding=encoding)
    score = predictor.predict_proba(frame, client=client, name=name)[:, 1]
    favourable = predictor.predict(frame, client=client, name=name)
    decision = [predictor.classes[one] for one in favourable]
    columns = {"row": range(len(frame)), "score": score, "decision": decision}
    table = pd.DataFrame(columns | {"favourable": favourable})
    write_atomically(out, table.to_csv(index=False, lineterminator="\n").encode())
    try:
        found = _measured(predictor.evaluate(frame, client=client, name=name), run)
    except DataError as error:
        say(f"warning: scores are written but not measured: {error}")
        found = None
    decided = int(favourable.sum())
    if json:
        facts = {
            "out": str(out), "rows": len(frame), "favourable": decided, "kind": predictor.kind
        }  # fmt: skip
        print_json(facts | (found or {"metrics": None}))
        return
    task = predictor.task
    typer.echo(f"{out}: {len(frame):,} rows, {decided:,} decided {task.label} = {task.favourable}")
    if predictor.randomised:
        typer.echo("the model is randomised: decisions were drawn at random with seed 0")
    if found is not None:
        _print_measured(found)


def _measured(tally: Any, run: Path) -> dict[str, Any] | None:
    """Return the numbers beside those of the constant classifier of the run's train rows."""
    from mfairfl.fairness import Tally  # noqa: PLC0415
    from mfairfl.runs.directory import RunDirectory  # noqa: PLC0415
    from mfairfl.runs.record import measured_numbers  # noqa: PLC0415

    if tally is None:
        return None
    train = Tally.from_json(RunDirectory(run).read_record()["tallies"]["train"])
    return {"measured_rows": tally.n, **measured_numbers(tally, majority=train)}


def _print_measured(found: dict[str, Any]) -> None:
    metrics = found["metrics"]
    if len(metrics["by_client"]) == 1:  # nothing to compare
        metrics = {name: value for name, value in metrics.items() if "client_acc" not in name}
    groups = group_sizes(metrics)
    typer.echo(
        f"measured on {found['measured_rows']:,} labelled rows" + f" ({groups})" * bool(groups)
    )
    print_numbers({**found, "metrics": metrics})
