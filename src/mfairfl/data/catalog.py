"""Data sets by name: the published ones (`catalog.toml`) and those of others.

Adult and Bank are bundled, ACSIncome, COMPAS and German are fetched once. The source that was
used is the first of the table's notes.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import pandas as pd

from mfairfl.data import sources
from mfairfl.data.census import CensusDataset
from mfairfl.data.table import Table, table_from_frame
from mfairfl.data.task import Task
from mfairfl.data.values import Labels
from mfairfl.errors import ConfigError, DataError, require_known
from mfairfl.plugins import Registry


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set of one's own, for `load_dataset` or, once registered, wherever a name is taken.

    Parameters
    ----------
    name
        Letters, digits and ``. _ + -``.
    read
        Takes a path, or None where the user gave none, and returns a pandas, polars or pyarrow
        frame.
    task
        What the columns mean.
    title
        One line for `mfairfl data list`.

    Examples
    --------
    >>> people = pd.DataFrame({"x": range(6), "sex": list("fmfmfm"), "hired": [0, 1, 1, 0, 1, 0]})
    >>> task = Task(label="hired", favourable=1, sensitive=("sex",))
    >>> table = load_dataset(Dataset("people", lambda path: people, task))
    >>> len(table), table.name
    (6, 'people')
    """

    name: str
    read: Callable[[Path | None], Any]
    task: Task
    title: str = ""

    # What published data sets have and others do not.
    rows: ClassVar[None] = None
    bundled: ClassVar[None] = None
    licence: ClassVar[None] = None
    citation: ClassVar[str] = ""
    traps: ClassVar[tuple[str, ...]] = ()
    files: ClassVar[tuple[sources.OfficialFile, ...]] = ()
    options: ClassVar[Mapping[str, sources.OptionValue]] = MappingProxyType({})

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ConfigError(f"{self.name!r} is not a valid name of a data set: give a text")
        if not callable(self.read):
            raise ConfigError(f"data set '{self.name}': read= takes a function of a path")
        if not isinstance(self.task, Task):
            raise ConfigError(f"data set '{self.name}': task= takes a mfairfl.data.Task")


Entry = sources.PublishedDataset | CensusDataset | Dataset
"""What a name may stand for."""


def _published() -> dict[str, Entry]:
    """Read the catalogue: official files with their sums, or an address with a file per state."""
    text = (resources.files("mfairfl.data") / "catalog.toml").read_text(encoding="utf-8")
    return {
        name: (sources.PublishedDataset if "files" in facts else CensusDataset)(name=name, **facts)
        for name, facts in tomllib.loads(text).items()
    }


def _accept(thing: Any) -> Entry:
    if not isinstance(thing, Entry):
        raise ConfigError(
            f"a {type(thing).__name__} is not a data set: pass a name or a mfairfl.data.Dataset; "
            "for a frame use table_from_frame, for a file read_table"
        )
    return thing


DATASETS: Registry[Entry] = Registry("data set", "mfairfl.datasets", _published(), _accept)
"""Every data set that has a name."""


def _find(dataset: str | Dataset) -> Entry:
    return DATASETS.follow(dataset) if isinstance(dataset, str) else _accept(dataset)


def list_datasets() -> list[dict[str, Any]]:
    """List every data set in plain types, without reading it.

    `rows`, `bundled` and `licence` are None for one that was registered.

    Examples
    --------
    >>> [(facts["name"], facts["rows"], facts["bundled"]) for facts in list_datasets()][:3]
    [('acs-income', 1664500, False), ('adult', 48842, True), ('bank', 45211, True)]
    """
    datasets = {name: DATASETS.get(name) for name in DATASETS.names()}
    return [
        {
            "name": name,
            "title": dataset.title or name,
            "rows": dataset.rows,
            "sensitive": [s.name for s in dataset.task.sensitive],
            "bundled": dataset.bundled,
            "licence": dataset.licence,
        }
        for name, dataset in datasets.items()
    ]


