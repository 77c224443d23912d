"""A silo's files as its answers need them: each is read once, and its cells are typed once.

A file that has changed on the disk is read again: it is then another version of itself, of which
the policy allows few (`FileMemory`).
"""

from __future__ import annotations

from pathlib import Path

from mfairfl.data import FileFormat, Reading, Task
from mfairfl.data.columns import Columns, columns_of
from mfairfl.data.files import FileContent, read_file
from mfairfl.data.table import Table, table_from_columns
from mfairfl.errors import DataError, MessageError
from mfairfl.silo.silo_file import AuditConsent, SiloSettings

_State = tuple[int, int, int]


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
        self._state: _State | None = None
        self._columns: tuple[Reading, Columns] | None = None

    @property
    def name(self) -> str:
        """What messages call the file."""
        return self.path.name

    def content(self) -> FileContent:
        """Return what the file holds now."""
        state = self._state_on_disk()
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

    def _state_on_disk(self) -> _State | None:
        try:
            status = self.path.stat()
        except OSError:  # reading it says what is wrong
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns


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
