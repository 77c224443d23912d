"""`mfairfl init`: a commented TOML file from a CSV file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from mfairfl.errors import ConfigError

__all__ = ["init"]

_NONE = "-"


def init(
    *,
    csv: Annotated[Path, typer.Option(help="Rows with a header line (CSV or Parquet).")],
    label: Annotated[str | None, typer.Option(help="Column to predict; two values.")] = None,
    favourable: Annotated[
        str | None, typer.Option(help="The label value that is good for a person.")
    ] = None,
    sensitive: Annotated[
        str | None, typer.Option(help="Sensitive columns: sex or sex,age.")
    ] = None,
    client: Annotated[
        str | None, typer.Option(help="Column that names the client of each row.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write; by default CSV's name with .toml.")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="Found unless given.")] = None,
    encoding: Annotated[str | None, typer.Option(help="Found unless given.")] = None,
) -> None:
    """Write a commented TOML file for your own CSV.

    On a terminal it asks for what is missing and proposes answers.
    """
    from mfairfl.cli import proposal  # noqa: PLC0415 - only when called
    from mfairfl.cli.template import write_toml  # noqa: PLC0415

    target = csv.with_suffix(".toml") if out is None else out
    proposal.check_target(target)
    found = proposal.read(csv, delimiter, encoding)
    asking = sys.stdin.isatty() and not (label and favourable and sensitive)
    label = label or _ask("label", proposal.two_valued(found.frame), "column to predict")
    options = proposal.label_values(found, label)
    favourable = favourable or _ask("favourable", options, f"good value of {label}")
    likely = [c for c in proposal.likely_sensitive(found.frame) if c != label]
    sensitive = sensitive or _ask("sensitive", likely, "sensitive columns, comma between")
    if client is None and asking:
        near = proposal.likely_client(found.frame) or _NONE
        answer = typer.prompt(f"column that names the client ({_NONE} for none)", default=near)
        client = None if answer.strip() == _NONE else answer.strip()
    made = proposal.propose(found, label, favourable, sensitive, client)
    proposal.write(target, write_toml(made, target))
    for note in made.notes:
        typer.echo(f"note: {note}")
    typer.echo(f"{target}: written. Next: mfairfl doctor {target}, then mfairfl train {target}")


def _ask(flag: str, options: Sequence[str], question: str) -> str:
    """Ask on a terminal; elsewhere name the flag and what it could be."""
    if not sys.stdin.isatty():
        hint = f", for example one of: {', '.join(options)}" if options else ""
        raise ConfigError(f"--{flag} is missing ({question}){hint}")
    if options:
        typer.echo(f"candidates: {', '.join(options)}")
    answer: str = typer.prompt(question, default=options[0] if options else None)
    return answer.strip()
