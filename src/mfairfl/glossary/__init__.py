"""What the words of results, reports and settings mean, for people who did not write them.

Some words are fixed (`words.toml`). Those of a notion's measures are generated from the notion,
and those of a method from its card, so that whatever is registered can be explained.
"""

from mfairfl.glossary.lookup import entries, explain
from mfairfl.glossary.words import Entry

__all__ = ["Entry", "entries", "explain"]
