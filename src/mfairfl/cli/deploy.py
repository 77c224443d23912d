"""`mfairfl deploy …`: a federation of machines, or of processes on this one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mfairfl.cli.flags import (
    Json,
    command,
    configuration,
    default_folder,
    examples,
    key_values,
    run_flags,
)
from mfairfl.cli.progress import JournalProgress, stoppable, terminable
from mfairfl.cli.show import print_json, print_rows, print_text, say, terminal
from mfairfl.errors import ConfigError, unknown

if TYPE_CHECKING:
    from mfairfl.silo.ledger import LedgerLine

app = typer.Typer(
    help="Silos on machines of their own, over TLS (needs the extra 'flower').",
    epilog=examples(
        "mfairfl deploy local --data adult --clients 3",
        "mfairfl deploy init credit --silo north --silo south --host fl.example.org",
    ),
)


@command(app)
@run_flags()
def local(
    file: Path | None = None,
    *,
    flags: Mapping[str, Any],
    silo: list[str] | None = None,
    out: Path | None = None,
    deadline: float = 600,
    policy: Path | None = None,
    json: bool = False,
) -> None:
    """Run a whole federation on this machine: TLS, keys, one process per silo.

    The result equals that of `mfairfl train` with the same settings and --robust auto, which
    is the default here because silos may lie. Repeat the command to resume an interrupted run.

    Parameters
    ----------
    file : CONFIG.toml
        Settings; flags override them.

    Run
    ---
    silo : NAME=FILE
        A silo with its own file, instead of split rows; may be repeated.
    out
        Run folder; by default runs/DATA-STRATEGY-SCHEME-sSEED-silos.
    deadline
        Seconds a request waits for replies.
    policy
        A policy.toml for every silo; by default they withhold nothing.
    json
        Print only run.json.

    Examples
    --------
    mfairfl deploy local --data adult --clients 3
    mfairfl deploy local my.toml --silo north=north.csv --silo south=south.csv
    """
    files = silo_files(silo or ())
    config = configuration(file, flags, needs_data=not files)
    folder = Path(f"{default_folder(config)}-silos") if out is None else out

    with journal_progress(quiet=json) as progress:
        from mfairfl.deployment.local import run_local  # noqa: PLC0415 - loads Flower
        from mfairfl.silo.policy import OPEN, read_policy  # noqa: PLC0415

        record = run_local(
            config,
            folder,
            silos=files or None,
            deadline=deadline,
            policy=OPEN if policy is None else read_policy(policy),
            follower=progress,
            say=progress.note,
        )
    from mfairfl.cli.run_result import print_run  # noqa: PLC0415 - loads pandas

    print_run(record, folder, as_json=json)


def silo_files(pairs: Sequence[str]) -> dict[str, Path]:
    """Read the values of --silo."""
    files: dict[str, Path] = {}
    for name, path in key_values("silo", pairs, "NAME=FILE, for example north=north.csv"):
        if name in files:
            raise ConfigError(f"--silo {name}={path}: silo '{name}' appears twice")
        if not Path(path).is_file():
            raise ConfigError(f"--silo {name}={path}: no such file")
        files[name] = Path(path)
    return files


@contextmanager
def journal_progress(*, quiet: bool) -> Iterator[JournalProgress]:
    """Show how far a run is that can be stopped and resumed."""
    with stoppable(), JournalProgress(terminal(stderr=True), quiet=quiet) as progress:
        yield progress


@command(app)
def init(
    folder: Path,
    *,
    silo: list[str],
    host: str,
    port: int = 9443,
    run: Path | None = None,
) -> None:
    """Write the folder that a consortium starts from: settings, services, a guide.

    Parameters
    ----------
    folder : DIR
        New or empty folder to write.
    silo
        Name of a silo; repeat for each silo.
    host
        Name or address by which silos reach the server.
    port
        The coordinator's public port.
    run
        Settings with a [task], for example of `mfairfl init`.

    Examples
    --------
    mfairfl deploy init credit --silo north --silo south --host fl.example.org
    mfairfl deploy init credit --silo north --silo south --host 10.0.0.5 --run my.toml
    """
    from mfairfl.deployment.consortium import write_consortium  # noqa: PLC0415

    write_consortium(folder, silos=silo, host=host, port=port, run=run)
    typer.echo(f"{folder}: written. Next: read {folder}/GUIDE.md")


@command(app)
def key(path: Path) -> None:
    """At a silo: create its key pair. Send PATH.pub to the coordinator.

    Parameters
    ----------
    path
        Private key to write; never share it.

    Examples
    --------
    mfairfl deploy key key
    """
    from mfairfl.deployment.keys import make_key  # noqa: PLC0415

    public = make_key(path)
    typer.echo(f"{path}: keep it here. Send {public} to the coordinator.")


@command(app)
def certificates(folder: Path, *, host: list[str]) -> None:
    """At the coordinator: create an authority and a server certificate (two years).

    Parameters
    ----------
    folder : DIR
        Folder to write.
    host
        Name or address silos use; may be repeated.

    Examples
    --------
    mfairfl deploy certificates certificates --host fl.example.org
    """
    from mfairfl.deployment.keys import make_certificates  # noqa: PLC0415

    make_certificates(folder, host)
    typer.echo(f"{folder}/ca.crt: send it to every silo. Keep the other files here.")


@command(app)
def server(file: Path) -> None:
    """At the coordinator: run Flower's server and the public gate until stopped.

    Parameters
    ----------
    file : FEDERATION.toml
        The coordinator's file.

    Examples
    --------
    mfairfl deploy server federation.toml
    """
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
def silo(file: Path) -> None:
    """At a silo: serve the coordinator's requests until stopped. First run `mfairfl doctor`.

    Parameters
    ----------
    file : SILO.toml
        The silo's own file.

    Examples
    --------
    mfairfl deploy silo silo.toml
    """
    from mfairfl.deployment.processes import silo_command, supernode_command  # noqa: PLC0415
    from mfairfl.silo.silo_file import load_silo  # noqa: PLC0415

    settings = load_silo(file)
    supernode_command(settings, file)  # reports what its file lacks
    process = silo_command(settings, file)
    os.execve(process.words[0], list(process.words), dict(process.env))  # noqa: S606


@command(app)
def run(file: Path, *, json: bool = False) -> None:
    """At the coordinator: train over the silos that are online, or resume a stopped run.

    Parameters
    ----------
    file : FEDERATION.toml
        The coordinator's file.
    json
        Print only run.json.

    Examples
    --------
    mfairfl deploy run federation.toml
    """
    from mfairfl.deployment.settings import load_federation  # noqa: PLC0415

    settings = load_federation(file)
    with journal_progress(quiet=json) as progress:
        from mfairfl.deployment.superlink import run_federation  # noqa: PLC0415 - loads Flower

        record = run_federation(file, progress)
    from mfairfl.cli.run_result import print_run  # noqa: PLC0415 - loads pandas

    print_run(record, settings.out, as_json=json)


@command(app)
def revoke(name: str, file: Path = Path("federation.toml")) -> None:
    """At the coordinator: revoke a silo's key, for this run and all later ones.

    The same key cannot be enrolled again. With a new key, the silo can rejoin.

    Parameters
    ----------
    file : FEDERATION.toml
        The coordinator's file.
    name
        The silo whose key is revoked.

    Examples
    --------
    mfairfl deploy revoke west federation.toml
    """
    from mfairfl.deployment.settings import load_federation  # noqa: PLC0415
    from mfairfl.deployment.superlink import revoke_key  # noqa: PLC0415 - loads Flower

    typer.echo(revoke_key(load_federation(file), file, name))


# ------------------------------------------------------------------ a silo's ledger


@command(app)
def ledger(
    file: Path,
    *,
    run: str | None = None,
    json: Json = False,
) -> None:
    """At a silo: show what it answered the coordinator, and what it refused.

    Every answer has a line in ledger.jsonl in the silo's state folder, with the SHA-256 of the
    line before. If a line was changed, moved or removed, the command names it and exits with code
    2. Lines missing at the end show only in the SHA-256 of the last line: keep a copy elsewhere.

    Parameters
    ----------
    file : SILO.toml
        The silo's own file.
    run : NAME
        Only the requests of this run.

    Examples
    --------
    mfairfl deploy ledger silo.toml
    mfairfl deploy ledger silo.toml --run mfairfl-0c5e1f2a9b8d7c60 --json
    """
    from mfairfl.silo.ledger import Ledger  # noqa: PLC0415 - only when called
    from mfairfl.silo.silo_file import load_silo  # noqa: PLC0415

    stored = Ledger(load_silo(file).state)
    chain = stored.read()
    lines = [line for line in chain.lines if run in (None, line.run)]
    if run is not None and not lines:
        raise ConfigError("--run: " + unknown("run", run, {line.run for line in chain.lines}))
    totals = _totals(lines)
    if json:
        about = {"file": str(stored.path), "head": chain.head, "torn": chain.torn}
        plain = [line.model_dump(mode="json") for line in lines]
        print_json(about | {"totals": totals, "lines": plain})
        return
    if not chain.lines:
        typer.echo(f"{stored.path}: nothing was answered or refused yet")
        return
    heads = ["time (UTC)", "run", "kind", "about", "smallest set", "models", "bytes"]
    print_rows(heads, map(_row, lines), numeric=[4, 5, 6], wrap=[3])
    typer.echo(", ".join(f"{name}: {count:,}" for name, count in totals.items()))
    typer.echo(f"the chain holds, {len(chain.lines):,} lines; SHA-256 of the last: {chain.head}")
    if chain.torn:
        print_text(
            f"note: the file ends with {chain.torn:,} bytes of an incomplete line; its answer "
            "never left, and the next line replaces them"
        )


def _row(line: LedgerLine) -> list[str | int | None]:
    """Return a line of the table: what a request was about, or why it was refused."""
    parts = [] if line.round is None else [f"round {line.round + 1:,}"]
    parts += [rows.what for rows in line.row_sets]
    size: int | None = line.answer_bytes
    if line.refusal is not None:
        parts, size = [f"refused: {line.refusal}"], None
    if line.torn:
        parts.append(f"({line.torn:,} bytes of an incomplete line before it were dropped)")
    smallest = min((rows.smallest for rows in line.row_sets), default=None)
    when, about = line.time[:19].replace("T", " "), "; ".join(parts)
    return [when, line.run, line.kind or "?", about, smallest, line.models or None, size]


def _totals(lines: Sequence[LedgerLine]) -> dict[str, int]:
    """Count what a silo did; a round that was trained again after a restart counts once."""
    answered = [line for line in lines if line.refusal is None]
    return {
        "answers": len(answered),
        "refusals": len(lines) - len(answered),
        "runs": len({line.run for line in lines}),
        "models measured": sum(line.models for line in answered if line.kind == "measure"),
        "rounds trained": len({(x.run, x.round) for x in answered if x.kind == "train"}),
    }
