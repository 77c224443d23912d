"""The commented TOML file that `mfairfl init` writes."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

from mfairfl.cli.proposal import Proposal
from mfairfl.data import Task
from mfairfl.runs.config import Config, make_config

__all__ = ["toml_text", "write_toml"]

_WIDTH = 90
Line = tuple[str, Any, str]
"""Key, value, comment; a key that starts with # is shown as an example only."""


def write_toml(proposal: Proposal, target: Path) -> str:
    """Return the file's text; it is validated before anyone sees it."""
    found, default = proposal.found, make_config({})
    csv = Path(os.path.relpath(found.path, target.parent)).as_posix()
    comma = ("delimiter", found.delimiter) if found.delimiter else ("# delimiter", ",")
    code = ("encoding", found.encoding) if found.encoding else ("# encoding", "utf-8")
    sections: dict[str, list[Line]] = {
        "": [("seed", default.seed, "same seed, same split, same bits")],
        "data": [
            ("csv", csv, "the rows; relative to this file"),
            (*comma, "found from the file unless given"),
            (*code, "UTF-8 unless given or marked in the file"),
        ],
        "task": _task_lines(proposal.task),
        **_run_lines(default, proposal.task.client),
    }
    blocks = ["# Settings for mfairfl: check with `mfairfl doctor`, run with `mfairfl train`."]
    for name, lines in sections.items():
        head = [f"[{name}]"] if name else []
        blocks.append("\n".join([*head, *(_line(*line) for line in lines)]))
    text = "\n\n".join(blocks) + "\n"
    make_config(tomllib.loads(text), str(target))
    return text


def _task_lines(task: Task) -> list[Line]:
    sensitive = [s.model_dump(exclude_none=True, exclude_defaults=True) for s in task.sensitive]
    for one in sensitive:
        del one["name"]  # the column's own
    by_client: Line = ("client", task.client, "column that names the client of each row")
    if task.client is None:
        by_client = ("# client", "site", by_client[2])
    return [
        ("label", task.label, "column to predict"),
        ("favourable", task.favourable, "the value that is good for a person"),
        ("unfavourable", task.unfavourable, "the other value"),
        ("sensitive", sensitive, "for whom it has to be fair; bins are closed intervals"),
        by_client,
        ("numeric", task.numeric, "features that are numbers"),
        ("categorical", task.categorical, "features that are categories"),
        ("ignore", task.ignore, "columns that are no features"),
        ("sensitive_as_features", task.sensitive_as_features, "may the model see them?"),
        ("missing", task.missing, "level: keep as a category; drop: leave rows out; error"),
        ("unknown_category", task.unknown_category, "new category: ignore or error"),
    ]


def _run_lines(default: Config, client: str | None) -> dict[str, list[Line]]:
    clients, model, budget = default.clients, default.model, default.training
    fair, output = default.fairness, default.output_rule()
    scheme: list[Line] = [
        ("scheme", "iid", "how rows are dealt: iid, dirichlet, size-skew, ratio, ..."),
        ("count", 5, "number of clients"),
    ]
    if client is not None:
        scheme = [("scheme", "column", "the task's client column decides")]
    return {
        "clients": [
            *scheme,
            ("test", clients.test, "share of each client's rows that only measures"),
            (
                "validation",
                clients.validation,
                "share that chooses the served model; 0: train rows",
            ),
        ],
        "model": [
            ("kind", model.kind, "mlp or logistic"),
            ("hidden", model.hidden, "units of each hidden layer"),
        ],
        "training": [
            ("rounds", budget.rounds, "times the clients train and the server combines"),
            ("local_epochs", budget.local_epochs, "passes over its rows a client makes a round"),
            ("batch_size", budget.batch_size, "rows a step"),
            ("optimizer", budget.optimizer, "adamw, sgd or gradient"),
            ("lr", budget.lr, "learning rate of the first round"),
            ("lr_final", budget.lr_final, "and of the last"),
            ("schedule", budget.schedule, "cosine or constant"),
            ("weight_decay", budget.weight_decay, "decoupled, times the learning rate"),
            ("momentum", budget.momentum, "of sgd"),
            ("participation", budget.participation, "share of clients drawn each round"),
            ("# patience", 10, "stop after so many rounds without a lower loss"),
        ],
        "fairness": [
            ("notion", fair.notion, "demographic_parity, equalized_odds, accuracy_parity, ..."),
            ("# sensitive", ["sex"], "which attributes; all of the task unless given"),
            ("intersections", fair.intersections, "constrain intersections of attributes too"),
            ("alpha", fair.alpha, "gaps up to here are left alone in training"),
        ],
        "strategy": [
            ("name", default.strategy.name, "see `mfairfl strategies`; its options go here too"),
        ],
        "output": [
            ("# rule", output.rule, "last, average, select, mixture or threshold"),
            ("# tolerance", output.tolerance, "largest violation of a selected model"),
        ],
    }


def _line(key: str, value: Any, comment: str) -> str:
    text = f"{key} = {toml_text(value)}"
    if len(text) <= _WIDTH or not isinstance(value, list | tuple):
        return f"{text}  # {comment}"
    inner = "".join(f"\n  {toml_text(one)}," for one in value)
    return f"{key} = [  # {comment}{inner}\n]"


def toml_text(value: Any) -> str:
    r"""Write a value as TOML.

    Examples
    --------
    >>> toml_text({"column": "a\tb", "bins": [1.5, True]})
    '{ column = "a\\tb", bins = [1.5, true] }'
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(k)} = {toml_text(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_text(one) for one in value) + "]"
    if isinstance(value, str):
        # JSON's escapes are TOML's; TOML wants DEL escaped as well.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_text(name)
