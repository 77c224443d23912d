"""What is measured when, and who takes part: decided by the set-up and the round alone.

Measuring costs passes over rows, and over Flower an exchange. All clients measure all splits
every `evaluate_every` rounds. In between only what is needed is measured: the participants' train
rows where the round is planned from them; all clients' rows that choose a model where the new
weights may be served or a run may stop early. A run that is resumed asks for the same.
"""

from collections.abc import Collection
from dataclasses import replace
from itertools import islice

import numpy as np

from mfairfl.data import Split
from mfairfl.engine.state import Measure, RunState, Setup
from mfairfl.randomness import stream
from mfairfl.training.plan import PERSONAL


def full_measure(setup: Setup, *models: np.ndarray) -> Measure:
    """Return the request that all clients measure models on all splits, as they are served."""
    serves = setup.strategy.card.serves
    return Measure(
        models,
        setup.splits,
        shares=ensemble_shares(setup) if serves == "ensemble" else None,
        slot=PERSONAL if serves == "personal" else None,
    )


def ensemble_shares(setup: Setup) -> np.ndarray:
    """Return how much each member of an ensemble counts, in client order."""
    sizes = np.array([setup.summary.rows(name) for name in sorted(setup.summary.counts)])
    if setup.strategy.card.shares == "uniform":
        sizes = np.sign(sizes)  # a client without rows has no model of its own
    return np.asarray(sizes / sizes.sum())


def needed_measure(setup: Setup, state: RunState, *models: np.ndarray) -> Measure | None:
    """Return the request for what has to be known of the models of `state.round`, if anything."""
    ask, splits = full_measure(setup, *models), _splits_of_all(setup, state.round)
    if splits:
        return replace(ask, splits=splits, without=state.standing.out(state.round))
    if setup.plans_from_measurements:
        return replace(ask, splits=("train",), only=frozenset(drawn(setup, state)))
    return None


def _splits_of_all(setup: Setup, round_: int) -> tuple[Split, ...]:
    """Return the splits that all clients measure after this many rounds."""
    if round_ % setup.evaluate_every == 0 or round_ >= setup.rounds:
        return setup.splits
    wanted: set[Split] = set()
    if may_be_served(setup, round_) or setup.patience is not None:
        wanted |= {setup.held_out}
    all_train = setup.participation == 1 or setup.strategy.card.trains_on == "pooled"
    if setup.plans_from_measurements and (wanted or all_train):
        wanted |= {"train"}
    return tuple(split for split in setup.splits if split in wanted)


def may_be_served(setup: Setup, round_: int) -> bool:
    """Whether the output rule chooses among weights that include this round's."""
    return setup.output.rule not in ("last", "thresholds") and 2 * round_ > setup.rounds


def drawn(setup: Setup, state: RunState, silent: Collection[str] = frozenset()) -> list[str]:
    """Return the clients that are drawn for the next round, in the order of the draw.

    One that is suspended or silent makes room for the next; the others' places stay.

    Parameters
    ----------
    silent : collection of str
        Clients that were asked to measure these weights and have no usable answer: they are left
        out until they have.
    """
    names, away = setup.trainers, {*state.standing.out(state.round), *silent}
    if setup.strategy.card.trains_on == "pooled":
        return list(names)
    order = stream(setup.seed, "participants", state.round).permutation(len(names))
    there = (names[i] for i in order if names[i] not in away)
    count = round(setup.participation * (len(names) - len(away.intersection(names))))
    return list(islice(there, max(1, count)))
