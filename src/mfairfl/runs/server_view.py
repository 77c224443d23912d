"""What the server of a run sees, or saw: the manifest of its method, with the run's settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, PositiveInt

from mfairfl.data import SPLITS, Split
from mfairfl.runs.config import Config
from mfairfl.runs.manifest import ManifestLine, Protocol, manifest


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


class _TrainingAsked(BaseModel):
    local_epochs: PositiveInt | None = None
    evaluate_every: PositiveInt = 1  # before there was this key, all were measured every round
    patience: PositiveInt | None = None


class _EncoderAsked(BaseModel):
    numeric: str = "standard"  # before there were bins


class _Asked(BaseModel):
    """The part of a configuration that decides what crosses; records are not trusted."""

    training: _TrainingAsked = _TrainingAsked()
    encoder: _EncoderAsked = _EncoderAsked()
    robust: str = "none"


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

    Raises
    ------
    ValidationError
        If the data is not that of a configuration.
    """
    asked = _Asked.model_validate(settings)
    return Protocol(
        rule=rule,
        splits=tuple(split for split in SPLITS if split in set(splits)),
        epochs=asked.training.local_epochs,
        evaluate_every=asked.training.evaluate_every,
        patience=asked.training.patience is not None,
        bins=asked.encoder.numeric == "bins",
        robust=asked.robust != "none",
    )
