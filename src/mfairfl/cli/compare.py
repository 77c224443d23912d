"""`mfairfl compare`: methods side by side on one's own data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["compare"]


def compare(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Experiment file (TOML): data, strategies, seeds …"),
    ],
    *,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="How many seeds, instead of the file's.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for tables, figures and runs; runs/FILE's name.")
    ] = None,
) -> None:
    """Compare methods over data sets, splits, notions and seeds, with tests of significance.

    The file names them: data = ["adult", "mine.toml"] (of the catalogue, or a configuration as
    `mfairfl init` writes it), splits = ["high"], strategies = ["fedavg", "mfairfl"],
    notions = ["dp", "eo"], seeds = 5, protocols = ["40x5"]. A list of values for a hyper-parameter
    is a grid: { name = "mfairfl", beta = [0.2, 0.8] }. An interrupted command goes on later.
    """
    from mfairfl.cli.experimenting import run_comparison  # noqa: PLC0415 - loads PyTorch

    run_comparison(file, out, seeds=seeds)
