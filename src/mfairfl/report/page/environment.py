"""The one template environment: everything that comes from a document is escaped."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from mfairfl.report.charts import chart_style, readable


def _readable(value: Any) -> Any:
    """Texts of a document may turn the direction of writing; what is markup already may not."""
    return readable(value) if type(value) is str else value


def fill(template: str, **values: Any) -> str:
    """Fill a template; an unknown name is an error, and all texts are escaped."""
    environment = Environment(
        loader=PackageLoader("mfairfl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_readable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(chart_style=chart_style(), **values)
