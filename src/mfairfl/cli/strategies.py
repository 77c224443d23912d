"""`mfairfl strategies`: the methods, what each protects and what it shows the server."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Annotated

import typer

from mfairfl.cli.show import print_json, print_table

if TYPE_CHECKING:
    from mfairfl.strategies import Card

__all__ = ["strategies"]


def strategies(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Explain one method in full.")
    ] = None,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the methods: paper, what each protects, what the server sees; or explain one."""
    from mfairfl.strategies import available, describe  # noqa: PLC0415 - only when called

    if name is not None:
        _explain(name, as_json=json)
        return
    cards = {known: describe(known) for known in available()}
    if json:
        print_json([{"name": known, **asdict(card)} for known, card in cards.items()])
        return
    print_table(
        ["name", "method", "paper", "protects", "sees"],
        [[n, c.title, c.paper, c.protects, _seen(c)] for n, c in cards.items()],
        wrap=(1, 2, 3),
    )
    typer.echo(
        "sees: what the server must see; for sums a secure sum of the updates would do. `mfairfl "
        "strategies NAME` says more."
    )


def _seen(card: Card) -> str:
    if card.trains_on == "pooled":
        return "rows"
    return {"sums": "sums", "individual": "updates"}[card.reveals]


def _explain(name: str, *, as_json: bool) -> None:
    """Print a method's rule and its hyper-parameters."""
    from inspect import getdoc, getmodule  # noqa: PLC0415

    from mfairfl.strategies import create, describe  # noqa: PLC0415 - only when called

    strategy, card = create(name), describe(name)
    values = {
        field.name: {
            "default": getattr(strategy, field.name),
            "grid": list(field.metadata.get("grid", ())),
        }
        for field in fields(strategy)  # type: ignore[arg-type]
    }
    if as_json:
        print_json({"name": name, **asdict(card), "hyper_parameters": values})
        return
    typer.echo(f"{name}: {card.title} ({card.paper})\n\n{getdoc(getmodule(strategy))}\n")
    typer.echo(f"{getdoc(type(strategy))}\n")
    rows = [
        [f"strategy.{key}", str(value["default"]), ", ".join(map(str, value["grid"]))]
        for key, value in values.items()
    ]
    print_table(["hyper-parameter", "default", "tuned over"], rows)
