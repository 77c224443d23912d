"""The command line: verbs, errors on one line, exit code 2.

Nothing heavy is imported here: each verb imports what it needs once its input is known to be
usable, so that help, lists and refusals come at once.
"""

import logging
import platform
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from mfairfl import __version__
from mfairfl.cli.audit import audit, deploy_audit, report
from mfairfl.cli.checks import doctor, init
from mfairfl.cli.choose import choose
from mfairfl.cli.data import app as data_app
from mfairfl.cli.deploy import app as deploy_app
from mfairfl.cli.explain import explain, strategies
from mfairfl.cli.flags import command
from mfairfl.cli.show import INTERRUPTED, say
from mfairfl.cli.studies import compare, reproduce, tune
from mfairfl.cli.tradeoff import tradeoff
from mfairfl.cli.train import predict, train
from mfairfl.errors import MfairflError, why_retired

__all__ = ["app", "main"]

app = typer.Typer(
    name="mfairfl",
    help="Fair federated learning for tabular data: train across silos, measure by group.",
    epilog="Start with: mfairfl train --data adult   or, with your own file: mfairfl init",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_VERBS = (
    train, predict, report, tradeoff, audit, compare, choose, reproduce, tune, init, doctor,
    explain, strategies,
)  # fmt: skip
for verb in _VERBS:
    command(app)(verb)
app.add_typer(data_app, name="data")
command(deploy_app, "audit")(deploy_audit)
app.add_typer(deploy_app, name="deploy")


def _show_version(version: bool) -> None:
    if version:
        typer.echo(f"mfairfl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    del version


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 2 for bad input, 130 when interrupted.

    Parameters
    ----------
    arguments : sequence of str, optional
        By default those the process was started with.

    Examples
    --------
    >>> main(["train", "--rouns", "3"])  # error: No such option: --rouns ... on stderr
    2
    """
    if platform.system() == "Windows":
        return _fail("mfairfl needs a POSIX system: silos fork; use Linux or macOS, or WSL")
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    usage_error: type[Any] = typer.BadParameter.__bases__[0]  # its home differs between versions
    with _spoken():
        try:
            code = app(words, prog_name="mfairfl", standalone_mode=False)
        except MfairflError as error:
            return _fail(str(error))
        except usage_error as error:
            option = getattr(error, "option_name", "")
            reason = why_retired(option.removeprefix("--").replace("-", "_"))
            return _fail(
                f"{option}: {reason}" if reason else f"{error.format_message()} (see --help)"
            )
        except OSError as error:
            # A full disk or a read-only folder is not a bug.
            return _fail(f"{error.filename or 'input or output'}: {error.strerror or error}")
        except (KeyboardInterrupt, typer.Abort):
            return INTERRUPTED
    return code if isinstance(code, int) else 0


def _fail(message: str) -> int:
    say(f"error: {message}")
    return 2


class _LogLines(logging.Handler):
    """Prints what the package logs: warnings, and what is being fetched, which takes minutes."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a line."""
        say("warning: " * (record.levelno >= logging.WARNING) + record.getMessage())


@contextmanager
def _spoken() -> Iterator[None]:
    """Print the package's warnings and log as plain lines, without a place in the source."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        say(f"warning: {message}")

    handler, logger = _LogLines(logging.INFO), logging.getLogger("mfairfl")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = show
            yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
