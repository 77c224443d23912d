"""Numbers and tables as people read them: in HTML, Markdown, plain text, CSV and LaTeX."""

from mfairfl.display.tables import Block, Cell, DisplayTable, Head

__all__ = ["Block", "Cell", "DisplayTable", "Head"]
