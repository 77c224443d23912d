"""`mfairfl train`: the flags; what they start is in `mfairfl.cli.running`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mfairfl.errors import ConfigError

__all__ = ["train"]

_DATA, _FAIR, _BUDGET, _RUN = "Data", "Fairness", "Model and training", "Run"


def train(
    file: Annotated[
        Path | None, typer.Argument(metavar="CONFIG.toml", help="Settings; flags win over it.")
    ] = None,
    *,
    config: Annotated[
        Path | None, typer.Option(help="The same as the argument.", rich_help_panel=_RUN)
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Data set of `mfairfl data list`.", rich_help_panel=_DATA)
    ] = None,
    csv: Annotated[
        str | None, typer.Option(help="A CSV or Parquet file of yours.", rich_help_panel=_DATA)
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(help="With --csv: the column to predict.", rich_help_panel=_DATA),
    ] = None,
    favourable: Annotated[
        str | None,
        typer.Option(help="With --csv: the label value that is good.", rich_help_panel=_DATA),
    ] = None,
    sensitive: Annotated[
        str | None,
        typer.Option(help="Sensitive attributes: sex or sex,age.", rich_help_panel=_DATA),
    ] = None,
    client: Annotated[
        str | None,
        typer.Option(help="With --csv: the column that names the client.", rich_help_panel=_DATA),
    ] = None,
    heterogeneity: Annotated[
        str | None,
        typer.Option(
            help="How rows are dealt: high, low, iid, dirichlet, size-skew, column, ...",
            rich_help_panel=_DATA,
        ),
    ] = None,
    clients: Annotated[
        str | None,
        typer.Option(metavar="INTEGER", help="Number of clients.", rich_help_panel=_DATA),
    ] = None,
    strategy: Annotated[
        str | None, typer.Option(help="Method of `mfairfl strategies`.", rich_help_panel=_FAIR)
    ] = None,
    notion: Annotated[
        str | None, typer.Option(help="dp, eo, eopp, ap or several: dp,eo.", rich_help_panel=_FAIR)
    ] = None,
    alpha: Annotated[
        str | None,
        typer.Option(metavar="NUMBER", help="Gap left alone in training.", rich_help_panel=_FAIR),
    ] = None,
    tolerance: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER", help="Violation a served model may show.", rich_help_panel=_FAIR
        ),
    ] = None,
    output_rule: Annotated[
        str | None,
        typer.Option(
            help="Served model: last, average, select, mixture, threshold.", rich_help_panel=_FAIR
        ),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="Clients count by size or uniform.", rich_help_panel=_FAIR)
    ] = None,
    hidden: Annotated[
        str | None,
        typer.Option(
            help="Hidden layers: 64,64; an empty text '' is a logistic model.",
            rich_help_panel=_BUDGET,
        ),
    ] = None,
    rounds: Annotated[
        str | None,
        typer.Option(metavar="INTEGER", help="Rounds, 40 by default.", rich_help_panel=_BUDGET),
    ] = None,
    local_epochs: Annotated[
        str | None,
        typer.Option(metavar="INTEGER", help="Epochs a round.", rich_help_panel=_BUDGET),
    ] = None,
    batch_size: Annotated[
        str | None, typer.Option(metavar="INTEGER", help="Rows a step.", rich_help_panel=_BUDGET)
    ] = None,
    lr: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Learning rate.", rich_help_panel=_BUDGET)
    ] = None,
    weight_decay: Annotated[
        str | None,
        typer.Option(metavar="NUMBER", help="Decoupled weight decay.", rich_help_panel=_BUDGET),
    ] = None,
    seed: Annotated[
        str | None,
        typer.Option(metavar="INTEGER", help="Same seed, same bits.", rich_help_panel=_RUN),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Run folder; by default runs/DATA-STRATEGY-SCHEME-sSEED.", rich_help_panel=_RUN
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any key: --set strategy.beta=0.6", rich_help_panel=_RUN),
    ] = None,
    plots: Annotated[
        bool,
        typer.Option(
            "--plots",
            help="Draw rounds.svg and clients.svg into the run folder.",
            rich_help_panel=_RUN,
        ),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print only run.json.", rich_help_panel=_RUN)
    ] = False,
) -> None:
    """Train a federated model, measure it, write a run folder.

    An interrupted run goes on when the same command is given again.
    """
    flags = {
        "data": data,
        "csv": csv,
        "label": label,
        "favourable": favourable,
        "sensitive": sensitive,
        "client": client,
        "heterogeneity": heterogeneity,
        "clients": clients,
        "strategy": strategy,
        "notion": notion,
        "alpha": alpha,
        "tolerance": tolerance,
        "output_rule": output_rule,
        "weights": weights,
        "hidden": hidden,
        "rounds": rounds,
        "local_epochs": local_epochs,
        "batch_size": batch_size,
        "lr": lr,
        "weight_decay": weight_decay,
        "seed": seed,
        "set": set_,
    }
    if file is not None and config is not None:
        raise ConfigError(f"{file} and --config {config}: give one of them")
    from mfairfl.cli.running import run_training  # noqa: PLC0415 - loads PyTorch

    run_training(file or config, flags, out, plots=plots, as_json=json)
