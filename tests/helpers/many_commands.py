"""Many commands in one process: to import what they need takes longer than most of them."""

from __future__ import annotations

import json
from collections.abc import Sequence

# Run it by `python -c`, with the arguments of `many`.
CODE = """
import json, sys
from mfairfl.cli import main
for words in json.loads(sys.argv[1]):
    code = main(words.split())
    for stream in (sys.stdout, sys.stderr):
        print(f"\\0{code}\\0", end="", file=stream, flush=True)
"""


def many(commands: Sequence[str]) -> tuple[str, ...]:
    """Return the words after `python` that carry out the commands, whatever their exit codes."""
    return "-c", CODE, json.dumps(commands)


def answers(stream: str) -> list[tuple[int, str]]:
    """Return each command's exit code and what it wrote to this stream."""
    parts = stream.split("\0")
    return [(int(code), text) for text, code in zip(parts[::2], parts[1::2], strict=False)]
