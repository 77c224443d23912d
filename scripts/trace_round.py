"""Count the way of one round through the code: from `mfairfl train` to the new weights.

A reader walks down the call stacks that lead to the places named below, from the configuration to
the move of the weights. A hop is a function of the package on one of these stacks (a comprehension
or lambda belongs to its function); a file counts once. The way is printed as a tree, with the
totals below it. The argument is a folder for the run that is traced.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import mfairfl
from mfairfl.cli import main as mfairfl_cli

PACKAGE = Path(mfairfl.__file__).parent
# (function, file's name) of each place; of a strategy's methods, the folder's name.
PLACES = {
    ("make_config", "config.py"): "the configuration is made",
    ("load_dataset", "catalog.py"): "rows are read",
    ("partition", "partition.py"): "rows are dealt to clients",
    ("model_of", "execute.py"): "the model is built",
    ("setup_of", "execute.py"): "what the loop must know is put together",
    ("measure", "measure.py"): "clients measure the weights",
    ("plan", "strategies"): "the strategy plans",
    ("run_works", "trainer.py"): "clients train",
    ("combine", "strategies"): "the strategy combines",
    ("_advance", "loop.py"): "the weights move",
}
NAMES = {name for name, _ in PLACES}
COMMAND = ["train", "--data", "adult", "--heterogeneity", "high", "--rounds", "1"]
ONE_THREAD = ["--workers", "1"]  # only one can be followed
SMALL = ["--local-epochs", "1", "--hidden", "4", "--json", "--out"]


def place(frame: FrameType) -> tuple[str, str] | None:
    """Return which of the places a call is, if any."""
    name = frame.f_code.co_name
    if name not in NAMES:  # nearly every call, and a path takes long to take apart
        return None
    file = Path(frame.f_code.co_filename)
    if not file.is_relative_to(PACKAGE):
        return None
    candidates = ((name, file.name), (name, file.parent.name))
    return next((candidate for candidate in candidates if candidate in PLACES), None)


def way(frame: FrameType | None) -> list[tuple[str, str]]:
    """Return (file, function) of the package on a call stack, outermost first."""
    hops: list[tuple[str, str]] = []
    while frame is not None:
        code = frame.f_code
        file = Path(code.co_filename)
        inner = code.co_name.startswith("<")  # a comprehension, a lambda, a module
        if file.is_relative_to(PACKAGE) and not inner:
            hops.append((str(file.relative_to(PACKAGE)), code.co_qualname))
        frame = frame.f_back
    return hops[::-1]


def trace(folder: str) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Train one round and return the way to each place."""
    ways: dict[tuple[str, str], list[tuple[str, str]]] = {}

    def seen(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and (name := place(frame)) is not None and name not in ways:
            ways[name] = way(frame)

    sys.setprofile(seen)
    try:
        sys.argv = ["mfairfl", *COMMAND, *ONE_THREAD, *SMALL, folder]
        mfairfl_cli()
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)
    return ways


def tree(ways: dict[tuple[str, str], list[tuple[str, str]]]) -> list[str]:
    """Return the ways as an indented tree; what was shown before is not shown again."""
    lines, shown = [], set()
    for name, hops in ways.items():
        for depth, hop in enumerate(hops):
            if hop not in shown:
                shown.add(hop)
                last = f"   # {PLACES[name]}" if depth == len(hops) - 1 else ""
                lines.append(f"{'  ' * depth}{hop[1]}  ({hop[0]}){last}")
    return lines


def main(folder: str) -> None:
    """Print the way and its length."""
    ways = trace(folder)
    missing = set(PLACES) - set(ways)
    if missing:
        raise SystemExit(f"never reached: {sorted(missing)}")
    hops = {hop for stack in ways.values() for hop in stack}
    # Standard output holds the run's own JSON.
    sys.stderr.write("\n".join(tree(ways)))
    sys.stderr.write(f"\n{len(hops)} hops, {len({file for file, _ in hops})} files\n")


if __name__ == "__main__":
    main(sys.argv[1])
