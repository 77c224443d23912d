"""The numbers of a run with their intervals, noise floors and reasons: all, groups, clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mfairfl.fairness.rates import KINDS, PROPORTIONS
from mfairfl.fairness.results import Bounds, Measured, Number, Section, Slice
from mfairfl.runs.record import Evaluation


def overall_numbers(found: Evaluation) -> list[Measured]:
    """Return every number of all rows together."""
    metrics = found.metrics
    limits, floors = found.intervals.by_name, found.noise_floor.by_name
    return _measured(metrics.by_name, limits, floors, metrics.undefined)


def group_sections(found: Evaluation, first: Sequence[str]) -> list[Section]:
    """Return the groups of each attribute; measures of the notions in `first` come first."""
    metrics, ranges, floors = found.metrics, found.intervals, found.noise_floor
    several = bool(metrics.by_attribute)
    sections = []
    for attribute, groups in metrics.by_group.items():
        own = metrics.by_attribute.get(attribute, {}) if several else metrics.by_name
        around = ranges.by_attribute.get(attribute, {}) if several else ranges.by_name
        below = floors.by_attribute.get(attribute, {}) if several else floors.by_name
        known = ranges.by_group.get(attribute, {})
        sections.append(
            Section(
                attribute=attribute,
                groups=[
                    _slice(group, cells, known.get(group, {}), metrics.undefined,
                           f"by_group.{attribute}.{group}.")
                    for group, cells in groups.items()
                ],
                measures=_measured(
                    {name: own[name] for name in _measures_in(own, first)},
                    around,
                    below,
                    metrics.undefined,
                    f"{attribute}." if several else "",
                ),
            )
        )  # fmt: skip
    return sections


def _measures_in(names: Iterable[str], first: Sequence[str]) -> list[str]:
    """Pick what compares groups, by notion."""
    found = [name for name in names if name.rpartition("_")[2] in KINDS]
    return sorted(found, key=lambda name: name.rpartition("_")[0] not in first)


def client_slices(found: Evaluation) -> list[Slice]:
    """Return each client's numbers on its own rows."""
    metrics, ranges = found.metrics, found.intervals.by_client
    return [
        _slice(client, own, ranges.get(client, {}), metrics.undefined, f"by_client.{client}.")
        for client, own in metrics.by_client.items()
    ]


def _slice(
    name: str,
    numbers: Mapping[str, Number],
    limits: Mapping[str, Bounds],
    undefined: Mapping[str, str],
    prefix: str,
) -> Slice:
    own = {key: value for key, value in numbers.items() if key != "n"}
    found = _measured(own, limits, {}, undefined, prefix)
    return Slice(
        name=name, rows=int(numbers.get("n") or 0), numbers={one.name: one for one in found}
    )


def _measured(
    values: Mapping[str, Number],
    limits: Mapping[str, Bounds],
    floors: Mapping[str, Number],
    undefined: Mapping[str, str],
    prefix: str = "",
) -> list[Measured]:
    return [
        Measured(
            name=name,
            value=value,
            interval=limits.get(name),
            noise_floor=floors.get(name),
            undefined=_why(name, undefined.get(f"{prefix}{name}", "")) if value is None else "",
        )
        for name, value in values.items()
    ]


def _why(name: str, recorded: str) -> str:
    """Return why a number is undefined: as recorded, or what a share of rows lacks."""
    if recorded or name not in PROPORTIONS:
        return recorded or "not recorded"
    return PROPORTIONS[name].needs
