"""A measured number, and what is needed to read it: interval, noise floor, bounds, reason."""

from __future__ import annotations

from mfairfl.data.values import DocumentedModel

Number = int | float | None
"""None where a number is undefined, for example the accuracy of a client without rows."""
Numbers = dict[str, Number]
Bounds = tuple[float, float] | None
"""The lower and upper end of an interval."""


class Measured(DocumentedModel):
    """One number, with what is needed to read it."""

    name: str
    """Its name, as in run.json."""
    value: Number
    """None if it is undefined."""
    interval: Bounds = None
    """Lower and upper end, if it has an interval."""
    noise_floor: Number = None
    """Its mean on as many rows if decisions were exactly fair."""
    bounds: Bounds = None
    """Between which it is, whatever is true of rows whose group or label is not known; an audit
    has them where there are such rows."""
    undefined: str = ""
    """Why there is no value."""
