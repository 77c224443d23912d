"""What the server of a run sees of each client, from a method's card and the run's settings.

It is a promise that tests keep: for every built-in method a small federation is run, and what its
messages hold is compared with these lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, PositiveInt

from mfairfl.data import SPLITS, Split
from mfairfl.data.values import DocumentedModel
from mfairfl.runs.config import Config
from mfairfl.strategies.base import Card

What = Literal[
    "rows",
    "file description",
    "encoder sums",
    "histogram counts",
    "counts",
    "measurements",
    "score histograms",
    "updates",
    "control changes",
    "multipliers and gaps",
    "personal models",
    "control variates",
    "own multipliers",
]
Kind = Literal["profile", "sums", "cuts", "encode", "measure", "score", "train", ""]
When = Literal["once", "every round", "from half-way on", "at a cadence", "at the end", "never"]
Grain = Literal[
    "row",
    "column and value",
    "column and interval",
    "group and label",
    "group, label and score",
    "constraint",
    "client",
]
_CHOOSING = ("average", "select", "mixture")  # rules that look at several rounds' weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """What decides, beside the method, what crosses.

    Parameters
    ----------
    rule : str
        The output rule.
    splits : tuple of str
        The splits that have rows.
    epochs : int, optional
        Local epochs of a round; None if they are not known.
    evaluate_every : int
        All clients measure all splits every so many rounds, and after the last.
    patience : bool
        Whether a run may stop early.
    bins : bool
        Whether numbers are encoded by bins.
    robust : bool
        Whether updates that do not fit the others' are set aside.
    """

    rule: str = "last"
    splits: tuple[Split, ...] = ("train", "test")
    epochs: int | None = None
    evaluate_every: int = 10
    patience: bool = False
    bins: bool = True
    robust: bool = False

    @property
    def chosen_on(self) -> Split:
        """The rows that may choose between models."""
        return "validation" if "validation" in self.splits else "train"


class ManifestLine(DocumentedModel):
    """One thing that a client sends, or keeps.

    Examples
    --------
    >>> from mfairfl.strategies import describe
    >>> line = next(one for one in manifest(describe("fedavg")) if one.what == "updates")
    >>> line.seen, line.when, line.rows
    ('singly', 'every round', ('train',))
    """

    what: What
    """Its name."""
    kind: Kind
    """The kind of request that it answers; empty for what is kept, and for rows."""
    seen: Literal["singly", "never"]
    """Whether the server can read each client's own, or nothing."""
    when: When
    """How often: from half-way on is every round of the later half, and at the cadence before."""
    rows: tuple[Split, ...]
    """The rows that it is computed from."""
    by: Grain
    """What one number of it is about."""
    holds: str
    """What it consists of."""
    why: str
    """What it is needed for."""

    @property
    def sentence(self) -> str:
        """The line in words.

        Examples
        --------
        >>> from mfairfl.strategies import describe
        >>> print(manifest(describe("ditto"))[-1].sentence)
        personal models: never leave the client (train rows); each client is served by its own
        """
        if self.seen == "never":
            return f"{self.what}: never leave the client ({_listed(self.rows)} rows); {self.why}"
        return (
            f"{self.what}: {self.holds}; each client's own, {self.when}, of "
            f"{_listed(self.rows)} rows, by {self.by}; {self.why}"
        )


