"""Search hyper-parameters by cross-validation inside the train rows, with Optuna.

Two objectives: mean accuracy up, mean violation down. A study lives in a database, so that it can
be stopped, taken up again, and shared by several machines; each process has a folder of its own.
What is chosen in the end is the rule of `mfairfl.experiments.search.choice`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import optuna

from mfairfl.errors import ConfigError, DataError
from mfairfl.experiments.search.choice import choose
from mfairfl.experiments.search.sampler import decoded, encoded, suggested
from mfairfl.experiments.search.space import own_values
from mfairfl.experiments.search.tuning_study import next_trial, open_study, owner_of, same_for_all
from mfairfl.experiments.search.tuning_trials import Search, SearchResult, Tried
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.workers import run_many

__all__ = ["SearchWatcher", "tune"]


class SearchWatcher(Protocol):
    """Is told how a search goes on."""

    def on_start(self, complete: int) -> None:
        """Take note of how many trials the study has already."""

    def on_round(self, share: float) -> None:
        """Take note of the share of the present trial that is done."""

    def on_trial(self, trial: Tried, complete: int) -> None:
        """Take note of a trial that is complete, and of how many there are in all."""


def tune(
    search: Search,
    out: str | Path,
    *,
    trials: int = 30,
    study: str = "mfairfl",
    storage: str | None = None,
    tolerance: float = 0.01,
    watcher: SearchWatcher | None = None,
) -> SearchResult:
    """Search until the study has `trials` complete trials, and choose one.

    The first trial has the configuration's own values, where the space holds them. The same call
    again goes on where it was stopped, with the same trials as if it had not been.

    Parameters
    ----------
    out : path
        Folder of this process: the trials' runs, and the database unless `storage` names one.
    study, storage : str
        Name of the study, and the SQLAlchemy address of its database; processes that give the same
        (and each its own `out`) share the work.
    tolerance : float
        Violation that is small enough, see `choose`.

    Examples
    --------
    >>> from mfairfl.runs.config import make_config
    >>> from mfairfl.experiments.search.space import default_space
    >>> from mfairfl.experiments.search.tuning_trials import default_metrics
    >>> config = make_config({"data": {"name": "adult"}})
    >>> search = Search(
    ...     config=config, space=default_space("mfairfl"), metrics=default_metrics(config)
    ... )
    >>> tune(search, "runs/search", trials=30).config.strategy  # doctest: +SKIP
    """
    folder = Path(out)
    with RunDirectory(folder).locked():
        address = storage or f"sqlite:///{(folder / 'study.db').resolve()}"
        opened = open_study(address, study, search.config.seed)
        same_for_all(opened, "search", search.settings())
        owner = owner_of(folder)
        if not opened.get_trials(deepcopy=False):
            own = own_values(search.config, search.space)
            start = {key: encoded(search.space[key], value) for key, value in own.items()}
            opened.enqueue_trial(start, skip_if_exists=True)
        if watcher is not None:
            watcher.on_start(_complete(opened))
        while (trial := next_trial(opened, owner, trials)) is not None:
            _carry_out(search, opened, trial, folder, watcher)
        return _outcome(search, opened, tolerance)


def _carry_out(
    search: Search,
    study: optuna.Study,
    trial: optuna.Trial,
    folder: Path,
    watcher: SearchWatcher | None,
) -> None:
    """Run a trial's folds at once and tell the study. What stops it is taken up next time."""
    values = {key: suggested(trial, key, part) for key, part in search.space.items()}
    # By its values, not its number: the same values again are not trained again.
    name = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]
    try:
        runs = search.runs(values, folder / "trials" / name)
    except ConfigError:
        # Each value is fine by itself but not with the others: no use to take it up again.
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        raise
    done: dict[str, float] = {}

    def progress(run: str, rounds: int, of: int) -> None:
        done[run] = rounds / max(of, 1)
        if watcher is not None:
            watcher.on_round(sum(done.values()) / len(runs))

    records = run_many(runs, progress=progress)
    same_for_all(study, "data", {"data's sha256": records[0]["data"]["sha256"]})
    folds = [_numbers(k, record, search.metrics) for k, record in enumerate(records)]
    tried = Tried(number=trial.number, state="complete", values=values, folds=tuple(folds))
    trial.set_user_attr("folds", folds)
    study.tell(trial, [tried.mean("accuracy"), tried.violation(search.metrics)])
    if watcher is not None:
        watcher.on_trial(tried, _complete(study))


def _complete(study: optuna.Study) -> int:
    return len(study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,)))


def _numbers(
    fold: int, record: Mapping[str, Any], metrics: Sequence[str]
) -> dict[str, float | None]:
    """Return what one fold showed on the rows it was not trained on."""
    measured = record["metrics"]["test"]
    if measured is None:
        raise DataError(f"fold {fold}: no client has rows to measure on; give fewer --folds")
    for name in metrics:
        if measured[name] is None:
            reason = measured["undefined"].get(name, "too few rows")
            raise DataError(
                f"fold {fold}: {name} is undefined ({reason}); give fewer --folds, another "
                "--metric, or merge groups"
            )
    floors, constant = record["noise_floor"]["test"], record["constant_classifier"]["test"]
    return {
        "accuracy": measured["accuracy"],
        "constant_accuracy": constant["accuracy"],
        **{name: measured[name] for name in metrics},
        **{f"floor_{name}": floors[name] for name in metrics},
    }


def _outcome(search: Search, study: optuna.Study, tolerance: float) -> SearchResult:
    tried = tuple(_tried(search, trial) for trial in study.get_trials(deepcopy=False))
    complete = [trial for trial in tried if trial.state == "complete"]
    choice = choose([t.scored(search.metrics, tolerance) for t in complete], tolerance)
    return SearchResult(
        search=search,
        trials=tried,
        pareto=tuple(sorted(trial.number for trial in study.best_trials)),
        best=complete[choice.index],
        reason=choice.reason,
        tolerance=tolerance,
    )


def _tried(search: Search, trial: optuna.trial.FrozenTrial) -> Tried:
    return Tried(
        number=trial.number,
        state=trial.state.name.lower(),
        values={key: decoded(search.space[key], text) for key, text in trial.params.items()},
        folds=tuple(trial.user_attrs.get("folds", ())),
    )
