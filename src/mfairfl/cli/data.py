"""`mfairfl data list | describe | fetch | verify`: the catalogue of data sets."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from mfairfl.cli.flags import Json, command, examples, parse_sets
from mfairfl.cli.show import print_json, print_table
from mfairfl.errors import DataError

app = typer.Typer(
    help="Data sets known by name: list, describe, fetch, verify.",
    epilog=examples("mfairfl data list", "mfairfl data describe adult", "mfairfl data verify"),
)

Name = Annotated[str, typer.Argument(help="A name from `mfairfl data list`.")]
Own = Annotated[
    Path | None, typer.Option("--path", help="Your own copy, instead of the bundled or fetched.")
]
Options = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="OPTION=VALUE", help="An option of the data set; repeatable."),
]


@command(app, "list")
def list_(json: Json = False) -> None:
    """List the data sets.

    Examples
    --------
    mfairfl data list
    mfairfl data list --json
    """
    from mfairfl.data import list_datasets  # noqa: PLC0415 - only when called

    datasets = list_datasets()
    if json:
        print_json(datasets)
        return
    sources = {True: "bundled", False: "fetched once", None: "registered"}
    rows = [
        [
            dataset["name"],
            dataset["title"],
            "-" if dataset["rows"] is None else f"{dataset['rows']:,}",
            ", ".join(dataset["sensitive"]),
            sources[dataset["bundled"]],
        ]
        for dataset in datasets
    ]
    head = ["name", "data set", "rows", "sensitive attributes", "source"]
    print_table(head, rows, right=(2,), wrap=(1, 3))


@command(app)
def describe(name: Name, path: Own = None, set_: Options = None, json: Json = False) -> None:
    """Show rows, base rates by group, licence, citation and known pitfalls.

    Examples
    --------
    mfairfl data describe adult
    mfairfl data describe bank --json
    mfairfl data describe acs-income --set year=2018 --set states=VT,WY
    """
    from mfairfl.data import describe as facts_of  # noqa: PLC0415 - only when called

    options: dict[str, Any] = parse_sets(set_ or ())
    facts = facts_of(name, path, **options)
    if json:
        print_json(facts)
        return
    label = facts["favourable"]
    typer.echo(f"{facts['title']}: {facts['rows']:,} rows")
    typer.echo(
        f"label {facts['label']}, favourable {label['value']}: "
        f"{label['rows']:,} rows ({label['share']:.1%})"
    )
    rows = []
    for attribute, groups in facts["attributes"].items():
        for group, n in groups.items():
            rate = "-" if n["base_rate"] is None else f"{n['base_rate']:.1%}"
            rows.append([attribute, group, f"{n['rows']:,}", f"{n['favourable']:,}", rate])
    print_table(["attribute", "group", "rows", "favourable", "base rate"], rows, right=(2, 3, 4))
    used = ", ".join(f"{key} = {_shown(value)}" for key, value in facts["options"].items())
    for key, value in {**facts, "options": used}.items():
        if value and key in ("options", "source", "licence", "citation"):
            typer.echo(f"{key}: {value}")
    for trap in facts["traps"]:
        typer.echo(f"beware: {trap}")


def _shown(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


@contextmanager
def _logged() -> Iterator[None]:
    """Print what is being fetched: many files take minutes."""
    handler, logger = logging.StreamHandler(sys.stderr), logging.getLogger("mfairfl.data")
    handler.addFilter(
        lambda record: record.levelno < logging.WARNING
    )  # those are printed by `main`
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


@command(app)
def fetch(name: Name, set_: Options = None, json: Json = False) -> None:
    """Download a data set once, check it and keep the needed columns.

    Examples
    --------
    mfairfl data fetch compas
    mfairfl data fetch german --json
    mfairfl data fetch acs-income --set states=VT,WY
    """
    from mfairfl.data import load_dataset  # noqa: PLC0415 - only when called

    options: dict[str, Any] = parse_sets(set_ or ())
    with _logged():
        table = load_dataset(name, **options)
    name, source, sha256 = table.name, table.notes[0], table.sha256
    if json:
        print_json({"name": name, "rows": len(table), "sha256": sha256, "source": source})
    else:
        typer.echo(f"{name}: {len(table):,} rows, {source}")


@command(app)
def verify(
    name: Annotated[str | None, typer.Argument(help="Verify only this data set.")] = None,
    json: Json = False,
) -> None:
    """Compare the files on this machine with their published or recorded sha256.

    Examples
    --------
    mfairfl data verify
    mfairfl data verify adult
    """
    from mfairfl.data import verify as checks_of  # noqa: PLC0415 - only when called

    checks = checks_of(name)
    if json:
        print_json([check._asdict() for check in checks])
    else:
        for check in checks:
            typer.echo(f"{'ok  ' if check.ok else 'fail'}  {check.file}  sha256 {check.expected}")
    for check in checks:
        if check.found is None:
            raise DataError(f"{check.file}: not on this machine: run `mfairfl data fetch {name}`")
        if not check.ok:
            raise DataError(
                f"{check.file}: sha256 is {check.found}, expected {check.expected}: delete the "
                "file and run `mfairfl data fetch`, or install mfairfl again"
            )
