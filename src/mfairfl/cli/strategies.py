"""`mfairfl strategies`: the methods, what each protects and what it shows the server."""

from __future__ import annotations

from dataclasses import asdict
from inspect import getdoc, getmodule
from typing import TYPE_CHECKING, Annotated

import typer

from mfairfl.cli.flags import Json
from mfairfl.cli.show import print_json, print_table, print_text, say
from mfairfl.errors import ConfigError
from mfairfl.runs.options import dotted

if TYPE_CHECKING:
    from mfairfl.strategies import Card


def strategies(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="Explain one method in full; also package.module:Name."
        ),
    ] = None,
    *,
    json: Json = False,
) -> None:
    """List the methods: paper, what each protects, what the server sees; or explain one.

    Methods of other installed packages are listed too.

    Examples
    --------
    mfairfl strategies
    mfairfl strategies --json
    """
    if name is None:
        _list(as_json=json)
    else:
        _explain(name, as_json=json)


def _list(*, as_json: bool) -> None:
    from mfairfl.strategies import available, describe  # noqa: PLC0415 - only when called

    cards = {}
    for name in available():
        try:
            cards[name] = describe(name)
        except ConfigError as error:  # another package's method, which does not load
            say(f"warning: {name} is left out: {error}")
    if as_json:
        print_json([{"name": name, **asdict(card)} for name, card in cards.items()])
        return
    print_table(
        ["name", "method", "paper", "protects", "sees"],
        [[n, c.title, c.paper, c.protects, _seen(c)] for n, c in cards.items()],
        wrap=(1, 2, 3),
    )
    print_text(
        "sees: what the server must see; where it is sums, a secure sum of the updates is "
        "enough. `mfairfl strategies NAME` explains a method."
    )


def _seen(card: Card) -> str:
    if card.trains_on == "pooled":
        return "rows"
    return {"sums": "sums", "individual": "updates"}[card.reveals]


def _explain(name: str, *, as_json: bool) -> None:
    """Print a method's rule, its hyper-parameters, and what the server sees."""
    from mfairfl.runs.manifest import manifest  # noqa: PLC0415 - only when called
    from mfairfl.strategies import create, describe, grids  # noqa: PLC0415 - only when called

    strategy, card, tuned = create(name), describe(name), grids(name)
    values = {
        key: {"default": value, "grid": list(tuned.get(key, ()))}
        for key, value in dotted(asdict(strategy)).items()  # type: ignore[call-overload]
    }
    seen = manifest(card)
    if as_json:
        lines = [line.model_dump(mode="json") for line in seen]
        plain = {"name": name, **asdict(card), "server_sees": lines}
        print_json(plain | {"hyper_parameters": values})
        return
    typer.echo(f"{name}: {card.title} ({card.paper})\n\n{getdoc(getmodule(strategy))}\n")
    typer.echo(f"{getdoc(type(strategy))}\n")
    rows = [
        [f"strategy.{key}", str(value["default"]), ", ".join(map(str, value["grid"]))]
        for key, value in values.items()
    ]
    print_table(["hyper-parameter", "default", "tuned over"], rows, wrap=(2,))
    typer.echo("What the server sees of each client, with the usual settings:")
    for line in seen:
        print_text(f"- {line.sentence}")
