"""Carry out `mfairfl compare` and `mfairfl reproduce`: progress, interruption, result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import typer

from mfairfl.cli.many import ManyRuns
from mfairfl.cli.running import INTERRUPTED
from mfairfl.cli.show import say, terminal
from mfairfl.errors import ConfigError
from mfairfl.experiments.compare import compare
from mfairfl.experiments.results import StudyResult
from mfairfl.experiments.search.halving import make_lock
from mfairfl.paper.reproduce import PAPER, reproduce, studies_folder

__all__ = ["run_comparison", "run_paper"]


def run_paper(
    what: Sequence[str],
    out: Path,
    *,
    seeds: int | None,
    protocols: Sequence[str] | None,
    lock: Path | None,
) -> None:
    """Reproduce experiments of the paper and show them."""
    if "tuning" in what:
        if len(what) > 1:
            raise ConfigError("tuning: give it alone; its lock file is for the others (--lock)")
        _watched(lambda watcher: make_lock(studies_folder() / "tune.toml", out, watcher=watcher))
        typer.echo(f"{out}/lock.toml, {out}/tuning.csv")
        return
    names = PAPER if "all" in what else tuple(dict.fromkeys(what))
    _watched(
        lambda watcher: _show(
            reproduce(names, out, seeds=seeds, protocols=protocols, lock=lock, watcher=watcher),
            out,
        )
    )


def run_comparison(file: Path, out: Path | None, *, seeds: int | None) -> None:
    """Carry out an experiment file and show its table."""
    folder = Path("runs") / file.stem if out is None else out
    _watched(
        lambda watcher: _show(
            {file.stem: compare(file, out=folder, seeds=seeds, watcher=watcher)}, folder
        )
    )


def _watched(work: Callable[[ManyRuns], None]) -> None:
    try:
        with ManyRuns(terminal(stderr=True)) as watcher:
            work(watcher)
    except KeyboardInterrupt:
        say("stopped; run the same command again to go on")
        raise typer.Exit(INTERRUPTED) from None


def _show(found: dict[str, StudyResult], out: Path) -> None:
    for result in found.values():
        typer.echo(str(result))
    for name in found:
        say(f"written: {out}/{name}.md and the files beside it")
