"""`mfairfl tune`: the flags; what they start is in `mfairfl.cli.searching`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from mfairfl.cli.flags import ConfigFile, run_flags
from mfairfl.errors import ConfigError

__all__ = ["tune"]

_SEARCH, _STUDY = "Search", "Study"


@run_flags(but=["tolerance"])
def tune(
    file: ConfigFile = None,
    *,
    flags: Mapping[str, Any],
    trials: Annotated[
        int, typer.Option(min=1, help="Complete trials wanted in all.", rich_help_panel=_SEARCH)
    ] = 30,
    folds: Annotated[
        int,
        typer.Option(
            min=2, help="Parts of the train rows, held out in turn.", rich_help_panel=_SEARCH
        ),
    ] = 3,
    search: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUES",
            help="Replace or add a key: strategy.beta=0.4,0.8, training.lr=0.001:0.1:log, "
            "training.local_epochs=1:10",
            rich_help_panel=_SEARCH,
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="The violation, of run.json; by default that of the notion, or "
            "client_accuracy_std for methods that protect clients only.",
            rich_help_panel=_SEARCH,
        ),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(min=0, max=1, help="Violation small enough.", rich_help_panel=_SEARCH),
    ] = 0.01,
    study: Annotated[
        str | None,
        typer.Option(
            help="Its name; by default DATA-STRATEGY-SCHEME-sSEED.", rich_help_panel=_STUDY
        ),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Database to share a study: postgresql://... or sqlite:///...; by default a file "
            "in the --out folder.",
            rich_help_panel=_STUDY,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of this process; by default runs/tune-STUDY.", rich_help_panel=_STUDY
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of text.", rich_help_panel=_STUDY)
    ] = False,
) -> None:
    """Search hyper-parameters by cross-validation; test rows are not used.

    Chosen is the most accurate trial whose violation is small enough. A search that was stopped
    goes on when the same command is given again.
    """
    if find_spec("optuna") is None:
        raise ConfigError("mfairfl tune needs Optuna: pip install 'mfairfl[tune]'")
    from mfairfl.cli.searching import Wanted, run_search  # noqa: PLC0415 - loads PyTorch

    wanted = Wanted(
        trials=trials,
        folds=folds,
        search=tuple(search or ()),
        metric=metric,
        tolerance=tolerance,
        study=study,
        storage=storage,
        out=out,
    )
    run_search(file, flags, wanted, as_json=json)
