"""`mfairfl audit`: any model's decisions, from any tool."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mfairfl.cli.flags import (
    Delimiter,
    Encoding,
    Header,
    Json,
    Sheet,
    option_flags,
    parsed,
    split_names,
)
from mfairfl.report.audit_options import AUDIT_OPTIONS, ROW_OPTIONS
from mfairfl.runs.options import Option, nested

if TYPE_CHECKING:
    from mfairfl.report.document import Document

_OPTIONS = AUDIT_OPTIONS | ROW_OPTIONS
Baseline = Annotated[
    Path | None,
    typer.Option(
        metavar="AUDIT", help="Earlier audit: what has changed since?", rich_help_panel="Audit"
    ),
]


@option_flags(_OPTIONS)
def audit(
    rows: Annotated[
        Path,
        typer.Argument(
            metavar="P.csv", help="One decision per row: CSV, Excel, JSON or Parquet, of any tool."
        ),
    ],
    *,
    flags: Mapping[str, Any],
    baseline: Baseline = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    header: Header = None,
    sheet: Sheet = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for audit.html, audit.json and tables as CSV.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an audit in --out.")] = False,
    json: Json = False,
) -> None:
    """Measure how any model's decisions treat groups, with verdict, intervals and bounds.

    Decisions come from --prediction, or from --score and --threshold; what `mfairfl predict`
    writes is understood. Rows without a label or a group count where they can, and bounds show
    what they could change. No row leaves this machine.

    Examples
    --------
    mfairfl audit P.csv --label hired --prediction decision --sensitive sex --out audits/may
    mfairfl audit P.csv --prediction D --sex sex --race race --tolerance 0.05 --out audits/may
    mfairfl audit P.csv --score S --threshold 0.5 --sensitive age --bins age=40,60 --out audits/may
    mfairfl audit P.csv --label hired --prediction decision --sensitive sex --split test
    mfairfl audit new.csv --prediction D --sensitive sex --baseline audits/may --out audits/june
    """
    given = audit_values(flags, _OPTIONS)
    from mfairfl.data.files import FileFormat, read_file  # noqa: PLC0415 - only when called
    from mfairfl.report.audit.rows import audit_content  # noqa: PLC0415
    from mfairfl.report.audit_settings import RowOptions, validated  # noqa: PLC0415
    from mfairfl.report.document import Document  # noqa: PLC0415
    from mfairfl.report.write import check_folder  # noqa: PLC0415

    if out is not None:
        check_folder(out, replace=force)
    earlier = None if baseline is None else Document.read(baseline)
    content = read_file(rows, FileFormat(delimiter, encoding, header, sheet))
    given["sensitive"] = split_names(flags.get("sensitive", ()), content.frame.columns)
    options = validated(RowOptions, given)
    show_audit(
        audit_content(content, options, name=rows.name, baseline=earlier), out, as_json=json
    )


def audit_values(flags: Mapping[str, Any], options: Mapping[str, Option]) -> dict[str, Any]:
    """Return what flags say, by the keys of an audit's options.

    Examples
    --------
    >>> audit_values({"notion": ["dp,eo"], "tool": "ranker"}, AUDIT_OPTIONS)
    {'notions': ['dp', 'eo'], 'facts': {'tool': 'ranker'}}
    """
    values = parsed(flags, options)
    return nested({options[name].key: value for name, value in values.items()})


def show_audit(document: Document, out: Path | None, *, as_json: bool) -> None:
    """Write the files of an audit, if there is a folder for them, and print what it says."""
    files = [] if out is None else document.write(out)
    if as_json:
        typer.echo(document.to_json(), nl=False)
        return
    typer.echo(str(document), nl=False)
    typer.echo(f"files: {out}/ ({', '.join(file.name for file in files)})" if files else _NO_FILES)


_NO_FILES = "no files: --out FOLDER writes page, tables and audit.json"
