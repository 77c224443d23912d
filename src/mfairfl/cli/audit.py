"""`mfairfl audit`: any model's decisions, from any tool."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mfairfl.cli.flags import Delimiter, Encoding, Header, Json, RowSplit, Sheet, split_names
from mfairfl.errors import ConfigError
from mfairfl.runs.options import comma_list

if TYPE_CHECKING:
    from mfairfl.report.audit.document import AuditDocument

_option = partial(typer.Option, rich_help_panel="Audit")
_table = partial(typer.Option, rich_help_panel="Tables in the form of 6 RCNY §5-301")


class DataKind(StrEnum):
    """Whose data they are."""

    historical = "historical"
    test = "test"


def audit(
    rows: Annotated[
        Path,
        typer.Argument(
            metavar="P.csv", help="One decision per row: CSV, Excel, JSON or Parquet, of any tool."
        ),
    ],
    *,
    prediction: Annotated[str | None, typer.Option(help="Column of decisions.")] = None,
    label: Annotated[
        str | None, typer.Option(help="Column of what was true, where it is known.")
    ] = None,
    score: Annotated[str | None, typer.Option(help="Column of scores.")] = None,
    sensitive: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME,...", help="Columns of groups; may be repeated."),
    ] = None,
    client: Annotated[
        str | None, typer.Option(help="Column of the client or site of each row.")
    ] = None,
    favourable: Annotated[
        str | None,
        typer.Option(help="Label (and decision) that is good for a person; found out if 0/1."),
    ] = None,
    selected: Annotated[
        str | None, typer.Option(help="Decision that is good, if written otherwise than labels.")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="Without --prediction: scores above it are favourable decisions."),
    ] = None,
    score_range: Annotated[
        str, typer.Option(metavar="LOW,HIGH", help="Lowest and highest possible score.")
    ] = "0,1",
    bins: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=A,B", help="Groups of a column of numbers: age=40,60."),
    ] = None,
    unknown: Annotated[
        list[str] | None,
        typer.Option(metavar="VALUE", help="Value that means `not known`; may be repeated."),
    ] = None,
    split: Annotated[
        RowSplit | None,
        typer.Option(
            help="Rows to audit, by the column split that `mfairfl predict` writes; without it "
            "train rows are refused."
        ),
    ] = None,
    notion: Annotated[
        list[str] | None,
        _option(help="What the verdict is about: dp, eo, eopp, ap; may be repeated."),
    ] = None,
    tolerance: Annotated[
        float | None, _option(help="Largest acceptable violation; without it no verdict.")
    ] = None,
    level: Annotated[float, _option(help="Confidence level of intervals.")] = 0.95,
    baseline: Annotated[
        Path | None, _option(metavar="AUDIT", help="Earlier audit: what has changed since?")
    ] = None,
    sex: Annotated[str | None, _table(metavar="NAME", help="Column of the sex.")] = None,
    race: Annotated[
        str | None, _table(metavar="NAME", help="Column of race and ethnicity.")
    ] = None,
    small_categories: Annotated[
        str | None,
        _table(metavar="WHY", help="Leave categories under 2 % out of ratios, for this reason."),
    ] = None,
    tool: Annotated[str | None, _table(help="Name of the tool whose decisions these are.")] = None,
    data_source: Annotated[
        str | None, _table(metavar="TEXT", help="Where the data come from, and why these.")
    ] = None,
    data_kind: Annotated[
        DataKind | None, _table(help="Whether the tool was used on these people.")
    ] = None,
    distribution_date: Annotated[
        str | None, _table(metavar="DATE", help="Since when the tool has been in use.")
    ] = None,
    audit_date: Annotated[
        str | None, _table(metavar="DATE", help="Date of the audit; today if omitted.")
    ] = None,
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
    writes is understood. Rows without a label or a group count where they can, and bounds say
    what they could change. No row leaves this machine.

    Examples
    --------
    mfairfl audit P.csv --label hired --prediction decision --sensitive sex --out audits/may
    mfairfl audit P.csv --prediction D --sex sex --race race --tolerance 0.05 --out audits/may
    mfairfl audit P.csv --score S --threshold 0.5 --sensitive age --bins age=40,60 --out audits/may
    mfairfl audit P.csv --label hired --prediction decision --sensitive sex --split test
    mfairfl audit new.csv --prediction D --sensitive sex --baseline audits/may --out audits/june
    """
    facts = {
        "tool": tool,
        "data_source": data_source,
        "data_kind": None if data_kind is None else data_kind.value,
        "distribution_date": distribution_date,
        "audit_date": audit_date,
    }
    cuts, ends = _bins(bins or ()), score_ends(score_range)
    from mfairfl.data.frame import read_file  # noqa: PLC0415 - only when called
    from mfairfl.report.audit.document import read_audit  # noqa: PLC0415
    from mfairfl.report.audit.rows import audit_content, stated  # noqa: PLC0415
    from mfairfl.report.audit.write import check_folder  # noqa: PLC0415

    if out is not None:
        check_folder(out, replace=force)
    earlier = None if baseline is None else read_audit(baseline)
    content = read_file(rows, delimiter=delimiter, encoding=encoding, header=header, sheet=sheet)
    reading, settings = stated(
        sensitive=split_names(sensitive or (), content.frame.columns),
        label=label,
        prediction=prediction,
        score=score,
        client=client,
        favourable=favourable,
        selected=selected,
        threshold=threshold,
        score_range=ends,
        bins=cuts,
        unknown=unknown or (),
        split=split,
        notions=[name for one in notion or ["dp"] for name in comma_list(one)],
        tolerance=tolerance,
        level=level,
        sex=sex,
        race=race,
        small_categories=small_categories,
        facts={name: text for name, text in facts.items() if text is not None},
    )
    document = audit_content(content, reading, settings, name=rows.name, baseline=earlier)
    show_audit(document, out, as_json=json)


def show_audit(document: AuditDocument, out: Path | None, *, as_json: bool) -> None:
    """Write the files of an audit, if there is a folder for them, and print what it says."""
    files = [] if out is None else document.write(out)
    if as_json:
        typer.echo(document.to_json(), nl=False)
        return
    typer.echo(str(document), nl=False)
    typer.echo(f"files: {out}/ ({', '.join(file.name for file in files)})" if files else _NO_FILES)


_NO_FILES = "no files: --out FOLDER writes page, tables and audit.json"


def _bins(given: Sequence[str]) -> dict[str, list[float]]:
    """Read the values of --bins.

    Examples
    --------
    >>> _bins(["age=40,60"])
    {'age': [40.0, 60.0]}
    """
    found = {}
    for one in given:
        name, _, cuts = one.rpartition("=")
        numbers = [_number(text) for text in comma_list(cuts)]
        if not name.strip() or not numbers or None in numbers:
            raise ConfigError(f"--bins {one}: write NAME=A,B with numbers, such as age=40,60")
        found[name.strip()] = [number for number in numbers if number is not None]
    return found


def score_ends(text: str) -> tuple[float, float]:
    """Read the value of --score-range.

    Examples
    --------
    >>> score_ends("300,850")
    (300.0, 850.0)
    """
    ends = [_number(part) for part in comma_list(text)]
    if len(ends) != 2 or ends[0] is None or ends[1] is None:
        raise ConfigError(f"--score-range {text}: write LOW,HIGH, such as 0,1")
    return ends[0], ends[1]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
