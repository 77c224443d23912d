"""Published data sets by name: Adult and Bank are bundled, COMPAS and German are fetched once.

Every byte is compared with the official sha256 before it is parsed, and the source that was used
ends in the table's notes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mfairfl.data.entries import CATALOG, Entry
from mfairfl.data.sources import (
    bundled_bytes,
    cache_folder,
    propublica_rows,
    read_cache,
    read_official,
)
from mfairfl.data.table import Table, table_from_frame
from mfairfl.data.task import Task
from mfairfl.errors import DataError, unknown

__all__ = ["CATALOG", "Check", "describe", "load_dataset", "verify"]


class Check(NamedTuple):
    """One file's comparison: `found` is None where the file is not on this machine."""

    file: str
    expected: str
    found: str | None
    ok: bool


def load_dataset(
    name: str,
    path: str | Path | None = None,
    *,
    sensitive: Sequence[str] | None = None,
    task: Task | None = None,
    data_home: str | Path | None = None,
    offline: bool = False,
    verify: bool = True,
    **options: bool,
) -> Table:
    """Load a data set of the catalogue.

    Parameters
    ----------
    name
        ``adult``, ``bank``, ``compas`` or ``german``.
    path
        A raw file of your own (for Adult the folder of both files) instead of the bundled or
        fetched one.
    sensitive
        Sensitive attributes, by the entry's names (adult: sex, age, race; bank: age, age3,
        marital; compas: sex, race, race6, age_cat; german: sex, age). Default: the first.
    task
        A task of your own on the same columns, in place of the entry's.
    data_home
        Folder of the cache; also the environment variable ``MFAIRFL_DATA_HOME``.
    offline
        Never open a connection: what is neither bundled, cached nor installed is an error.
    verify
        False accepts a file at `path` whose sha256 is not the official one; a note says so.
    **options
        The entry's switches: ``fnlwgt`` and ``education`` (adult, False), ``duration`` (bank,
        True: it leaks the label), ``filtered`` (compas, False: ProPublica's 6,172 rows).

    Examples
    --------
    >>> table = load_dataset("adult")
    >>> len(table), int(table.y.sum()), table.attributes[0].groups
    (48842, 11687, ('Female', 'Male'))
    """
    entry = _entry(name)
    switches = _switches(entry, options)
    if task is not None and sensitive is not None:
        raise DataError("give task= or sensitive=, not both: a task names its own attributes")
    frame, total, source = read_official(entry, path, data_home, offline=offline, strict=verify)
    if switches.get("filtered"):
        frame = propublica_rows(frame)
    if task is None:
        task = _task(entry, sensitive, switches)
    table = table_from_frame(frame, task, name=entry.name, sha256=total)
    said = (source, *(f"option {key}={value}" for key, value in switches.items()))
    return replace(table, notes=(*said, *table.notes))


def _entry(name: str) -> Entry:
    if name not in CATALOG:
        raise DataError(unknown("data set", name, CATALOG))
    return CATALOG[name]


def _switches(entry: Entry, options: Mapping[str, bool]) -> dict[str, bool]:
    for key, value in options.items():
        if key not in entry.options:
            raise DataError(unknown(f"option of data set {entry.name}", key, entry.options))
        if not isinstance(value, bool):
            raise DataError(f"option {key}={value!r} of data set {entry.name}: give True or False")
    return dict(entry.options) | dict(options)


def _task(entry: Entry, sensitive: Sequence[str] | None, switches: Mapping[str, bool]) -> Task:
    names = [next(iter(entry.attributes))] if sensitive is None else list(sensitive)
    if isinstance(sensitive, str) or not names:
        raise DataError(f"sensitive={sensitive!r}: give a sequence of names, such as ('sex',)")
    for name in names:
        if name not in entry.attributes:
            kind = f"sensitive attribute of data set {entry.name}"
            raise DataError(unknown(kind, name, entry.attributes))
    return Task(
        label=entry.label,
        favourable=entry.favourable,
        sensitive=tuple(entry.attributes[name] for name in names),
        numeric=tuple(name for name in entry.numeric if switches.get(name, True)),
        categorical=tuple(name for name in entry.categorical if switches.get(name, True)),
    )


def verify(name: str | None = None, *, data_home: str | Path | None = None) -> list[Check]:
    """Compare the bundled and cached files with their sums.

    Without a name every file on this machine is compared; with one, a data set that was never
    fetched is reported as not found. Nothing is downloaded.

    Examples
    --------
    >>> [(check.file, check.ok) for check in verify("bank")]
    [('bank-full.csv', True)]
    """
    checks = []
    for entry in CATALOG.values() if name is None else (_entry(name),):
        if entry.bundled:
            for file in entry.files:
                found = hashlib.sha256(bundled_bytes(file)).hexdigest()
                checks.append(Check(file.name, file.sha256, found, found == file.sha256))
            continue
        folder = cache_folder(data_home) / entry.name
        cached = read_cache(entry, folder)
        if cached is not None:
            same = cached.sha256 == cached.expected
            checks.append(Check(f"{folder}/table.csv", cached.expected, cached.sha256, same))
        elif name is not None:
            checks.append(Check(entry.files[0].name, entry.files[0].sha256, None, False))
    return checks


def describe(
    name: str,
    path: str | Path | None = None,
    *,
    data_home: str | Path | None = None,
    offline: bool = False,
) -> dict[str, Any]:
    """Describe a data set: rows, base rates by group, licence, citation, traps.

    The counts are taken from the data, over every attribute the entry offers; like
    `load_dataset` it fetches what is neither bundled nor cached, unless `offline`.

    Examples
    --------
    >>> facts = describe("bank")
    >>> facts["rows"], facts["favourable"]["rows"], facts["attributes"]["age"]["other"]
    (45211, 5289, {'rows': 1997, 'favourable': 709, 'base_rate': 0.355})
    """
    entry = _entry(name)
    table = load_dataset(
        name, path, sensitive=tuple(entry.attributes), data_home=data_home, offline=offline
    )
    attributes: dict[str, dict[str, dict[str, float]]] = {}
    for column, attribute in enumerate(table.attributes):
        codes = table.groups[:, column]
        rows = np.bincount(codes, minlength=attribute.size).tolist()
        good = np.bincount(codes[table.y == 1], minlength=attribute.size).tolist()
        attributes[attribute.name] = {
            group: {"rows": n, "favourable": k, "base_rate": round(k / n, 3)}
            for group, n, k in zip(attribute.groups, rows, good, strict=True)
        }
    good_rows = int(table.y.sum())
    return {
        "name": entry.name,
        "title": entry.title,
        "rows": len(table),
        "label": entry.label,
        "favourable": {
            "value": entry.favourable,
            "rows": good_rows,
            "share": round(good_rows / len(table), 3),
        },
        "attributes": attributes,
        "options": dict(entry.options),
        "files": {file.name: file.sha256 for file in entry.files},
        "source": table.notes[0],
        "licence": entry.licence,
        "citation": entry.citation,
        "traps": list(entry.traps),
    }
