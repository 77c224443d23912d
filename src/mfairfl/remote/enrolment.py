"""Before the first round: one task, one encoder, and counts, without sending files.

Each client describes its file, sends the sums that the encoder is fitted from, counts its rows
between cuts if numbers are encoded by bins (up to four times), and encodes its rows. A client that
does not fit or does not answer stays out, with the reason. One that lacks a sensitive attribute
takes part: its rows are not part of the comparisons of that attribute, and a note says so.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from pydantic import PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from mfairfl.data import SPLITS, Attribute, Encoder, EncoderConfig, EncoderStatistics, Split, Task
from mfairfl.data.agreement import Profile, agree
from mfairfl.data.binning import Histogram
from mfairfl.data.encoder import fit_encoder
from mfairfl.data.values import StrictModel
from mfairfl.errors import FederationError, MessageError, first_problem
from mfairfl.fairness.cells import Cells
from mfairfl.models import MLP, Model, ModuleModel
from mfairfl.plugins import MODELS
from mfairfl.remote.codec import Packet, make_packet, read_header
from mfairfl.remote.histograms import Cuts, pack_cuts, unpack_histograms
from mfairfl.remote.remarks import nameless, odd_columns, unrecorded
from mfairfl.remote.transport import Transport, read_replies

__all__ = ["Enrolled", "EnrolmentTerms", "ModelTerms", "enrol"]

T = TypeVar("T")
_SUMS = TypeAdapter(EncoderStatistics)


@dataclass(frozen=True, slots=True)
class ModelTerms:
    """The model that all clients train, before the number of its inputs is known.

    Parameters
    ----------
    kind : str
        ``mlp``, or a model that every silo lists in its own file (`SiloSettings.extensions`).
    hidden : tuple of int
        Widths of an ``mlp``'s hidden layers.

    Examples
    --------
    >>> ModelTerms(hidden=(4,)).build(inputs=3).size
    21
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}  # for silos, which read it from text

    kind: str = "mlp"
    hidden: tuple[int, ...] = ()

    def build(self, inputs: int) -> Model:
        """Return the model for this many encoded features."""
        factory = MODELS.get(self.kind)
        if factory is not None:
            return ModuleModel(factory, inputs)
        return MLP(inputs=inputs, hidden=self.hidden)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentTerms:
    """What the coordinator proposes to the clients."""

    task: Task
    seed: int
    model: ModelTerms
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    test: float = 0.2
    validation: float = 0.0


def _counts(value: Any) -> np.ndarray:
    return np.array(value, dtype=np.float64)


Counts = Annotated[np.ndarray, PlainValidator(_counts), PlainSerializer(np.ndarray.tolist)]
"""Rows per (cell, label), (C, 2); lists in JSON."""


