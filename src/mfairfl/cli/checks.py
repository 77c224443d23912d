"""`mfairfl init` and `mfairfl doctor`: settings from your own file, and checks of settings."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mfairfl.cli.flags import FILE_OPTIONS, Json, check_target, file_format, option_flags
from mfairfl.cli.show import print_columns, print_json
from mfairfl.errors import ConfigError, MfairflError
from mfairfl.runs.options import comma_list

if TYPE_CHECKING:
    from mfairfl.checks import Finding
    from mfairfl.checks.column_checks import ColumnFacts
    from mfairfl.checks.proposal import Proposal

_NONE = "-"


@option_flags(FILE_OPTIONS)
def init(
    *,
    csv: Path,
    label: str | None = None,
    favourable: str | None = None,
    others_unfavourable: bool = False,
    sensitive: str | None = None,
    client: str | None = None,
    out: Path | None = None,
    flags: Mapping[str, Any],
    json: Json = False,
) -> None:
    """Write a commented TOML file for your own data.

    It shows how each column is read. Columns that name rows, never change or repeat another
    are ignored, with a note. On a terminal it asks for what is missing and proposes answers.

    Parameters
    ----------
    csv
        Your own file: CSV, Excel, JSON or Parquet.
    label
        Column to predict; two values.
    favourable
        The desirable label value.
    others_unfavourable
        Count every other label value as unfavourable.
    sensitive : NAME,...
        Sensitive columns: sex,age.
    client
        Column that holds each row's client.
    out
        File to write; by default the CSV's name with .toml.

    Examples
    --------
    mfairfl init --csv people.csv
    mfairfl init --csv people.csv --label hired --favourable yes --sensitive sex,age
    mfairfl init --csv heart.csv --label num --favourable 0 --others-unfavourable --sensitive sex
    mfairfl init --csv people.xlsx --sheet 2024
    """
    # A folder such as "." has no name to take over; reading it is refused below.
    target = out or csv.parent / f"{csv.stem or 'data'}.toml"
    check_target(target, "choose another --out, or delete it first")
    from mfairfl.checks import proposal  # noqa: PLC0415 - only when called
    from mfairfl.data import Task  # noqa: PLC0415
    from mfairfl.data.files import read_file  # noqa: PLC0415

    content = read_file(csv, file_format(flags))
    frame = content.frame
    asking = sys.stdin.isatty() and not (label and favourable and sensitive)
    label = label or _ask("label", proposal.two_valued(frame), "column to predict")
    options = proposal.label_values(frame, label, str(csv))
    favourable = favourable or _ask("favourable", options, f"desirable value of {label}")
    if not sensitive:
        likely = [column for column in proposal.likely_sensitive(frame) if column != label]
        sensitive = _ask("sensitive", likely, "sensitive columns, separated by commas")
    if client is None and asking:
        likely_client = proposal.likely_client(frame) or _NONE
        client = _ask(
            "client", [likely_client], f"column that holds the client ({_NONE} for none)"
        )
    draft = Task(
        label=label,
        favourable=favourable,
        sensitive=tuple(comma_list(sensitive)),
        client=None if client == _NONE else client,
        others_unfavourable=others_unfavourable,
    )
    proposed = proposal.propose(csv, content, draft)
    with target.open("x", encoding="utf-8") as file:  # an existing file is never replaced
        file.write(proposal.toml_file(proposed, target))
    _print_proposal(proposed, target, as_json=json)


def _print_proposal(proposed: Proposal, target: Path, *, as_json: bool) -> None:
    if as_json:
        facts = {
            "file": str(target),
            "task": proposed.task.model_dump(mode="json", exclude_none=True),
            "notes": list(proposed.notes),
        }
        print_json(facts | _checked(proposed.findings, proposed.columns))
        return
    levels = {"warn": "warning", "note": "note"}
    for finding in proposed.findings:
        typer.echo(f"{levels[finding.level]}: {finding.message}")
    for note in proposed.notes:
        typer.echo(f"note: {note}")
    print_columns(proposed.columns)
    typer.echo(f"{target}: written. Next: mfairfl doctor {target}, then mfairfl train {target}")


def _checked(findings: Iterable[Finding], columns: Iterable[ColumnFacts]) -> dict[str, Any]:
    """Return findings and columns as JSON has them."""
    return {
        "findings": [finding._asdict() for finding in findings],
        "columns": list(map(asdict, columns)),
    }


def _ask(flag: str, options: Sequence[str], question: str) -> str:
    """Ask on a terminal; elsewhere name the flag and its candidates."""
    if not sys.stdin.isatty():
        hint = f", for example one of: {', '.join(options)}" if options else ""
        raise ConfigError(f"--{flag} is missing ({question}){hint}")
    if options:
        typer.echo(f"candidates: {', '.join(options)}")
    answer: str = typer.prompt(question, default=options[0] if options else None)
    return answer.strip()


def doctor(file: Path, *, json: Json = False) -> None:
    """Check settings and data without training: fail, warn, note and ok lines.

    The most important lines come first; a table at the end shows how each column is read. The file
    is one for `mfairfl train`, a silo's silo.toml, or a coordinator's federation.toml. The exit
    code is 2 if there is a fail line.

    Parameters
    ----------
    file : CONFIG.toml
        Settings to check.

    Examples
    --------
    mfairfl doctor my.toml
    mfairfl doctor my.toml --json
    """
    from mfairfl.checks import diagnose  # noqa: PLC0415 - only when called

    findings, columns = diagnose(file)
    failed = [finding.message for finding in findings if finding.level == "fail"]
    if json:
        print_json({"ok": not failed} | _checked(findings, columns))
    else:
        for finding in findings:
            typer.echo(str(finding))
        if columns:
            print_columns(columns)
    if failed:
        raise MfairflError(failed[0])
    if not json:
        warnings = sum(finding.level == "warn" for finding in findings)
        typer.echo(f"ready, {warnings} warning{'s' * (warnings != 1)}")
