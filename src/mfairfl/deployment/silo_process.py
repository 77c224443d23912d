"""A silo's process: keeps its SuperNode running, and answers messages in forks of itself."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from mfairfl.deployment.process_groups import PRIVATE, Command, ProcessGroup, stop, watched_group
from mfairfl.deployment.processes import sole_use, supernode_command
from mfairfl.errors import MfairflError
from mfairfl.silo.policy import load_policy
from mfairfl.silo.silo_file import load_silo

if TYPE_CHECKING:
    from mfairfl.deployment.silo_app import SiloTasks

_PAUSE = 10.0  # seconds before a SuperNode that ended is started again
_POLL = 0.2  # seconds between two questions for work, which do not leave this machine
_log = logging.getLogger("mfairfl")


def run_silo(file: Path) -> None:
    """Run until stopped. A SuperNode that ends is started again, after a pause.

    The server reserves the place of a silo that was killed for a minute, and refuses it until
    then. All that is started here ends with this process, however it ends.
    """
    settings = load_silo(file)
    load_policy(file)  # every message reads it anew; a mistake in it is reported now
    os.umask(PRIVATE)  # what is written here, by Flower as well, is the silo's alone
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    command, children = supernode_command(settings, file), set[int]()
    with sole_use(settings.state), watched_group() as group:
        node = _start(command, group)  # it starts while the rest is loaded
        try:
            from mfairfl.deployment.silo_app import SiloTasks  # noqa: PLC0415 - takes seconds

            with closing(SiloTasks(settings.port)) as tasks:
                while True:
                    if node.poll() is not None:
                        _log.warning("the SuperNode ended with code %s", node.returncode)
                        time.sleep(_PAUSE)
                        node = _start(command, group)
                    children -= {pid for pid in children if os.waitpid(pid, os.WNOHANG)[0]}
                    if (token := tasks.take()) is not None:
                        tasks.read_ahead(file)
                        children.add(_fork(tasks, token, group))
                    time.sleep(_POLL)
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            for pid in children:
                os.kill(pid, signal.SIGTERM)
            stop([node], seconds=10)


def _start(command: Command, group: ProcessGroup) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command.words, env=command.env, stdin=subprocess.DEVNULL, process_group=group.id
    )


def _fork(tasks: SiloTasks, token: str, group: ProcessGroup) -> int:
    """Answer a message in a copy of this process, which has one thread and all loaded."""
    sys.stdout.flush()
    sys.stderr.flush()
    if pid := os.fork():
        return pid
    code = 1
    try:
        group.join()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        tasks.answer(token)
        code = 0
    except KeyboardInterrupt:  # as Flower says it
        _log.warning("a message is no longer waited for: its run has ended")
    except BaseException:
        _log.exception("a message could not be answered")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _main(file: Path) -> int:
    handler = logging.StreamHandler()  # not of the root: Flower writes its own lines
    handler.setFormatter(logging.Formatter("%(asctime)s mfairfl: %(message)s"))
    _log.addHandler(handler)
    try:
        run_silo(file)
    except KeyboardInterrupt:
        return 130
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else 1
    except MfairflError as error:
        sys.stderr.write(f"error: {error}\n")
    except Exception:
        _log.exception("the silo's process cannot go on")
    return 1


if __name__ == "__main__":
    _code = _main(Path(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_code)  # nothing is left to be ended; taking PyTorch apart would take a second
