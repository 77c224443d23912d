"""The paper's experiments: from the files in results/paper to tables, figures and claims."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mfairfl.errors import ConfigError
from mfairfl.experiments.frames import read_csv
from mfairfl.experiments.study import load_study
from mfairfl.experiments.study_results import StudyResult
from mfairfl.experiments.study_run import StudyWatcher, run_study
from mfairfl.files import write_atomically
from mfairfl.paper import PAPER, experiment_names
from mfairfl.paper.claims import write_claims, write_verdicts
from mfairfl.paper.published import PUBLISHED_TABLES, published_for


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
        changes["protocols"] = tuple(protocols)
    if lock is not None:
        changes["lock"] = str(lock)
    results = {}
    for name in names:
        study = load_study(studies_folder() / f"{name}.toml").model_copy(update=changes)
        published = partial(published_for, name) if name in PUBLISHED_TABLES else None
        results[name] = run_study(
            name, study, out, watcher=watcher, published=published, sections=write_verdicts
        )
    _write_claims(out)
    return results


def _write_claims(out: Path) -> None:
    """Write what held and what did not, from the tables that are there."""
    tables = {
        name: read_csv(out / f"{name}.csv")
        for name in PAPER
        if name.startswith("table") and (out / f"{name}.csv").exists()
    }
    if tables:
        write_atomically(out / "reproduction.md", write_claims(tables).encode())