def _listed(names: tuple[str, ...]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def manifest(card: Card, protocol: Protocol | None = None) -> tuple[ManifestLine, ...]:
    """Return what the server sees of each client, in the order in which it crosses.

    Parameters
    ----------
    card : Card
        The method's.
    protocol : Protocol, optional
        The settings of the run; by default the usual ones of the method.

    Examples
    --------
    >>> from mfairfl.strategies import describe
    >>> [line.what for line in manifest(describe("scaffold"))][-3:]
    ['updates', 'control changes', 'control variates']
    """
    terms = Protocol(rule=card.usual_rule) if protocol is None else protocol
    if card.trains_on == "pooled":
        return (_POOLED.model_copy(update={"rows": terms.splits}),)
    return (
        *_enrolment(terms),
        *_measurements(card, terms),
        _scores(terms),
        *_training(card, terms),
        *_kept(card),
    )


_POOLED = ManifestLine(
    what="rows",
    kind="",
    seen="singly",
    when="once",
    rows=("train",),
    by="row",
    holds="every row of every client",
    why="a reference that trains on rows in one place, and is not federated",
)


def _enrolment(terms: Protocol) -> Iterator[ManifestLine]:
    """Name what crosses before the first round."""
    yield ManifestLine(
        what="file description",
        kind="profile",
        seen="singly",
        when="once",
        rows=terms.splits,
        by="column and value",
        holds="rows of the file, rounded up, names and types of its columns, and names of values "
        "of texts that enough rows hold",
        why="files must agree in columns and categories",
    )
    yield ManifestLine(
        what="encoder sums",
        kind="sums",
        seen="singly",
        when="once",
        rows=terms.splits,
        by="column and value",
        holds="sums and squares of each numeric column, missing values, rows of each category, "
        "for train rows and for the others; a fingerprint of the file",
        why="all clients encode alike",
    )
    if terms.bins:
        yield ManifestLine(
            what="histogram counts",
            kind="cuts",
            seen="singly",
            when="once",
            rows=("train",),
            by="column and interval",
            holds="rows of each numeric column between cuts, in up to four questions, and the "
            "value of an interval whose rows all hold the same",
            why="bins have the same edges everywhere",
        )
    yield ManifestLine(
        what="counts",
        kind="encode",
        seen="singly",
        when="once",
        rows=terms.splits,
        by="group and label",
        holds="rows, and which groups and labels are withheld",
        why="clients count by their rows, and later answers are held against them",
    )


def _measurements(card: Card, terms: Protocol) -> Iterator[ManifestLine]:
    by_moment: dict[When, list[Split]] = {}
    for split in terms.splits:
        by_moment.setdefault(_moment(split, card, terms), []).append(split)
    whys: dict[When, str] = {
        "every round": _planned_from(card, terms),
        "from half-way on": f"the output rule '{terms.rule}' chooses among these weights",
        "at a cadence": f"how training goes is followed every {terms.evaluate_every:,} rounds and "
        "after the last",
    }
    for when, splits in by_moment.items():
        yield _measured(when, tuple(splits), whys[when])
    yield _measured("at the end", terms.splits, "the numbers of the served model")


def _moment(split: Split, card: Card, terms: Protocol) -> When:
    """Say after which rounds the weights are measured on a split."""
    if terms.evaluate_every == 1 or (split == "train" and _plans_from_measurements(card, terms)):
        return "every round"
    if split == terms.chosen_on and terms.patience:
        return "every round"
    chooses = split == terms.chosen_on and terms.rule in _CHOOSING
    return "from half-way on" if chooses else "at a cadence"


def _plans_from_measurements(card: Card, terms: Protocol) -> bool:
    return card.measures != "none" or terms.robust


def _planned_from(card: Card, terms: Protocol) -> str:
    if card.measures != "none":
        return "the next round is planned from them"
    if terms.robust:
        return "losses that do not fit the others' are doubted"
    return "training may stop early" if terms.patience else "how training goes is followed"


def _measured(when: When, rows: tuple[Split, ...], why: str) -> ManifestLine:
    return ManifestLine(
        what="measurements",
        kind="measure",
        seen="singly",
        when=when,
        rows=rows,
        by="group and label",
        holds="rows, favourable decisions, sums of scores and of losses",
        why=why,
    )


def _scores(terms: Protocol) -> ManifestLine:
    fitted = "thresholds of groups, " if terms.rule == "threshold" else ""
    return ManifestLine(
        what="score histograms",
        kind="score",
        seen="singly",
        when="at the end",
        rows=terms.splits,
        by="group, label and score",
        holds="rows in 2,048 steps of the score, and rows and sums of scores in 15 more",
        why=f"{fitted}ROC-AUC, log-loss and calibration",
    )


def _training(card: Card, terms: Protocol) -> Iterator[ManifestLine]:
    if card.steps == "none":
        return
    change = "full-batch gradient" if card.steps == "gradient" else "change of every weight"
    common = {
        "kind": "train",
        "seen": "singly",
        "when": "every round",
        "rows": ("train",),
    }
    yield ManifestLine(
        what="updates",
        by="client",
        holds=f"the {change} by training, and the number of steps",
        why=_combined_from(card, terms),
        **common,
    )
    if "control" in card.keeps:
        yield ManifestLine(
            what="control changes",
            by="client",
            holds="the change of the client's control variate, a vector of the model's size",
            why="the server corrects every client's steps by their mean",
            **common,
        )
    if card.moves_every is not None and (terms.epochs is None or terms.epochs > card.moves_every):
        known = (
            "" if terms.epochs else f", where a round has more than {card.moves_every:,} epochs"
        )
        yield ManifestLine(
            what="multipliers and gaps",
            by="constraint",
            holds=f"where multipliers that move inside a round ended, and the gaps then{known}",
            why="the server goes on from their mean",
            **common,
        )


def _combined_from(card: Card, terms: Protocol) -> str:
    if card.needs == "gram":
        return "the method compares the clients' updates with each other"
    if card.needs == "norms":
        return "the method needs the length of each update"
    if card.serves == "ensemble":
        return "each client's model is a member of the ensemble"
    if terms.robust:
        return "those that do not fit the others are set aside"
    if card.reveals == "individual":
        return "the method needs each of them"
    return "the method needs only their sum"


def _kept(card: Card) -> Iterator[ManifestLine]:
    """Name what lies in slots on a client's own disk."""
    slots: dict[str, tuple[What, Grain, str]] = {
        "model": ("personal models", "client", "each client is served by its own"),
        "control": (
            "control variates",
            "client",
            "each client corrects its steps by its own; the changes it sends, added up, tell it",
        ),
        "multipliers": ("own multipliers", "constraint", "each client prices its own rows"),
    }
    for slot in card.keeps:
        what, by, why = slots[slot]
        yield ManifestLine(
            what=what,
            kind="",
            seen="never",
            when="never",
            rows=("train",),
            by=by,
            holds="a slot on the client's own disk",
            why=why,
        )


# ------------------------------------------------------------------ from the settings of a run


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
    splits: list[Split] = ["train"]
    if clients.validation > 0:
        splits.append("validation")
    if clients.test > 0 or clients.folds is not None:
        splits.append("test")
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
