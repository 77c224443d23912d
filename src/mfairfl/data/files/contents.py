"""What a file is, judged by its bytes: a table, something that holds one, or neither; its text."""

import bz2
import codecs
import errno
import gzip
import io
import lzma
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import charset_normalizer
import pyarrow as pa

from mfairfl.errors import DataError
from mfairfl.files import read_regular_file
from mfairfl.text import some_of

_LARGEST = 4 * 1024**3  # bytes that a packed file may unpack to
# An Excel file that unpacks to more bytes than this must not be mostly repetition: sheets of equal
# rows unpack to 17 times their size, files made to fill the memory to 1,000 times.
_SUSPECT = 100 * 1024**2
_FOLD = 100
_CHUNK = 1024**2
_DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, pa.ArrowException)
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")  # the second one is an archive without files
_AS_CSV = "save the table as CSV or .xlsx"
_UNPACK = "unpack it and give the file"


class Contents(NamedTuple):
    """The bytes of a table, unpacked, and what they are."""

    kind: Literal["parquet", "arrow", "excel", "text"]
    data: bytes


_TABLES: dict[bytes, Literal["parquet", "arrow"]] = {
    b"PAR1": "parquet",
    b"ARROW1\0\0": "arrow",
    b"FEA1": "arrow",
}
_PACKED: dict[bytes, Callable[[io.BytesIO], Any]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"\xfd7zXZ\0": lzma.LZMAFile,
    b"BZh": bz2.BZ2File,
    b"\x28\xb5\x2f\xfd": lambda file: pa.CompressedInputStream(file, "zstd"),
}
# Files that people have in place of a table, and what to do instead.
_OTHERS = {
    b"\xd0\xcf\x11\xe0": "an old (.xls) or a protected Excel file: save it as .xlsx or CSV",
    b"SQLite format 3\0": "an SQLite database: export the table as CSV",
    b"PARE": "an encrypted Parquet file: write it without encryption",
    b"\x89HDF": "an HDF5 file: write the table as Parquet or CSV",
    b"\x93NUMPY": "a NumPy array: write a table with named columns as Parquet or CSV",
    b"\x80\x04\x95": "a pickle, which may hold code: write the table as Parquet or CSV",
    b"\x80\x05\x95": "a pickle, which may hold code: write the table as Parquet or CSV",
    b"RDX3\n": "an R workspace: write the table as Parquet or CSV",
    b"Obj\x01": "an Avro file: write the table as Parquet or CSV",
    b"$FL2@(#)": "an SPSS file: save the table as CSV",
    b"<stata_dta>": "a Stata file: save the table as CSV",
    b"%PDF-": "a PDF document: give the table as CSV",
    b"7z\xbc\xaf\x27\x1c": f"a 7z archive: {_UNPACK}",
    b"Rar!": f"a RAR archive: {_UNPACK}",
    b"<!doctype html": f"a web page: {_AS_CSV}",
    b"<html": f"a web page: {_AS_CSV}",
    b"<?xml": f"an XML file: {_AS_CSV}",
}
# Members of a zip archive by which documents of office programs are known.
_DOCUMENTS = {
    "xl/workbook.bin": "a binary Excel file (.xlsb)",
    "word/document.xml": "a Word document",
    "ppt/presentation.xml": "a PowerPoint document",
    "content.xml": "an OpenDocument file (.ods)",
}

