"""Files that are whole or not there, and settings read from them."""

import contextlib
import errno
import json
import os
import re
import stat
import tomllib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ValidationError, ValidationInfo

from mfairfl.errors import ConfigError, first_problem
from mfairfl.failpoints import failpoint

_Settings = TypeVar("_Settings", bound=BaseModel)

_LARGEST = 2 << 30  # bytes of a file that is read whole
_LARGEST_TOML = 4 << 20  # bytes: what people write by hand, and lists of many thousand names

_DATA = (
    *(".csv", ".tsv", ".tab", ".parquet", ".pq", ".feather", ".arrow"),
    *(".xlsx", ".xlsm", ".xls", ".ods", ".json", ".jsonl", ".ndjson"),
    *(".gz", ".xz", ".bz2", ".zst", ".zip"),
)


def _in_folder(path: Path, info: ValidationInfo) -> Path:
    return path if info.context is None else info.context / path


RelativePath = Annotated[Path, AfterValidator(_in_folder)]
"""A path in a settings file, relative to that file's folder."""


def write_atomically(path: Path, data: bytes, *, private: bool = False) -> None:
    """Write a file so that a crash leaves either the old one or the new one, whole.

    Parameters
    ----------
    private : bool
        Whether only this user may read it, whatever the umask.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with naming(path), temporary.open("wb") as file:
            if private:
                # Before there is anything to read. `make_private_folder` says where it cannot be.
                with contextlib.suppress(PermissionError):
                    os.fchmod(file.fileno(), 0o600)
            file.write(data)
            file.flush()
            failpoint("file.written", path.name)
            os.fsync(file.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)  # a full disk needs the room
        raise
    failpoint("file.synced", path.name)
    temporary.replace(path)
    failpoint("file.renamed", path.name)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the disk know which files a folder holds."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def make_private_folder(path: Path) -> Path:
    """Make a folder that only this user may enter, whatever the umask; return it.

    Another user's folder, and one on a file system without permissions, is used with a warning.
    """
    path.mkdir(parents=True, exist_ok=True)
    if others_can_read(path):
        try:
            path.chmod(0o700)
        except PermissionError:
            warnings.warn(
                f"{path}: others can read it, and it cannot be closed; use another folder",
                UserWarning,
                stacklevel=2,
            )
    return path


def others_can_read(path: Path) -> bool:
    """Return whether a file or folder is open to other users in any way."""
    return bool(path.stat().st_mode & 0o077)


def read_regular_file(path: Path, most: int = _LARGEST) -> bytes:
    """Read a regular file whole; a folder, a pipe or a device is an `OSError`.

    Reading a pipe would wait for ever, and a device may have no end. More than `most` bytes are
    an `OSError` as well.
    """
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        status = os.fstat(opened)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if status.st_size > most:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        with os.fdopen(opened, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(opened)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Make an `OSError` name the file, which the error of a full disk does not do by itself."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def load_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; syntax errors name file and line."""
    if path.suffix.lower() in _DATA and path.is_file():
        raise ConfigError(
            f"{path} is data, not settings: mfairfl init --csv {path}, or mfairfl train "
            f"--csv {path} --label … --favourable … --sensitive …"
        )
    try:
        return tomllib.loads(read_regular_file(path, _LARGEST_TOML).decode())
    except FileNotFoundError:
        reason = "no such file; `mfairfl init` writes one from a CSV"
    except IsADirectoryError:
        reason = "is a folder; give a TOML file"
    except OSError as error:
        most = f"{_LARGEST_TOML >> 20} MiB"
        reason = f"cannot be read ({error.strerror}); give a TOML file of at most {most}"
    except RecursionError:
        reason = "nested too deeply; write tables and lists flat"
    except UnicodeDecodeError as error:
        reason = f"not UTF-8 at byte {error.start}; TOML must be"
    except tomllib.TOMLDecodeError as error:
        reason = str(error)
    raise ConfigError(f"{path}: {reason}")


def load_settings(file: Path, model: type[_Settings]) -> _Settings:
    """Read a settings file; its `RelativePath` values become relative to its folder."""
    values = load_toml(file)
    try:
        return model.model_validate(values, context=file.resolve().parent)
    except ValidationError as error:
        raise ConfigError(f"{file}: {first_problem(error, model)}") from None
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None


def toml_text(value: Any) -> str:
    r"""Write a value as TOML.

    Examples
    --------
    >>> toml_text({"column": "a\tb", "bins": [1.5, True]})
    '{ column = "a\\tb", bins = [1.5, true] }'
    """
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml_key(k)} = {toml_text(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_text, value)) + "]"
    if isinstance(value, str | bool):
        # JSON's escapes are TOML's; TOML wants DEL escaped as well.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def toml_key(name: str) -> str:
    """Write a key as TOML, in quotes where it needs them."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_text(name)
