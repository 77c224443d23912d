"""`mfairfl predict`: scores and decisions for new rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["predict"]


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of `mfairfl train`.")],
    *,
    csv: Annotated[Path, typer.Option(help="Rows with the columns the run was trained on.")],
    out: Annotated[Path, typer.Option(help="CSV file to write.")],
    client: Annotated[
        str | None,
        typer.Option(help="Whose model answers every row, if each client has its own."),
    ] = None,
    delimiter: Annotated[
        str | None, typer.Option(help="Delimiter of the rows; found unless given.")
    ] = None,
    encoding: Annotated[
        str | None, typer.Option(help="Encoding of the rows; found unless given.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Write a score and a decision for each row; measure them if the label is there.

    Columns: row (from 0), score (probability of the favourable label, or of a favourable decision
    if the model decides by chance or by group), decision (the label's own value), favourable (0 or
    1).
    """
    from mfairfl.cli.scoring import score_file  # noqa: PLC0415 - loads PyTorch

    score_file(
        run,
        csv,
        out,
        client=client,
        delimiter=delimiter,
        encoding=encoding,
        force=force,
        as_json=json,
    )