_BOMS = {
    codecs.BOM_UTF8: "utf-8",
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
_SURROGATE = re.compile("[\ud800-\udfff]")  # of encodings that few know, such as UTF-7
_CONTROL = re.compile(rb"[\x01-\x08\x0e-\x19]")  # in no text, unless it is UTF-16 or UTF-32


def load_contents(path: Path) -> Contents:
    """Read a file, unpack it if it is packed, and refuse what cannot be a table."""
    data = _plain(path, _raw(path))
    for _ in range(2):  # an Excel file, itself an archive, may be inside an archive
        if data.startswith(_ZIP):
            with _intact(path), zipfile.ZipFile(io.BytesIO(data)) as archive:
                if "xl/workbook.xml" in archive.namelist():
                    _require_small_parts(path, archive.infolist())
                    return Contents("excel", data)
                data = _plain(path, _only_member(path, archive))
    if data.startswith(_ZIP) or data[257:262] == b"ustar":
        raise DataError(f"{path} is an archive: {_UNPACK}")
    for mark, kind in _TABLES.items():
        if data.startswith(mark):
            return Contents(kind, data)
    start = data[:100].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for mark, description in _OTHERS.items():
        if data.startswith(mark) or start.startswith(mark):
            raise DataError(f"{path} is {description}")
    return Contents("text", data)


def _raw(path: Path) -> bytes:
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # files are read whole
    try:
        return read_regular_file(path, most)
    except FileNotFoundError as error:
        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        near = get_close_matches(path.name, siblings, n=1)
        hint = f"did you mean '{near[0]}'?" if near else "check the path"
        raise DataError(f"no such file: {path}: {hint}") from error
    except IsADirectoryError as error:
        raise DataError(f"{path} is a folder: {_choice(path)}") from error
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise DataError(
                f"{path} is larger than the memory of this machine ({most / 1024**3:.3g} GiB): "
                "leave columns or rows out"
            ) from error
        raise DataError(f"cannot read {path}: {error.strerror}: give a readable file") from error


def _choice(folder: Path) -> str:
    """Return which of the files in a folder might be meant."""
    names = sorted(p.name for p in folder.iterdir() if not p.name.startswith("."))
    if not names:
        return "it is empty; give a file with a table"
    files = some_of(names, most=5)
    return f"give one file of it ({files}); parts of one table have to be joined into one file"


def _plain(path: Path, data: bytes) -> bytes:
    """Undo a compression of the whole file."""
    for mark, opened in _PACKED.items():
        if data.startswith(mark):
            with _intact(path), opened(io.BytesIO(data)) as stream:
                return _bounded(path, stream)
    return data


@contextmanager
def _intact(path: Path) -> Iterator[None]:
    """Refuse a file that turns out to be damaged while it is unpacked."""
    try:
        yield
    except (*_DAMAGED, NotImplementedError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path} is damaged ({reason}): fetch or compress it again") from error


def _bounded(path: Path, stream: IO[bytes]) -> bytes:
    """Read all of a stream, but never more than memory is likely to hold."""
    parts, size = [], 0
    while part := stream.read(_CHUNK):
        size += len(part)
        _require_small(path, size)
        parts.append(part)
    return b"".join(parts)


def _require_small(path: Path, size: int) -> None:
    if size > _LARGEST:
        most = f"{_LARGEST / 1024**3:.3g} GiB"
        raise DataError(f"{path} unpacks to more than {most}: unpack it, or give Parquet")


def _require_small_parts(path: Path, parts: list[zipfile.ZipInfo]) -> None:
    """Refuse an Excel file by the sizes in its directory; no more is unpacked than they say."""
    unpacked, packed = sum(p.file_size for p in parts), sum(p.compress_size for p in parts)
    _require_small(path, unpacked)
    if unpacked > max(_SUSPECT, _FOLD * packed):
        raise DataError(
            f"{path} unpacks to {unpacked / 1024**2:,.0f} MiB, more than {_FOLD} times its size: "
            "save the table as CSV"
        )


def _only_member(path: Path, archive: zipfile.ZipFile) -> bytes:
    """Return the only file of an archive."""
    names = archive.namelist()
    for member, document in _DOCUMENTS.items():
        if member in names:
            raise DataError(f"{path} is {document}: {_AS_CSV}")
    # macOS adds a file of its own for every file.
    files = [n for n in names if not n.endswith("/") and not n.startswith("__MACOSX/")]
    if not files:
        raise DataError(f"{path} is an empty archive: give a file with a table")
    if len(files) > 1:
        listed = some_of(files, most=5)
        raise DataError(f"{path} is an archive of {len(files)} files ({listed}): {_UNPACK}")
    if archive.getinfo(files[0]).flag_bits & 1:
        raise DataError(f"{path} is an archive with a password: {_UNPACK}")
    with archive.open(files[0]) as stream:
        return _bounded(path, stream)


class Decoded(NamedTuple):
    """The text of a file without its byte order mark, and the bytes and codec it is from.

    `encoding` is what was given or guessed; None where the file itself decides.
    """

    text: str
    data: bytes
    codec: str = "utf-8"
    encoding: str | None = None
    notes: tuple[str, ...] = ()


def decode(path: Path, data: bytes, encoding: str | None) -> Decoded:
    """Decode by the given encoding, the byte order mark, as UTF-8, or by a guess that is noted."""
    marked = next((name for mark, name in _BOMS.items() if data.startswith(mark)), None)
    codec, stated, notes = encoding or marked or "utf-8", encoding, tuple[str, ...]()
    try:
        text = data.decode(codec)
    except LookupError as error:
        raise DataError(f"{path}: unknown encoding '{codec}': try 'utf-8' or 'cp1252'") from error
    except UnicodeDecodeError as error:
        byte = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        problem, guess = f"{path}: {byte} is not {codec}", _guess(path, data)
        if stated or marked or guess is None:
            hint = f"try encoding='{guess}'" if guess else "give the right encoding="
            raise DataError(f"{problem}: {hint}") from error
        notes = (f"{problem}; read as {guess}, a guess: give encoding= to be sure",)
        text, codec, encoding = data.decode(guess), guess, guess
    if "\0" in text:
        raise DataError(
            f"{path}: not plain text (NUL at character {text.index(chr(0))}): "
            "if it is UTF-16, give encoding='utf-16-le' or 'utf-16-be'"
        )
    if stated and (half := _SURROGATE.search(text)):
        raise DataError(
            f"{path}: character {half.start()} is half of one (U+{ord(half[0]):X}): "
            "give the right encoding="
        )
    return Decoded(text.removeprefix("\ufeff"), data, codec, encoding, notes)


def _guess(path: Path, data: bytes) -> str | None:
    """Return the encoding that is most likely, if any is; binary data is refused."""
    if _CONTROL.search(data):
        raise DataError(
            f"{path} is not text (binary data): save the table as CSV or Parquet, or give "
            "encoding= if it is text"
        )
    matches = charset_normalizer.from_bytes(data, cp_isolation=_LEGACY)
    best = matches.best()
    if best is None:
        return None
    # Short western files fit many code pages equally well; the most common one wins a tie.
    tied = {m.encoding for m in matches if m.chaos <= best.chaos} | {*best.could_be_from_charset}
    return "cp1252" if "cp1252" in tied else best.encoding
