"""Processes that call nobody outside this machine, and write down whom they tried to call.

All that they start is included.
"""

from __future__ import annotations

import os

# Python runs this module when it starts, if it finds it.
_LISTEN = """
import os, sys

def note(kind, *what):
    with open(os.environ["OUTBOUND"], "a") as file:
        file.write(f"{kind} {' '.join(map(str, what))} | {' '.join(sys.orig_argv)}\\n")

def local(host):
    return host in (None, "", "localhost", "::1", "0.0.0.0", "::") or str(host).startswith("127.")

def heard(event, about):
    whom = None
    if event in ("urllib.Request", "socket.getaddrinfo"):
        whom = about[0]
    elif event == "socket.connect" and isinstance(about[1], tuple):
        whom = about[1][0]
    if whom is not None and not local(whom):
        note("call", whom)
        raise OSError("nobody is called in tests")

sys.addaudithook(heard)
note("began")
"""


class Outbound:
    """What processes wrote down.

    Parameters
    ----------
    folder : Path
        Where; nothing else may be in it.
    """

    def __init__(self, folder):
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(_LISTEN, encoding="utf-8")
        self._folder, self._log = folder, folder / "log"

    def env(self, **more):
        """Return the environment of a process that is listened to."""
        path = os.pathsep.join(filter(None, [str(self._folder), os.environ.get("PYTHONPATH")]))
        return os.environ | {"PYTHONPATH": path, "OUTBOUND": str(self._log)} | more

    def lines(self, kind):
        return [
            line.removeprefix(f"{kind} ")
            for line in self._log.read_text(encoding="utf-8").splitlines()
            if line.startswith(f"{kind} ")
        ]

    def calls(self):
        """Return whom a process tried to reach outside this machine."""
        return self.lines("call")

    def programs(self):
        """Return the command lines of all processes."""
        return self.lines("began")
