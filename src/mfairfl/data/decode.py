"""From bytes to text: the encoding of a file."""

from __future__ import annotations

import codecs
import re
from pathlib import Path

import charset_normalizer

from mfairfl.errors import DataError

_BOMS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16: its mark begins with UTF-16's
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# What spreadsheets and statistics programs write; rarer encodings fit short texts by accident.
_LEGACY = [
    *(f"cp125{i}" for i in range(9)),
    *("cp874", "cp932", "cp949", "big5", "gb18030", "euc_jp", "koi8_r"),
]
_CONTROL = re.compile(rb"[\x01-\x08\x0e-\x19]")  # in no text, unless it is UTF-16 or UTF-32


def decode(path: Path, data: bytes, given: str | None) -> tuple[str, str | None, tuple[str, ...]]:
    """Decode by the given encoding, the byte order mark, as UTF-8, or by a guess that is noted.

    Returns
    -------
    text, encoding, notes
        The encoding is None where the file itself decides.
    """
    notes: tuple[str, ...] = ()
    known = given or next((name for mark, name in _BOMS.items() if data.startswith(mark)), None)
    try:
        text = data.decode(known or "utf-8")
    except LookupError as error:
        raise DataError(f"{path}: unknown encoding '{known}': try 'utf-8' or 'cp1252'") from error
    except UnicodeDecodeError as error:
        if _CONTROL.search(data):
            raise DataError(
                f"{path} is not text (binary data): save the table as CSV or Parquet, or give "
                "encoding= if it is text"
            ) from error
        guess = _guess(data)
        problem = (
            f"{path}: byte 0x{data[error.start]:02x} at offset {error.start} is not "
            f"{known or 'utf-8'}"
        )
        if known is not None or guess is None:
            hint = f"try encoding='{guess}'" if guess else "give the right encoding="
            raise DataError(f"{problem}: {hint}") from error
        notes = (f"{problem}; read as {guess}, a guess: give encoding= to be sure",)
        text, given = data.decode(guess), guess
    if "\0" in text:
        raise DataError(
            f"{path}: not plain text (NUL at character {text.index(chr(0))}): "
            "if it is UTF-16, give encoding='utf-16-le' or 'utf-16-be'"
        )
    return text.removeprefix("\ufeff"), given, notes


def _guess(data: bytes) -> str | None:
    matches = charset_normalizer.from_bytes(data, cp_isolation=_LEGACY)
    best = matches.best()
    if best is None:
        return None
    # Short western files fit many code pages equally well; the most common one wins a tie.
    tied = {m.encoding for m in matches if m.chaos <= best.chaos} | {*best.could_be_from_charset}
    return "cp1252" if "cp1252" in tied else best.encoding
