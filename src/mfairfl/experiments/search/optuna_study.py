"""Search hyper-parameters by cross-validation inside the train rows, with Optuna.

Two objectives: mean accuracy up, mean violation down. A study lives in a database, so that it can
be stopped, resumed, and shared by several machines; each process has a folder of its own. What is
chosen in the end is the rule of `mfairfl.experiments.search.trials`.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

try:
    import optuna
except ImportError:
    raise ImportError("mfairfl.tune needs Optuna: pip install 'mfairfl[tune]'") from None
import sqlalchemy
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from mfairfl.errors import ConfigError, DataError
from mfairfl.experiments.search.space import (
    Choices,
    Range,
    Search,
    Space,
    default_metrics,
    default_space,
    own_values,
)
from mfairfl.experiments.search.trials import SearchResult, SearchTrial, choose
from mfairfl.files import write_atomically
from mfairfl.randomness import stream
from mfairfl.runs.config import Config, make_config
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.options import settings
from mfairfl.runs.record import RunRecord
from mfairfl.runs.workers import run_many
from mfairfl.strict_json import fingerprint

_WAIT = 60.0  # seconds a process waits while another one writes to the SQLite file
_OWNER = "owner"


class SearchWatcher(Protocol):
    """Receives the progress of a search."""

    def on_start(self, complete: int) -> None:
        """Record how many trials the study already has."""

    def on_round(self, share: float) -> None:
        """Record the share of the current trial that is done."""

    def on_trial(self, trial: SearchTrial, complete: int) -> None:
        """Record a complete trial, and how many there are in total."""


class _Unwatched:
    """Ignores the progress of a search."""

    def on_start(self, complete: int) -> None:
        """Ignore how many trials there are."""

    def on_round(self, share: float) -> None:
        """Ignore a part of a trial."""

    def on_trial(self, trial: SearchTrial, complete: int) -> None:
        """Ignore a complete trial."""


def tune(
    config: Config | str | Path | Mapping[str, Any],
    out: str | Path,
    *,
    space: Space | None = None,
    metrics: Sequence[str] | None = None,
    folds: int = 3,
    trials: int = 30,
    tolerance: float = 0.01,
    study: str = "mfairfl",
    storage: str | None = None,
    watcher: SearchWatcher | None = None,
) -> SearchResult:
    """Search hyper-parameters by cross-validation until `trials` are complete, and choose one.

    Test rows are not used. The first trial has the configuration's own values, where the space
    contains them. A search that was stopped is resumed by the same call, with the same trials as
    if it had not been stopped.

    Parameters
    ----------
    config : Config, path or mapping
        Settings of a run, as for `mfairfl train`: a TOML file, or its contents.
    out : path
        Folder of this process: the trials' runs, trials.csv, best.toml, figures, and the database
        unless `storage` names one.
    space : mapping of str to Choices or Range, optional
        What is searched, by dotted key; by default the learning rate and the strategy's grids.
    metrics : sequence of str, optional
        What must be small; by default the violations of the configured notions, or
        ``client_accuracy_std`` for methods that protect clients only.
    folds : int
        Number of parts of each client's train rows; each is held out once.
    trials : int
        Number of complete trials wanted in total.
    tolerance : float
        Violation that is acceptable, see `mfairfl.experiments.search.trials.choose`.
    study, storage : str
        Name of the study, and the SQLAlchemy address of its database; processes that give the same
        (and each its own `out`) share the work.
    watcher : SearchWatcher, optional
        Receives the progress of the search.

    Returns
    -------
    SearchResult
        With `config`, the configuration with the chosen values, and `trials`; `print` shows what
        was chosen, and why.

    Examples
    --------
    >>> import mfairfl
    >>> from mfairfl.experiments.search.space import Choices, Range
    >>> settings = {"data": {"name": "adult"}, "strategy": {"name": "mfairfl"}}
    >>> space = {"training.lr": Range(0.001, 0.01, log=True), "strategy.beta": Choices((0.4, 0.8))}
    >>> found = mfairfl.tune(settings, "runs/search", space=space)  # doctest: +SKIP
    >>> run = mfairfl.train(config="runs/search/best.toml")  # doctest: +SKIP
    """
    if not isinstance(config, Config):
        source = "configuration" if isinstance(config, Mapping) else str(config)
        config = make_config(settings(config, {}), source)
    search = Search(
        config=config,
        space=default_space(config.strategy.name) if space is None else space,
        metrics=default_metrics(config) if metrics is None else tuple(metrics),
        folds=folds,
    )
    folder = Path(out)
    with RunDirectory(folder).locked():
        address = storage or f"sqlite:///{(folder / 'study.db').resolve()}"
        opened = _open_study(address, study, config.seed)
        _same_for_all(opened, "search", search.settings())
        owner = _owner_of(folder)
        if not opened.get_trials(deepcopy=False):
            values = own_values(config, search.space)
            start = {key: _encoded(search.space[key], value) for key, value in values.items()}
            opened.enqueue_trial(start, skip_if_exists=True)
        watcher = watcher or _Unwatched()
        watcher.on_start(_complete(opened))
        while (trial := _next_trial(opened, owner, trials)) is not None:
            _carry_out(search, opened, trial, folder, watcher)
        result = _outcome(search, opened, tolerance)
        result.write(folder)
    return result


def _carry_out(
    search: Search,
    study: optuna.Study,
    trial: optuna.Trial,
    folder: Path,
    watcher: SearchWatcher,
) -> None:
    """Run a trial's folds side by side and report to the study; a stopped one is resumed."""
    values = {key: _suggested(trial, key, part) for key, part in search.space.items()}
    # By its values, not its number: the same values again are not trained again.
    name = fingerprint(values)[:12]
    try:
        runs = search.runs(values, folder / "trials" / name)
    except ConfigError:
        # Each value is valid by itself but not with the others: resuming it would not help.
        study.tell(trial, state=TrialState.FAIL)
        raise
    done: dict[str, float] = {}

    def progress(run: str, rounds: int, of: int) -> None:
        done[run] = rounds / max(of, 1)
        watcher.on_round(sum(done.values()) / len(runs))

    records = run_many(runs, progress=progress)
    _same_for_all(study, "data", {"data's sha256": records[0].data.sha256})
    folds = [_numbers(k, record, search.metrics) for k, record in enumerate(records)]
    place: dict[str, Any] = {"number": trial.number, "state": "complete", "values": values}
    measured = SearchTrial(**place, metrics=search.metrics, folds=tuple(folds))
    trial.set_user_attr("folds", folds)
    study.tell(trial, [measured.mean("accuracy"), measured.violation])
    watcher.on_trial(measured, _complete(study))


