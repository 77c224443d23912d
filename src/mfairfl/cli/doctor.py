"""`mfairfl doctor`: check settings and data before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mfairfl.cli.flags import Json
from mfairfl.cli.show import print_json
from mfairfl.errors import MfairflError

__all__ = ["doctor"]


def doctor(
    file: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="Settings to check.")],
    json: Json = False,
) -> None:
    """Check settings and data without training: ok, note, warn and fail lines.

    The file is one for `mfairfl train`, a silo's silo.toml, or a coordinator's federation.toml.
    The exit code is 2 if there is a fail line.

    Examples
    --------
    mfairfl doctor my.toml
    mfairfl doctor my.toml --json
    """
    from mfairfl.checks import examine  # noqa: PLC0415 - only when called

    findings = []
    for finding in examine(file):
        findings.append(finding)
        if not json and finding.level != "fail":
            typer.echo(str(finding))
    failed = finding.level == "fail"
    if json:
        print_json({"ok": not failed, "findings": [one._asdict() for one in findings]})
    if failed:
        raise MfairflError(finding.message)
    if not json:
        warned = sum(one.level == "warn" for one in findings)
        typer.echo(f"ready, {warned} warning{'s' * (warned != 1)}")
