"""`mfairfl report`: the results of a run, for the people who decide about the model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mfairfl.cli.flags import Json
from mfairfl.cli.show import print_text


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Run folders: the one to judge, then those to compare with it.",
        ),
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Page to write, by default report.html in the first run's folder; the same as "
            "JSON and a model card are put beside it."
        ),
    ] = None,
    references: Annotated[
        list[str] | None,
        typer.Option(
            help="Also fit boosting, boosting-threshold or logistic on all rows, pooled; repeat "
            "it for several."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write the report of a run: one page that needs nothing else, report.json and a model card.

    The page says what was trained for whom, whether the violation is within the tolerance that
    was set before training (--verdict-tolerance), and what fairness cost, and whom. Add a run of
    strategy fedavg on the same rows to learn the cost. Everything is read from the run folders.

    Examples
    --------
    mfairfl report runs/mine
    mfairfl report runs/mfairfl runs/fedavg --out report.html
    mfairfl report runs/mfairfl runs/fedavg --references boosting --json
    """
    from mfairfl.report.write import write_report  # noqa: PLC0415 - loads slowly

    document, files = write_report(runs, out, references=references or ())
    if json:
        typer.echo(document.to_json(), nl=False)
        return
    headline = document.headline
    for warning in headline.warnings:
        print_text(f"warning: {warning}")
    for sentence in (headline.what, headline.verdict, headline.cost):
        print_text(sentence)
    typer.echo(
        f"report: {files.html} (also {files.json.name} and the model card {files.card.name})"
    )
