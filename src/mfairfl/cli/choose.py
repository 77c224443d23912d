"""`mfairfl choose`: from what is asked for to a method, an output rule and a finished run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from mfairfl.cli.flags import configuration, default_folder, run_flags
from mfairfl.cli.progress import ManyRuns, stoppable
from mfairfl.cli.show import print_json, print_table, print_text, terminal
from mfairfl.errors import ConfigError
from mfairfl.runs.options import comma_list

_CHOSEN = (
    *("strategy", "tolerance", "weights"),
    *("output_rule", "by", "local_tolerance", "maximise", "randomise", "relax"),
)


def _again() -> str:
    return "stopped; if the command is repeated, the folds are trained again"


@run_flags(but=_CHOSEN)
def choose(
    what: str | None = None,
    *,
    flags: Mapping[str, Any],
    at_most: str | None = None,
    lose_at_most: float | None = None,
    by: Literal["none", "group"] = "none",
    methods: str | None = None,
    folds: Annotated[int, typer.Option(min=2)] = 3,
    out: Path | None = None,
    workers: Annotated[int | None, typer.Option(min=1)] = None,
    json: bool = False,
) -> None:
    """Choose a method and an output rule by folds of the train rows, and train what was chosen.

    Test rows only report. Says beforehand if there are too few of them, and afterwards why the
    choice was made, what its neighbours cost, and which of them cannot be told apart.

    Parameters
    ----------
    what : DATA | CONFIG.toml
        Data set from `mfairfl data list`, or settings; flags override them.

    ChosenModel
    ------
    at_most : "NOTION NUMBER"
        Largest acceptable violation, as in "dp 0.05": the most accurate candidate within it.
    lose_at_most
        Largest acceptable loss of FedAvg's accuracy instead: the fairest candidate within it.
    by
        Whether a decision may depend on a person's group.
    methods : NAME,...
        Which are tried beside FedAvg; by default fedfb,fpfl,mfairfl.
    folds
        Folds of the train rows.
    out
        Run folder of the choice; by default runs/choose-DATA-SCHEME-sSEED.
    workers
        Threads; the result does not depend on it.
    json
        Print JSON instead of text.

    Examples
    --------
    mfairfl choose adult --at-most "dp 0.05"
    mfairfl choose adult --at-most "eo 0.05" --by group
    mfairfl choose my.toml --lose-at-most 0.01 --notion dp
    """
    if at_most is not None and "notion" in flags:
        raise ConfigError("--notion: --at-most names the notion already; leave one of them out")
    file = Path(what) if what is not None and what.endswith(".toml") else None
    if what is not None and file is None:
        flags = {**flags, "data": what}
    settings = configuration(file, flags)
    name = default_folder(settings).name.replace(f"-{settings.strategy.name}", "", 1)
    folder = Path("runs") / f"choose-{name}" if out is None else out
    with stoppable(_again), ManyRuns(terminal(stderr=True)) as watcher:
        watcher.loading("choose")
        from mfairfl.experiments import choosing  # noqa: PLC0415 - takes seconds

        choice = choosing.choose(
            settings,
            folder,
            at_most=at_most,
            lose_at_most=lose_at_most,
            by=by,
            methods=choosing.METHODS if methods is None else comma_list(methods),
            folds=folds,
            workers=workers,
            watcher=watcher,
        )
    if json:
        print_json(choice.to_json())
        return
    print_table(choice.table())
    for line in choice.lines:
        print_text(line)
    typer.echo(f"files: {folder}/ (choice.json, and a run as of `mfairfl train`)")
    typer.echo(f"next, the report: mfairfl report {folder}")
