"""Strategies, notions, data sets and models of others, in this process and in its workers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter

from mfairfl.data import DATASETS, Dataset
from mfairfl.errors import ConfigError
from mfairfl.fairness.notions import REGISTRY as NOTIONS
from mfairfl.fairness.notions import Notion, register_notion
from mfairfl.plugins import MODELS, Registry, import_string, is_import_string
from mfairfl.runs.config import Config
from mfairfl.strategies.base import Strategy
from mfairfl.strategies.registry import METHODS

_REGISTRIES: Mapping[str, Registry[Any]] = {
    registry.kind: registry for registry in (METHODS, DATASETS, MODELS)
}


def register(thing: Any, name: str | None = None) -> str:
    """Give something of your own a name, wherever mfairfl takes one, in this process.

    Parameters
    ----------
    thing : strategy class, Notion, Dataset, or model factory
        A frozen dataclass derived from `mfairfl.strategies.Strategy`; a `mfairfl.fairness.Notion`;
        a `mfairfl.data.Dataset`; or a function or `torch.nn.Module` class that takes the number of
        inputs and gives a module with one logit.
    name : str, optional
        Default: the object's own name (of a class or function in lower case). Notions and data
        sets are always known by their own.

    Returns
    -------
    str
        The name.

    Examples
    --------
    >>> from mfairfl.fairness import Event, Notion
    >>> register(Notion("predictive_equality", (Event("y=0", (0,)),), "selection"))
    'predictive_equality'
    """
    if isinstance(thing, Notion | Dataset):
        if name not in (None, thing.name):
            raise ConfigError(f"'{thing.name}' is known by its own name, not as '{name}'")
        return (
            register_notion(thing)
            if isinstance(thing, Notion)
            else DATASETS.add(thing.name, thing)
        )
    if isinstance(thing, Strategy):
        raise ConfigError(
            f"register the class {type(thing).__name__}, not an object of it; an object can be "
            "passed to train(strategy=…)"
        )
    name = name or getattr(thing, "__name__", "").lower()
    if isinstance(thing, type) and issubclass(thing, Strategy):
        return METHODS.add(name, thing)
    if not callable(thing):
        raise ConfigError(
            f"cannot register {thing!r}: pass a strategy class, a Notion, a Dataset, or a "
            "function or class that makes a torch.nn.Module"
        )
    return MODELS.add(name, thing)


def exported(configs: Iterable[Config]) -> list[dict[str, Any]]:
    """Return what worker processes must know to carry out these runs, as plain data.

    A notion is data; all that are known here are measured there, also in runs with another goal.
    Everything else is code, and travels as its import string; what has none, or lives in the main
    script, is refused.
    """
    # A notion may be registered under several names.
    notions = dict.fromkeys(NOTIONS.added().values())
    items: list[dict[str, Any]] = [{"notion": asdict(notion)} for notion in notions]
    for config in configs:
        names: list[tuple[Registry[Any], str | None]] = [
            (METHODS, config.strategy.name),
            (DATASETS, config.data.name),
            (MODELS, config.model.kind),
        ]
        for registry, name in names:
            # Entry points and import strings mean the same in every process.
            if name is None or name not in registry.added() or is_import_string(name):
                continue
            thing = registry.added()[name]
            spelling = import_string(thing.kind if registry is METHODS else thing)
            if spelling is None or spelling.startswith("__main__:"):
                raise ConfigError(
                    f"{registry.kind} '{name}' cannot be imported by worker processes: define it "
                    "in a module of its own"
                )
            item = {"kind": registry.kind, "name": name, "import": spelling}
            if item not in items:
                items.append(item)
    return items


def restore(items: Sequence[Mapping[str, Any]]) -> None:
    """Register what the parent process exported."""
    for item in items:
        if "notion" in item:
            register_notion(TypeAdapter(Notion).validate_python(item["notion"]))
        else:
            registry = _REGISTRIES[item["kind"]]
            thing = registry.follow(item["import"])
            registry.add(item["name"], thing.kind if registry is METHODS else thing)
