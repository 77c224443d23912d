"""Named places at which a process can be made to kill itself, to show that nothing is lost.

The environment variable ``MFAIRFL_FAILPOINT`` names one: ``round.trained`` dies at the first pass,
``round.trained@3`` in the third round, ``file.synced@run.json`` before that file has its name. The
process ends by SIGKILL, so that nothing is cleaned up. Without the variable nothing happens, and
nothing but the environment of a process can set it: no message, no settings file.
"""

import os
import signal

from mfairfl.errors import ConfigError, require_known

VARIABLE = "MFAIRFL_FAILPOINT"

FAILPOINTS = (
    # A round, at the server; @ its number.
    "round.planned",  # jobs are made, no client trains yet
    "round.trained",  # the clients' answers are here
    "round.combined",  # coefficients are known, the weights are the old ones
    "round.advanced",  # the weights are the new ones, not yet measured
    "round.measured",  # all of the round is in memory, nothing on disk
    # What is written after a round; @ its number.
    "journal.round",  # the journal of a deployment has its line
    "history.rounds",  # rounds.csv has its row, clients.csv not yet
    "history.clients",  # both have theirs, there is no checkpoint
    "checkpoint.begun",  # nothing of the checkpoint is on disk
    "checkpoint.committed",  # it counts; the one that it replaces is still there
    # Any file that is written whole or not at all; @ its name.
    "file.written",  # under a temporary name, not yet safe from a power failure
    "file.synced",  # safe, but still under its temporary name
    "file.renamed",  # under its own name; the folder is not yet safe from a power failure
    # The end of a run.
    "run.trained",  # all rounds are complete, no model is written
    "run.served",  # the model is written, run.json does not say so
    # A silo that trained; @ the round.
    "slots.unsaved",  # what it keeps between rounds is in memory
    "slots.saved",  # it is on disk, no answer is sent
)


def failpoint(name: str, where: object = None) -> None:
    """Kill this process if ``MFAIRFL_FAILPOINT`` names this place.

    Parameters
    ----------
    name : str
        One of `FAILPOINTS`.
    where : object, optional
        The round or the file, as it is written after the ``@``.

    Examples
    --------
    >>> failpoint("round.planned", 1)  # nothing is set
    """
    if name not in FAILPOINTS:
        raise ValueError(f"failpoint '{name}' is not listed in FAILPOINTS")
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    place, _, at = wanted.partition("@")
    require_known("failpoint", [place], FAILPOINTS, ConfigError, where=VARIABLE)
    if place == name and at in ("", str(where)):
        os.kill(os.getpid(), signal.SIGKILL)
