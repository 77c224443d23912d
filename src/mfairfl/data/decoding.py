"""From a file to text: compression, byte order marks, encodings."""

from __future__ import annotations

import codecs
import gzip
import logging
import lzma
import zlib
from difflib import get_close_matches
from pathlib import Path

import charset_normalizer

from mfairfl.errors import DataError

__all__ = ["decode", "read_bytes"]

_log = logging.getLogger(__name__)

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


def read_bytes(path: Path) -> bytes:
    """Read a file, decompressed if it is gzip or xz."""
    return _decompressed(path, _raw(path))


def _raw(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        near = get_close_matches(path.name, siblings, n=1)
        hint = f"did you mean '{near[0]}'?" if near else "check the path"
        raise DataError(f"no such file: {path}: {hint}") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}: give a readable file") from error


def _decompressed(path: Path, data: bytes) -> bytes:
    try:
        if data.startswith(b"\x1f\x8b"):
            return gzip.decompress(data)
        if data.startswith(b"\xfd7zXZ\x00"):
            return lzma.decompress(data)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{path} is damaged ({error}): fetch or compress it again") from error
    return data


def decode(path: Path, data: bytes, encoding: str | None) -> tuple[str, tuple[str, ...]]:
    """Decode by the told encoding, the byte order mark, as UTF-8, or by a guess that is noted."""
    notes: tuple[str, ...] = ()
    told = encoding or next((name for mark, name in _BOMS.items() if data.startswith(mark)), None)
    try:
        text = data.decode(told or "utf-8")
    except LookupError as error:
        raise DataError(f"{path}: unknown encoding '{told}': try 'utf-8' or 'cp1252'") from error
    except UnicodeDecodeError as error:
        guess = _guess_encoding(data)
        problem = (
            f"{path}: byte 0x{data[error.start]:02x} at offset {error.start} is not "
            f"{told or 'utf-8'}"
        )
        if told is not None or guess is None:
            hint = f"try encoding='{guess}'" if guess else "give the right encoding="
            raise DataError(f"{problem}: {hint}") from error
        notes = (f"{problem}; read as {guess}, a guess: give encoding= to be sure",)
        _log.warning(notes[0])
        text = data.decode(guess)
    if "\0" in text:
        raise DataError(
            f"{path}: not plain text (NUL at character {text.index(chr(0))}): "
            "if it is UTF-16, give encoding='utf-16-le' or 'utf-16-be'"
        )
    return text.removeprefix("\ufeff"), notes


def _guess_encoding(data: bytes) -> str | None:
    matches = charset_normalizer.from_bytes(data, cp_isolation=_LEGACY)
    best = matches.best()
    if best is None:
        return None
    # Short western files fit many code pages equally well; the most common one wins a tie.
    tied = {m.encoding for m in matches if m.chaos <= best.chaos} | {*best.could_be_from_charset}
    return "cp1252" if "cp1252" in tied else best.encoding