class Enrolled(StrictModel):
    """What was agreed, and by which clients; a server keeps it as JSON.

    Parameters
    ----------
    counts : dict of split to dict of client to ndarray (C, 2)
        Rows per (cell, label).
    sha256 : dict of client to str
        Hash of each client's file, as the client reports it.
    refused : dict of client to str
        The reason of each client that stays out.
    warnings : tuple of str
        What makes a client's columns doubtful, as far as sums show it.
    """

    task: Task
    encoder: Encoder
    counts: dict[Split, dict[str, Counts]]
    sha256: dict[str, str]
    refused: dict[str, str]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The sensitive attributes."""
        return self.task.attributes


class _Sums(NamedTuple):
    """What a client tells: sums over its train rows and its others, and the hash of its file."""

    train: EncoderStatistics
    others: EncoderStatistics
    sha256: str


def enrol(
    transport: Transport, names: Sequence[str], terms: EnrolmentTerms, *, minimum: int = 1
) -> Enrolled:
    """Agree with the clients; raise if fewer than `minimum` are left."""
    clients = _Clients(transport, sorted(names), minimum)
    task = terms.task.model_copy(update={"client": None})
    request = make_packet("profile", {"task": task.model_dump(mode="json")})
    profiles = clients.ask(request, _read_profile)
    agreement = agree(list(profiles.values()), task)
    clients.refused |= {name: "; ".join(why) for name, why in agreement.refused.items()}
    split = {
        "task": agreement.task.model_dump(mode="json"),
        "seed": terms.seed,
        "test": terms.test,
        "validation": terms.validation,
    }
    said = clients.ask(make_packet("sums", split), _read_sums)
    encoder = _agreed_encoder(clients, said, split, terms.encoder, agreement.task)
    agreed = split | {"encoder": encoder.to_json(), "model": asdict(terms.model)}
    cells = Cells(agreement.task.attributes).size
    counts = clients.ask(make_packet("encode", agreed), functools.partial(_read_counts, cells))
    by_part: dict[Split, dict[str, np.ndarray]] = {
        part: {name: counts[name][part] for name in counts} for part in SPLITS
    }
    labels = np.sum([rows.sum(axis=0) for rows in by_part["train"].values()], axis=0)
    if (labels == 0).any():
        raise FederationError(
            f"label '{agreement.task.label}': all train rows of all clients hold one value; a "
            "model needs rows with both"
        )
    return Enrolled(
        task=agreement.task,
        encoder=encoder,
        counts=by_part,
        sha256={name: said[name].sha256 for name in counts},
        refused=clients.refused,
        notes=(*agreement.notes, *unrecorded(agreement.task, by_part)),
        warnings=(
            *nameless(agreement.task, [profiles[name] for name in counts]),
            *odd_columns(agreement.task, {n: said[n].train + said[n].others for n in counts}),
        ),
    )


@dataclass(slots=True)
class _Clients:
    """Those that were asked so far, and why some of them stay out."""

    transport: Transport
    names: list[str]
    minimum: int
    refused: dict[str, str] = field(default_factory=dict)

    def ask(self, request: Packet, read: Callable[[str, Packet], T]) -> dict[str, T]:
        """Return each client's parsed answer; one without is refused with the reason."""
        who = [name for name in self.names if name not in self.refused]
        replies = self.transport.exchange(dict.fromkeys(who, request))
        found, reasons = read_replies(who, replies, functools.partial(_checked, read))
        self.refused |= reasons
        if len(found) < self.minimum:
            why = "; ".join(f"{name}: {reason}" for name, reason in sorted(self.refused.items()))
            raise FederationError(
                f"{len(found)} of {len(self.names)} clients take part, at least {self.minimum} "
                f"must ({why})"
            )
        return {name: found[name] for name in sorted(found)}


def _agreed_encoder(
    clients: _Clients,
    said: Mapping[str, _Sums],
    split: Mapping[str, Any],
    config: EncoderConfig,
    task: Task,
) -> Encoder:
    """Fit the encoder to the sums of all clients, and to their counts between cuts."""

    def count(cuts: Cuts) -> dict[str, Histogram]:
        def read(name: str, reply: Packet) -> dict[str, Histogram]:
            rows = {column: said[name].train.numeric[column].count for column in cuts}
            return unpack_histograms(reply, cuts, rows)

        found = clients.ask(pack_cuts(cuts, split), read).values()
        return {name: functools.reduce(operator.add, [f[name] for f in found]) for name in cuts}

    train = functools.reduce(operator.add, [sums.train for sums in said.values()])
    others = [sums.others for sums in said.values()]
    schema = functools.reduce(operator.add, others, train)
    return fit_encoder(config, task, train=train, schema=schema, count=count)


def _read_profile(name: str, reply: Packet) -> Profile:
    found = Profile.model_validate(_expect(reply, "profile")["profile"])
    if found.client != name:
        raise MessageError(f"it describes itself as '{found.client}'")
    return found


def _read_sums(_: str, reply: Packet) -> _Sums:
    said = _expect(reply, "sums")
    train, others = (_SUMS.validate_python(said["sums"][part]) for part in ("train", "others"))
    return _Sums(train, others, str(said["sha256"]))


def _read_counts(cells: int, _: str, reply: Packet) -> dict[str, np.ndarray]:
    _expect(reply, "counts")
    found: dict[str, np.ndarray] = {}
    for part in SPLITS:
        counts = reply.arrays.get(part)
        if counts is None or counts.shape != (cells, 2) or counts.dtype != np.int64:
            raise MessageError(f"its counts of {part} rows are not integers of shape ({cells}, 2)")
        if (counts < 0).any():
            raise MessageError(f"its counts of {part} rows hold a negative number")
        found[part] = counts.astype(np.float64)
    return found


def _checked(read: Callable[[str, Packet], T], name: str, reply: Packet) -> T:
    """Return what `read` makes of a reply; an answer of another form is refused in one line."""
    try:
        return read(name, reply)
    except ValidationError as error:
        raise MessageError(first_problem(error)) from None
    except (KeyError, TypeError) as error:
        raise MessageError(f"its answer lacks a key or has a wrong type: {error}") from None


def _expect(reply: Packet, kind: str) -> dict[str, Any]:
    found, header = read_header(reply)
    if found != kind:
        raise MessageError(f"it answered with '{found}'; '{kind}' was asked for")
    return header
