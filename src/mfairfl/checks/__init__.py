"""The checks of `mfairfl doctor`, and the proposals of `mfairfl init`."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from mfairfl.checks.column_checks import ColumnFacts
from mfairfl.checks.findings import Finding, NamedCode, by_weight, code_findings, without_code
from mfairfl.errors import MfairflError, require_extra
from mfairfl.files import load_toml
from mfairfl.runs.config import Config, make_config
from mfairfl.runs.options import settings

__all__ = ["ColumnFacts", "Diagnosis", "Finding", "diagnose", "doctor"]


class Diagnosis(NamedTuple):
    """The doctor's findings, the most important first, and how each column is read."""

    findings: list[Finding]
    columns: list[ColumnFacts]


def doctor(source: str | Path | Config) -> list[Finding]:
    """Check settings and data without training.

    Parameters
    ----------
    source : path or Config
        A TOML file for `mfairfl train`, a silo's file, a coordinator's file, or a configuration.
        Code that a file names (``package.module:Name``) is listed, not imported.

    Returns
    -------
    list of Finding
        The most important first: a finding of level `fail` if the input cannot be used, then
        warnings, notes, and what is in order.

    Examples
    --------
    >>> import mfairfl
    >>> for finding in mfairfl.doctor("my.toml"):  # doctest: +SKIP
    ...     print(finding)
    """
    return diagnose(source).findings


def diagnose(source: str | Path | Config) -> Diagnosis:
    """Check settings and data as `doctor` does, and describe each column as well."""
    diagnosis = Diagnosis([], [])
    try:
        for result in _check(source):
            if isinstance(result, Finding):
                diagnosis.findings.append(result)
            else:
                diagnosis.columns.append(result)
    except MfairflError as error:
        diagnosis.findings.append(Finding("fail", "input", str(error)))
    return diagnosis._replace(findings=by_weight(diagnosis.findings))


def _check(source: str | Path | Config) -> Iterator[Finding | ColumnFacts]:
    if not isinstance(source, Config):
        keys = load_toml(Path(source)).keys()
        if keys & {"silos", "state"}:
            require_extra("flwr", "flower")
            from mfairfl.checks import deployment_checks  # noqa: PLC0415 - loads Flower

            is_silo = "silos" not in keys
            check = deployment_checks.check_silo if is_silo else deployment_checks.check_federation
            yield from check(Path(source))
            return
    versions = ", ".join(f"{name} {version(name)}" for name in ("mfairfl", "torch", "numpy"))
    yield Finding("ok", "versions", f"{versions}, python {platform.python_version()}")
    code = list[NamedCode]()
    if isinstance(source, Config):
        config, origin = source, "configuration"
    else:
        values, code = without_code(settings(source, {}))
        config, origin = make_config(values, str(source)), str(source)
    yield from code_findings(code, "`mfairfl train` imports {}")
    names = dict(code)
    method = names.get("strategy.name", config.strategy.name)
    yield Finding("ok", "settings", f"{origin}: strategy {method}")
    if "data.name" in names:
        return  # without its code there are no rows to look at
    from mfairfl.checks.run_checks import check_run  # noqa: PLC0415 - loads PyTorch

    yield from check_run(config, unknown=names.keys())
