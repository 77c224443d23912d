"""`mfairfl doctor`: look at settings and data before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mfairfl.cli.show import print_json
from mfairfl.errors import MfairflError

__all__ = ["doctor"]


def doctor(
    file: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="Settings to look at.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")] = False,
) -> None:
    """Check settings and data without training: ok, warn and fail lines; exit code 2 on fail."""
    from mfairfl.cli.checks import Finding, examine  # noqa: PLC0415 - loads PyTorch

    findings: list[Finding] = []
    failure = None
    try:
        for finding in examine(file):
            findings.append(finding)
            if not json:
                typer.echo(f"{finding.level:<4}  {finding.check}: {finding.message}")
    except MfairflError as error:
        failure = error
        findings.append(Finding("fail", "input", str(error)))
    if json:
        print_json({"ok": failure is None, "findings": [one._asdict() for one in findings]})
    if failure is not None:
        raise failure
    if not json:
        warned = sum(finding.level == "warn" for finding in findings)
        typer.echo(f"ready to train, {warned} warning{'s' * (warned != 1)}")
