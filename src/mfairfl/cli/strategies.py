"""`mfairfl strategies`: the methods, what each protects and what it shows the server."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from mfairfl.cli.show import REVEALS, print_json, print_table

__all__ = ["strategies"]


def strategies(
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the methods: paper, what each protects, what the server needs to see."""
    from mfairfl.strategies import available, describe  # noqa: PLC0415 - only when called

    cards = {name: describe(name) for name in available()}
    if json:
        print_json([{"name": name, **asdict(card)} for name, card in cards.items()])
        return
    print_table(
        ["name", "method", "paper", "protects", "server needs"],
        [[n, c.title, c.paper, c.protects, REVEALS[c.reveals]] for n, c in cards.items()],
    )
