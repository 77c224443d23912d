"""`mfairfl.train`: from a data set, a file or rows in memory to a measured federated model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mfairfl.data import Federation, Table
from mfairfl.engine.loop import Callback
from mfairfl.runs.config import make_config
from mfairfl.runs.execute import Run, RunRequest, run_requests
from mfairfl.runs.options import settings
from mfairfl.runs.prepare import ModuleFactory

__all__ = ["train"]


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
