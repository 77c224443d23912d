"""Moved."""
from mfairfl.randomness import stream
__all__ = ["stream"]
