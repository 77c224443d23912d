"""Carry out `mfairfl deploy …`: progress, interruption, result."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from mfairfl.cli.flags import configuration
from mfairfl.cli.progress import JournalProgress
from mfairfl.cli.running import default_folder
from mfairfl.cli.show import print_record, say, terminal
from mfairfl.errors import ConfigError, FederationError
from mfairfl.runs.directory import RunDirectory

__all__ = ["become_silo", "needs_flower", "run_here", "run_silos", "serve"]

INTERRUPTED = 130


def needs_flower() -> None:
    """Say how to install Flower if it is not there."""
    if find_spec("flwr") is None:
        raise ConfigError("Flower is not installed: pip install 'mfairfl[flower]'")


def run_here(
    file: Path | None,
    flags: Mapping[str, Any],
    pairs: Sequence[str],
    out: Path | None,
    *,
    deadline: float,
    as_json: bool,
) -> None:
    """Run a federation of processes on this machine."""
    needs_flower()
    from mfairfl.deployment.local import run_local  # noqa: PLC0415 - loads Flower

    config = configuration(file, flags)
    folder = Path(f"{default_folder(config)}-silos") if out is None else out
    silos = _files(pairs) if pairs else None

    def work(progress: JournalProgress) -> dict[str, Any]:
        options: dict[str, Any] = {"silos": silos, "deadline": deadline}
        return run_local(config, folder, follower=progress, say=progress.note, **options)

    _run(work, folder, as_json=as_json)


def run_silos(file: Path, *, as_json: bool) -> None:
    """Run over silos on machines of their own."""
    needs_flower()
    from mfairfl.deployment.coordinator import run_federation  # noqa: PLC0415 - loads Flower
    from mfairfl.deployment.settings import load_federation  # noqa: PLC0415

    out = load_federation(file).out
    _run(lambda progress: run_federation(file, progress), out, as_json=as_json)


def _run(
    work: Callable[[JournalProgress], dict[str, Any]], folder: Path, *, as_json: bool
) -> None:
    try:
        with _terminable(), JournalProgress(terminal(stderr=True), quiet=as_json) as progress:
            record = work(progress)
    except KeyboardInterrupt:
        say("stopped; run the same command again to go on from the last completed round")
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        typer.echo(RunDirectory(folder).record_path.read_text(encoding="utf-8"), nl=False)
    else:
        print_record(record, str(folder))


def _files(pairs: Sequence[str]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not equals or not name or not path:
            raise ConfigError(f"--silo {pair}: write NAME=FILE, for example north=north.csv")
        if name in found:
            raise ConfigError(f"--silo {pair}: there are two silos of this name")
        if not Path(path).is_file():
            raise ConfigError(f"--silo {pair}: no such file")
        found[name] = Path(path)
    return found


@contextmanager
def _terminable() -> Iterator[None]:
    """Let a termination end the block as Ctrl-C does, so that no process is left behind."""

    def leave(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def serve(file: Path) -> None:
    """Run the coordinator's two servers until a signal, or until one of them ends."""
    needs_flower()
    from mfairfl.deployment.local import servers  # noqa: PLC0415 - loads Flower
    from mfairfl.deployment.settings import load_federation  # noqa: PLC0415

    settings = load_federation(file)
    with _terminable(), servers(settings, file, say) as processes:
        say(f"silos reach this server at port {settings.server.port}; stop with Ctrl-C")
        try:
            while all(process.poll() is None for process in processes):
                time.sleep(0.5)
        except KeyboardInterrupt:
            return
        raise FederationError(f"a server ended; see {settings.server.state / 'logs'}")


def become_silo(file: Path) -> None:
    """Replace this process by the silo's, which has its own environment."""
    needs_flower()
    from mfairfl.deployment import commands  # noqa: PLC0415 - loads Flower
    from mfairfl.remote.silo_file import load_silo  # noqa: PLC0415

    settings = load_silo(file)
    commands.supernode_command(settings, file)  # reports what its file lacks
    command = commands.silo_command(settings, file)
    os.execve(command.words[0], list(command.words), dict(command.env))  # noqa: S606
