"""`mfairfl explain`: what a word of the results means."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from mfairfl.cli.flags import Json
from mfairfl.cli.show import print_json, print_table, print_text


def explain(
    word: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[WORD]", help="A word of the results, a number's name, a notion or a method."
        ),
    ] = None,
    *,
    json: Json = False,
) -> None:
    """Explain a word in plain terms: violation, noise floor, conflicts, select, a method ...

    Without a word all of them are listed, each with its meaning in one sentence. Capitals, spaces,
    hyphens and underscores do not matter.

    Examples
    --------
    mfairfl explain noise-floor
    mfairfl explain equalized_odds_ratio
    mfairfl explain
    """
    from mfairfl import glossary  # noqa: PLC0415 - only when called

    if not word:
        entries = glossary.entries()
        if json:
            print_json([asdict(entry) for entry in entries])
        else:
            print_table(["word", "meaning"], [[e.name, e.short] for e in entries], wrap=(1,))
        return
    entry = glossary.explain(" ".join(word))
    if json:
        print_json(asdict(entry))
        return
    typer.echo(f"{entry.name}\n")
    print_text(entry.short)
    typer.echo()
    print_text(entry.text)
    typer.echo()
    print_text(f"see: {', '.join(entry.see)}")
