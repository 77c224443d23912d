"""Carry out `mfairfl train`: configuration, progress, interruption, result."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from mfairfl.cli.flags import configuration
from mfairfl.cli.progress import RoundProgress
from mfairfl.cli.show import print_record, say, terminal
from mfairfl.runs.config import Config
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.execute import RunRequest, run_requests

__all__ = ["run_training"]

INTERRUPTED = 130


def run_training(
    file: Path | None, flags: Mapping[str, Any], out: Path | None, *, plots: bool, as_json: bool
) -> None:
    """Train, show the result or only print run.json, and draw pictures of the run if asked."""
    config = configuration(file, flags)
    folder = default_folder(config) if out is None else out
    console = terminal(stderr=True)
    try:
        with RoundProgress(console, folder, quiet=as_json) as progress:
            request = RunRequest(config=config, out=folder, callbacks=(progress,))
            (run,) = run_requests([request])
    except KeyboardInterrupt:
        done = RunDirectory(folder).committed()
        say(
            "stopped before the first round; run the same command again to start"
            if done is None
            else f"stopped after round {done}; run the same command again to go on"
        )
        raise typer.Exit(INTERRUPTED) from None
    if not progress.started:
        say(f"{folder}: already complete; this is its result")
    if as_json:
        typer.echo(RunDirectory(folder).record_path.read_text(encoding="utf-8"), nl=False)
    else:
        print_record(run.record, str(folder))
    if plots:
        _draw(folder)


def _draw(folder: Path) -> None:
    # Loaded here: drawing is rare, and the library takes long to load.
    from mfairfl.runs.figures import plot_clients, plot_rounds, save_figure  # noqa: PLC0415

    save_figure(plot_rounds(folder), folder / "rounds.svg")
    save_figure(plot_clients(folder), folder / "clients.svg")
    say(f"pictures: {folder}/rounds.svg, {folder}/clients.svg")


def default_folder(config: Config) -> Path:
    """Return runs/<data>-<strategy>-<scheme>-s<seed>.

    Examples
    --------
    >>> from mfairfl.runs.config import make_config
    >>> default_folder(make_config({"data": {"name": "adult"}, "seed": 3})).as_posix()
    'runs/adult-mfairfl-iid-s3'
    """
    data = config.data.name or Path(config.data.csv or "data").stem
    by_column = config.task is not None and config.task.client is not None
    scheme = config.clients.scheme or ("column" if by_column else "iid")
    return Path("runs") / f"{data}-{config.strategy.name}-{scheme}-s{config.seed}"
