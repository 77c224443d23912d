"""From flags to the keys of a configuration."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mfairfl.errors import ConfigError
from mfairfl.runs.config import Config, make_config
from mfairfl.runs.train import settings

__all__ = ["comma_list", "configuration", "parse_sets", "toml_value"]

_TASK_FLAGS = ("label", "favourable", "client")
# Read as the file's values are, so that the same message names key and value.
_NUMBER_FLAGS = (
    *("clients", "alpha", "tolerance", "rounds", "local_epochs", "batch_size", "lr"),
    *("weight_decay", "seed"),
)


def comma_list(text: str) -> list[str]:
    """Split `sex,age` at its commas; an empty text is an empty list.

    Examples
    --------
    >>> comma_list("sex, age"), comma_list("")
    (['sex', 'age'], [])
    """
    return [part.strip() for part in text.split(",") if part.strip()]


def toml_value(text: str) -> Any:
    """Read a TOML value; what is none is a plain text.

    Examples
    --------
    >>> toml_value("0.6"), toml_value("[64, 64]"), toml_value("uniform")
    (0.6, [64, 64], 'uniform')
    """
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    # A text with a line break could bring further keys.
    return parsed["value"] if len(parsed) == 1 else text


def parse_sets(pairs: Sequence[str]) -> dict[str, Any]:
    """Read the values of --set.

    Examples
    --------
    >>> parse_sets(["strategy.beta=0.6", "model.kind=logistic"])
    {'strategy.beta': 0.6, 'model.kind': 'logistic'}
    """
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {pair}: write key=value, for example strategy.beta=0.6")
        found[key.strip()] = toml_value(value.strip())
    return found


def configuration(file: Path | None, flags: Mapping[str, Any]) -> Config:
    """Lay flags over a TOML file and validate; `flags` are by the names of `mfairfl train`."""
    given = {
        name: toml_value(value) if name in _NUMBER_FLAGS else value
        for name, value in flags.items()
        if value is not None
    }
    sets = parse_sets(given.pop("set", ()))
    options = {**given, **sets}
    task = {name: options.pop(name) for name in _TASK_FLAGS if name in options}
    for name in ("sensitive", "notion", "hidden"):
        if name in given:
            options[name] = comma_list(given[name])
    if given.get("hidden") is not None:
        options |= _hidden(given["hidden"])
    base = settings(file, {})
    if "csv" in given and "task" not in base:
        task["sensitive"] = options.pop("sensitive", None)
        _require(task)
    merged = settings(base, options | {f"task.{name}": value for name, value in task.items()})
    source = " and ".join([str(file)] * (file is not None) + ["flags"] * bool(given or sets))
    return make_config(merged, source or "flags")


def _hidden(text: str) -> dict[str, Any]:
    """Read --hidden: widths, or nothing for a logistic model."""
    if not comma_list(text):
        return {"model.kind": "logistic", "hidden": []}
    widths = comma_list(text)
    wrong = [width for width in widths if not width.isdecimal()]
    if wrong:
        raise ConfigError(f"--hidden {text}: '{wrong[0]}' is no layer width; write 64,64")
    return {"hidden": [int(width) for width in widths]}


def _require(task: Mapping[str, Any]) -> None:
    """Refuse a CSV file whose meaning was not said."""
    missing = [f"--{name}" for name in ("label", "favourable", "sensitive") if not task.get(name)]
    if missing:
        raise ConfigError(
            f"--csv needs {', '.join(missing)} as well, or a TOML file from `mfairfl init`"
        )
