"""`mfairfl doctor`: look at settings and data before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mfairfl.cli.show import print_json
from mfairfl.errors import MfairflError
from mfairfl.files import load_toml

if TYPE_CHECKING:
    from mfairfl.cli.checks import Finding

__all__ = ["doctor"]


def doctor(
    file: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="Settings to look at.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")] = False,
) -> None:
    """Check settings and data without training: ok, warn and fail lines; exit code 2 on fail.

    The file is one for `mfairfl train`, a silo's silo.toml, or a coordinator's federation.toml.
    """
    from mfairfl.cli.checks import Finding  # noqa: PLC0415 - loads PyTorch

    findings: list[Finding] = []
    failure, ready = None, "to train"
    try:
        examine, ready = _checks_for(file)
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
        typer.echo(f"ready {ready}, {warned} warning{'s' * (warned != 1)}")


def _checks_for(file: Path) -> tuple[Callable[[Path], Iterator[Finding]], str]:
    """Return the checks that fit a file, by the keys it holds, and what for."""
    keys = load_toml(file).keys()
    if not keys & {"silos", "state"}:
        from mfairfl.cli.checks import examine  # noqa: PLC0415 - loads PyTorch

        return examine, "to train"
    from mfairfl.cli.federating import needs_flower  # noqa: PLC0415 - only for these files

    needs_flower()
    from mfairfl.cli import deployment_checks  # noqa: PLC0415

    if "silos" in keys:
        return deployment_checks.examine_federation, "to serve"
    return deployment_checks.examine_silo, "to take part"
