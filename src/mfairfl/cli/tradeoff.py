"""`mfairfl tradeoff`: what other tolerances would cost."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import typer

from mfairfl.cli.flags import Json
from mfairfl.cli.show import print_json, print_table, print_text, say
from mfairfl.errors import ConfigError


def tradeoff(
    runs: list[Path],
    *,
    notion: list[str] | None = None,
    by: Literal["none", "group", "client", "both"] | None = None,
    local_tolerance: str | None = None,
    local: bool = False,
    points: int = 20,
    randomise: bool = False,
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Show accuracy against violation over many tolerances, for finished runs, without training.

    For each tolerance, thresholds on the model's scores are fitted to the train rows (or the
    validation rows, if there are any) and counted on the test rows. Beside the curve are the model
    as it decides now, the constant classifier and the noise floor. Several runs share a picture.

    Parameters
    ----------
    runs : RUN...
        Run folders, all of the same data, split and seed.
    notion
        dp, eo, eopp, ap or package.module:Name; by default what the first run was asked to meet.
        May be repeated: a curve for each.
    by
        What thresholds may depend on: none, group, client or both. By default the group, unless
        the run is blind to it.
    local_tolerance : NUMBER|none
        Largest violation at each client, whatever the tolerance; must be stated with --by client
        or both.
    local
        Tolerances for the rows of each client, in place of everyone's together.
    points
        How many tolerances, from 0 to where the highest accuracy is allowed.
    randomise
        Allow rules that decide some people by chance.
    out
        Folder for tradeoff.svg and tradeoff.json, by default that of the first run.

    Examples
    --------
    mfairfl tradeoff runs/mine
    mfairfl tradeoff runs/mine --notion dp --notion eo --by none
    mfairfl tradeoff runs/fedavg runs/mfairfl --out curves
    mfairfl tradeoff runs/mine --by both --local-tolerance 0.05
    """
    from mfairfl.experiments.tradeoff import tradeoff  # noqa: PLC0415 - loads slowly

    curves = tradeoff(
        runs,
        notion or (),
        by=by,
        local_tolerance=_bound(local_tolerance),
        local=local,
        points=points,
        randomise=randomise,
    )
    if json:
        print_json(curves.model_dump(mode="json"))
        if out is None:
            return
    else:
        for curve in curves.curves:
            typer.echo(f"{curve.run}, {curve.notion.replace('_', ' ')}: {curves.title}")
            print_table(curves.table(curve))
        print_text(curves.explained)
    folder = out or (runs[0].parent if runs[0].name == "run.json" else runs[0])
    picture, numbers = curves.write(folder)
    say(f"written: {picture} and {numbers}")


def _bound(text: str | None) -> float | Literal["none"] | None:
    if text is None:
        return None
    try:
        return "none" if text == "none" else float(text)
    except ValueError:
        raise ConfigError(
            f"--local-tolerance {text}: give a number such as 0.05, or none"
        ) from None
