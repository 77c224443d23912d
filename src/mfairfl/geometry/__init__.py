"""Pure mathematics on small matrices; no files, no networks, no engines."""

from mfairfl.geometry.gram import gram_matrix

__all__ = ["gram_matrix"]
