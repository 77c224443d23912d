"""The mFairFL paper: its published numbers, its studies, and which of its claims held."""

from collections.abc import Sequence

from mfairfl.errors import ConfigError, unknown

__all__ = ["PAPER", "experiment_names"]

PAPER = ("table-1", "table-2", "table-3", "table-s2", "table-s3", "figure-s1")


def experiment_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return known experiments, each once; "all" stands for all of them.

    Examples
    --------
    >>> experiment_names(["table-2", "table-2"])
    ('table-2',)
    """
    for name in names:
        if name not in (*PAPER, "all"):
            raise ConfigError(unknown("experiment", name, (*PAPER, "all", "tuning")))
    return PAPER if "all" in names else tuple(dict.fromkeys(names))
