"""`mfairfl deploy audit`: the audit of `mfairfl audit`, from counts of silos."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from mfairfl.cli.audit import audit, score_ends, show_audit
from mfairfl.cli.deploy import journal_progress, silo_files
from mfairfl.cli.flags import Json, with_flags
from mfairfl.errors import ConfigError, require_extra
from mfairfl.runs.options import comma_list

if TYPE_CHECKING:
    from mfairfl.deployment.audit_request import AuditRequest

_FACTS = ("tool", "data_source", "data_kind", "distribution_date", "audit_date")
_LISTS = {"sensitive": "sensitive", "notion": "notions"}
_SHARED = (
    *("prediction", "label", "score", "sensitive", "favourable", "selected", "threshold"),
    *("score_range", "notion", "tolerance", "level", "sex", "race", "small_categories", *_FACTS),
)


def _audit_flags(function: Callable[..., None]) -> Callable[..., None]:
    """Add flags of `mfairfl audit` to a command, which gets those that were given as `flags`."""
    theirs = signature(audit, eval_str=True).parameters
    return with_flags(function, [_unset(theirs[name]) for name in _SHARED])


def _unset(flag: Parameter) -> Parameter:
    """Return a flag without a default, so that what a file says is overridden by flags only."""
    kind, *about = get_args(flag.annotation)
    return flag.replace(default=None, annotation=Annotated[(kind | None, *about)])


@_audit_flags
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
    baseline: Annotated[
        Path | None, typer.Option(metavar="AUDIT", help="Earlier audit: what has changed since?")
    ] = None,
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
    from mfairfl.report.audit.document import read_audit  # noqa: PLC0415 - only when called
    from mfairfl.report.audit.write import check_folder  # noqa: PLC0415

    check_folder(out, replace=force)
    earlier = None if baseline is None else read_audit(baseline)
    request = requested_audit(file, flags, run)

    with journal_progress(quiet=json) as progress:
        from mfairfl.deployment.audit import (  # noqa: PLC0415 - loads Flower
            audit_federation,
            build_silo_audit,
        )
        from mfairfl.deployment.local_audit import audit_local  # noqa: PLC0415

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

    said = AuditRequest() if file is None else load_federation(file).audit
    given = {key: value for key, value in flags.items() if key not in (*_FACTS, *_LISTS)}
    for flag, key in _LISTS.items():
        if flag in flags:
            given[key] = [name for one in flags[flag] for name in comma_list(one)]
    if "score_range" in given:
        given["score_range"] = score_ends(given["score_range"])
    if run is not None:
        given["run"] = run
    if facts := {key: str(flags[key]) for key in _FACTS if key in flags}:
        given["facts"] = said.facts.model_dump() | facts
    request = said.overridden(given)
    request.check()
    return request
