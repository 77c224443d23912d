"""What a silo remembers of masked exchanges, on its own disk, before an answer leaves it.

- The private keys of exchanges that are still to come. The key of an exchange is deleted when the
  exchange is answered, so no stream of masks is ever used twice and no answer can be opened later.
- Which silos each question was answered with. The same question with other silos is refused: from
  two sums over different silos follows what lies between them.
- All rosters that a file was ever summed over. One that would tell fewer than three silos apart,
  together with the others, is refused (`mfairfl.guard.rosters`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field, ValidationError

from mfairfl.data.values import StrictModel
from mfairfl.errors import ConfigError, MessageError
from mfairfl.files import make_private_folder, write_atomically
from mfairfl.guard.rosters import isolated_silos
from mfairfl.remote.masking import KEY, SIGNATURE, MaskKey, Offer

__all__ = ["MOST_KEYS", "MaskMemory"]

MOST_KEYS = 256
"""Unused keys that a silo keeps for a run; older ones are deleted."""

_KEYS = "masks.json"
_ROSTERS = ".rosters.json"  # beside the runs' folders, none of which begins with a dot

_Exchange = Annotated[int, Field(strict=True, ge=0)]
_Hex = Annotated[str, Field(strict=True, pattern="^[0-9a-f]*$")]


class _Key(StrictModel):
    exchange: _Exchange
    private: Annotated[_Hex, Field(min_length=2 * KEY, max_length=2 * KEY)]
    public: Annotated[_Hex, Field(min_length=2 * KEY, max_length=2 * KEY)]
    signature: Annotated[_Hex, Field(min_length=2 * SIGNATURE, max_length=2 * SIGNATURE)]


class _OfRun(StrictModel):
    """A run's unused keys, the next exchange's number, and which silos each question was for."""

    next: _Exchange = 0
    keys: tuple[_Key, ...] = ()
    answered: dict[str, str] = Field(default_factory=dict)


class _OfFiles(StrictModel):
    """The rosters that each file was summed over."""

    rosters: dict[str, tuple[tuple[str, ...], ...]] = Field(default_factory=dict)


M = TypeVar("M", bound=StrictModel)


class MaskMemory:
    """A silo's memory of one run's masked exchanges, and of its file's rosters.

    Parameters
    ----------
    state : Path
        The silo's state folder.
    run : str
        The run's name.
    source : str
        Names the file that is summed: its rosters are remembered over all runs.
    """

    def __init__(self, state: Path, run: str, source: str) -> None:
        self._source = source
        self._keys, self._rosters = state / run / _KEYS, state / _ROSTERS
        self._run = _read(self._keys, _OfRun)
        self._files = _read(self._rosters, _OfFiles)

    @property
    def next(self) -> int:
        """The number of the first exchange that has no key yet."""
        return self._run.next

    def add(self, keys: Sequence[MaskKey]) -> None:
        """Keep keys for exchanges to come, on disk."""
        new = [
            _Key(
                exchange=key.exchange,
                private=key.private.hex(),
                public=key.offer.key.hex(),
                signature=key.offer.signature.hex(),
            )
            for key in keys
        ]
        after = max((key.exchange + 1 for key in keys), default=self.next)
        kept = (*self._run.keys, *new)[-MOST_KEYS:]
        self._write_run({"keys": kept, "next": max(self.next, after)})

    def key(self, exchange: int, name: str) -> MaskKey:
        """Return the key that this silo, `name`, made for an exchange and has not used."""
        for key in self._run.keys:
            if key.exchange == exchange:
                public, signature = bytes.fromhex(key.public), bytes.fromhex(key.signature)
                return MaskKey(
                    exchange, bytes.fromhex(key.private), Offer(name, public, signature)
                )
        raise MessageError(
            f"this silo has no unused key for exchange {exchange}: it is answered once"
        )

    def check(self, quantity: bytes, names: Sequence[str]) -> None:
        """Refuse to sum over these silos where that would tell some of them apart.

        Parameters
        ----------
        quantity : bytes
            A hash of what is asked.
        """
        before = self._run.answered.get(quantity.hex())
        if before is not None and before != _digest(names):
            raise MessageError("this question was answered with other silos: it is not again")
        if tuple(names) not in self._answered and (
            found := isolated_silos([*self._answered, names])
        ):
            said = " and ".join(f"'{name}'" for name in found)
            raise MessageError(
                f"together with earlier sums, one over these silos would tell {said} apart"
            )

    def commit(self, exchange: int, quantity: bytes, names: Sequence[str]) -> None:
        """Remember that an exchange is answered, and delete its key, before the answer leaves."""
        self.check(quantity, names)
        if tuple(names) not in self._answered:
            rosters = {**self._files.rosters, self._source: (*self._answered, tuple(names))}
            self._files = _OfFiles(rosters=rosters)
            _write(self._rosters, self._files)
        self._write_run(
            {
                "keys": tuple(key for key in self._run.keys if key.exchange != exchange),
                "answered": {**self._run.answered, quantity.hex(): _digest(names)},
            }
        )

    @property
    def _answered(self) -> tuple[tuple[str, ...], ...]:
        return self._files.rosters.get(self._source, ())

    def _write_run(self, update: dict[str, object]) -> None:
        self._run = self._run.model_copy(update=update)
        make_private_folder(self._keys.parent)
        _write(self._keys, self._run)


def _digest(names: Iterable[str]) -> str:
    return hashlib.sha256(json.dumps(sorted(names)).encode()).hexdigest()


def _read(path: Path, kind: type[M]) -> M:
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return kind()
    except ValidationError:
        raise ConfigError(
            f"{path} is damaged: restore it; without it this silo would forget what it told"
        ) from None


def _write(path: Path, value: StrictModel) -> None:
    write_atomically(path, value.model_dump_json().encode(), private=True)
