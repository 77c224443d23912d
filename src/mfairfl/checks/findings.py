"""Findings, and those that checks of runs, silos and coordinators have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from mfairfl.data import DATASETS
from mfairfl.fairness.notions import REGISTRY as NOTIONS
from mfairfl.plugins import MODELS, Registry, is_import_string
from mfairfl.runs.config import Config
from mfairfl.runs.manifest import server_view
from mfairfl.strategies.registry import METHODS

Level = Literal["ok", "note", "warn", "fail"]
_LEVELS = ("fail", "warn", "note", "ok")
# The trust that is needed, then what loses rows or leaks the label; then in the checks' order.
_FIRST = (
    "trust",
    "input",
    "data",
    "leakage",
    "copied rows",
    "label",
    "identifiers",
    "silos",
    "missing codes",
)
_CODE_KEYS: Mapping[str, Registry[Any]] = {
    "data.name": DATASETS,
    "model.kind": MODELS,
    "fairness.notion": NOTIONS,
    "strategy.name": METHODS,
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


TRUST = Finding(
    "warn",
    "trust",
    "the coordinator must be trusted as with pseudonymised rows; it can read them "
    "(docs/what-leaves.md)",
)
"""What a silo's operator must know first."""


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


def server_findings(config: Config) -> Iterator[Finding]:
    """Yield what the server receives or stores in a run, one finding for each item."""
    for line in server_view(config):
        yield Finding("ok", SEES, line.sentence)


# ------------------------------------------------------------------ code that settings name


class NamedCode(NamedTuple):
    """A key of the settings, and the ``package.module:Name`` that it holds."""

    key: str
    name: str


def without_code(settings: Mapping[str, Any]) -> tuple[dict[str, Any], list[NamedCode]]:
    """Return settings without the code they name, so that defaults take its place, and that code.

    Checking a file from somebody else must not run what it names. Code that this process has
    already imported stays.

    Examples
    --------
    >>> without_code({"strategy": {"name": "mine:Own", "t": 2}, "seed": 3})
    ({'seed': 3}, [NamedCode(key='strategy.name', name='mine:Own')])
    """
    plain = {k: dict(v) if isinstance(v, Mapping) else v for k, v in settings.items()}
    code = list[NamedCode]()
    for key, registry in _CODE_KEYS.items():
        section_name, _, option = key.partition(".")
        section = plain.get(section_name)
        if not isinstance(section, dict):
            continue
        value = section.get(option)
        names = value if isinstance(value, list | tuple) else [value]
        outside = [
            name
            for name in names
            if isinstance(name, str) and is_import_string(name) and name not in registry.added()
        ]
        if outside:
            code += [NamedCode(key, name) for name in outside]
            del section[option]
            if others := [name for name in names if name not in outside]:
                section[option] = others
    if any(key == "strategy.name" for key, _ in code):
        del plain["strategy"]  # with the hyper-parameters of an unknown method
    return plain, code


def code_findings(code: Iterable[NamedCode], importer: str) -> Iterator[Finding]:
    """Yield a note for each name of code; `importer` says what will import it.

    Examples
    --------
    >>> mine = [NamedCode("model.kind", "mine:net")]
    >>> (finding,) = code_findings(mine, "`mfairfl train` imports {}")
    >>> print(finding)
    note  code: model.kind names code outside mfairfl, mine:net: it is not imported here, \
`mfairfl train` imports mine; what it decides is not checked
    """
    for key, name in code:
        imported = importer.format(name.partition(":")[0])
        yield Finding(
            "note",
            "code",
            f"{key} names code outside mfairfl, {name}: it is not imported here, {imported}; what "
            "it decides is not checked",
        )
