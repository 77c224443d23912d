"""Find the entry of a word, however it is spelt."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import TypeVar

from mfairfl.errors import ConfigError, unknown
from mfairfl.glossary.words import Entry, fixed_entries, key_of

T = TypeVar("T")


def explain(word: str) -> Entry:
    """Return what a word means.

    Parameters
    ----------
    word : str
        A term, the name of a number, a notion or its alias, or a method. Capitals, spaces,
        hyphens and underscores do not matter.

    Raises
    ------
    ConfigError
        If the word is unknown; the message names the nearest one.

    Examples
    --------
    >>> explain("Noise-Floor").short
    'The violation that exactly fair decisions would show by chance on this many rows.'
    >>> explain("dp violation").name
    'demographic_parity_violation'
    """
    key = key_of(word)
    entry = _fixed(key) or _of_notion(key) or _of_method(key)
    if entry is None:
        known = {*fixed_entries(), *(entry.name for entry in entries())}
        raise ConfigError(unknown("word", word.casefold(), known, listed="mfairfl explain"))
    return entry


def entries() -> list[Entry]:
    """Return every entry, in the order of their names.

    What another package announces and cannot be loaded is left out with a warning.

    Examples
    --------
    >>> [entry.name for entry in entries()][:3]
    ['accuracy', 'accuracy_parity', 'accuracy_parity_difference']
    """
    from mfairfl.fairness.notions import REGISTRY  # noqa: PLC0415 - fixed words need no numpy
    from mfairfl.glossary.measures import kinds_of, measure_entry, notion_entry  # noqa: PLC0415
    from mfairfl.glossary.methods import method_entry  # noqa: PLC0415 - loads slowly
    from mfairfl.strategies.registry import METHODS  # noqa: PLC0415

    found = set(fixed_entries().values())
    for notion in set(_loadable("notion", REGISTRY.names(), REGISTRY.get)):
        found |= {notion_entry(notion)}
        found |= {measure_entry(notion, kind) for kind in kinds_of(notion)}
    found.update(_loadable("strategy", METHODS.names(), method_entry))
    return sorted(found, key=lambda entry: (entry.name.casefold(), entry.text))


def _loadable(kind: str, names: Iterable[str], load: Callable[[str], T]) -> list[T]:
    found = []
    for name in names:
        try:
            found.append(load(name))
        except ConfigError as error:
            warnings.warn(f"{kind} {name} is left out: {error}", UserWarning, stacklevel=3)
    return found


def _fixed(key: str) -> Entry | None:
    return next((e for name, e in fixed_entries().items() if key_of(name) == key), None)


def _of_notion(key: str) -> Entry | None:
    from mfairfl.fairness.notions import REGISTRY  # noqa: PLC0415 - fixed words need no numpy
    from mfairfl.fairness.rates import KINDS  # noqa: PLC0415
    from mfairfl.glossary.measures import kinds_of, measure_entry, notion_entry  # noqa: PLC0415

    for name in REGISTRY.names():
        if key == key_of(name):
            return notion_entry(REGISTRY.get(name))
        for kind in KINDS:
            if key == key_of(f"{name}_{kind}") and kind in kinds_of(REGISTRY.get(name)):
                return measure_entry(REGISTRY.get(name), kind)
    return None


def _of_method(key: str) -> Entry | None:
    from mfairfl.glossary.methods import method_entry  # noqa: PLC0415 - loads slowly
    from mfairfl.strategies.registry import METHODS  # noqa: PLC0415

    names = [name for name in METHODS.names() if key == key_of(name)]
    return method_entry(names[0]) if names else None
