"""The Optuna study of a search: opened, compared with what is asked for, and dealt out."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from mfairfl.errors import ConfigError
from mfairfl.experiments.search.sampler import Sampler
from mfairfl.files import write_atomically

__all__ = ["next_trial", "open_study", "owner_of", "same_for_all"]

_WAIT = 60.0  # seconds a process waits while another one writes to the SQLite file
_OWNER = "owner"


def open_study(storage: str, name: str, seed: int) -> optuna.Study:
    """Create or load a study with the objectives accuracy (up) and violation (down)."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        url = sqlalchemy.engine.make_url(storage)
    except ArgumentError:
        # Not repeated: whatever it is, it may hold a password.
        raise ConfigError(
            "--storage: not the address of a database; write sqlite:///FILE or "
            "postgresql://USER@HOST/DATABASE"
        ) from None
    wait = {"connect_args": {"timeout": _WAIT}} if url.get_backend_name() == "sqlite" else {}
    try:
        study = optuna.create_study(
            storage=optuna.storages.RDBStorage(storage, engine_kwargs=wait),
            study_name=name,
            sampler=Sampler(seed),
            directions=["maximize", "minimize"],
            load_if_exists=True,
        )
    except (ImportError, SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        shown = url.render_as_string(hide_password=True)
        fix = "; install the driver, for PostgreSQL: pip install 'psycopg[binary]'"
        fix *= isinstance(error, ImportError)
        raise ConfigError(f"--storage {shown}: {_reason(error)}{fix}") from None
    if [one.name for one in study.directions] != ["MAXIMIZE", "MINIMIZE"]:
        raise ConfigError(f"study '{name}': is not one of mfairfl tune; give another --study")
    return study


def _reason(error: Exception) -> str:
    """Say in one line what the database's driver said in many."""
    deepest: BaseException = error
    while (cause := deepest.__cause__ or deepest.__context__) is not None:
        deepest = cause
    return " ".join(str(deepest).split())


def same_for_all(study: optuna.Study, about: str, settings: Mapping[str, Any]) -> None:
    """Write down what the study is about, or refuse to mix it with something else."""
    known = study.user_attrs.get(about)
    if known is None:
        study.set_user_attr(about, dict(settings))
        return
    for key in [*settings, *known]:
        if settings.get(key) != known.get(key):
            raise ConfigError(
                f"study '{study.study_name}': {key} is {known.get(key)} there and "
                f"{settings.get(key)} here; give another --study or --out"
            )


def owner_of(folder: Path) -> str:
    """Return the name under which a folder takes trials; it is made up at the first call.

    A folder is used by one process at a time. So trials that still run under its name when a
    process starts were interrupted, without a doubt and without waiting.
    """
    path = folder / "owner.txt"
    if not path.exists():
        write_atomically(path, uuid.uuid4().hex.encode() + b"\n")
    return path.read_text(encoding="ascii").strip()


def next_trial(study: optuna.Study, owner: str, wanted: int) -> optuna.Trial | None:
    """Return an interrupted trial of this owner, else a new one, or None if there are enough.

    Processes that ask at the same moment may make one trial more than wanted.
    """
    states = optuna.trial.TrialState
    taken = study.get_trials(deepcopy=False, states=(states.COMPLETE, states.RUNNING))
    for trial in taken:
        if trial.state == states.RUNNING and trial.user_attrs.get(_OWNER) == owner:
            return optuna.Trial(study, trial._trial_id)
    # Without an owner: its process was killed in between, or is about to write it down.
    if sum(t.state == states.COMPLETE or _OWNER in t.user_attrs for t in taken) >= wanted:
        return None
    new = study.ask()
    new.set_user_attr(_OWNER, owner)
    return new
