"""What people read: the report of a run, the model card, the audit of any model's decisions."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mfairfl.report.card import model_card
    from mfairfl.report.run_document import build_report
    from mfairfl.report.write import write_report

__all__ = ["build_report", "model_card", "write_report"]

# Imported when first used: the document alone loads faster than the page.
_HOME = {
    "build_report": "mfairfl.report.run_document",
    "model_card": "mfairfl.report.card",
    "write_report": "mfairfl.report.write",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'mfairfl.report' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
