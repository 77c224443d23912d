"""Values as mfairfl compares them, and the models that hold settings.

Values are compared as text in one canonical form (`canonical_text`), so that the favourable value
``1`` matches ``1``, ``1.0`` and ``"1"``, however a file or a frame stores them.
"""

from __future__ import annotations

import math
import re
from typing import Annotated

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict

from mfairfl.errors import ConfigError

MISSING = "?"
"""The text of a missing value: an empty cell, a null and a literal ``?`` are the same."""

_WHOLE = re.compile(r"(-?)(0|[1-9]\d*)\.0+")


def canonical_text(value: object) -> str:
    """Format a scalar as the text by which mfairfl compares values.

    Surrounding spaces are removed, whole numbers lose their decimals, a missing value is ``?``.
    Anything else stays as it is written: ``"007"`` is not ``"7"``, ``"1.50"`` is not ``"1.5"``.

    Examples
    --------
    >>> [canonical_text(v) for v in (1, 1.0, "1", " 1.0 ", "007", 2.5, True, None, "")]
    ['1', '1', '1', '1', '007', '2.5', 'True', '?', '?']
    """
    if value is None:
        return MISSING
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if math.isnan(number):
            return MISSING
        if number.is_integer() and abs(number) < 1e18:
            return str(int(number))
    text = str(value).strip()
    if whole := _WHOLE.fullmatch(text):
        return whole[2] if whole[2] == "0" else whole[1] + whole[2]
    return text or MISSING


def _scalar(value: object) -> str:
    if value is None or isinstance(value, (list, tuple, dict, set)):
        raise ConfigError(f"{value!r} is not a single value: give a text, a number or a boolean")
    return canonical_text(value)


Text = Annotated[str, BeforeValidator(_scalar)]
"""A text, a number or a boolean, kept as canonical text."""


class StrictModel(BaseModel):
    """Frozen data without unknown keys, infinities or nan."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class DocumentedModel(StrictModel):
    """A strict model whose fields are described by the texts below them.

    Pydantic reads the source for them, which takes milliseconds for each class.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)
