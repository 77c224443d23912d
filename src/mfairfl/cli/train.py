"""`mfairfl train`: a federated model from a file, flags, or both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from mfairfl.cli.flags import ConfigFile, RunJson, run_flags
from mfairfl.errors import ConfigError

__all__ = ["train"]


@run_flags()
def train(
    file: ConfigFile = None,
    *,
    flags: Mapping[str, Any],
    config: Annotated[
        Path | None, typer.Option(help="The same as the argument.", rich_help_panel="Run")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Run folder; by default runs/DATA-STRATEGY-SCHEME-sSEED.", rich_help_panel="Run"
        ),
    ] = None,
    plots: Annotated[
        bool,
        typer.Option(
            "--plots",
            help="Draw rounds.svg and clients.svg into the run folder.",
            rich_help_panel="Run",
        ),
    ] = False,
    json: RunJson = False,
) -> None:
    """Train a federated model, measure it, and write a run folder.

    Repeat the same command to resume an interrupted run.
    """
    if file is not None and config is not None:
        raise ConfigError(f"{file} and --config {config}: give one of them")
    from mfairfl.cli.running import run_training  # noqa: PLC0415 - loads PyTorch

    run_training(file or config, flags, out, plots=plots, as_json=json)
