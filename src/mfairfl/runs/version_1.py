"""Files of mfairfl 0.1 under today's names.

Its differences were violations. Its ratios were to the overall rate, and are dropped; today's
differences and ratios, and clients' violations, are computed from the tallies, without intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mfairfl.fairness.summary import summarise
from mfairfl.fairness.tally import Tally


def upgraded(old: Mapping[str, Any]) -> dict[str, Any]:
    """Return the contents of a run.json of schema 1 in schema 2."""
    new = {**old, "schema_version": 2}
    if old.get("status") != "complete":
        return new
    for part in ("metrics", "intervals", "noise_floor", "constant_classifier"):
        new[part] = {
            split: None if numbers is None else _renamed(numbers)
            for split, numbers in old[part].items()
        }
    for split, tally in old["tallies"].items():
        found, kept = summarise(Tally.from_json(tally)), new["metrics"][split]
        tables = {
            attribute: numbers | kept["by_attribute"].get(attribute, {})
            for attribute, numbers in found.by_attribute.items()
        }
        clients = {
            client: numbers | kept["by_client"].get(client, {})
            for client, numbers in found.by_client.items()
        }
        undefined = found.undefined | kept["undefined"]
        parts = {"by_attribute": tables, "by_client": clients, "undefined": undefined}
        new["metrics"][split] = found.values | kept | parts
    training = old["config"]["training"]
    gradient = old["rounds"] > training["rounds"]  # one step for each of the local epochs
    return new | {"epochs_per_round": 1 if gradient else training["local_epochs"]}


def current_name(old: str) -> str:
    """Return today's name of a number.

    Examples
    --------
    >>> current_name("demographic_parity_difference"), current_name("accuracy")
    ('demographic_parity_violation', 'accuracy')
    """
    stem = old.removesuffix("_difference")
    return old if stem == old else f"{stem}_violation"


def _renamed(numbers: Mapping[str, Any]) -> dict[str, Any]:
    new = {
        current_name(name): value for name, value in numbers.items() if not name.endswith("_ratio")
    }
    if "undefined" in new:
        new["undefined"] = _renamed(new["undefined"])
    if "by_attribute" in new:
        new["by_attribute"] = {a: _renamed(own) for a, own in new["by_attribute"].items()}
    return new
