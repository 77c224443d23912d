"""Code that settings name by ``package.module:Name``: found and named, never imported.

To look at a file that somebody else wrote must not run what it names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from mfairfl.checks.finding import Finding
from mfairfl.data import DATASETS
from mfairfl.fairness.notions import REGISTRY as NOTIONS
from mfairfl.plugins import MODELS, Registry, is_import_string
from mfairfl.strategies.registry import METHODS

_KEYS: Mapping[str, Registry[Any]] = {
    "data.name": DATASETS,
    "model.kind": MODELS,
    "fairness.notion": NOTIONS,
    "strategy.name": METHODS,
}


class Outside(NamedTuple):
    """A key of the settings, and the import string it holds."""

    key: str
    spelling: str


def without_outside(settings: Mapping[str, Any]) -> tuple[dict[str, Any], list[Outside]]:
    """Return settings without the code they name, and that code; defaults stand in for it.

    What this process has imported already stays.

    Examples
    --------
    >>> without_outside({"strategy": {"name": "mine:Own", "t": 2}, "seed": 3})
    ({'seed': 3}, [Outside(key='strategy.name', spelling='mine:Own')])
    """
    known = {k: dict(v) if isinstance(v, Mapping) else v for k, v in settings.items()}
    found = list[Outside]()
    for key, registry in _KEYS.items():
        name, _, last = key.partition(".")
        section = known.get(name)
        if not isinstance(section, dict):
            continue
        value = section.get(last)
        several = value if isinstance(value, list | tuple) else [value]
        outside = [
            one
            for one in several
            if isinstance(one, str) and is_import_string(one) and one not in registry.added()
        ]
        if outside:
            found += [Outside(key, one) for one in outside]
            known[name] = {k: v for k, v in section.items() if k != last}
            if others := [one for one in several if one not in outside]:
                known[name][last] = others
    if any(one.key == "strategy.name" for one in found):
        known.pop("strategy")  # with the hyper-parameters of an unknown method
    return known, found


def findings_about(outside: Iterable[Outside], who: str) -> Iterator[Finding]:
    """Say that `who` ("`mfairfl train` imports {}") will import the code.

    Examples
    --------
    >>> mine = [Outside("model.kind", "mine:net")]
    >>> (finding,) = findings_about(mine, "`mfairfl train` imports {}")
    >>> print(finding)
    note  code: model.kind names code outside mfairfl, mine:net: it is not imported here, \
`mfairfl train` imports mine; what it decides is not checked
    """
    for key, spelling in outside:
        importing = who.format(spelling.partition(":")[0])
        yield Finding(
            "note",
            "code",
            f"{key} names code outside mfairfl, {spelling}: it is not imported here, {importing}; "
            "what it decides is not checked",
        )
