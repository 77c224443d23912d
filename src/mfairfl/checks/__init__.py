"""The checks of `mfairfl doctor`, and the proposals of `mfairfl init`: lists of findings."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from mfairfl.data import DATASETS
from mfairfl.errors import MfairflError, require_extra
from mfairfl.fairness.notions import REGISTRY as NOTIONS
from mfairfl.files import load_toml
from mfairfl.plugins import MODELS, Registry, is_import_string
from mfairfl.runs.config import Config, make_config
from mfairfl.runs.manifest import server_view
from mfairfl.runs.options import settings
from mfairfl.strategies.registry import METHODS

if TYPE_CHECKING:
    from mfairfl.checks.column_checks import ColumnFacts

Level = Literal["ok", "note", "warn", "fail"]
_LEVELS = ("fail", "warn", "note", "ok")
# The trust that is needed, then what loses rows or leaks the label; then in the checks' order.
_FIRST = (
    *("trust", "input", "data", "leakage", "copied rows", "label", "identifiers", "silos"),
    "missing codes",
)
_CODE_KEYS: Mapping[tuple[str, str], Registry[Any]] = {
    ("data", "name"): DATASETS,
    ("model", "kind"): MODELS,
    ("fairness", "notion"): NOTIONS,
    ("strategy", "name"): METHODS,
}

SEES = "server sees"
"""The check that lists what the server of a run receives."""


class Finding(NamedTuple):
    """The result of one check; printed as one line.

    Examples
    --------
    >>> print(Finding("warn", "groups", "sex f has 3 test rows"))
    warn  groups: sex f has 3 test rows
    """

    level: Level
    check: str
    message: str

    def __str__(self) -> str:
        return f"{self.level:<4}  {self.check}: {self.message}"


def by_weight(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings: failures, warnings, notes, then what is in order.

    Examples
    --------
    >>> findings = [Finding("ok", "cost", "…"), Finding("warn", "groups", "…"),
    ...             Finding("warn", "leakage", "…")]
    >>> [finding.check for finding in by_weight(findings)]
    ['leakage', 'groups', 'cost']
    """

    def weight(finding: Finding) -> tuple[int, int]:
        level, check = finding.level, finding.check
        if level == "warn" and check in _FIRST:
            return _LEVELS.index(level), _FIRST.index(check)
        # Notes on the source of the data come last.
        return _LEVELS.index(level), len(_FIRST) + (level == "note" and check == "data")

    return sorted(findings, key=weight)


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
    findings: list[Finding] = []
    columns: list[ColumnFacts] = []
    try:
        for result in _check(source):
            if isinstance(result, Finding):
                findings.append(result)
            else:
                columns.append(result)
    except MfairflError as error:
        findings.append(Finding("fail", "input", str(error)))
    return Diagnosis(by_weight(findings), columns)


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
    config, origin, code = source, "configuration", dict[str, list[str]]()
    if not isinstance(config, Config):
        values, code = without_code(settings(config, {}))
        config, origin = make_config(values, str(source)), str(source)
    yield from settings_findings(config, origin, code, "`mfairfl train` imports {}")
    if "data.name" not in code:  # without its code there are no rows to look at
        from mfairfl.checks.run_checks import check_run  # noqa: PLC0415 - loads PyTorch

        yield from check_run(config, unknown=code.keys())


# ------------------------------------------------------------------ what checks have in common


def settings_findings(
    config: Config, origin: str, code: Mapping[str, Sequence[str]], importer: str
) -> Iterator[Finding]:
    """Yield the method of a run's settings, after the code that they name; see `code_findings`."""
    yield from code_findings(code, importer)
    method = code.get("strategy.name", [config.strategy.name])[0]
    yield Finding("ok", "settings", f"{origin}: strategy {method}")


def server_findings(config: Config) -> Iterator[Finding]:
    """Yield what the server receives or stores in a run, one finding for each item."""
    for line in server_view(config):
        yield Finding("ok", SEES, line.sentence)


def without_code(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Return settings without the code they name, so that defaults take its place, and that code.

    Checking a file from somebody else must not run what it names. Code that this process has
    already imported stays.

    Examples
    --------
    >>> without_code({"strategy": {"name": "mine:Own", "t": 2}, "seed": 3})
    ({'seed': 3}, {'strategy.name': ['mine:Own']})
    """
    plain = {k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()}
    code: dict[str, list[str]] = {}
    for (section, key), registry in _CODE_KEYS.items():
        value = plain[section].get(key) if isinstance(plain.get(section), dict) else None
        names = value if isinstance(value, list | tuple) else [value]
        outside = [name for name in names if _is_outside(name, registry)]
        if not outside:
            continue
        code[f"{section}.{key}"] = [str(name) for name in outside]
        plain[section][key] = [name for name in names if name not in outside]
        if section == "strategy":
            del plain[section]  # with the hyper-parameters of an unknown method
        elif not plain[section][key]:
            del plain[section][key]
    return plain, code


def _is_outside(name: object, registry: Registry[Any]) -> bool:
    return isinstance(name, str) and is_import_string(name) and name not in registry.added()


def code_findings(code: Mapping[str, Iterable[str]], importer: str) -> Iterator[Finding]:
    """Yield a note for each name of code, by key; `importer` says what will import it.

    Examples
    --------
    >>> (finding,) = code_findings({"model.kind": ["mine:net"]}, "`mfairfl train` imports {}")
    >>> print(finding)
    note  code: model.kind names code outside mfairfl, mine:net: it is not imported here, \
`mfairfl train` imports mine; what it decides is not checked
    """
    for key, names in code.items():
        for name in names:
            line = f"{key} names code outside mfairfl, {name}: it is not imported here, "
            imported = importer.format(name.partition(":")[0])
            yield Finding("note", "code", f"{line}{imported}; what it decides is not checked")
