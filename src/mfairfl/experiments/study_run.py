"""`mfairfl.compare`: finished runs side by side, or a study carried out and tabulated."""

import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, overload

from mfairfl.errors import ConfigError
from mfairfl.experiments.side_by_side import Comparison, compare_runs
from mfairfl.experiments.study import Study, load_study, reference_trials, trials
from mfairfl.experiments.study_results import (
    FinishedStudy,
    PublishedFor,
    Sections,
    StudyResult,
    write_curves,
    write_table,
)
from mfairfl.files import write_atomically
from mfairfl.references import known_reference
from mfairfl.runs.execute import Run
from mfairfl.runs.reference_records import ReferenceRecord, ReferenceRequest
from mfairfl.runs.workers import PlannedRun, planned_runs, run_many


class StudyWatcher(Protocol):
    """Receives the progress of a list of runs."""

    def stage(self, what: str) -> None:
        """Learn what is being done while there are no rounds."""

    def begin(self, name: str, runs: Mapping[str, PlannedRun]) -> None:
        """Start a list of runs, by their folders."""

    def on_round(self, out: str, round_: int, rounds: int) -> None:
        """Record a completed round of a run."""


class Unwatched:
    """Ignores the progress of a list of runs."""

    def stage(self, what: str) -> None:
        """Ignore what is being done."""

    def begin(self, name: str, runs: Mapping[str, PlannedRun]) -> None:
        """Ignore the start of a list of runs."""

    def on_round(self, out: str, round_: int, rounds: int) -> None:
        """Ignore a completed round."""


@overload
def compare(  # type: ignore[overload-overlap]
    runs_or_study: str | Path | Mapping[str, Any] | Study,
    *,
    out: str | Path | None = None,
    seeds: int | None = None,
    watcher: StudyWatcher | None = None,
) -> StudyResult: ...


@overload
def compare(
    runs_or_study: Sequence[Run | str | Path], *, references: Sequence[str] = ()
) -> Comparison: ...


def compare(
    runs_or_study: str | Path | Mapping[str, Any] | Study | Sequence[Run | str | Path],
    *,
    out: str | Path | None = None,
    seeds: int | None = None,
    watcher: StudyWatcher | None = None,
    references: Sequence[str] = (),
) -> StudyResult | Comparison:
    """Compare finished runs with one another, or carry out a study of several methods.

    Parameters
    ----------
    runs_or_study : sequence of Run or path, or a path, mapping or Study
        Two or more finished runs, in memory or as run directories, measured on the same rows; or
        a study file (TOML), or its contents.
    out : path, optional
        For a study: folder of tables, figures and runs; by default ``runs/<name of the file>``.
        Finished runs in it are not repeated.
    seeds : int, optional
        For a study: number of seeds; overrides the file.
    watcher : StudyWatcher, optional
        For a study: receives its progress.
    references : sequence of str
        For runs: pooled references to fit on the same rows, ``boosting``, ``boosting-threshold``
        or ``logistic``. A study names its own.

    Returns
    -------
    Comparison
        For runs: `print` shows the side-by-side table, `plot` draws it.
    StudyResult
        For a study: `print` shows the main table; `runs` and `table` are frames.

    Examples
    --------
    What fairness cost, and whom:

    >>> import mfairfl
    >>> settings = {"heterogeneity": "high", "rounds": 10}
    >>> runs = [
    ...     mfairfl.train("adult", strategy=name, **settings) for name in ("fedavg", "mfairfl")
    ... ]  # doctest: +SKIP
    >>> both = mfairfl.compare(runs)  # doctest: +SKIP
    >>> print(both)  # doctest: +SKIP
    >>> both.plot("comparison.svg")  # doctest: +SKIP

    Methods over seeds, with tests of significance:

    >>> study = {"data": ["adult"], "splits": ["high"], "strategies": ["fedavg", "mfairfl"]}
    >>> print(mfairfl.compare(study, out="runs/study"))  # doctest: +SKIP
    """
    if isinstance(runs_or_study, Sequence) and not isinstance(runs_or_study, str):
        return compare_runs(runs_or_study, references=references)
    if references:
        raise ConfigError("references: only with runs; name a study's own in the study itself")
    is_file = isinstance(runs_or_study, str | Path)
    name = Path(str(runs_or_study)).stem if is_file else "study"
    study = runs_or_study if isinstance(runs_or_study, Study) else load_study(runs_or_study)
    if seeds is not None:
        study = study.model_copy(update={"seeds": tuple(range(seeds))})
    return run_study(name, study, Path(out or Path("runs") / name), watcher=watcher)


def run_study(
    name: str,
    study: Study,
    out: Path,
    *,
    watcher: StudyWatcher | None = None,
    published: PublishedFor = lambda _: {},
    sections: Sections = lambda *_: (),
) -> StudyResult:
    """Carry out a study and write its tables and figures into `out`, the runs below ``out/runs``.

    Runs and references that are already finished are not repeated; trials that ask for the same
    one share it.

    Parameters
    ----------
    published : callable
        Finds numbers of others that stand beside ours in the table.
    sections : callable
        Writes further paragraphs for the Markdown page.
    """
    started, folder = time.perf_counter(), out / "runs"
    work, pooled = trials(study), reference_trials(study)
    configs = {trial.directory(folder): trial.config for trial in work}
    runs = [(config, path) for path, config in configs.items()]
    fitted = {trial.directory(folder): trial for trial in pooled}
    fits = [
        ReferenceRequest(name=known_reference(trial.strategy), config=trial.config, out=path)
        for path, trial in fitted.items()
    ]
    watcher = watcher or Unwatched()
    watcher.begin(name, planned_runs(runs, fits))
    records = run_many(runs, fits, progress=watcher.on_round)
    watcher.stage("writing tables and figures")
    by_path = dict(zip(configs, records, strict=True))
    done = FinishedStudy(
        name=name,
        study=study,
        runs=[(trial, by_path[trial.directory(folder)]) for trial in work],
        references=[(trial, ReferenceRecord.read(trial.directory(folder))) for trial in pooled],
        folder=out,
    )
    if study.kind == "table":
        result = write_table(done, published, sections)
    else:
        result = write_curves(done)
    _write_costs(done, time.perf_counter() - started)
    return result


def _write_costs(done: FinishedStudy, seconds: float) -> None:
    """Write run times and the machine to made.json; times stay out of the tables."""
    path = done.folder / "made.json"
    made = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    taken = {
        record.identity: record.timing.train_seconds / record.timing.runs_at_once
        for _, record in done.runs
    }
    made[done.name] = {
        "runs": len(taken),
        "seeds": len(done.study.seeds),
        "protocols": list(done.study.protocols),
        "processor_minutes_of_all_runs": round(sum(taken.values()) / 60, 1),
        "minutes_of_this_call": round(seconds / 60, 1),
        "machine": {
            "processors": len(os.sched_getaffinity(0)),
            "architecture": platform.machine(),
            "system": platform.system(),
            "python": platform.python_version(),
            "torch": version("torch"),
        },
    }
    if fits := {record.identity: record.seconds for _, record in done.references}:
        minutes = round(sum(fits.values()) / 60, 1)
        made[done.name]["references"] = len(fits)
        made[done.name]["processor_minutes_of_all_references"] = minutes
    text = json.dumps(made, indent=2, sort_keys=True) + "\n"
    write_atomically(path, text.encode())
