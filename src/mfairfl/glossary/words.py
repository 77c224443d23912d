"""What an entry is, how words are matched, and the fixed entries."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A word and its meaning.

    Parameters
    ----------
    name : str
        The word as results write it.
    short : str
        One sentence for somebody who decides about the model.
    text : str
        A few sentences more, with the formula if there is one.
    see : tuple of str
        Other words, pages under docs/, or commands that begin with ``mfairfl``.

    Examples
    --------
    >>> Entry(name="round", short="One exchange.", text="There are 40.").see
    ()
    """

    name: str
    short: str
    text: str
    see: tuple[str, ...] = ()


def key_of(word: str) -> str:
    """Return what the spellings of a word have in common.

    Examples
    --------
    >>> key_of("Noise-Floor"), key_of("noise_floor"), key_of("Fisher's exact test")
    ('noisefloor', 'noisefloor', 'fishersexacttest')
    """
    return re.sub(r"[\s_'’.-]", "", word).casefold()


@cache
def fixed_entries() -> dict[str, Entry]:
    """Return the entries that depend on nothing registered, by name and by alias.

    Examples
    --------
    >>> fixed_entries()["auc"].name
    'roc auc'
    """
    text = files("mfairfl.glossary").joinpath("words.toml").read_text(encoding="utf-8")
    found: dict[str, Entry] = {}
    for word in tomllib.loads(text)["word"]:
        entry = Entry(
            name=word["name"],
            short=word["short"],
            text=" ".join(word["text"].split()),
            see=tuple(word["see"]),
        )
        found |= dict.fromkeys([entry.name, *word.get("aliases", ())], entry)
    return found