def _complete(study: optuna.Study) -> int:
    return len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)))


def _numbers(fold: int, record: RunRecord, metrics: Sequence[str]) -> dict[str, float | None]:
    """Return what one fold showed on the rows it was not trained on."""
    if record.metrics.test is None:
        raise DataError(f"fold {fold}: no client has rows to measure on; use fewer --folds")
    test = record.table("test")
    for name in metrics:
        if test[name].value is None:
            raise DataError(
                f"fold {fold}: {name} is undefined ({test[name].undefined}); use fewer --folds, "
                "another --metric, or merge groups"
            )
    return {
        "accuracy": test["accuracy"].value,
        "constant_accuracy": test.constant_classifier["accuracy"],
        **{name: test[name].value for name in metrics},
        **{f"floor_{name}": test[name].noise_floor for name in metrics},
    }


def _outcome(search: Search, study: optuna.Study, tolerance: float) -> SearchResult:
    tried = tuple(
        SearchTrial(
            number=trial.number,
            state=trial.state.name.lower(),
            values={key: _decoded(search.space[key], text) for key, text in trial.params.items()},
            metrics=search.metrics,
            folds=tuple(trial.user_attrs.get("folds", ())),
        )
        for trial in study.get_trials(deepcopy=False)
    )
    complete = [trial for trial in tried if trial.state == "complete"]
    choice = choose([t.scored(tolerance) for t in complete], tolerance)
    return SearchResult(
        search=search,
        trials=tried,
        pareto=tuple(sorted(trial.number for trial in study.best_trials)),
        best=complete[choice.index],
        reason=choice.reason,
        tolerance=tolerance,
    )


