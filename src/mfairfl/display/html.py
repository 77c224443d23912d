"""HTML from templates: everything that comes from a document is escaped."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from mfairfl.text import one_line


def readable(words: str) -> str:
    r"""Return words without characters that are invisible or turn the direction of writing.

    Examples
    --------
    >>> readable("a\u202eb")
    'a?b'
    """
    return one_line(words, longest=len(words) + 1)


def fill(package: str, template: str, **values: Any) -> Markup:
    """Fill a template of a package; an unknown name is an error, and all texts are escaped."""
    filled = _environment(package).get_template(template).render(**values)
    return Markup(filled)  # noqa: S704 - the environment escapes


@cache
def _environment(package: str) -> Environment:
    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        # Markup is exempt: it is a text of ours, or was escaped before.
        finalize=lambda value: readable(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
