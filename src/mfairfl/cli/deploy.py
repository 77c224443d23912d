"""`mfairfl deploy …`: a federation of machines, or of processes on this one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mfairfl.cli.flags import (
    ConfigFile,
    RunJson,
    check_data,
    command,
    configuration,
    default_folder,
    examples,
    run_flags,
    run_option,
)
from mfairfl.cli.show import print_run, say, terminal
from mfairfl.errors import ConfigError, require_extra

if TYPE_CHECKING:
    from mfairfl.cli.progress import JournalProgress

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


@command(app)
@run_flags()
def local(
    file: ConfigFile = None,
    *,
    flags: Mapping[str, Any],
    silo: Annotated[
        list[str] | None,
        run_option(
            metavar="NAME=FILE",
            help="A silo with its own file, instead of split rows; may be repeated.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        run_option(help="Run folder; by default runs/DATA-STRATEGY-SCHEME-sSEED-silos."),
    ] = None,
    deadline: Annotated[float, run_option(help="Seconds a request waits for replies.")] = 600,
    policy: Annotated[
        Path | None,
        run_option(help="A policy.toml for every silo; by default they withhold nothing."),
    ] = None,
    json: RunJson = False,
) -> None:
    """Run a whole federation on this machine: TLS, keys, one process per silo.

    The result equals that of `mfairfl train` with the same settings and --robust auto, which is
    the default here: silos may lie. Repeat the command to resume
    an interrupted run.

    Examples
    --------
    mfairfl deploy local --data adult --clients 3
    mfairfl deploy local my.toml --silo north=north.csv --silo south=south.csv
    """
    require_extra("flwr", "flower")
    config = configuration(file, flags)
    files = silo_files(silo or ())
    if not files:
        check_data(config)
    folder = Path(f"{default_folder(config)}-silos") if out is None else out

    with journal_progress(quiet=json) as progress:
        from mfairfl.deployment.local import run_local  # noqa: PLC0415 - loads Flower
        from mfairfl.silo.policy import OPEN, read_policy  # noqa: PLC0415

        options: dict[str, Any] = {"silos": files or None, "deadline": deadline}
        options["policy"] = OPEN if policy is None else read_policy(policy)
        record = run_local(config, folder, follower=progress, say=progress.note, **options)
    print_run(record, folder, as_json=json)


def silo_files(pairs: Sequence[str]) -> dict[str, Path]:
    """Read the values of --silo."""
    found: dict[str, Path] = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not equals or not name or not path:
            raise ConfigError(f"--silo {pair}: write NAME=FILE, for example north=north.csv")
        if name in found:
            raise ConfigError(f"--silo {pair}: silo '{name}' appears twice")
        if not Path(path).is_file():
            raise ConfigError(f"--silo {pair}: no such file")
        found[name] = Path(path)
    return found


@contextmanager
def journal_progress(*, quiet: bool) -> Iterator[JournalProgress]:
    """Show how far a run is that can be stopped and resumed."""
    from mfairfl.cli.progress import JournalProgress, stoppable  # noqa: PLC0415

    with stoppable(), JournalProgress(terminal(stderr=True), quiet=quiet) as progress:
        yield progress


@command(app)
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New or empty folder to write.")],
    *,
    silo: Annotated[list[str], typer.Option(help="Name of a silo; repeat it for each silo.")],
    host: Annotated[str, typer.Option(help="Name or address by which silos reach the server.")],
    port: Annotated[int, typer.Option(help="The coordinator's public port.")] = 9443,
    run: Annotated[
        Path | None, typer.Option(help="Settings with a [task], for example of `mfairfl init`.")
    ] = None,
) -> None:
    """Write the folder a consortium starts from: settings, services, a guide.

    Examples
    --------
    mfairfl deploy init credit --silo north --silo south --host fl.example.org
    mfairfl deploy init credit --silo north --silo south --host 10.0.0.5 --run my.toml
    """
    require_extra("flwr", "flower")
    from mfairfl.deployment.federation_files import write_consortium  # noqa: PLC0415

    write_consortium(folder, silos=silo, host=host, port=port, run=run)
    typer.echo(f"{folder}: written. Next: read {folder}/GUIDE.md")


@command(app)
def key(
    path: Annotated[Path, typer.Argument(help="Private key to write; never share it.")],
) -> None:
    """At a silo: create its key pair. Send PATH.pub to the coordinator.

    Examples
    --------
    mfairfl deploy key key
    """
    require_extra("flwr", "flower")
    from mfairfl.deployment.keys import make_key  # noqa: PLC0415

    public = make_key(path)
    typer.echo(f"{path}: keep it here. Send {public} to the coordinator.")


@command(app)
def certificates(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write.")],
    *,
    host: Annotated[list[str], typer.Option(help="Name or address silos use; may be repeated.")],
) -> None:
    """At the coordinator: create an authority and a server certificate (two years).

    Examples
    --------
    mfairfl deploy certificates certificates --host fl.example.org
    """
    require_extra("flwr", "flower")
    from mfairfl.deployment.keys import make_certificates  # noqa: PLC0415

    make_certificates(folder, host)
    typer.echo(f"{folder}/ca.crt: send it to every silo. Keep the other files here.")


@command(app)
def server(file: Federation) -> None:
    """At the coordinator: run Flower's server and the public gate until stopped.

    Examples
    --------
    mfairfl deploy server federation.toml
    """
    require_extra("flwr", "flower")
    from mfairfl.cli.progress import terminable  # noqa: PLC0415
    from mfairfl.deployment.local import servers  # noqa: PLC0415 - loads Flower
    from mfairfl.deployment.process_groups import require_running  # noqa: PLC0415
    from mfairfl.deployment.settings import load_federation  # noqa: PLC0415

    settings = load_federation(file)
    with terminable(), servers(settings, file, say) as programs:
        say(f"silos reach this server at port {settings.server.port}; stop with Ctrl-C")
        try:
            while True:
                require_running(programs)
                time.sleep(0.5)
        except KeyboardInterrupt:
            return


@command(app)
def silo(
    file: Annotated[Path, typer.Argument(metavar="SILO.toml", help="The silo's own file.")],
) -> None:
    """At a silo: serve the coordinator's requests until stopped. First run `mfairfl doctor`.

    Examples
    --------
    mfairfl deploy silo silo.toml
    """
    require_extra("flwr", "flower")
    from mfairfl.deployment.processes import silo_command, supernode_command  # noqa: PLC0415
    from mfairfl.silo.silo_file import load_silo  # noqa: PLC0415

    settings = load_silo(file)
    supernode_command(settings, file)  # reports what its file lacks
    process = silo_command(settings, file)
    os.execve(process.words[0], list(process.words), dict(process.env))  # noqa: S606


@command(app)
def run(file: Federation, json: RunJson = False) -> None:
    """At the coordinator: train over the silos that are online, or resume a stopped run.

    Examples
    --------
    mfairfl deploy run federation.toml
    """
    require_extra("flwr", "flower")
    from mfairfl.deployment.settings import load_federation  # noqa: PLC0415

    settings = load_federation(file)
    with journal_progress(quiet=json) as progress:
        from mfairfl.deployment.superlink import run_federation  # noqa: PLC0415 - loads Flower

        record = run_federation(file, progress)
    print_run(record, settings.out, as_json=json)


@command(app)
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The silo whose key is revoked.")],
    file: Federation = Path("federation.toml"),
) -> None:
    """At the coordinator: a silo's key no longer counts, in this run and all later ones.

    The same key cannot be enrolled again. With a new key, the silo can come back.

    Examples
    --------
    mfairfl deploy revoke west federation.toml
    """
    require_extra("flwr", "flower")
    from mfairfl.deployment.settings import load_federation  # noqa: PLC0415
    from mfairfl.deployment.superlink import revoke_key  # noqa: PLC0415 - loads Flower

    typer.echo(revoke_key(load_federation(file), file, name))
