"""`mfairfl reproduce`: the paper's tables and figures with one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mfairfl.cli.show import say, terminal
from mfairfl.errors import ConfigError


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
        bool, typer.Option("--quick", help="One seed and the paper's budget only: minutes.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of seeds; by default 5 (1 with --quick).")
    ] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(help="Rounds x local epochs: 10x20 (the paper's), 40x5; by default both."),
    ] = None,
    lock: Annotated[
        Path | None, typer.Option(help="Hyper-parameters, instead of the published lock file.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for tables, figures and runs.")] = Path(
        "reproduction"
    ),
) -> None:
    """Reproduce tables and figures of the paper, with our numbers beside the published ones.

    Repeat the command to resume; finished runs are not repeated.

    Examples
    --------
    mfairfl reproduce table-1 --quick
    mfairfl reproduce all --seeds 5 --protocol 10x20 --out results/reproduction
    mfairfl reproduce tuning --out tuned
    """
    from mfairfl.paper import experiment_names  # noqa: PLC0415 - only when called

    tuning = "tuning" in what
    if tuning and len(what) > 1:
        raise ConfigError("tuning: give it alone; its lock file is for the others (--lock)")
    names = () if tuning else experiment_names(what)
    if quick:
        seeds, protocol = seeds or 1, protocol or ["10x20"]
    from mfairfl.cli.progress import ManyRuns, stoppable  # noqa: PLC0415

    with stoppable(), ManyRuns(terminal(stderr=True)) as watcher:
        watcher.loading(", ".join(names) or "tuning")
        from mfairfl.experiments.search.halving import make_lock  # noqa: PLC0415 - takes seconds
        from mfairfl.paper import reproduce as paper  # noqa: PLC0415

        if tuning:
            make_lock(paper.studies_folder() / "tune.toml", out, watcher=watcher)
            typer.echo(f"{out}/lock.toml, {out}/tuning.csv")
            return
        results = paper.reproduce(
            names, out, seeds=seeds, protocols=protocol, lock=lock, watcher=watcher
        )
    for result in results.values():
        typer.echo(str(result))
    for name in results:
        say(f"written: {out}/{name}.md and the files beside it")
