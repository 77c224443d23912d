"""What the server of a run sees of each client, from a method's card and the run's settings.

It is a promise that tests keep: for every built-in method a small federation is run, and what its
messages hold is compared with these lines.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from pydantic import PositiveInt

from mfairfl.data import SPLITS, Split
from mfairfl.data.values import DocumentedModel, StrictModel
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
When = Literal["once", "every round", "from half-way on", "regularly", "at the end", "never"]
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


class Protocol(StrictModel):
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
    epochs: PositiveInt | None = None
    evaluate_every: PositiveInt = 10
    patience: bool = False
    bins: bool = True
    robust: bool = False


class ManifestLine(DocumentedModel):
    """One thing that a client sends, or keeps.

    Examples
    --------
    >>> from mfairfl.strategies import describe
    >>> line = next(x for x in manifest(describe("fedavg")) if x.what == "updates")
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
    """How often: from half-way on is every round of the later half, and regularly before."""
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


class _Item(NamedTuple):
    """What a line says of something wherever it crosses."""

    kind: Kind
    by: Grain
    holds: str
    why: str = ""


_SLOT = "a slot on the client's own disk"
_ITEMS: dict[What, _Item] = {
    "rows": _Item(
        "",
        "row",
        "every row of every client",
        "a reference that trains on rows in one place, and is not federated",
    ),
    "file description": _Item(
        "profile",
        "column and value",
        "rows of the file, rounded up, names and types of its columns, and names of values of "
        "texts that enough rows hold",
        "files must agree in columns and categories",
    ),
    "encoder sums": _Item(
        "sums",
        "column and value",
        "sums and squares of each numeric column, missing values, rows of each category, for "
        "train rows and for the others; a fingerprint of the file",
        "all clients encode alike",
    ),
    "histogram counts": _Item(
        "cuts",
        "column and interval",
        "rows of each numeric column between cuts, in up to four questions, and the value of an "
        "interval whose rows all hold the same",
        "bins have the same edges everywhere",
    ),
    "counts": _Item(
        "encode",
        "group and label",
        "rows, and which groups and labels are withheld",
        "clients count by their rows, and later answers are held against them",
    ),
    "measurements": _Item(
        "measure", "group and label", "rows, favourable decisions, sums of scores and of losses"
    ),
    "score histograms": _Item(
        "score",
        "group, label and score",
        "rows in 2,048 steps of the score, and rows and sums of scores in 15 more",
        "ROC-AUC, log-loss and calibration",
    ),
    "updates": _Item(
        "train",
        "client",
        "the change of every weight by training, and the number of steps",
        "the method needs only their sum",
    ),
    "control changes": _Item(
        "train",
        "client",
        "the change of the client's control variate, a vector of the model's size",
        "the server corrects every client's steps by their mean",
    ),
    "multipliers and gaps": _Item(
        "train",
        "constraint",
        "where multipliers that move inside a round ended, and the gaps then",
        "the server goes on from their mean",
    ),
    "personal models": _Item("", "client", _SLOT, "each client is served by its own"),
    "control variates": _Item(
        "",
        "client",
        _SLOT,
        "each client corrects its steps by its own; the changes it sends, added up, tell it",
    ),
    "own multipliers": _Item("", "constraint", _SLOT, "each client prices its own rows"),
}
_KEPT: dict[str, What] = {
    "model": "personal models",
    "control": "control variates",
    "multipliers": "own multipliers",
}


def _line(
    what: What, when: When, rows: tuple[Split, ...] = ("train",), **other: str
) -> ManifestLine:
    """Return the line of an item; `other` replaces what it usually holds, or why it is sent."""
    seen: Literal["singly", "never"] = "never" if when == "never" else "singly"
    texts = _ITEMS[what]._asdict() | other
    return ManifestLine(what=what, when=when, rows=rows, seen=seen, **texts)


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
    splits = terms.splits
    if card.trains_on == "pooled":
        return (_line("rows", "once", splits),)
    thresholds = "thresholds, " if terms.rule == "thresholds" else ""
    scores = thresholds + _ITEMS["score histograms"].why
    return (
        _line("file description", "once", splits),
        _line("encoder sums", "once", splits),
        *([_line("histogram counts", "once")] if terms.bins else []),
        _line("counts", "once", splits),
        *_measurements(card, terms),
        _line("score histograms", "at the end", splits, why=scores),
        *_training(card, terms),
        *(_line(_KEPT[slot], "never") for slot in card.keeps),
    )


