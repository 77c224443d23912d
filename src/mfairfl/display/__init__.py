"""Numbers and tables as people read them: in HTML, Markdown, plain text, CSV and LaTeX."""

from mfairfl.display.tables import Block, Cell, Column, DisplayTable

__all__ = ["Block", "Cell", "Column", "DisplayTable"]