def load_dataset(
    dataset: str | Dataset,
    path: str | Path | None = None,
    *,
    sensitive: Sequence[str] | None = None,
    task: Task | None = None,
    data_home: str | Path | None = None,
    offline: bool = False,
    verify: bool = True,
    **options: bool | int | str | Sequence[str],
) -> Table:
    """Load a data set by name, or one of your own.

    Parameters
    ----------
    dataset
        ``acs-income``, ``adult``, ``bank``, ``compas``, ``german``, a registered name,
        ``package.module:Name``, or a `Dataset`.
    path
        A raw file of your own (for Adult the folder of both files; for ACSIncome a Parquet, CSV
        or zip file, or a folder of the Bureau's files) instead of the bundled or fetched one; a
        `Dataset` gets it as the argument of its `read`.
    sensitive
        Names of sensitive attributes (acs-income: sex, race, race2; adult: sex, age, race; bank:
        age, age3, marital; compas: sex, race, race6, age_cat; german: sex, age). Default: the
        first, for a `Dataset` all of its task.
    task
        A task of your own on the same columns, in place of the data set's.
    data_home
        Folder of the cache; also the environment variable ``MFAIRFL_DATA_HOME``.
    offline
        Never open a connection: what is neither bundled, cached nor installed is an error.
    verify
        False accepts a file at `path` whose sha256 is not the official one; a note says so.
    **options
        ``year`` and ``states`` (acs-income, 2018 and all states with Puerto Rico), ``fnlwgt`` and
        ``education`` (adult, False), ``duration`` (bank, True: it leaks the label), ``filtered``
        (compas, False: ProPublica's 6,172 rows).

    Examples
    --------
    >>> table = load_dataset("adult")
    >>> len(table), int(table.y.sum()), table.attributes[0].groups
    (48842, 11687, ('Female', 'Male'))
    """
    entry = _find(dataset)
    used = _options(entry, options)
    if task is not None and sensitive is not None:
        raise DataError("give task= or sensitive=, not both: a task names its own attributes")
    entry.task.select(sensitive)  # an unknown name is refused before anything is fetched
    file = None if path is None else Path(path)
    if isinstance(entry, Dataset):
        source = f"read by data set {entry.name}" + ("" if path is None else f" from {path}")
        raw = sources.RowsRead(entry.read(file), None, (source,), entry.task)
    else:
        raw = entry.read(
            file,
            folder=sources.cache_folder(data_home) / entry.name,
            offline=offline,
            strict=verify,
            options=used,
            chosen=options.keys(),
        )
    frame = _propublica_rows(raw.frame) if used.get("filtered") else raw.frame
    chosen = task or _task(entry, raw.task, sensitive, used)
    table = table_from_frame(frame, chosen, name=entry.name, sha256=raw.sha256)
    return replace(table, notes=(*raw.notes, *table.notes))


def _options(dataset: Entry, chosen: Mapping[str, object]) -> dict[str, sources.OptionValue]:
    """Return every option of a data set: its defaults, and the values chosen in their place."""
    where, defaults = f"data set {dataset.name}", dict(dataset.options)
    if chosen and not defaults:
        raise DataError(f"{where} takes no option '{next(iter(chosen))}': remove it")
    require_known(f"option of {where}", chosen, defaults, DataError)
    return defaults | {
        key: _option(f"option {key}={value!r} of {where}", value, defaults[key])
        for key, value in chosen.items()
    }


def _option(where: str, value: object, default: sources.OptionValue) -> sources.OptionValue:
    """Return a value of the default's kind; names may be one text with commas."""
    if isinstance(default, tuple):
        names = value.split(",") if isinstance(value, str) else value
        if isinstance(names, Sequence) and names and all(isinstance(name, str) for name in names):
            return tuple(name.strip() for name in names)
        raise DataError(f"{where}: give names, such as {', '.join(default[:2])}")
    kind = type(default)
    if isinstance(value, bool | int) and type(value) is kind:
        return value
    wanted = "True or False" if kind is bool else f"a whole number, such as {default}"
    raise DataError(f"{where}: give {wanted}")


