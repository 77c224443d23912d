"""`mfairfl.train`: from a data set, a file or rows in memory to a measured federated model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from mfairfl.data import DATASETS, Dataset, Federation, Table, table_from_frame
from mfairfl.data.table import task_from_roles
from mfairfl.engine.loop import Callback
from mfairfl.engine.output import Rule
from mfairfl.errors import ConfigError
from mfairfl.fairness.fitting import By, Objective
from mfairfl.fairness.notions import Notion, register_notion
from mfairfl.plugins import ModuleFactory, is_import_string
from mfairfl.runs.config import make_config
from mfairfl.runs.execute import Run, RunRequest, run_requests, with_baseline
from mfairfl.runs.options import OPTIONS, settings
from mfairfl.runs.silo_runs import run_under_policy
from mfairfl.silo.policy import Policy, read_policy
from mfairfl.strategies.base import Strategy
from mfairfl.strategies.registry import spelled

_KINDS: dict[str, tuple[Any, str]] = {
    "label": (str, "a column's name"),
    "client": (str, "a column's name"),
    "sensitive": (str | Sequence, "one or several columns' names"),
    "config": (str | Path | Mapping, "a TOML file or a mapping"),
    "out": (str | Path, "a folder"),
    "policy": (str | Path | Policy, "a policy.toml"),
    "callbacks": (Sequence, "a list of objects with on_start and on_round"),
}
"""What keywords must be, and what else to pass in words."""


def train(
    data: str | Table | Federation | Dataset | Any = None,
    *,
    label: str | None = None,
    favourable: str | float | bool | None = None,
    sensitive: str | Sequence[str] | None = None,
    client: str | None = None,
    csv: str | Path | None = None,
    heterogeneity: str | None = None,
    clients: int | None = None,
    concentration: float | None = None,
    strategy: str | Strategy | None = None,
    notion: str | Notion | Sequence[str | Notion] | None = None,
    tolerance: float | None = None,
    blind: bool | None = None,
    output_rule: Rule | None = None,
    by: By | None = None,
    local_tolerance: float | Literal["none"] | None = None,
    maximise: Objective | None = None,
    randomise: bool | None = None,
    relax: bool | None = None,
    weights: Literal["size", "uniform"] | None = None,
    model: str | ModuleFactory | None = None,
    hidden: Sequence[int] | None = None,
    rounds: int | None = None,
    local_epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    weight_decay: float | None = None,
    seed: int | None = None,
    config: str | Path | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    workers: int | None = None,
    policy: str | Path | Policy | None = None,
    baseline: bool | None = None,
    **more: Any,
) -> Run:
    """Train a federated model and measure it.

    Parameters
    ----------
    data : str, frame, Table, Federation or Dataset, optional
        A data set by name, a pandas or polars frame (with `label`, `favourable`, `sensitive` and
        perhaps `client`), rows with a task (`read_table`, `table_from_frame`), or clients that are
        already partitioned.
    label, favourable, sensitive, client
        Columns of a frame or of `csv`: what is predicted, its desirable value (detected if omitted
        where the label is 0/1 or False/True), the sensitive attributes, and each row's client. Of
        a named data set, `sensitive` chooses among its attributes.
    csv : path, optional
        A file of your own: CSV, Excel, JSON or Parquet; with ``header=False`` if its first line is
        data, and ``sheet="…"`` if it has several sheets.
    heterogeneity, clients, concentration
        How rows are split among simulated clients, their number, and the parameter of
        ``heterogeneity="dirichlet"``, 0.5 by default: the smaller, the less alike they are.
    strategy : str or Strategy, optional
        A name of `mfairfl.strategies.available()`, ``package.module:Name``, or a strategy object.
    notion : str, Notion, or several, optional
        What is to be equal: dp, eo, eopp, ap, ``package.module:Name``, or notions of your own.
    tolerance : float, optional
        Largest violation that is acceptable. Training and the output rule aim below it, by a
        margin for the number of rows; the report says whether it is met.
    blind : bool, optional
        Sensitive columns are measured, and neither the model nor the output rule sees them.
    output_rule : str, optional
        Which model is served: last, average, select, mixture or thresholds.
    by, local_tolerance, maximise, randomise, relax
        Of the rule ``thresholds``: whose thresholds may differ (none, group, client, both), the
        largest violation at each client, the objective, whether people may be decided by chance,
        and whether bounds that cannot be met are enlarged; see `mfairfl.fairness.Demand`.
    weights : {"size", "uniform"}, optional
        How clients count.
    model : str or callable, optional
        `model(inputs) -> torch.nn.Module` with one logit, or its name or import string.
    hidden : sequence of int, optional
        Widths of the hidden layers of the built-in model.
    rounds, local_epochs, batch_size, lr, weight_decay, seed
        Budget and recipe.
    config : path or mapping, optional
        A TOML file, or its contents; keywords override it.
    out : path, optional
        Run directory. If it holds an interrupted run of the same configuration, that run goes on;
        if it holds a finished one, that one is returned.
    callbacks : sequence of Callback
        Called after every completed round, for example a progress display.
    workers : int, optional
        Threads that the clients are spread over; one for each processor by default. The result
        has the same bits for any number.
    policy : path or Policy, optional
        A silo's policy.toml: clients then disclose what it allows and no more. The run has the
        bytes of a deployment whose silos all have it. By default nothing is withheld.
    baseline : bool, optional
        Train FedAvg beside, on the same rows with the same seed and budget, to show what fairness
        costs: `Run.baseline`, and the folder ``baseline`` in `out`. By default with rows of your
        own (a file or a frame), unless the run is FedAvg itself or has a policy.
    **more
        Any other key of the configuration, dotted: ``**{"strategy.beta": 0.6}``.

    Returns
    -------
    Run
        With `metrics`, `record` and `predictor`.

    Examples
    --------
    >>> import mfairfl
    >>> run = mfairfl.train("adult", heterogeneity="high", rounds=2)  # doctest: +SKIP
    >>> run = mfairfl.train(frame, label="hired", sensitive="sex", client="site")  # doctest: +SKIP
    """
    # The keywords that are options of a run are those of `OPTIONS`, `data` apart.
    keywords = locals()
    options = {key: value for key, value in keywords.items() if key in OPTIONS and key != "data"}
    for keyword, (kind, expected) in _KINDS.items():
        if not isinstance(keywords[keyword], kind | None):
            raise ConfigError(f"{keyword}: pass {expected}, not {keywords[keyword]!r}")
    if csv is not None:
        options["csv"] = str(csv)
    if isinstance(model, str):
        options["model.kind"] = model
    options |= {"notion": _notions(notion), **_strategy(strategy), **more}
    options = {name: value for name, value in options.items() if value is not None}
    rows = _rows(data, options)
    source = str(config) if isinstance(config, str | Path) else "configuration"
    request = RunRequest(
        config=make_config(settings(config, options), source),
        out=None if out is None else Path(out),
        rows=rows,
        module=None if isinstance(model, str) else _factory(model),
        callbacks=tuple(callbacks),
    )
    if policy is None:
        run, *beside = run_requests(with_baseline(request, baseline), workers=workers)
    else:
        policy = policy if isinstance(policy, Policy) else read_policy(Path(policy))
        requests = with_baseline(request, baseline or False)
        run, *beside = [run_under_policy(item, policy) for item in requests]
    return replace(run, baseline=beside[0]) if beside else run


def _rows(data: Any, options: dict[str, Any]) -> Table | Federation | None:
    """Return rows in memory; a data set that has a name becomes an option."""
    if data is None or isinstance(data, Table | Federation):
        return data
    if isinstance(data, Dataset):
        data = DATASETS.add(data.name, data)
    if isinstance(data, str | Path):
        named = is_import_string(str(data)) or data in DATASETS.names()
        if isinstance(data, Path) or (Path(data).suffix and not named):
            raise ConfigError(
                f"data='{data}' looks like a file: pass csv='{data}' with label= and sensitive=, "
                "or config= for a TOML file"
            )
        options["data"] = data
        return None
    if not hasattr(data, "columns"):
        raise ConfigError(
            f"data: cannot train on an object of type {type(data).__name__}; pass a data set's "
            "name, a pandas or polars frame with label= and sensitive=, a Table or a Federation"
        )
    roles = ("label", "favourable", "sensitive", "client")
    task = task_from_roles(data, **{k: options.pop(k) for k in roles if k in options})
    return table_from_frame(data, task)


def _strategy(strategy: str | Strategy | None) -> dict[str, Any]:
    if strategy is None or isinstance(strategy, str):
        return {"strategy": strategy}
    if not isinstance(strategy, Strategy):
        raise ConfigError(
            f"strategy: {strategy!r} is not a strategy; pass a name of "
            "mfairfl.strategies.available(), or an object of a class derived from "
            "mfairfl.strategies.Strategy"
        )
    return {f"strategy.{name}": value for name, value in spelled(strategy).items()}


def _notions(notion: Any) -> list[str] | None:
    if notion is None:
        return None
    many = isinstance(notion, Iterable) and not isinstance(notion, str)
    names = []
    for item in notion if many else [notion]:
        if not isinstance(item, str | Notion):
            raise ConfigError(
                f"notion: {item!r} is not a notion; pass a name (dp, eo, eopp, ap) or a "
                "mfairfl.fairness.Notion"
            )
        names.append(register_notion(item) if isinstance(item, Notion) else item)
    return names


def _factory(model: Any) -> ModuleFactory | None:
    """Refuse what is often passed in place of a factory."""
    if hasattr(model, "fit") and hasattr(model, "get_params"):
        name = getattr(model, "__name__", type(model).__name__)
        raise ConfigError(
            f"model: {name} is a scikit-learn estimator, whose training cannot be federated; pass "
            "a factory of torch.nn.Module, or hidden=() for logistic regression"
        )
    module = hasattr(model, "parameters") and not isinstance(model, type)
    if model is not None and (module or not callable(model)):
        raise ConfigError(
            f"model: a {type(model).__name__} object is not a factory; pass a function or class "
            "that takes the number of inputs and gives a torch.nn.Module: model=lambda inputs: …"
        )
    factory: ModuleFactory | None = model
    return factory