def _measurements(card: Card, terms: Protocol) -> Iterator[ManifestLine]:
    """Name the splits that are measured at the same moments in one line."""
    rounds = f"{terms.evaluate_every:,} rounds"
    whys: dict[When, str] = {
        "every round": _planned_from(card, terms),
        "from half-way on": f"the output rule '{terms.rule}' chooses among these weights",
        "regularly": f"how training goes is followed every {rounds} and after the last",
    }
    by_moment: dict[When, list[Split]] = {}
    for split in terms.splits:
        by_moment.setdefault(_moment(split, card, terms), []).append(split)
    for when, splits in by_moment.items():
        yield _line("measurements", when, tuple(splits), why=whys[when])
    yield _line("measurements", "at the end", terms.splits, why="the numbers of the served model")


def _moment(split: Split, card: Card, terms: Protocol) -> When:
    """Return after which rounds the weights are measured on a split."""
    planned_from = split == "train" and (card.measures != "none" or terms.robust)
    chosen_on = split == ("validation" if "validation" in terms.splits else "train")
    if terms.evaluate_every == 1 or planned_from or (chosen_on and terms.patience):
        return "every round"
    return "from half-way on" if chosen_on and terms.rule in _CHOOSING else "regularly"


def _planned_from(card: Card, terms: Protocol) -> str:
    if card.measures != "none":
        return "the next round is planned from them"
    if terms.robust:
        return "losses that do not fit the others' are doubted"
    return "training may stop early" if terms.patience else "how training goes is followed"


def _training(card: Card, terms: Protocol) -> Iterator[ManifestLine]:
    if card.steps == "none":
        return
    usual = _ITEMS["updates"]
    gradient = usual.holds.replace("change of every weight", "full-batch gradient")
    yield _line(
        "updates",
        "every round",
        holds=gradient if card.steps == "gradient" else usual.holds,
        why=_combined_from(card, terms) or usual.why,
    )
    if "control" in card.keeps:
        yield _line("control changes", "every round")
    if card.moves_every is not None and (terms.epochs is None or terms.epochs > card.moves_every):
        holds = _ITEMS["multipliers and gaps"].holds
        if terms.epochs is None:
            holds += f", where a round has more than {card.moves_every:,} epochs"
        yield _line("multipliers and gaps", "every round", holds=holds)


def _combined_from(card: Card, terms: Protocol) -> str:
    """Return why updates must be seen singly; nothing if only their sum is needed."""
    if card.needs == "gram":
        return "the method compares the clients' updates with each other"
    if card.needs == "norms":
        return "the method needs the length of each update"
    if card.serves == "ensemble":
        return "each client's model is a member of the ensemble"
    if terms.robust:
        return "those that do not fit the others are set aside"
    return "the method needs each of them" if card.reveals == "individual" else ""


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
    held_out = {
        "validation": clients.validation > 0,
        "test": clients.test > 0 or clients.folds is not None,
    }
    terms = protocol_of(
        config.model_dump(),
        rule=config.output_rule(),
        splits=[split for split in SPLITS if held_out.get(split, True)],
    )
    return manifest(config.strategy.create().card, terms)


def protocol_of(settings: Mapping[str, Any], *, rule: str, splits: Iterable[Split]) -> Protocol:
    """Read what decides what crosses from a configuration as plain data.

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
    KeyError, TypeError, ValidationError
        If the data is not that of a configuration.
    """
    training = settings["training"]
    with_rows = set(splits)
    return Protocol(
        rule=rule,
        splits=tuple(split for split in SPLITS if split in with_rows),
        epochs=training["local_epochs"],
        evaluate_every=training["evaluate_every"],
        patience=training["patience"] is not None,
        bins=settings["encoder"]["numeric"] == "bins",
        robust=settings["robust"] != "none",
    )
