"""Print pins for the lowest version of every direct run-time dependency that pyproject allows."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def main() -> None:
    requirements = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]
    for requirement in requirements:
        bound = re.fullmatch(r"([\w-]+)>=([\w.]+)(,.*)?", requirement)
        if bound is None:
            raise SystemExit(f"{requirement}: every dependency needs a lower bound")
        print(f"{bound[1]}=={bound[2]}")


if __name__ == "__main__":
    main()
