"""`mfairfl report`, `mfairfl audit` and `mfairfl deploy audit`: documents that judge a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mfairfl.cli.deploy import journal_progress, silo_files
from mfairfl.cli.flags import FILE_OPTIONS, Json, file_format, option_flags, parsed, split_names
from mfairfl.cli.show import print_text, print_worse
from mfairfl.errors import ConfigError
from mfairfl.report.audit_options import AUDIT_OPTIONS, ROW_OPTIONS
from mfairfl.runs.options import Option, dotted, nested

if TYPE_CHECKING:
    from mfairfl.deployment.settings import AuditRequest
    from mfairfl.report.document import Document


def report(
    runs: list[Path],
    *,
    out: Path | None = None,
    references: list[str] | None = None,
    json: Json = False,
) -> None:
    """Write the report of a run: a self-contained page, report.json and a model card.

    The page states what was trained for whom, whether the violation is within the tolerance that
    was set before training (--tolerance), and what fairness cost and who paid for it. The
    baseline is what `mfairfl train --baseline` put into the run's folder, or a run of strategy
    fedavg on the same rows that you add. Everything is read from the run folders.

    Parameters
    ----------
    runs : RUN...
        Run folders: the one to judge, then those to compare with it.
    out
        Page to write, by default report.html in the first run's folder; the same as JSON and a
        model card are put beside it.
    references
        Also fit boosting, boosting-threshold or logistic on all rows, pooled; may be repeated.

    Examples
    --------
    mfairfl report runs/mine
    mfairfl report runs/mfairfl runs/fedavg --out report.html
    mfairfl report runs/mfairfl runs/fedavg --references boosting --json
    """
    from mfairfl.report.write import write_report  # noqa: PLC0415 - loads slowly

    document, files = write_report(runs, out, references=references or ())
    if json:
        typer.echo(document.to_json(), nl=False)
        return
    headline = document.headline
    for warning in headline.warnings:
        print_text(f"warning: {warning}")
    for sentence in (headline.what, headline.verdict, headline.cost):
        print_text(sentence)
    print_worse(headline.worse, headline.worsened)
    typer.echo(
        f"report: {files.html} (also {files.json.name} and the model card {files.card.name})"
    )


@option_flags(AUDIT_OPTIONS | ROW_OPTIONS | FILE_OPTIONS)
def audit(
    rows: Path,
    *,
    flags: Mapping[str, Any],
    baseline: Path | None = None,
    out: Path | None = None,
    force: bool = False,
    json: Json = False,
) -> None:
    """Measure how any model's decisions treat groups, with verdict, intervals and bounds.

    Decisions come from --prediction, or from --score and --threshold; the output of
    `mfairfl predict` is recognised. Rows without a label or a group are counted where possible,
    and bounds show what they could change. No row leaves this machine.

    Parameters
    ----------
    rows : P.csv
        One decision per row: CSV, Excel, JSON or Parquet, from any tool.
    out
        Folder for audit.html, audit.json and tables as CSV.
    force
        Replace an audit in --out.

    Audit
    -----
    baseline : AUDIT
        Earlier audit, to show what has changed since.

    Examples
    --------
    mfairfl audit P.csv --label hired --prediction decision --sensitive sex --out audits/may
    mfairfl audit P.csv --prediction D --sex sex --race race --tolerance 0.05 --out audits/may
    mfairfl audit P.csv --score S --threshold 0.5 --sensitive age --bins age=40,60 --out audits/may
    mfairfl audit P.csv --label hired --prediction decision --sensitive sex --split test
    mfairfl audit new.csv --prediction D --sensitive sex --baseline audits/may --out audits/june
    """
    values = _audit_values(flags, AUDIT_OPTIONS | ROW_OPTIONS)
    from mfairfl.data.files import read_file  # noqa: PLC0415 - only when called
    from mfairfl.report.audit_settings import RowOptions, validated  # noqa: PLC0415
    from mfairfl.report.audited_rows import audit_content  # noqa: PLC0415
    from mfairfl.report.document import Document  # noqa: PLC0415
    from mfairfl.report.write import check_folder  # noqa: PLC0415

    if out is not None:
        check_folder(out, replace=force)
    earlier = None if baseline is None else Document.read(baseline)
    content = read_file(rows, file_format(flags))
    values["sensitive"] = split_names(flags.get("sensitive", ()), content.frame.columns)
    options = validated(RowOptions, values)
    document = audit_content(content, options, name=rows.name, baseline=earlier)
    _show_audit(document, out, as_json=json)


def _audit_values(flags: Mapping[str, Any], options: Mapping[str, Option]) -> dict[str, Any]:
    """Return the values of flags, by the keys of an audit's options.

    Examples
    --------
    >>> _audit_values({"notion": ["dp,eo"], "tool": "ranker"}, AUDIT_OPTIONS)
    {'notions': ['dp', 'eo'], 'facts': {'tool': 'ranker'}}
    """
    return nested({options[name].key: v for name, v in parsed(flags, options).items()})


def _show_audit(document: Document, out: Path | None, *, as_json: bool) -> None:
    """Write the files of an audit, if there is a folder for them, and print it."""
    files = [] if out is None else document.write(out)
    if as_json:
        typer.echo(document.to_json(), nl=False)
        return
    typer.echo(str(document), nl=False)
    if files:
        typer.echo(f"files: {out}/ ({', '.join(file.name for file in files)})")
    else:
        typer.echo("no files: --out FOLDER writes page, tables and audit.json")


# ------------------------------------------------------------------ over silos


@option_flags(AUDIT_OPTIONS)
def deploy_audit(
    file: Path | None = None,
    *,
    flags: Mapping[str, Any],
    run: Path | None = None,
    silo: list[str] | None = None,
    min_rows: Annotated[int | None, typer.Option(min=1)] = None,
    baseline: Path | None = None,
    out: Path,
    force: bool = False,
    json: Json = False,
) -> None:
    """At the coordinator: audit decisions over silos, from counts; no row leaves its silo.

    Every silo counts the rows of its own file, by the columns that the section `audit` of its
    silo.toml allows, and withholds counts of few rows. Numbers then have bounds that contain the
    value on all rows. A section `audit` of FEDERATION.toml may hold settings; flags override them.

    Parameters
    ----------
    file : FEDERATION.toml
        The coordinator's file.
    run
        Audit the model of this run folder, which is sent to the silos.
    silo : NAME=FILE
        To try it on this machine: a silo and its file; may be repeated.
    min_rows
        With --silo: fewest rows that are counted; 10 if omitted.
    out
        Folder for audit.html, audit.json, tables and journal.
    force
        Replace an audit in --out.

    Audit
    -----
    baseline : AUDIT
        Earlier audit, to show what has changed since.

    Examples
    --------
    mfairfl deploy audit federation.toml --label hired --prediction D --sensitive sex --out may
    mfairfl deploy audit federation.toml --run runs/adult --out audits/may
    mfairfl deploy audit --silo a=a.csv --silo b=b.csv --prediction D --sensitive sex --out try
    """
    files = silo_files(silo or ())
    if (file is None) == (not files):
        raise ConfigError("give FEDERATION.toml, or files of silos on this machine (--silo)")
    if min_rows is not None and not files:
        raise ConfigError("--min-rows: silos set it in their own policy.toml; it goes with --silo")
    from mfairfl.report.write import check_folder  # noqa: PLC0415 - only when called

    check_folder(out, replace=force)
    request = requested_audit(file, flags, {"run": run, "baseline": baseline})
    with journal_progress(quiet=json) as progress:
        from mfairfl.deployment.local import audit_local  # noqa: PLC0415
        from mfairfl.deployment.superlink import audit_federation  # noqa: PLC0415

        if file is None:
            document = audit_local(
                request, files, out, min_rows=min_rows, follower=progress, say=progress.note
            )
        else:
            document = audit_federation(file, request, out, progress)
    _show_audit(document, out, as_json=json)


def requested_audit(
    file: Path | None, flags: Mapping[str, Any], paths: Mapping[str, Path | None]
) -> AuditRequest:
    """Lay flags over the section `audit` of the coordinator's file, and check the result."""
    from mfairfl.deployment.settings import AuditRequest, load_federation  # noqa: PLC0415
    from mfairfl.report.audit_settings import validated  # noqa: PLC0415

    values = _audit_values(flags, AUDIT_OPTIONS)
    values |= {key: path for key, path in paths.items() if path is not None}
    section = {} if file is None else load_federation(file).audit.model_dump(exclude_unset=True)
    request = validated(AuditRequest, nested(dotted(values), section))
    request.check()
    return request
