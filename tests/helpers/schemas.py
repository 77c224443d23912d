"""JSON schemas in docs/ are those of the code, as the pinned version of pydantic writes them."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def check_schema(name: str, found: str, module: str) -> None:
    """Compare the schema of the code with docs/NAME.schema.json."""
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    if f"pydantic=={version('pydantic')}" not in pins:
        pytest.skip("other versions of pydantic word the same schema in another way")
    assert (ROOT / "docs" / f"{name}.schema.json").read_text(encoding="utf-8") == found, (
        f"write docs/{name}.schema.json again: it is what json_schema of {module} returns"
    )
