"""Which runs can do with sums over all clients; the others are refused, with the reason."""

from __future__ import annotations

from mfairfl.errors import ConfigError
from mfairfl.guard.rosters import FEWEST
from mfairfl.strategies.base import Card

__all__ = ["check_masked"]


def check_masked(card: Card, *, clients: int, robust: str, participation: float) -> None:
    """Refuse a run under masks that needs to know more than sums.

    Parameters
    ----------
    clients : int
        How many take part.
    robust : str
        The robust rule.
    participation : float
        The share of clients drawn for a round.

    Examples
    --------
    >>> check_masked(Card(title="", reads="losses"), clients=3, robust="none", participation=1.0)
    """
    if clients < FEWEST:
        raise ConfigError(f"masked = true: {clients} clients; sums are over at least {FEWEST}")
    if robust != "none":
        raise ConfigError(
            f"masked = true: robust = '{robust}' compares what single clients measured with their "
            "updates, and masks hide it; use robust = 'none'"
        )
    if card.trains_on == "pooled" or card.reads == "cells":
        raise ConfigError(
            "masked = true: with these settings the strategy reads single clients' rates by "
            "group, and masks hide them; choose one that reads losses only (see `mfairfl "
            "strategies`)"
        )
    if participation < 1:
        raise ConfigError(
            "masked = true: sums over other clients in every round tell single ones apart; use "
            "training.participation = 1"
        )
