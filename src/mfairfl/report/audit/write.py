"""An audit in a folder: audit.json, the page, and its tables as CSV."""

from __future__ import annotations

from pathlib import Path

from mfairfl.errors import ConfigError
from mfairfl.files import write_atomically
from mfairfl.report.audit.tables import csv_tables
from mfairfl.report.document import Document
from mfairfl.report.page import render_audit

_FIXED = ("audit.html", "audit.json", "measures.csv", "groups.csv", "clients.csv")
_SOMETIMES = ("sweep.csv", "drift.csv")
_TABLES = tuple(
    f"bias_{name}_{measure}.csv"
    for name in ("sex", "race", "sex_race")
    for measure in ("selection", "scoring")
)
FILES = (*_FIXED, *_SOMETIMES, *_TABLES)
"""Every file that an audit may have."""


def check_folder(folder: Path, *, replace: bool = False) -> None:
    """Refuse a folder that is none, or that holds an audit which is not to be replaced."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: is a file; give a folder with --out")
    if (folder / "audit.json").exists() and not replace:
        raise ConfigError(
            f"{folder}: holds an audit; choose another --out, or add --force to replace it"
        )


def write_audit(document: Document, folder: Path) -> list[Path]:
    """Write all files; those of an earlier audit that this one does not have are removed.

    audit.json comes last: where it is, the rest is complete.
    """
    folder.mkdir(parents=True, exist_ok=True)
    contents = {name: table.text() for name, table in csv_tables(document).items()}
    contents |= {"audit.html": render_audit(document), "audit.json": document.to_json()}
    for name in FILES:
        if name not in contents:
            (folder / name).unlink(missing_ok=True)
    for name, text in contents.items():
        write_atomically(folder / name, text.encode())
    return [folder / name for name in contents]
