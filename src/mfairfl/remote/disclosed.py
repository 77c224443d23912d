"""A silo's own account of what it has told about its file: which rows every number was about.

What may be told depends on all that was told before, in any run or audit, to whomever: two sets of
rows that differ in one row tell that row. So the account outlives runs. It is kept in the state
folder, one for each version of a file, and is on disk before an answer leaves.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from mfairfl.data.assembly import split_rows
from mfairfl.data.binning import stand_in
from mfairfl.data.values import StrictModel
from mfairfl.engine.sealed import read_sealed, write_sealed
from mfairfl.errors import MessageError
from mfairfl.files import make_private_folder, write_atomically
from mfairfl.guard.row_sets import NOWHERE, RowClasses, RowSets, admit
from mfairfl.randomness import stream
from mfairfl.remote.ledger import RowSetFacts
from mfairfl.remote.policy import POLICY, Disclosure
from mfairfl.remote.usage import DISCLOSED, refuse_beyond

__all__ = ["Disclosed", "keyed_sha256", "open_account"]

_FILE = "told.safetensors"
_KEY = "fingerprints.key"
_MOST_SETS = 4096  # that an account is kept of

Codes = NDArray[np.int32]


class _Told(StrictModel):
    what: str
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class _Pinned(StrictModel):
    """How a column is summed: within these limits, and with this where a number is missing."""

    low: float
    high: float
    fill: float


class _Header(StrictModel):
    rows: int
    shares: tuple[float, float] | None = None
    told: tuple[_Told, ...] = ()
    tasks: tuple[str, ...] = ()
    bundled: tuple[str, ...] = ()
    columns: dict[str, _Pinned] = Field(default_factory=dict)
    """Numeric columns that were summed."""


def open_account(state: Path, file: Path, sha256: str, rows: int, policy: Disclosure) -> Disclosed:
    """Return the account of a file as it is now; too many versions of it are refused."""
    own = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:16]
    folder = make_private_folder(make_private_folder(state) / DISCLOSED)
    folder = make_private_folder(folder / own)
    versions = {path.name for path in folder.iterdir()} | {sha256[:32]}
    if len(versions) > policy.versions:
        raise MessageError(
            f"its file has changed: {len(versions)} versions of it would be told about, this silo "
            f"allows {policy.versions} (disclosure.versions of its {POLICY})"
        )
    return Disclosed(make_private_folder(folder / sha256[:32]), rows, policy)


def keyed_sha256(state: Path, sha256: str) -> str:
    """Return the hash of a hash and of a secret that only this silo has."""
    folder = make_private_folder(make_private_folder(state) / DISCLOSED)
    path = folder / _KEY
    if not path.exists():
        write_atomically(path, secrets.token_bytes(32), private=True)
    return hmac.new(path.read_bytes(), sha256.encode(), hashlib.sha256).hexdigest()


class Disclosed:
    """What was told about one version of a file.

    Parameters
    ----------
    folder : Path
        Where the account is kept.
    rows : int
        Rows of the file.
    policy : Disclosure
        The silo's.
    """

    def __init__(self, folder: Path, rows: int, policy: Disclosure) -> None:
        self._path, self._policy = folder / _FILE, policy
        self._header, self._arrays = _Header(rows=rows), dict[str, np.ndarray]()
        self.used: list[RowSetFacts] = []
        """What the present answer is about."""
        if self._path.exists():
            remedy = f"restore it; without it {POLICY} cannot be kept"
            self._arrays, said = read_sealed(self._path, remedy=remedy)
            self._header = _Header.model_validate(said)

    @property
    def floor(self) -> int:
        """Fewest rows that may be told about."""
        return self._policy.min_rows

    @property
    def rows(self) -> int:
        """Rows of the file."""
        return self._header.rows

    @property
    def partitions(self) -> list[Codes]:
        """The sets of rows that were told about: each row's set, or -1, one array for each."""
        return [self._arrays[f"sets/{i}"] for i in range(len(self._header.told))]

    def count_task(self, strata: Codes) -> None:
        """Count a way to form groups and labels; one too many is refused.

        Parameters
        ----------
        strata : ndarray (rows,)
            The (cell, label) of each row that is used, else -1.
        """
        digest, known = hashlib.sha256(strata.tobytes()).hexdigest(), self._header.tasks
        if digest not in known:
            what = "ways to form groups and labels"
            refuse_beyond(self._policy, "tasks", len(known) + 1, what)
            self._header = self._header.model_copy(update={"tasks": (*known, digest)})
            self._write()

    def pin(
        self, column: str, places: NDArray[np.intp], numbers: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the numbers of a column as they are summed; those that are missing stay so.

        The few largest and smallest count as the largest and smallest that enough rows reach: no
        sum is that of one outlier. A column is summed as it was read first. Read in another way,
        so that few rows have another number, the difference of two sums would be theirs.

        Parameters
        ----------
        places : ndarray
            Where the numbers are in the file.
        """
        key = f"numbers/{column}"
        held = self._arrays.get(key, np.full(self.rows, np.inf))  # inf: not used so far
        before = held[places]
        as_before = np.where(np.isinf(before), numbers, before)
        if not np.array_equal(as_before, numbers, equal_nan=True):
            raise MessageError(
                f"column '{column}' is read in another way than before: its sums would differ by "
                f"the numbers of few rows ([disclosure] of its {POLICY})"
            )
        if np.isinf(before).any() or column not in self._header.columns:
            held[places] = numbers
            self._arrays[key] = held
            columns = {column: _pinned(numbers, self.floor)} | self._header.columns
            self._header = self._header.model_copy(update={"columns": columns})
            self._write()
        limits = self._header.columns[column]
        return np.clip(numbers, limits.low, limits.high)

    def fill(self, column: str) -> float:
        """Return what counts as a missing number of a column that was pinned."""
        return self._header.columns[column].fill

    def split(self, strata: Codes, name: str, test: float, validation: float) -> Codes:
        """Return the part of each row: 0 train, 1 validation, 2 test; -1 where it is not used.

        The first request of any run decides; whatever a later one asks for, a row stays in its
        part. A part of too few rows is joined to the train rows.

        Parameters
        ----------
        strata : ndarray (rows,)
            The (cell, label) of each row that is used, else -1: each is split alike.
        """
        self.count_task(strata)
        asked = (test, validation)
        if "split" not in self._arrays:
            self._make_split(strata, name, asked)
        elif asked != self._header.shares:
            known = self._header.shares or (0.0, 0.0)
            raise MessageError(
                f"a split into {test:g} test and {validation:g} validation rows: the rows of this "
                f"file were split once for all runs, into {known[0]:g} and {known[1]:g} "
                f"([disclosure] of its {POLICY})"
            )
        parts = self._arrays["split"].astype(np.int32)
        # Who was of no use in the first run has no part yet.
        return np.where(strata == NOWHERE, NOWHERE, np.maximum(parts, 0)).astype(np.int32)

    def _make_split(self, strata: Codes, name: str, shares: tuple[float, float]) -> None:
        used = np.flatnonzero(strata != NOWHERE)
        rng = stream(self._policy.split_seed, "split", name)
        found = split_rows(
            strata[used].astype(np.int64), test=shares[0], validation=shares[1], rng=rng
        )
        parts = np.full(self.rows, NOWHERE, np.int8)
        for part, places in enumerate(found):
            parts[used[places]] = part if len(places) >= self.floor else 0
        self._arrays["split"] = parts
        self._header = self._header.model_copy(update={"shares": shares})
        self._write()

    def bundles(self, strata: Codes, name: str) -> Codes:
        """Return the bundle of each row that is trained on, else -1: rows of one (cell, label).

        A row counts in an update as the others of its bundle do, whatever is asked for, and a
        bundle has enough rows. Bundles of several tasks cut each other; later ones are made larger
        until no combination of them isolates few rows.

        Parameters
        ----------
        strata : ndarray (rows,)
            The (cell, label) of each row that is trained on, else -1.
        """
        digest, known = hashlib.sha256(strata.tobytes()).hexdigest(), self._header.bundled
        if digest in known:
            return np.asarray(self._arrays[f"bundles/{known.index(digest)}"])
        before = [self._arrays[f"bundles/{i}"] for i in range(len(known))]
        count = int((strata != NOWHERE).sum())
        size = max(self.floor, -(-count // _MOST_SETS))
        found = _bundled(strata, size, stream(self._policy.split_seed, "bundles", name))
        while before and self._cut(before, found):
            if size > count:
                raise MessageError(
                    "training by these groups and labels: together with others, updates would "
                    f"isolate fewer than {self.floor} rows (disclosure.min_rows of its {POLICY})"
                )
            size *= 2
            found = _bundled(strata, size, stream(self._policy.split_seed, "bundles", name))
        self._arrays[f"bundles/{len(known)}"] = found
        self._header = self._header.model_copy(update={"bundled": (*known, digest)})
        self._write()
        return found

    def _cut(self, before: Sequence[Codes], found: Codes) -> bool:
        """Say whether bundles and earlier ones expose rows, or are too many to be sure."""
        sets = RowSets(self.rows, (*before, found))
        return sum(sets.sizes) > _MOST_SETS or bool(sets.exposed(self.floor).any())

    def admit(self, candidates: Sequence[RowClasses]) -> list[Codes]:
        """Return which classes may be told, and which together, given all that was told before.

        As in `guard.row_sets.admit`. What is returned counts as told from now on.
        """
        digests = [_digest(candidate, self.floor) for candidate in candidates]
        known = {told.digest: i for i, told in enumerate(self._header.told)}
        new = [i for i, digest in enumerate(digests) if digest not in known]
        if new:
            self._tell([candidates[i] for i in new], [digests[i] for i in new])
            known = {told.digest: i for i, told in enumerate(self._header.told)}
        places = [known[digest] for digest in digests]
        self.used += [self._facts(place) for place in places]
        return [self._arrays[f"groups/{place}"] for place in places]

    def _tell(self, candidates: Sequence[RowClasses], digests: Sequence[str]) -> None:
        sets = RowSets(self.rows, tuple(self.partitions))
        found = admit(sets, candidates, self.floor)
        what = ", ".join(dict.fromkeys(candidate.what for candidate in candidates))
        if found is None:
            raise MessageError(
                f"{what[:200]}: together with what was told before, this would isolate fewer than "
                f"{self.floor} rows (disclosure.min_rows of its {POLICY})"
            )
        told = list(self._header.told)
        for candidate, digest, groups in zip(candidates, digests, found, strict=True):
            place = len(told)
            self._arrays[f"sets/{place}"] = candidate.partition(groups)
            self._arrays[f"groups/{place}"] = groups
            told.append(_Told(what=candidate.what, digest=digest))
        every = tuple(self._arrays[f"sets/{i}"] for i in range(len(told)))
        if sum(RowSets(self.rows, every).sizes) > _MOST_SETS:
            raise MessageError(f"{what[:200]}: account is kept of {_MOST_SETS:,} sets at most")
        self._header = self._header.model_copy(update={"told": tuple(told)})
        self._write()

    def _write(self) -> None:
        write_sealed(self._path, self._arrays, self._header.model_dump(mode="json"))

    def _facts(self, place: int) -> RowSetFacts:
        codes = self._arrays[f"sets/{place}"]
        sizes = np.bincount(codes[codes != NOWHERE])
        smallest = int(sizes[sizes > 0].min(initial=self.rows)) if sizes.any() else 0
        return RowSetFacts(self._header.told[place].what, len(sizes), smallest, int(sizes.sum()))


def _pinned(numbers: NDArray[np.float64], floor: int) -> _Pinned:
    known = np.sort(numbers[~np.isnan(numbers)])
    if len(known) < floor:
        return _Pinned(low=0.0, high=0.0, fill=0.0)
    low, high = _limit(known, floor), -_limit(-known[::-1], floor) + 0.0
    fill = stand_in(known, floor)[0]
    if low > high:  # too few rows to cut off some at either end: all count alike
        low = high = fill
    return _Pinned(low=low, high=high, fill=fill)


def _limit(ordered: NDArray[np.float64], floor: int) -> float:
    """Return a number that at least `floor` rows do not exceed, and that is nobody's alone.

    The rows within it count as it, so that it can be found out: it is a value only if enough rows
    hold it, else a round number between two values.
    """
    reach = float(ordered[floor - 1])
    if np.count_nonzero(ordered == reach) >= floor:
        return reach
    further = ordered[floor - 1 : 2 * floor]
    return stand_in(further, len(ordered) + 1)[0] if further[-1] > reach else reach


def _bundled(strata: Codes, size: int, rng: np.random.Generator) -> Codes:
    """Return bundles of at least `size` rows of one stratum, drawn; of fewer if it has fewer."""
    found, first = np.full(len(strata), NOWHERE, np.int32), 0
    for stratum in np.unique(strata[strata != NOWHERE]):
        rows = rng.permutation(np.flatnonzero(strata == stratum))
        count = max(1, len(rows) // size)
        found[rows] = first + np.arange(len(rows)) * count // len(rows)
        first += count
    return found


def _digest(candidate: RowClasses, floor: int) -> str:
    found = hashlib.sha256(f"{candidate.ordered} {floor}".encode())
    for array in (candidate.parts, candidate.classes):
        found.update(np.ascontiguousarray(array, dtype=np.int32).tobytes())
    return found.hexdigest()
