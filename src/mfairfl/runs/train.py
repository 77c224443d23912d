"""`mfairfl.train`: from a data set, a file or rows in memory to a measured federated model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mfairfl.data import Federation, Table
from mfairfl.engine.loop import Callback
from mfairfl.errors import ConfigError, unknown
from mfairfl.files import load_toml
from mfairfl.runs.config import make_config
from mfairfl.runs.execute import Run, RunRequest, run_requests
from mfairfl.runs.prepare import ModuleFactory

__all__ = ["OPTIONS", "nested", "settings", "train"]

OPTIONS: dict[str, str] = {
    "data": "data.name",
    "csv": "data.csv",
    "heterogeneity": "clients.scheme",
    "clients": "clients.count",
    "strategy": "strategy.name",
    "notion": "fairness.notion",
    "sensitive": "data.sensitive",
    "alpha": "fairness.alpha",
    "tolerance": "output.tolerance",
    "output_rule": "output.rule",
    "hidden": "model.hidden",
    "rounds": "training.rounds",
    "local_epochs": "training.local_epochs",
    "batch_size": "training.batch_size",
    "lr": "training.lr",
    "weight_decay": "training.weight_decay",
    "weights": "strategy.weights",
    "seed": "seed",
}
"""Short names of the command line and of `train`, and the configuration keys they set."""


def nested(options: Mapping[str, Any], base: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a nested configuration in which dotted keys of `options` win over `base`.

    Examples
    --------
    >>> nested({"training.rounds": 3}, {"training": {"rounds": 40, "lr": 0.1}})
    {'training': {'rounds': 3, 'lr': 0.1}}
    """
    result: dict[str, Any] = {
        key: dict(value) if isinstance(value, Mapping) else value
        for key, value in (base or {}).items()
    }
    for dotted, value in options.items():
        *path, last = dotted.split(".")
        level = result
        for part in path:
            inner = level.get(part, {})
            if not isinstance(inner, Mapping):
                raise ConfigError(f"{dotted}: '{part}' is a single value, not a section")
            level[part] = dict(inner)
            level = level[part]
        level[last] = value
    return result


def train(
    data: str | Table | Federation | None = None,
    *,
    config: str | Path | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    model: ModuleFactory | None = None,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> Run:
    """Train a federated model and measure it.

    Parameters
    ----------
    data : str, Table or Federation, optional
        A data set of the catalogue, rows of your own (`read_table`, `table_from_frame`), or
        clients that are already partitioned.
    config : path or mapping, optional
        A TOML file, or its contents; `options` win over it.
    out : path, optional
        Run directory. If it holds an interrupted run of the same configuration, that run goes on;
        if it holds a finished one, that one is returned.
    model : callable, optional
        `model(inputs) -> torch.nn.Module` with one logit, instead of the built-in models.
    callbacks : sequence of Callback
        Watchers, for example a progress display.
    **options
        The command line's flags with underscores (`rounds=10`, `heterogeneity="high"`, …), or any
        dotted key (`**{"strategy.beta": 0.6}`).

    Returns
    -------
    Run
        With `metrics`, `record` and `predictor`.

    Examples
    --------
    >>> import mfairfl
    >>> run = mfairfl.train("german", strategy="constant", rounds=0)  # doctest: +SKIP
    """
    named = {"data": data} if isinstance(data, str) else {}
    request = RunRequest(
        config=make_config(settings(config, options | named), _source(config)),
        out=None if out is None else Path(out),
        rows=None if isinstance(data, str) else data,
        module=model,
        callbacks=tuple(callbacks),
    )
    return run_requests([request])[0]


def _source(config: str | Path | Mapping[str, Any] | None) -> str:
    return str(config) if isinstance(config, str | Path) else "configuration"


def settings(
    config: str | Path | Mapping[str, Any] | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Lay options (short or dotted names) over a TOML file or mapping.

    Paths of the data in a TOML file are relative to that file's folder.
    """
    base = _anchored(Path(config)) if isinstance(config, str | Path) else config
    for key in options:
        if key not in OPTIONS and "." not in key:
            raise ConfigError(unknown("option", key, OPTIONS))
    try:
        return nested({OPTIONS.get(key, key): value for key, value in options.items()}, base)
    except ConfigError as error:
        raise ConfigError(f"{_source(config)}: {error}") from None


def _anchored(path: Path) -> dict[str, Any]:
    values = load_toml(path)
    data = values.get("data")
    if isinstance(data, dict):
        for key in ("csv", "path"):
            if isinstance(data.get(key), str):
                data[key] = str(path.parent / data[key])
    return values
