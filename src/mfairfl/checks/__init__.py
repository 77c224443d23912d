"""What `mfairfl doctor` and `mfairfl init` know about data and settings, as functions."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from mfairfl.checks.facts import ColumnFacts
from mfairfl.checks.finding import Finding, by_weight
from mfairfl.checks.outside import Outside, findings_about, without_outside
from mfairfl.errors import MfairflError, require_extra
from mfairfl.files import load_toml
from mfairfl.runs.config import Config, make_config
from mfairfl.runs.options import settings

__all__ = ["ColumnFacts", "Diagnosis", "Finding", "diagnose", "doctor"]


class Diagnosis(NamedTuple):
    """What the doctor found, the most important first, and what it made of each column."""

    findings: list[Finding]
    columns: list[ColumnFacts]


def doctor(source: str | Path | Config) -> list[Finding]:
    """Check settings and data without training.

    Parameters
    ----------
    source : path or Config
        A TOML file for `mfairfl train`, a silo's file, a coordinator's file, or a configuration.
        Code that a file names (``package.module:Name``) is said, not imported.

    Returns
    -------
    list of Finding
        What was found, the most important first: a finding of level `fail` if the input cannot be
        used, then warnings, notes, and what is in order.

    Examples
    --------
    >>> import mfairfl
    >>> for finding in mfairfl.doctor("my.toml"):  # doctest: +SKIP
    ...     print(finding)
    """
    return diagnose(source).findings


def diagnose(source: str | Path | Config) -> Diagnosis:
    """Check settings and data as `doctor` does, and describe each column as well."""
    findings, columns = [], []
    try:
        for found in _examine(source):
            if isinstance(found, Finding):
                findings.append(found)
            else:
                columns.append(found)
    except MfairflError as error:
        findings.append(Finding("fail", "input", str(error)))
    return Diagnosis(by_weight(findings), columns)


def _examine(source: str | Path | Config) -> Iterator[Finding | ColumnFacts]:
    if not isinstance(source, Config):
        keys = load_toml(Path(source)).keys()
        if keys & {"silos", "state"}:
            require_extra("flwr", "flower")
            from mfairfl.checks import deployment  # noqa: PLC0415 - loads Flower's libraries

            silo = "silos" not in keys
            examiner = deployment.examine_silo if silo else deployment.examine_federation
            yield from examiner(Path(source))
            return
    versions = ", ".join(f"{name} {version(name)}" for name in ("mfairfl", "torch", "numpy"))
    yield Finding("ok", "versions", f"{versions}, python {platform.python_version()}")
    where = "configuration" if isinstance(source, Config) else str(source)
    outside = list[Outside]()
    if isinstance(source, Config):
        config = source
    else:
        known, outside = without_outside(settings(source, {}))
        config = make_config(known, where)
    yield from findings_about(outside, "`mfairfl train` imports {}")
    spellings = dict(outside)
    method = spellings.get("strategy.name", config.strategy.name)
    yield Finding("ok", "settings", f"{where}: strategy {method}")
    if "data.name" in spellings:
        return  # without its code there are no rows to look at
    from mfairfl.checks.run import examine_run  # noqa: PLC0415 - loads PyTorch

    yield from examine_run(config, unknown=spellings.keys())
