"""`mfairfl deploy audit`: the audit of `mfairfl audit`, from counts of silos."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mfairfl.cli.audit import Baseline, audit_values, show_audit
from mfairfl.cli.deploy import journal_progress, silo_files
from mfairfl.cli.flags import Json, option_flags
from mfairfl.errors import ConfigError, require_extra
from mfairfl.report.audit_options import AUDIT_OPTIONS
from mfairfl.runs.options import dotted, nested

if TYPE_CHECKING:
    from mfairfl.deployment.audit_request import AuditRequest


@option_flags(AUDIT_OPTIONS)
def deploy_audit(
    file: Annotated[
        Path | None, typer.Argument(metavar="FEDERATION.toml", help="The coordinator's file.")
    ] = None,
    *,
    flags: Mapping[str, Any],
    run: Annotated[
        Path | None,
        typer.Option(help="Audit the model of this run folder: silos are sent it."),
    ] = None,
    silo: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE", help="Try it on this machine: a silo with its file; repeat it."
        ),
    ] = None,
    min_rows: Annotated[
        int | None,
        typer.Option(min=1, help="With --silo: rows below which nothing is counted; 10."),
    ] = None,
    baseline: Baseline = None,
    out: Annotated[
        Path, typer.Option(help="Folder for audit.html, audit.json, tables, counts and journal.")
    ],
    force: Annotated[bool, typer.Option("--force", help="Replace an audit in --out.")] = False,
    json: Json = False,
) -> None:
    """At the coordinator: audit decisions over silos, from counts; no row moves.

    Every silo counts the rows of its own file, by the columns that the section `audit` of its
    silo.toml allows, and keeps counts of few rows back. Numbers then have bounds that contain
    their value on all rows. A section `audit` of FEDERATION.toml may say what is asked; flags
    override it.

    Examples
    --------
    mfairfl deploy audit federation.toml --label hired --prediction D --sensitive sex --out may
    mfairfl deploy audit federation.toml --run runs/adult --out audits/may
    mfairfl deploy audit --silo a=a.csv --silo b=b.csv --prediction D --sensitive sex --out try
    """
    require_extra("flwr", "flower")
    files = silo_files(silo or ())
    if (file is None) == (not files):
        raise ConfigError("give FEDERATION.toml, or files of silos on this machine (--silo)")
    if min_rows is not None and not files:
        raise ConfigError("--min-rows: silos set it in their own policy.toml; it goes with --silo")
    from mfairfl.report.document import Document  # noqa: PLC0415
    from mfairfl.report.write import check_folder  # noqa: PLC0415 - only when called

    check_folder(out, replace=force)
    earlier = None if baseline is None else Document.read(baseline)
    request = requested_audit(file, flags, run)

    with journal_progress(quiet=json) as progress:
        from mfairfl.deployment.audit import (  # noqa: PLC0415 - loads Flower
            audit_federation,
            build_silo_audit,
        )
        from mfairfl.deployment.local import audit_local  # noqa: PLC0415

        if file is None:
            options: dict[str, Any] = {"min_rows": min_rows, "say": progress.note}
            found = audit_local(request, files, out, follower=progress, **options)
        else:
            found = audit_federation(file, request, out, progress)
    show_audit(build_silo_audit(request, found, earlier), out, as_json=json)


def requested_audit(file: Path | None, flags: Mapping[str, Any], run: Path | None) -> AuditRequest:
    """Lay flags over what the coordinator's file says, and check it."""
    from mfairfl.deployment.audit_request import AuditRequest  # noqa: PLC0415 - only when called
    from mfairfl.deployment.settings import load_federation  # noqa: PLC0415
    from mfairfl.report.audit_settings import validated  # noqa: PLC0415

    given = audit_values(flags, AUDIT_OPTIONS) | ({} if run is None else {"run": run})
    stated = {} if file is None else load_federation(file).audit.model_dump(exclude_unset=True)
    request = validated(AuditRequest, nested(dotted(given), stated))
    request.check()
    return request
