"""`mfairfl doctor`: check settings and data before anything is trained."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mfairfl.cli.flags import Json
from mfairfl.cli.show import print_columns, print_json
from mfairfl.errors import MfairflError


def doctor(
    file: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="Settings to check.")],
    json: Json = False,
) -> None:
    """Check settings and data without training: fail, warn, note and ok lines.

    What matters most comes first; a table at the end says what was made of each column. The file
    is one for `mfairfl train`, a silo's silo.toml, or a coordinator's federation.toml. The exit
    code is 2 if there is a fail line.

    Examples
    --------
    mfairfl doctor my.toml
    mfairfl doctor my.toml --json
    """
    from mfairfl.checks import diagnose  # noqa: PLC0415 - only when called

    findings, columns = diagnose(file)
    failed = [one.message for one in findings if one.level == "fail"]
    if json:
        found = [one._asdict() for one in findings]
        print_json({"ok": not failed, "findings": found, "columns": list(map(asdict, columns))})
    else:
        for finding in findings:
            typer.echo(str(finding))
        if columns:
            print_columns(columns)
    if failed:
        raise MfairflError(failed[0])
    if not json:
        warned = sum(one.level == "warn" for one in findings)
        typer.echo(f"ready, {warned} warning{'s' * (warned != 1)}")