def _open_study(storage: str, name: str, seed: int) -> optuna.Study:
    """Create or load a study with the objectives accuracy (up) and violation (down)."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        url = sqlalchemy.engine.make_url(storage)
    except ArgumentError:
        # Not repeated: it may hold a password.
        raise ConfigError(
            "--storage: not a database URL; use sqlite:///FILE or postgresql://USER@HOST/DATABASE"
        ) from None
    wait: dict[str, Any] = {}
    if url.get_backend_name() == "sqlite":
        # Without a pool every connection is closed when it is done with.
        wait = {"connect_args": {"timeout": _WAIT}, "poolclass": sqlalchemy.pool.NullPool}
    try:
        study = optuna.create_study(
            storage=optuna.storages.RDBStorage(storage, engine_kwargs=wait),
            study_name=name,
            sampler=_Sampler(seed),
            directions=["maximize", "minimize"],
            load_if_exists=True,
        )
    except (ImportError, SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        shown = url.render_as_string(hide_password=True)
        fix = "; install the driver, for PostgreSQL: pip install 'psycopg[binary]'"
        fix *= isinstance(error, ImportError)
        raise ConfigError(f"--storage {shown}: {_reason(error)}{fix}") from None
    if [direction.name for direction in study.directions] != ["MAXIMIZE", "MINIMIZE"]:
        raise ConfigError(
            f"study '{name}': was not created by mfairfl tune; choose another --study"
        )
    return study


def _reason(error: Exception) -> str:
    """Return the cause of a database error in one line."""
    deepest: BaseException = error
    while (cause := deepest.__cause__ or deepest.__context__) is not None:
        deepest = cause
    return " ".join(str(deepest).split())


def _same_for_all(study: optuna.Study, about: str, settings: Mapping[str, Any]) -> None:
    """Store what the study is about, or refuse to mix it with another search."""
    stored = study.user_attrs.get(about)
    if stored is None:
        study.set_user_attr(about, dict(settings))
        return
    for key in [*settings, *stored]:
        if settings.get(key) != stored.get(key):
            raise ConfigError(
                f"study '{study.study_name}': {key} is {stored.get(key)} in the study and "
                f"{settings.get(key)} here; choose another --study or --out"
            )


def _owner_of(folder: Path) -> str:
    """Return the name under which a folder takes trials, drawn at the first call.

    A folder is used by one process at a time. So trials that still run under its name when a
    process starts were certainly interrupted.
    """
    path = folder / "owner.txt"
    if not path.exists():
        write_atomically(path, uuid.uuid4().hex.encode() + b"\n")
    return path.read_text(encoding="ascii").strip()


def _next_trial(study: optuna.Study, owner: str, wanted: int) -> optuna.Trial | None:
    """Return an interrupted trial of this owner, else a new one, or None if there are enough.

    Processes that ask at the same moment may make one trial more than wanted.
    """
    taken = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.RUNNING))
    for trial in taken:
        if trial.state == TrialState.RUNNING and trial.user_attrs.get(_OWNER) == owner:
            return optuna.Trial(study, trial._trial_id)
    # Without an owner: its process was killed in between, or is about to store its name.
    if sum(t.state == TrialState.COMPLETE or _OWNER in t.user_attrs for t in taken) >= wanted:
        return None
    new = study.ask()
    new.set_user_attr(_OWNER, owner)
    return new


class _Sampler(optuna.samplers.TPESampler):
    """Draws a trial's values given the finished trials.

    The random numbers are a function of the seed, the trial's number and the key. So a search that
    was stopped is resumed as if it had not been, and processes that share a study draw
    different values.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Draw the value of one key."""
        rng = stream(self._seed, "tune", trial.number, param_name)
        tpe = optuna.samplers.TPESampler(seed=int(rng.integers(2**31)))
        return tpe.sample_independent(study, trial, param_name, param_distribution)


def _suggested(trial: optuna.Trial, key: str, part: Choices | Range) -> Any:
    """Draw a trial's value for one key, or return what was drawn before."""
    if isinstance(part, Choices):
        texts = [_encoded(part, value) for value in part.values]
        return _decoded(part, trial.suggest_categorical(key, texts))
    if part.whole:
        return trial.suggest_int(key, int(part.low), int(part.high), log=part.log)
    return trial.suggest_float(key, part.low, part.high, log=part.log)


def _encoded(part: Choices | Range, value: Any) -> Any:
    """Return a value as it is stored: choices as JSON, for a database holds no lists.

    Examples
    --------
    >>> _encoded(Choices(([8], [8, 8])), [8]), _encoded(Range(0.1, 0.2), 0.1)
    ('[8]', 0.1)
    """
    if isinstance(part, Range):
        return value
    # As the space writes it: 1 and 1.0 are one value and two texts.
    return json.dumps(part.values[part.values.index(value)])


def _decoded(part: Choices | Range, stored: Any) -> Any:
    return stored if isinstance(part, Range) else json.loads(stored)
