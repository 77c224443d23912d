"""`mfairfl reproduce`: the paper's tables and figures by one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["reproduce"]


def reproduce(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="WHAT...",
            help="table-1, table-2, table-3, table-s2, table-s3, figure-s1, all of them (all), or "
            "the search for the locked hyper-parameters (tuning).",
        ),
    ],
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="One seed, the paper's budget only: minutes.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="How many seeds; 5 unless given (1 with --quick).")
    ] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(help="Rounds x local epochs: 10x20 (the paper's), 40x5; both unless given."),
    ] = None,
    lock: Annotated[
        Path | None, typer.Option(help="Hyper-parameters, instead of the published lock file.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for tables, figures and runs.")] = Path(
        "reproduction"
    ),
) -> None:
    """Make tables and figures of the paper anew, with our numbers beside the published ones.

    An interrupted command goes on where it was; finished runs are not repeated.
    """
    from mfairfl.cli.experimenting import run_paper  # noqa: PLC0415 - loads PyTorch

    if quick:
        seeds, protocol = seeds or 1, protocol or ["10x20"]
    run_paper(what, out, seeds=seeds, protocols=protocol, lock=lock)
