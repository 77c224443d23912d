"""The paper's experiments: from the files in results/paper to tables, figures and claims.

The numbers that the paper printed (`published.toml`) stand beside ours.
"""

import re
import tomllib
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from mfairfl.errors import ConfigError
from mfairfl.experiments.study import load_study
from mfairfl.experiments.study_results import StudyResult, read_csv
from mfairfl.experiments.study_run import StudyWatcher, run_study
from mfairfl.experiments.study_tables import TableLayout
from mfairfl.experiments.tabulate import Published
from mfairfl.files import write_atomically
from mfairfl.paper import experiment_names
from mfairfl.paper.claims import write_claims, write_verdicts

_DATA = ("adult", "compas", "bank")
_VIOLATIONS = tuple(
    f"{notion}_violation" for notion in ("demographic_parity", "equalized_odds", "accuracy_parity")
)
# A metric, and 1 or 2 for the attributes S1 or S2 where violations are printed for each.
_ACCURACY, _CLIENTS = ("accuracy", 0), ("client_accuracy_std", 0)
_BY_NOTION = (_ACCURACY, *product(_VIOLATIONS, (0,)), _CLIENTS)
_COLUMNS = {
    "table-1": _BY_NOTION,
    "table-2": (_ACCURACY, _CLIENTS),
    "table-3": _BY_NOTION,
    "table-s2": _BY_NOTION,
    "table-s3": (_ACCURACY, *product(_VIOLATIONS, (1, 2)), _CLIENTS),
}


def studies_folder() -> Path:
    """Return the folder of the paper's study files."""
    packed = Path(__file__).parent / "experiments"
    return packed if packed.is_dir() else Path(__file__).parents[3] / "results" / "paper"


def reproduce(
    names: Sequence[str],
    out: Path,
    *,
    seeds: int | None = None,
    protocols: Sequence[str] | None = None,
    lock: Path | None = None,
    watcher: StudyWatcher | None = None,
) -> dict[str, StudyResult]:
    """Reproduce tables and figures of the paper, with our numbers beside the published ones.

    Everything is written into `out`, the runs below ``out/runs``. Finished runs are not repeated,
    and whatever the interruptions, the tables have the same bytes.

    Parameters
    ----------
    names : sequence of str
        Some of `mfairfl.paper.PAPER`, or "all".
    seeds : int, optional
        Number of seeds; overrides the files.
    protocols : sequence of str, optional
        Budgets, "rounds x local epochs"; by default those of the files.
    lock : Path, optional
        Hyper-parameters, instead of the lock file beside the study files.

    Examples
    --------
    >>> reproduce(["table-1"], Path("reproduction"), seeds=1, protocols=["10x20"])  \
# doctest: +SKIP
    """
    names = experiment_names(names)
    changes: dict[str, Any] = {}
    if seeds is not None:
        changes["seeds"] = tuple(range(seeds))
    for protocol in protocols or ():
        if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", protocol):
            raise ConfigError(f"protocol '{protocol}': give rounds x local epochs, such as 10x20")
    if protocols is not None:
        changes["protocols"] = tuple(dict.fromkeys(protocols))
    if lock is not None:
        changes["lock"] = str(lock)
    results = {}
    for name in names:
        study = load_study(studies_folder() / f"{name}.toml").model_copy(update=changes)
        published = partial(published_for, name)
        results[name] = run_study(
            name, study, out, watcher=watcher, published=published, sections=write_verdicts
        )
    files = {name: out / f"{name}.csv" for name in _COLUMNS}
    tables = {name: read_csv(file) for name, file in files.items() if file.exists()}
    if tables:
        write_atomically(out / "reproduction.md", write_claims(tables).encode())
    return results


def published_for(table: str, layout: TableLayout) -> Published:
    """Return the numbers of a table of the paper by the names of ours; cenfair is its CenFL.

    The first split of the layout is the paper's. What is not a table has no numbers.

    Examples
    --------
    >>> layout = TableLayout(
    ...     name="table-1", title="Table 1", strategies=("mfairfl",), data=("adult",),
    ...     notions=("demographic_parity",), splits=("high",), protocols=("10x20",),
    ... )
    >>> published_for("table-1", layout)["adult", "high", "mfairfl", "accuracy", ""]
    0.792
    """
    file = Path(__file__).with_name("published.toml")
    printed = tomllib.loads(file.read_text(encoding="utf-8")).get(table, "")
    published = {}
    for line in printed.strip().splitlines():
        strategy, *cells = line.split()
        places = product(_DATA, _COLUMNS[table])
        for (data, (metric, number)), cell in zip(places, cells, strict=True):
            attributes = ("", *layout.named_attributes(data))
            if cell not in ("-", "?") and number < len(attributes):
                place = (data, layout.splits[0], strategy, metric, attributes[number])
                published[place] = float(cell)
    return published
