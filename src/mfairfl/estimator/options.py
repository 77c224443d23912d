"""What the parameters of an estimator mean as options of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from mfairfl.errors import ConfigError, unknown
from mfairfl.runs.options import OPTIONS, dotted

_SAME = (
    *("notion", "tolerance", "output_rule", "weights"),
    *("hidden", "rounds", "local_epochs", "batch_size", "lr", "weight_decay"),
)
_TAKEN = {
    **{OPTIONS[name].key: f"the parameter {name}" for name in ("strategy", "alpha", *_SAME)},
    "seed": "the parameter random_state",
    "model.kind": "the parameter model",
    "task": "what fit is given",
    "data": "what fit is given",
}


def run_options(
    parameters: Mapping[str, Any], *, grouped: bool, one_client: bool
) -> dict[str, Any]:
    """Return the keywords of `mfairfl.train`.

    No rows are held out, and all rows are one client's if no others are named; `config` may say
    otherwise.

    Parameters
    ----------
    parameters : mapping
        The estimator's.
    grouped : bool
        Whether there are groups to be fair to: what the strategy ``auto`` depends on.
    one_client : bool
        Whether nobody says which rows are whose.

    Examples
    --------
    >>> from mfairfl import FairFederatedClassifier
    >>> given = FairFederatedClassifier(rounds=3, config={"strategy": {"beta": 0.6}}).get_params()
    >>> found = run_options(given, grouped=True, one_client=False)
    >>> found["strategy"], found["rounds"], found["strategy.beta"], found["clients.test"]
    ('mfairfl', 3, 0.6, 0.0)
    """
    strategy = parameters["strategy"]
    if isinstance(strategy, str) and strategy == "auto":
        strategy = "mfairfl" if grouped else "fedavg"
    return {
        **{name: parameters[name] for name in _SAME},
        "strategy": strategy,
        "fairness.alpha": parameters["alpha"],
        "model": parameters["model"],
        "clients.test": 0.0,
        **({"clients.count": 1} if one_client else {}),
        **_others(parameters["config"]),
    }


def _others(config: Any) -> dict[str, Any]:
    """Return the options of `config` by their dotted keys, unless they are said elsewhere."""
    if not isinstance(config, Mapping | None):
        raise ConfigError(f"config: pass a mapping of keys to values, not {config!r}")
    found = {}
    for name, value in dotted(config or {}).items():
        key = OPTIONS[name].key if name in OPTIONS else name
        if "." not in name and name not in OPTIONS:
            raise ConfigError("config: " + unknown("key", name, OPTIONS))
        where = _TAKEN.get(key) or _TAKEN.get(key.partition(".")[0])
        if where is not None:
            raise ConfigError(f"config: '{name}' is {where}: leave it out")
        found[key] = value
    return found


def seed_of(random_state: int | np.random.RandomState | None) -> int:
    """Return the seed that scikit-learn's `random_state` stands for.

    Examples
    --------
    >>> seed_of(7), seed_of(np.random.RandomState(0)) == seed_of(np.random.RandomState(0))
    (7, True)
    """
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