def _task(
    dataset: Entry,
    task: Task,
    sensitive: Sequence[str] | None,
    options: Mapping[str, sources.OptionValue],
) -> Task:
    """Keep the chosen attributes, by default the first, and the features that no option drops."""
    if isinstance(dataset, Dataset):
        return task.select(sensitive)
    task = task.select((task.sensitive[0].name,) if sensitive is None else sensitive)
    used = {
        role: tuple(c for c in columns if options.get(c, True))
        for role, columns in (("numeric", task.numeric), ("categorical", task.categorical))
        if columns is not None
    }
    return task.model_copy(update=used)


def _propublica_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows of ProPublica's analysis: screened within 30 days of the arrest."""
    days = pd.to_numeric(frame["days_b_screening_arrest"], errors="coerce")
    keep = (
        days.between(-30, 30)
        & (frame["is_recid"] != "-1")
        & (frame["c_charge_degree"] != "O")
        & (frame["score_text"] != "N/A")
    )
    return frame[keep].reset_index(drop=True)


def verify(name: str | None = None, *, data_home: str | Path | None = None) -> list[sources.Check]:
    """Compare the bundled and cached files of published data sets with their sums.

    Without a name every file on this machine is compared; with one, a data set that was never
    fetched is reported as not found. Nothing is downloaded.

    Examples
    --------
    >>> [(check.file, check.ok) for check in verify("bank")]
    [('bank-full.csv', True)]
    """
    checks: list[sources.Check] = []
    names = filter(DATASETS.is_builtin, DATASETS.names()) if name is None else (name,)
    for dataset in map(DATASETS.get, names):
        if isinstance(dataset, Dataset):
            raise DataError(f"data set '{name}' is not a published one: no sha256 to compare")
        compared = dataset.checks(sources.cache_folder(data_home) / dataset.name)
        checks += [check for check in compared if name is not None or check.found is not None]
    return checks


def _base_rate(y: Labels) -> dict[str, float | None]:
    rate = round(float(y.mean()), 3) if len(y) else None
    return {"rows": len(y), "favourable": int(y.sum()), "base_rate": rate}


def describe(
    dataset: str | Dataset,
    path: str | Path | None = None,
    *,
    data_home: str | Path | None = None,
    offline: bool = False,
    **options: bool | int | str | Sequence[str],
) -> dict[str, Any]:
    """Describe a data set: rows, base rates by group, licence, citation, traps.

    The counts are taken from the data, over every attribute on offer; like `load_dataset` it
    takes options, and fetches what is neither bundled nor cached, unless `offline`. Files,
    licence, citation and traps are empty for a data set that is not a published one.

    Examples
    --------
    >>> facts = describe("bank")
    >>> facts["rows"], facts["favourable"]["rows"], facts["attributes"]["age"]["other"]
    (45211, 5289, {'rows': 1997, 'favourable': 709, 'base_rate': 0.355})
    """
    entry = _find(dataset)
    names = tuple(s.name for s in entry.task.sensitive)
    chosen: dict[str, Any] = {"data_home": data_home, "offline": offline, **options}
    table = load_dataset(dataset, path, sensitive=names, **chosen)
    attributes = {}
    for codes, attribute in zip(table.groups.T, table.attributes, strict=True):
        labels = {group: table.y[codes == code] for code, group in enumerate(attribute.groups)}
        attributes[attribute.name] = {group: _base_rate(y) for group, y in labels.items()}
    whole = _base_rate(table.y)
    return {
        "name": entry.name,
        "title": entry.title or entry.name,
        "rows": len(table),
        "label": table.task.label,
        "favourable": {
            "value": table.task.favourable,
            "rows": whole["favourable"],
            "share": whole["base_rate"],
        },
        "attributes": attributes,
        "options": _options(entry, options),
        "files": {file.name: file.sha256 for file in entry.files},
        "source": table.notes[0],
        "licence": entry.licence or "",
        "citation": entry.citation,
        "traps": list(entry.traps),
    }
