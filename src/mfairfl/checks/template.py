"""The commented TOML file of `mfairfl init`."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from mfairfl.checks.proposal import Proposal
from mfairfl.data import Reading
from mfairfl.files import toml_key, toml_text
from mfairfl.runs.config import Config, make_config

_WIDTH = 90
_LEFT_OUT = {"columns", "fold", "options"}  # blocks of their own; keys that hardly anybody sets


def write_toml(proposal: Proposal, target: Path) -> str:
    """Return the text of the file, validated."""
    content, task = proposal.content, proposal.task
    csv = Path(os.path.relpath(proposal.path, target.parent)).as_posix()
    split = {"scheme": "column"} if task.client else {"scheme": "iid", "count": 5}
    data = {"csv": csv, **asdict(content.format)}
    config = make_config({"data": data, "task": task.model_dump(), "clients": split})
    values = config.model_dump(exclude_none=True)
    values["task"]["sensitive"] = [
        one.model_dump(exclude_none=True, exclude_defaults=True, exclude={"name"})
        for one in task.sensitive
    ]
    blocks = ["# Settings for mfairfl: check with `mfairfl doctor`, run with `mfairfl train`."]
    for name, section in config:
        if isinstance(section, BaseModel):
            lines = _lines(type(section), values[name])
            blocks.append("\n".join([f"[{name}]", *lines]))
            blocks += _column_rules(values[name].get("columns", {}))
        else:
            blocks.append(_line(name, section, Config.model_fields[name].description))
    text = "\n\n".join(blocks) + "\n"
    make_config(tomllib.loads(text), str(target))
    return text


def _column_rules(columns: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield a block for each column that is read in its own way."""
    for name, rules in columns.items():
        lines = [f"{key} = {toml_text(value)}" for key, value in rules.items() if value]
        yield "\n".join([f"[task.columns.{toml_key(name)}]", *lines])


def _lines(section: type[BaseModel], values: dict[str, Any]) -> Iterator[str]:
    """Yield the keys that are set, and as comments those that have an example."""
    # How cells are read is a detail: it comes after what the columns mean.
    fields = sorted(section.model_fields.items(), key=lambda one: one[0] in Reading.model_fields)
    for key, field in fields:
        empty = key in Reading.model_fields and not values.get(key)
        if key in values and key not in _LEFT_OUT and not empty:
            yield _line(key, values[key], field.description)
        elif field.examples:
            yield _line(f"# {key}", field.examples[0], field.description)


def _line(key: str, value: Any, comment: str | None) -> str:
    text = f"{key} = {toml_text(value)}"
    if len(text) <= _WIDTH or not isinstance(value, list | tuple):
        return f"{text}  # {comment}"
    inner = "".join(f"\n  {toml_text(one)}," for one in value)
    return f"{key} = [  # {comment}{inner}\n]"
