"""A silo's rows as its answers report them: read once, split once, small counts suppressed.

Each file is read once, and its cells are typed once. A file that has changed on the disk is read
again: it is then another version of itself, of which the policy allows few (`FileMemory`).

The floor, `min_rows` of policy.toml, protects people in what is published: no level, bin or
(cell, label) count in run.json or in a report is about fewer of them. It does not protect rows
from a coordinator that makes its requests for the purpose (docs/what-leaves.md).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from mfairfl.data import SPLITS, EncoderStatistics, FileFormat, Reading, Split, Task
from mfairfl.data.columns import Columns, columns_of
from mfairfl.data.federation import ClientRows, split_client, split_rows
from mfairfl.data.files import FileContent, read_file
from mfairfl.data.sums import Histogram
from mfairfl.data.table import Table, table_from_columns
from mfairfl.engine.checkpoint import read_sealed, write_sealed
from mfairfl.errors import DataError, MessageError
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.tally import hidden_cells
from mfairfl.files import make_private_folder
from mfairfl.randomness import stream
from mfairfl.silo.policy import DISCLOSED, POLICY, Disclosure, refuse_beyond
from mfairfl.silo.silo_file import AuditConsent, SiloSettings

_FILE = "told.safetensors"  # its name in 0.7, whose splits still hold
_SPLIT = "split"
_UNUSED = -1


# ------------------------------------------------------------------ files


class SiloFile:
    """One file of a silo.

    Parameters
    ----------
    path : Path
    file_format : FileFormat
        What is known about the file.
    """

    def __init__(self, path: Path, file_format: FileFormat) -> None:
        self.path, self._format = path, file_format
        self._content: FileContent | None = None
        self._state: tuple[int, int, int] | None = None
        self._columns: tuple[Reading, Columns] | None = None

    @property
    def name(self) -> str:
        """What messages call the file."""
        return self.path.name

    def content(self) -> FileContent:
        """Return what the file holds now."""
        try:
            status = self.path.stat()
            state = status.st_ino, status.st_size, status.st_mtime_ns
        except OSError:  # reading it says what is wrong
            state = None
        if self._content is None or state != self._state:
            self._content, self._state = read_file(self.path, self._format), state
            self._columns = None
        return self._content

    def columns(self, rules: Reading) -> Columns:
        """Return the columns, their cells read by these rules."""
        content = self.content()
        if self._columns is None or self._columns[0] != rules:
            self._columns = rules, columns_of(content.frame, self.name, rules)
        return self._columns[1]

    def forget_columns(self) -> None:
        """Free what typed columns take; the file itself stays in memory."""
        self._columns = None


class Session:
    """The files of one silo.

    Parameters
    ----------
    settings : SiloSettings
        Its silo.toml.
    """

    def __init__(self, settings: SiloSettings) -> None:
        self.settings = settings
        self.rows = SiloFile(settings.csv, settings.format)
        self._audited: SiloFile | None = None

    @property
    def audit_consent(self) -> AuditConsent:
        """Which columns may be counted for an audit."""
        if self.settings.audit is None:
            raise MessageError(
                f"'{self.settings.name}' takes part in no audit: its silo.toml has no section "
                "[audit]"
            )
        return self.settings.audit

    @property
    def audited(self) -> SiloFile:
        """The file that is counted for an audit."""
        consent = self.audit_consent
        if consent.file is None:
            return self.rows
        if self._audited is None:
            self._audited = SiloFile(consent.file, consent.format)
        return self._audited

    def table(self, task: Task) -> Table:
        """Return the rows with an agreed task, which must fit the file."""
        content = self.rows.content()
        columns = self.rows.columns(task.read_as(self.settings))
        table = table_from_columns(
            columns, task, name=self.rows.name, sha256=content.sha256, notes=content.notes
        )
        if table.task != task:
            raise DataError(f"{self.rows.name}: does not fit the agreed task; profile it again")
        return table


# ------------------------------------------------------------------ what is disclosed


class _Remembered(BaseModel):  # what else 0.7 wrote is not used
    shares: tuple[float, float] | None = None
    tasks: tuple[str, ...] = ()


class FileMemory:
    """What a silo remembers about one version of a file, whatever the run or audit.

    Parameters
    ----------
    state : Path
        The silo's state folder.
    file : Path
    content : FileContent
        What the file holds now; too many versions of it are refused.
    policy : Disclosure
        The silo's.
    """

    def __init__(self, state: Path, file: Path, content: FileContent, policy: Disclosure) -> None:
        self._policy, self._rows = policy, len(content.frame)
        folder = make_private_folder(make_private_folder(state) / DISCLOSED)
        place = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:16]
        folder = make_private_folder(folder / place)
        version = content.sha256[:32]
        versions = {path.name for path in folder.iterdir()} | {version}
        refuse_beyond(policy, "versions", len(versions), "versions of its file, which has changed")
        self._path = make_private_folder(folder / version) / _FILE
        self._remembered, self._arrays = _Remembered(), dict[str, np.ndarray]()
        if self._path.exists():
            arrays, header = read_sealed(self._path, remedy="restore it from a backup")
            self._arrays = {name: arrays[name] for name in arrays if name == _SPLIT}
            self._remembered = _Remembered.model_validate(header)

    def count_task(self, table_rows: NDArray[np.intp], strata: NDArray[np.integer]) -> None:
        """Count a way to form groups and labels; one too many is refused.

        Parameters
        ----------
        table_rows : ndarray (n,)
            Where the rows that are used are in the file.
        strata : ndarray (n,)
            The group and label of each.
        """
        of_file = np.full(self._rows, _UNUSED, np.int32)
        of_file[table_rows] = strata
        digest, counted = hashlib.sha256(of_file.tobytes()).hexdigest(), self._remembered.tasks
        if digest not in counted:
            ways = len(counted) + 1
            refuse_beyond(self._policy, "tasks", ways, "ways to form groups and labels")
            self._write({"tasks": (*counted, digest)})

    def split(self, name: str, table: Table, test: float, validation: float) -> ClientRows:
        """Return a table's rows in the parts that they are in for good.

        The first request of any run decides: whatever a later one asks for, a row stays in its
        part. A part of too few rows is joined to the train rows.
        """
        places = _places(table)
        if _SPLIT not in self._arrays:
            rng = stream(self._policy.split_seed, "split", name)
            split = split_rows(_strata(table), test=test, validation=validation, rng=rng)
            parts = np.full(self._rows, _UNUSED, np.int8)
            for part, rows in enumerate(split):
                parts[places[rows]] = part if len(rows) >= self._policy.min_rows else 0
            self._arrays[_SPLIT] = parts
            self._write({"shares": (test, validation)})
        elif self._remembered.shares != (test, validation):
            first = self._remembered.shares or (0.0, 0.0)
            raise MessageError(
                f"a split into {test:g} test and {validation:g} validation rows: the rows of this "
                f"file were split once for all runs, into {first[0]:g} and {first[1]:g} "
                f"(disclosure.split_seed of its {POLICY})"
            )
        # Rows that the first run had no use for have no part yet.
        parts = np.maximum(self._arrays[_SPLIT][places], 0)
        return ClientRows(
            name, table, {s: np.flatnonzero(parts == part) for part, s in enumerate(SPLITS)}
        )

    def _write(self, update: Mapping[str, object]) -> None:
        self._remembered = self._remembered.model_copy(update=update)
        write_sealed(self._path, self._arrays, self._remembered.model_dump(mode="json"))


@dataclass(frozen=True, slots=True)
class ReleasedRows:
    """The rows of a silo, split, with what is disclosed about them.

    Parameters
    ----------
    silo : ClientRows
        The rows of each split.
    floor : int
        Fewest rows that a level, a bin or a count may be of.
    rows : mapping of split to ndarray (C, 2)
        The rows of each (cell, label).
    hidden : mapping of split to ndarray (C, 2)
        Which (cell, label) pairs are withheld: those of few rows, and the smallest others, until
        the withheld rows are enough.
    """

    silo: ClientRows
    floor: int
    rows: Mapping[Split, NDArray[np.int64]]
    hidden: Mapping[Split, NDArray[np.bool_]]

    def cells(self, split: Split) -> NDArray[np.int32]:
        """Return each row's cell; of a pair that is withheld, the number of cells."""
        rows, hidden = self.silo.rows[split], self.hidden[split]
        cells = self.silo.table.cells_of(rows).astype(np.int32)
        return np.where(hidden[cells, self.silo.table.y[rows]], len(hidden), cells)

    def counts(self, split: Split) -> tuple[NDArray[np.int64], int]:
        """Return the rows per (cell, label), 0 where withheld, and how many are withheld."""
        rows, hidden = self.rows[split], self.hidden[split]
        return np.where(hidden, 0, rows), int(rows[hidden].sum())

    def sums(self) -> dict[str, EncoderStatistics]:
        """Return what the encoder is fitted from: of the train rows, and of the others.

        Levels that few rows hold are not named; they are read as one.
        """
        sums = {}
        for part, splits in {"train": SPLITS[:1], "others": SPLITS[1:]}.items():
            statistics = self.silo.statistics(*splits)
            categorical = {
                column: {level: n for level, n in levels.items() if n >= self.floor}
                for column, levels in statistics.categorical.items()
            }
            sums[part] = EncoderStatistics(statistics.numeric, categorical)
        return sums

    def histograms(self, cuts: Mapping[str, NDArray[np.float64]]) -> list[Histogram]:
        """Count train rows between cuts; intervals of few rows are joined to the next."""
        return [
            self.silo.histogram(column, edges).with_floor(self.floor)
            for column, edges in cuts.items()
        ]


def release_rows(
    name: str,
    table: Table,
    memory: FileMemory,
    policy: Disclosure,
    *,
    seed: int,
    test: float,
    validation: float,
) -> ReleasedRows:
    """Split a silo's rows, and determine which (cell, label) pairs are withheld.

    Without a floor the split is that of the run, as in the embedded engine.
    """
    strata = _strata(table)
    memory.count_task(_places(table), strata)
    cells, floor = Cells(table.attributes), policy.min_rows
    if floor == 1:
        silo = split_client(name, table, seed=seed, test=test, validation=validation)
    else:
        silo = memory.split(name, table, test, validation)
    rows, hidden = {}, {}
    for split in SPLITS:
        counts = np.bincount(strata[silo.rows[split]], minlength=2 * cells.size)
        rows[split] = counts.reshape(cells.size, 2)
        hidden[split] = hidden_cells(rows[split], cells.names, floor) & (rows[split] > 0)
    return ReleasedRows(silo, floor, rows, hidden)


def _strata(table: Table) -> NDArray[np.int64]:
    return 2 * table.cells.astype(np.int64) + table.y


def _places(table: Table) -> NDArray[np.intp]:
    """Return where the rows of a table are in its file."""
    return np.arange(len(table)) if table.places is None else table.places
