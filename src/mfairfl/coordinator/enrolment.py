"""Before the first round: one task, one encoder, and counts, without sending files.

Each client describes its file, sends the sums that the encoder is fitted from, counts its rows
between cuts if numbers are encoded by bins (up to four times), and encodes its rows. A client that
does not fit or does not answer stays out, with the reason. One that lacks a sensitive attribute
takes part: its rows are not part of the comparisons of that attribute, and a note says so.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import numpy as np
from pydantic import PlainSerializer, PlainValidator

from mfairfl.coordinator.participants import Participants
from mfairfl.coordinator.remarks import (
    dominant,
    filled_in,
    left_out,
    nameless,
    odd_columns,
    unrecorded,
)
from mfairfl.coordinator.transport import Transport
from mfairfl.data import SPLITS, Attribute, Encoder, EncoderConfig, Split, Task
from mfairfl.data.agreement import Profile, settle
from mfairfl.data.binning import Histogram
from mfairfl.data.coding import Treated
from mfairfl.data.encoder import fit_encoder
from mfairfl.data.values import StrictModel
from mfairfl.errors import FederationError, MessageError
from mfairfl.fairness.cells import Cells
from mfairfl.text import one_line
from mfairfl.wire.codec import Packet, make_packet
from mfairfl.wire.enrolment_answers import (
    ModelTerms,
    SiloDisclosure,
    Sums,
    read_counts,
    read_profile,
    read_sums,
)
from mfairfl.wire.histograms import Cuts, pack_cuts, unpack_histograms

_NOTE = 1000  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentTerms:
    """What the coordinator proposes to the clients.

    Parameters
    ----------
    most_rows : int, optional
        Rows that no client has: one that claims more stays out.
    """

    task: Task
    seed: int
    model: ModelTerms
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    test: float = 0.2
    validation: float = 0.0
    most_rows: int | None = None


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
        Fingerprint of each client's file, as the client reports it.
    disclosure : dict of client to SiloDisclosure
        What each client withholds: its counts are 0 there.
    refused : dict of client to str
        The reason of each client that stays out.
    warnings : tuple of str
        What makes a client's columns doubtful, as far as sums show it.
    treatment : tuple of Treated
        What was dropped and filled in, as far as profiles and sums show it.
    """

    task: Task
    encoder: Encoder
    counts: dict[Split, dict[str, Counts]]
    sha256: dict[str, str]
    refused: dict[str, str]
    disclosure: dict[str, SiloDisclosure]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    treatment: tuple[Treated, ...] = ()

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The sensitive attributes."""
        return self.task.attributes

    def rows(self, client: str, split: Split) -> int:
        """Return the rows of a client, with those that it tells nothing more about."""
        return int(self.counts[split][client].sum()) + self.disclosure[client].rows[split]


def enrol(
    transport: Transport, names: Sequence[str], terms: EnrolmentTerms, *, minimum: int = 1
) -> Enrolled:
    """Agree with the clients; raise if fewer than `minimum` are left."""
    clients = Participants(transport, sorted(names), minimum)
    task = terms.task.model_copy(update={"client": None})
    request = make_packet("profile", {"task": task.model_dump(mode="json")})
    profiles = clients.ask(
        request, lambda name, reply: _claimed(read_profile(name, reply, task), terms.most_rows)
    )
    agreement = settle(list(profiles.values()), task)
    clients.refuse({name: "; ".join(why) for name, why in agreement.refused.items()})
    split = {
        "task": agreement.task.model_dump(mode="json"),
        "seed": terms.seed,
        "test": terms.test,
        "validation": terms.validation,
    }
    said = clients.ask(
        make_packet("sums", split),
        lambda name, reply: read_sums(reply, agreement.task, profiles[name].rows),
    )
    encoder = _agreed_encoder(clients, said, split, terms.encoder, agreement.task)
    agreed = split | {"encoder": encoder.to_json(), "model": asdict(terms.model)}
    cells = Cells(agreement.task.attributes).size
    counts = clients.ask(
        make_packet("encode", agreed),
        lambda name, reply: read_counts(reply, cells, said[name]),
    )
    by_part: dict[Split, dict[str, np.ndarray]] = {
        part: {name: counts[name].counts[part] for name in counts} for part in SPLITS
    }
    labels = np.sum([rows.sum(axis=0) for rows in by_part["train"].values()], axis=0)
    if (labels == 0).any():
        raise FederationError(
            f"label '{agreement.task.label}': all train rows of all clients that are counted hold "
            "one value; a model needs rows with both"
        )
    sums = {name: said[name].train + said[name].others for name in counts}
    used = {name: said[name].rows for name in counts}
    done = (*agreement.treatment, *left_out(profiles, used), *filled_in(sums))
    return Enrolled(
        task=agreement.task,
        encoder=encoder,
        counts=by_part,
        sha256={name: said[name].sha256 for name in counts},
        refused=clients.refused,
        disclosure={name: one.disclosure for name, one in counts.items()},
        notes=_lines(*agreement.notes, *unrecorded(agreement.task, by_part)),
        warnings=_lines(
            *dominant(by_part),
            *nameless(agreement.task, [profiles[name] for name in counts]),
            *odd_columns(agreement.task, sums),
        ),
        treatment=tuple(Treated(kind, *_lines(line)) for kind, line in done),
    )


def _claimed(profile: Profile, most_rows: int | None) -> Profile:
    """Refuse a file of more rows than any client has."""
    if most_rows is not None and profile.rows > most_rows:
        raise MessageError(
            f"it claims {profile.rows:,} rows; most_rows in the coordinator's file allows "
            f"{most_rows:,}"
        )
    return profile


def _lines(*lines: str) -> tuple[str, ...]:
    """Return notes for people; names of columns and values in them were chosen by clients."""
    return tuple(one_line(line, _NOTE) for line in lines)


def _agreed_encoder(
    clients: Participants,
    said: Mapping[str, Sums],
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
