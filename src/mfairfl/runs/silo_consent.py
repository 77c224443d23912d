"""What a silo agreed to, from a configuration or from its own copy of run.toml."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from mfairfl.errors import ConfigError
from mfairfl.fairness.notions import is_built_in
from mfairfl.files import load_toml
from mfairfl.plugins import MODELS
from mfairfl.runs.config import Config, make_config
from mfairfl.silo.consent import RunConsent
from mfairfl.silo.silo_file import SiloSettings, follow_extensions
from mfairfl.strategies.registry import METHODS
from mfairfl.wire.enrolment_messages import ModelTerms


def consent_of(config: Config, source: str) -> RunConsent:
    """Return what clients agree to that take part in a run with this configuration.

    Examples
    --------
    >>> config = make_config({"task": {"label": "y", "favourable": 1, "sensitive": ["sex"]}})
    >>> consent_of(config, "run.toml").rounds
    40
    """
    if config.task is None:
        raise ConfigError(f"{source}: no [task]; copy the one that was agreed on")
    return RunConsent(
        source=source,
        task=config.task,
        model=ModelTerms(kind=config.model.kind, hidden=config.model.widths),
        recipe=config.training.recipe(),
        rounds=config.server_rounds(),
        goal=config.goal(tuple(s.name for s in config.task.sensitive)),
        strategy=config.strategy.create(),
        rule=config.output_rule().rule,
    )


def read_consent(silo: SiloSettings) -> RunConsent | None:
    """Return what a silo agreed to; None if its silo.toml names no file (``task``).

    Nothing is imported but what the silo lists in its ``extensions``. A method of others runs at
    the coordinator; without its code here, it is held to ``[training]`` alone.
    """
    if silo.task is None:
        return None
    values, source = load_toml(silo.task), silo.task.name
    listed = follow_extensions(silo) | {*silo.extensions}
    for key, name, built_in in _named(values):
        if not built_in and name not in listed:
            raise ConfigError(
                f"{silo.task}: {key} = '{name}' is not part of mfairfl: install it here and list "
                "it in extensions of silo.toml, if you agree to it"
            )
    method = _value(values, "strategy", "name")
    if not isinstance(method, str) or METHODS.is_builtin(method):
        return consent_of(make_config(values, str(silo.task)), source)
    plain = values | {"strategy": {"name": "fedavg"}}
    return replace(consent_of(make_config(plain, str(silo.task)), source), strategy=None)


def _named(values: dict[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """Yield what settings name that may be code from outside, and whether it is built in."""
    kind, notions = _value(values, "model", "kind"), _value(values, "fairness", "notion")
    if isinstance(kind, str):
        yield "model.kind", kind, MODELS.is_builtin(kind)
    for name in notions if isinstance(notions, list) else [notions]:
        if isinstance(name, str):
            yield "fairness.notion", name, is_built_in(name)


def _value(values: dict[str, Any], section: str, key: str) -> Any:
    """Return a value of unchecked settings; None if it is not there."""
    table = values.get(section)
    return table.get(key) if isinstance(table, dict) else None
