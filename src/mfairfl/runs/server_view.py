"""What the server of a run sees, or saw: the manifest of its method, with the run's settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mfairfl.data import SPLITS, Split
from mfairfl.guard.manifest import ManifestLine, Protocol, manifest
from mfairfl.runs.config import Config

__all__ = ["protocol_of", "server_view"]


def server_view(config: Config) -> tuple[ManifestLine, ...]:
    """Return what the server sees of each client in a run with this configuration.

    Examples
    --------
    >>> from mfairfl.runs.config import make_config
    >>> config = make_config({"data": {"name": "adult"}, "strategy": {"name": "fedavg"}})
    >>> [line.what for line in server_view(config) if line.when == "every round"]
    ['updates']
    """
    clients = config.clients
    kept = {"test": clients.test > 0 or clients.folds is not None, "train": True}
    kept["validation"] = clients.validation > 0
    splits = [split for split in SPLITS if kept[split]]
    rule = config.output_rule().rule
    return manifest(
        config.strategy.create().card, protocol_of(config.model_dump(), rule=rule, splits=splits)
    )


def protocol_of(settings: Mapping[str, Any], *, rule: str, splits: Iterable[Split]) -> Protocol:
    """Read what decides what crosses from a configuration as plain data, also an older one.

    Parameters
    ----------
    settings : mapping
        A configuration with its defaults, for example that of a run record.
    rule : str
        The output rule.
    splits : iterable of str
        The splits that have rows.
    """
    training, encoder = settings.get("training", {}), settings.get("encoder", {})
    return Protocol(
        rule=rule,
        splits=tuple(split for split in SPLITS if split in set(splits)),
        epochs=training.get("local_epochs"),
        # Before there was such a key, all clients were measured after every round, and numbers
        # were scaled only.
        evaluate_every=training.get("evaluate_every", 1),
        patience=training.get("patience") is not None,
        bins=encoder.get("numeric", "standard") == "bins",
        robust=settings.get("robust", "none") != "none",
    )
