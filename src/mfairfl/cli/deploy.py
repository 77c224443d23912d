"""`mfairfl deploy …`: a federation of machines, or of processes on this one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from mfairfl.cli.flags import ConfigFile, examples, run_flags

__all__ = ["app"]


app = typer.Typer(
    help="Silos on machines of their own, over TLS (needs the extra 'flower').",
    epilog=examples(
        "mfairfl deploy local --data adult --clients 3",
        "mfairfl deploy init credit --silo north --silo south --host fl.example.org",
    ),
)

Federation = Annotated[
    Path, typer.Argument(metavar="FEDERATION.toml", help="The coordinator's file.")
]


@app.command(
    epilog=examples(
        "mfairfl deploy local --data adult --clients 3",
        "mfairfl deploy local my.toml --silo north=north.csv --silo south=south.csv",
    )
)
@run_flags()
def local(
    file: ConfigFile = None,
    *,
    flags: Mapping[str, Any],
    silo: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FILE: a silo with a file of its own, instead of dealt rows."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder.")] = None,
    deadline: Annotated[float, typer.Option(help="Seconds a request waits for answers.")] = 600,
    json: Annotated[bool, typer.Option("--json", help="Print only run.json.")] = False,
) -> None:
    """Run a whole federation on this machine: TLS, keys, a process for every silo.

    The result is the one of `mfairfl train` with the same settings. An interrupted run goes on
    when the same command is given again.
    """
    from mfairfl.cli.federating import run_here  # noqa: PLC0415 - loads PyTorch and Flower

    run_here(file, flags, silo or [], out, deadline=deadline, as_json=json)


@app.command(
    epilog=examples(
        "mfairfl deploy init credit --silo north --silo south --host fl.example.org",
        "mfairfl deploy init credit --silo north --silo south --host 10.0.0.5 --run my.toml",
    )
)
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write; new or empty.")],
    *,
    silo: Annotated[list[str], typer.Option(help="Name of a silo; give it for each.")],
    host: Annotated[str, typer.Option(help="Name or address silos reach the coordinator by.")],
    port: Annotated[int, typer.Option(help="The coordinator's public port.")] = 9443,
    run: Annotated[
        Path | None, typer.Option(help="Settings with a [task], for example of `mfairfl init`.")
    ] = None,
) -> None:
    """Write the folder a consortium starts from: settings, services, a guide."""
    from mfairfl.cli.federating import needs_flower  # noqa: PLC0415 - only when called

    needs_flower()
    from mfairfl.deployment.consortium import write_consortium  # noqa: PLC0415

    write_consortium(folder, silos=silo, host=host, port=port, run=run)
    typer.echo(f"{folder}: written. Next: read {folder}/GUIDE.md")


@app.command(epilog=examples("mfairfl deploy key key"))
def key(
    path: Annotated[Path, typer.Argument(help="Private key to write; never give it away.")],
) -> None:
    """At a silo: make its key pair. Send PATH.pub to the coordinator."""
    from mfairfl.cli.federating import needs_flower  # noqa: PLC0415 - only when called

    needs_flower()
    from mfairfl.deployment.credentials import make_key  # noqa: PLC0415

    public = make_key(path)
    typer.echo(f"{path}: stays here. Send {public} to the coordinator.")


@app.command(epilog=examples("mfairfl deploy certificates certificates --host fl.example.org"))
def certificates(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write.")],
    *,
    host: Annotated[list[str], typer.Option(help="Name or address silos use; may be repeated.")],
) -> None:
    """At the coordinator: make an authority and a server certificate (two years)."""
    from mfairfl.cli.federating import needs_flower  # noqa: PLC0415 - only when called

    needs_flower()
    from mfairfl.deployment.credentials import make_certificates  # noqa: PLC0415

    make_certificates(folder, host)
    typer.echo(f"{folder}/ca.crt: send it to every silo. The other files stay here.")


@app.command(epilog=examples("mfairfl deploy server federation.toml"))
def server(file: Federation) -> None:
    """At the coordinator: run Flower's server and the public gate, until stopped."""
    from mfairfl.cli.federating import serve  # noqa: PLC0415 - only when called

    serve(file)


@app.command(epilog=examples("mfairfl deploy silo silo.toml"))
def silo(
    file: Annotated[Path, typer.Argument(metavar="SILO.toml", help="The silo's own file.")],
) -> None:
    """At a silo: answer the coordinator, until stopped. Check first with `mfairfl doctor`."""
    from mfairfl.cli.federating import become_silo  # noqa: PLC0415 - only when called

    become_silo(file)


@app.command(epilog=examples("mfairfl deploy run federation.toml"))
def run(
    file: Federation,
    json: Annotated[bool, typer.Option("--json", help="Print only run.json.")] = False,
) -> None:
    """At the coordinator: train over the silos that are online, or go on with a stopped run."""
    from mfairfl.cli.federating import run_silos  # noqa: PLC0415 - loads PyTorch and Flower

    run_silos(file, as_json=json)
