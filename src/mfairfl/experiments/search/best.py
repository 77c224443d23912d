"""best.toml: the settings of a search with the chosen values, as a file for `mfairfl train`."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from mfairfl.experiments.search.trials import SearchResult
from mfairfl.files import toml_text
from mfairfl.runs.config import make_config

__all__ = ["best_toml", "chosen_trial"]


def chosen_trial(tuned: SearchResult) -> str:
    """Return which trial was chosen, in words."""
    return f"trial {tuned.best.number} (of {len(tuned.complete)} complete ones)"


def best_toml(tuned: SearchResult, folder: Path) -> str:
    """Return the text of the file, to be written into `folder`; what was chosen is a comment."""
    config, best = tuned.config, tuned.best
    values = config.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    values["strategy"] = {"name": config.strategy.name} | values.get("strategy", {})
    for key in ("csv", "path"):
        place = values.get("data", {}).get(key)
        if place is not None and not Path(place).is_absolute():
            # Paths in a TOML file are relative to that file.
            values["data"][key] = Path(os.path.relpath(place, folder)).as_posix()
    means = {name: best.mean(name) for name in ("accuracy", *tuned.search.metrics)}
    lines = [
        f"# Chosen by mfairfl tune: {chosen_trial(tuned)}, on {tuned.search.folds} folds of the "
        "train rows.",
        f"# {', '.join(f'{name} {value:.4f}' for name, value in means.items())}",
        f"# {tuned.reason}",
    ]
    lines += [f"{k} = {toml_text(v)}" for k, v in values.items() if not isinstance(v, dict)]
    for section, inner in values.items():
        if isinstance(inner, dict):
            lines += ["", f"[{section}]", *(f"{k} = {toml_text(v)}" for k, v in inner.items())]
    text = "\n".join(lines) + "\n"
    make_config(tomllib.loads(text), "best.toml")  # a file that does not load is never written
    return text
