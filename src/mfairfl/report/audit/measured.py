"""The numbers of an audit as a reader sees them: with intervals, floors, reasons and bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mfairfl.fairness.metrics import CLIENT_NUMBERS
from mfairfl.fairness.results import Measured, Section, Slice
from mfairfl.fairness.score_summary import SCORE_NUMBERS
from mfairfl.fairness.summary import OVERALL_NUMBERS
from mfairfl.fairness.uncertainty import Interval
from mfairfl.report.audit.number_bounds import NumberBounds
from mfairfl.report.numbers import client_slices, group_sections, overall_numbers
from mfairfl.runs.record import Evaluation

_FIRST = ("selection_rate", *OVERALL_NUMBERS, "base_rate", *SCORE_NUMBERS)
_Bounds = Mapping[str, Interval | None]


def everyone_numbers(
    found: Evaluation, bounds: NumberBounds, notions: Sequence[str], *, clients: bool
) -> list[Measured]:
    """Return the numbers of all rows: rates, the chosen notions, the others, the clients'.

    Parameters
    ----------
    notions
        Names of the chosen notions.
    clients
        Whether there are clients to compare.
    """

    def rank(one: Measured) -> tuple[int, int]:
        if one.name in _FIRST:
            return 0, _FIRST.index(one.name)
        notion = one.name.rpartition("_")[0]
        if notion in notions:
            return 1, notions.index(notion)
        return (3 if one.name in CLIENT_NUMBERS else 2), 0

    numbers = [one for one in overall_numbers(found) if clients or one.name not in CLIENT_NUMBERS]
    return _bounded(sorted(numbers, key=rank), bounds.values)


def section_numbers(
    found: Evaluation, bounds: NumberBounds, notions: Sequence[str]
) -> list[Section]:
    """Return the groups of each attribute; measures of the chosen notions come first."""
    sections = []
    for section in group_sections(found, notions):
        known = bounds.by_group.get(section.attribute, {})
        apart = bounds.by_attribute.get(section.attribute, {}) or bounds.values
        groups = [_bounded_slice(one, known.get(one.name, {})) for one in section.groups]
        measures = _bounded(section.measures, apart)
        sections.append(section.model_copy(update={"groups": groups, "measures": measures}))
    return sections


def client_numbers(found: Evaluation, bounds: NumberBounds) -> list[Slice]:
    """Return each client's numbers, its violations among them; none if there is one client."""
    slices = client_slices(found)
    if len(slices) < 2:
        return []
    return [_bounded_slice(one, bounds.by_client.get(one.name, {})) for one in slices]


def _bounded_slice(part: Slice, bounds: _Bounds) -> Slice:
    numbers = {one.name: one for one in _bounded(list(part.numbers.values()), bounds)}
    return part.model_copy(update={"numbers": numbers})


def _bounded(numbers: Sequence[Measured], bounds: _Bounds) -> list[Measured]:
    return [
        one if bounds.get(one.name) is None
        else one.model_copy(update={"bounds": tuple(bounds[one.name] or ())})
        for one in numbers
    ]  # fmt: skip
