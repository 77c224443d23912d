"""The commented TOML file of `mfairfl init`."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from mfairfl.checks.proposal import Proposal
from mfairfl.files import toml_text
from mfairfl.runs.config import make_config

__all__ = ["write_toml"]

_WIDTH = 90
_COMMENTS = {
    "": {"seed": "equal seeds give equal splits and equal results"},
    "data": {
        "csv": "path of the rows, relative to this file",
        "delimiter": "detected if omitted",
        "encoding": "UTF-8 if omitted, unless the file marks another",
    },
    "task": {
        "label": "column to predict",
        "favourable": "the desirable value",
        "unfavourable": "the other value",
        "sensitive": "groups to be treated fairly; bins are closed intervals",
        "client": "column that holds each row's client",
        "numeric": "features that are numbers",
        "categorical": "features that are categories",
        "ignore": "columns that are not features",
        "sensitive_as_features": "whether the model may use sensitive columns",
        "missing": "level: a category of its own; drop: leave rows out; error",
        "unknown_category": "category not seen in training: ignore or error",
    },
    "clients": {
        "scheme": "how rows are split: iid, dirichlet, size-skew, ratio, column, ...",
        "count": "number of clients",
        "test": "share of each client's rows held out for measuring",
        "validation": "share that selects the served model; 0: train rows do",
    },
    "model": {"kind": "mlp or logistic", "hidden": "widths of the hidden layers"},
    "training": {
        "rounds": "communication rounds",
        "local_epochs": "local epochs per round",
        "batch_size": "mini-batch size",
        "optimizer": "adamw, sgd or gradient",
        "lr": "learning rate in the first round",
        "lr_final": "learning rate in the last round",
        "schedule": "cosine or constant",
        "weight_decay": "decoupled, multiplied by the learning rate",
        "momentum": "for sgd",
        "participation": "share of clients sampled each round",
        "patience": "stop after this many rounds without a lower loss",
    },
    "fairness": {
        "notion": "demographic_parity, equalized_odds, accuracy_parity, ...",
        "sensitive": "attributes to constrain; all of the task if omitted",
        "intersections": "also constrain intersections of attributes",
        "alpha": "violation that training leaves uncorrected",
    },
    "strategy": {"name": "see `mfairfl strategies`; its hyper-parameters go here"},
    "output": {
        "rule": "last, average, select, mixture or threshold",
        "tolerance": "largest violation of a selected model",
    },
}
"""What each key means, by section."""

_EXAMPLES = {
    "data.delimiter": ",",
    "data.encoding": "utf-8",
    "task.client": "site",
    "training.patience": 10,
    "fairness.sensitive": ["sex"],
    "output.rule": "select",
    "output.tolerance": 0.005,
}
"""Values shown as comments where nothing is set."""


def write_toml(proposal: Proposal, target: Path) -> str:
    """Return the text of the file, validated."""
    found, task = proposal.found, proposal.task
    csv = Path(os.path.relpath(found.path, target.parent)).as_posix()
    split = {"scheme": "column"} if task.client else {"scheme": "iid", "count": 5}
    data = {"csv": csv, "delimiter": found.delimiter, "encoding": found.encoding}
    config = make_config({"data": data, "task": task.model_dump(), "clients": split})
    values = config.model_dump(exclude_none=True)
    values["task"]["sensitive"] = [
        one.model_dump(exclude_none=True, exclude_defaults=True, exclude={"name"})
        for one in task.sensitive
    ]
    blocks = ["# Settings for mfairfl: check with `mfairfl doctor`, run with `mfairfl train`."]
    for section, comments in _COMMENTS.items():
        inner = values[section] if section else values
        lines = [f"[{section}]"] if section else []
        for key, comment in comments.items():
            if key in inner:
                lines.append(_line(key, inner[key], comment))
            elif (example := _EXAMPLES.get(f"{section}.{key}")) is not None:
                lines.append(_line(f"# {key}", example, comment))
        blocks.append("\n".join(lines))
    text = "\n\n".join(blocks) + "\n"
    make_config(tomllib.loads(text), str(target))
    return text


def _line(key: str, value: Any, comment: str) -> str:
    text = f"{key} = {toml_text(value)}"
    if len(text) <= _WIDTH or not isinstance(value, list | tuple):
        return f"{text}  # {comment}"
    inner = "".join(f"\n  {toml_text(one)}," for one in value)
    return f"{key} = [  # {comment}{inner}\n]"
