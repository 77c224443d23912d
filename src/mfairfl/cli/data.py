"""`mfairfl data list | describe | fetch | verify`: the catalogue of data sets."""

from pathlib import Path
from typing import Annotated

import typer

from mfairfl.cli.flags import Json, command, examples, parse_sets
from mfairfl.cli.show import print_json, print_rows
from mfairfl.errors import DataError

app = typer.Typer(
    help="Data sets known by name: list, describe, fetch, verify.",
    epilog=examples("mfairfl data list", "mfairfl data describe adult", "mfairfl data verify"),
)

Options = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="OPTION=VALUE", help="Option of the data set; may be repeated."),
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
    heads = ["name", "data set", "rows", "sensitive attributes", "source"]
    print_rows(heads, rows, numeric=[2], wrap=[1, 3])


@command(app)
def describe(
    name: str, *, path: Path | None = None, set_: Options = None, json: Json = False
) -> None:
    """Show rows, base rates by group, licence, citation and known pitfalls.

    Parameters
    ----------
    name
        A name from `mfairfl data list`.
    path
        Your own copy, instead of the bundled or fetched one.

    Examples
    --------
    mfairfl data describe adult
    mfairfl data describe bank --json
    mfairfl data describe acs-income --set year=2018 --set states=VT,WY
    """
    from mfairfl.data import describe as facts_of  # noqa: PLC0415 - only when called

    facts = facts_of(name, path, **parse_sets(set_ or ()))
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
            rows.append([attribute, group, n["rows"], n["favourable"], rate])
    heads = ["attribute", "group", "rows", "favourable", "base rate"]
    print_rows(heads, rows, numeric=[2, 3, 4])
    options = [
        f"{key} = {','.join(value) if isinstance(value, tuple) else value}"
        for key, value in facts["options"].items()
    ]
    if options:
        typer.echo(f"options: {', '.join(options)}")
    for key in ("source", "licence", "citation"):
        if facts[key]:
            typer.echo(f"{key}: {facts[key]}")
    for trap in facts["traps"]:
        typer.echo(f"beware: {trap}")


@command(app)
def fetch(name: str, *, set_: Options = None, json: Json = False) -> None:
    """Download a data set once, check it and keep the needed columns.

    Parameters
    ----------
    name
        A name from `mfairfl data list`.

    Examples
    --------
    mfairfl data fetch compas
    mfairfl data fetch german --json
    mfairfl data fetch acs-income --set states=VT,WY
    """
    from mfairfl.data import load_dataset  # noqa: PLC0415 - only when called

    table = load_dataset(name, **parse_sets(set_ or ()))
    facts = {"name": table.name, "rows": len(table), "sha256": table.sha256}
    if json:
        print_json(facts | {"source": table.notes[0]})
    else:
        typer.echo(f"{table.name}: {len(table):,} rows, {table.notes[0]}")


@command(app)
def verify(name: str | None = None, *, json: Json = False) -> None:
    """Compare the files on this machine with their published or recorded sha256.

    Parameters
    ----------
    name
        Verify only this data set.

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
