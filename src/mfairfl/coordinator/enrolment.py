"""Before the first round: one task, one encoder, and counts, without sending files.

Each client describes its file, sends the sums that the encoder is fitted from, counts its rows
between cuts if numbers are encoded by bins (up to four times), and encodes its rows. A client that
does not fit or does not answer stays out, with the reason. One that lacks a sensitive attribute
takes part: its rows are not part of the comparisons of that attribute, and a note says so.
"""

import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from pydantic import PlainSerializer, PlainValidator

from mfairfl.coordinator.transport import Participants, Transport
from mfairfl.data import SPLITS, Attribute, Encoder, EncoderConfig, EncoderStatistics, Split, Task
from mfairfl.data.agreement import Profile, settle
from mfairfl.data.coding import Treated
from mfairfl.data.differences import FEW_ROWS, columns_of_sums, difference_lines, find_differences
from mfairfl.data.encoder import fit_encoder
from mfairfl.data.sums import Histogram
from mfairfl.data.values import MISSING, StrictModel
from mfairfl.errors import FederationError
from mfairfl.fairness.cells import Cells
from mfairfl.text import one_line, some_of
from mfairfl.wire import enrolment_messages as messages
from mfairfl.wire.packing import Packet, pack

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
    model: messages.ModelTerms
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    test: float = 0.2
    validation: float = 0.0
    most_rows: int | None = None


Counts = Annotated[
    np.ndarray,
    PlainValidator(lambda rows: np.array(rows, dtype=np.float64)),
    PlainSerializer(np.ndarray.tolist),
]
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
        What makes a client's columns suspicious, as far as sums show it.
    treatment : tuple of Treated
        What was dropped and filled in, as far as profiles and sums show it.
    """

    task: Task
    encoder: Encoder
    counts: dict[Split, dict[str, Counts]]
    sha256: dict[str, str]
    refused: dict[str, str]
    disclosure: dict[str, messages.SiloDisclosure]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    treatment: tuple[Treated, ...] = ()

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The sensitive attributes."""
        return self.task.attributes

    def rows(self, client: str, split: Split) -> int:
        """Return the rows of a client, with those that it withholds."""
        return int(self.counts[split][client].sum()) + self.disclosure[client].rows[split]


def enrol(
    transport: Transport, names: Sequence[str], terms: EnrolmentTerms, *, minimum: int = 1
) -> Enrolled:
    """Agree with the clients; raise if fewer than `minimum` are left."""
    clients = Participants(transport, sorted(names), minimum)
    task = terms.task.model_copy(update={"client": None})

    profiles = clients.ask(
        pack(messages.ProfileQuestion(task=task)),
        lambda name, reply: messages.read_profile(name, reply, task, terms.most_rows),
    )
    agreement = settle(list(profiles.values()), task)
    clients.refuse({name: "; ".join(why) for name, why in agreement.refused.items()})
    task = agreement.task
    split = {name: getattr(terms, name) for name in ("seed", "test", "validation")}
    split["task"] = task
    answers = clients.ask(
        pack(messages.SumsQuestion(**split)),
        lambda name, reply: messages.read_sums(reply, task, profiles[name].rows),
    )
    encoder = _agreed_encoder(clients, answers, split, terms.encoder, task)
    cells = Cells(task.attributes).size
    counted = clients.ask(
        pack(messages.EncodeQuestion(**split, encoder=encoder, model=terms.model)),
        lambda name, reply: messages.read_counts(reply, cells, answers[name]),
    )
    counts: dict[Split, dict[str, np.ndarray]] = {
        part: {name: tables[part] for name, (tables, _) in counted.items()} for part in SPLITS
    }
    labels = np.sum([rows.sum(axis=0) for rows in counts["train"].values()], axis=0)
    if (labels == 0).any():
        raise FederationError(
            f"label '{task.label}': all train rows of all clients that are counted hold one "
            "value; a model needs rows with both"
        )
    sums = {name: answers[name].train + answers[name].others for name in counted}
    differences = find_differences(
        columns_of_sums(sums), sensitive=[s.column for s in task.sensitive]
    )
    used = {name: answers[name].rows for name in counted}
    return Enrolled(
        task=task,
        encoder=encoder,
        counts=counts,
        sha256={name: answers[name].sha256 for name in counted},
        refused=clients.refused,
        disclosure={name: disclosed for name, (_, disclosed) in counted.items()},
        notes=_lines(*agreement.notes, *_unrecorded(task, counts)),
        warnings=_lines(
            *_dominant(counts),
            *_nameless(task, [profiles[name] for name in counted]),
            *(line for _, line in difference_lines(differences)),
        ),
        treatment=tuple(
            Treated(kind, one_line(line, _NOTE))
            for kind, line in (
                *agreement.treatment,
                *_left_out(profiles, used),
                *_filled_in(sums),
            )
        ),
    )


def _lines(*lines: str) -> tuple[str, ...]:
    """Return notes for people; names of columns and values in them were chosen by clients."""
    return tuple(one_line(line, _NOTE) for line in lines)


def _agreed_encoder(
    clients: Participants,
    answers: Mapping[str, messages.SumsAnswer],
    split: Mapping[str, Any],
    config: EncoderConfig,
    task: Task,
) -> Encoder:
    """Fit the encoder to the sums of all clients, and to their counts between cuts."""

    def count(cuts: messages.Cuts) -> dict[str, Histogram]:
        def read(name: str, reply: Packet) -> dict[str, Histogram]:
            rows = {column: answers[name].train.numeric[column].count for column in cuts}
            return messages.read_histograms(reply, cuts, rows)

        question = messages.CutsQuestion(**split, columns=tuple(cuts), cuts=tuple(cuts.values()))
        counted = clients.ask(pack(question), read).values()
        return {c: functools.reduce(operator.add, [h[c] for h in counted]) for c in cuts}

    train = functools.reduce(operator.add, [sums.train for sums in answers.values()])
    schema = functools.reduce(operator.add, [sums.others for sums in answers.values()], train)
    return fit_encoder(config, task, train=train, schema=schema, count=count)


# ------------------------------------------------------------------ notes and warnings


def _unrecorded(task: Task, counts: Mapping[Split, Mapping[str, np.ndarray]]) -> Iterator[str]:
    """Yield a note for each attribute that is not recorded in all rows of all clients."""
    cells = Cells(task.attributes)
    for grouping in cells.groupings():
        lacking = []
        for name in counts["train"]:
            rows = sum(counts[part][name].sum(axis=1) for part in SPLITS)
            out = int(rows[~grouping.compared].sum())
            lacking += [f"{name} ({out} of {int(rows.sum())} rows)"] * (out > 0)
        if lacking:
            yield (
                f"{grouping.name} is not recorded at {some_of(lacking)}: these rows are outside "
                f"every comparison of {grouping.name}"
            )


def _dominant(counts: Mapping[Split, Mapping[str, np.ndarray]]) -> Iterator[str]:
    """Yield a warning of a client with more train rows than all others together."""
    rows = {name: int(table.sum()) for name, table in counts["train"].items()}
    for name, count in rows.items():
        if len(rows) > 1 and 2 * count > sum(rows.values()):
            yield (
                f"{name} counts {count:,} of {sum(rows.values()):,} train rows: it weighs more "
                "than all others together; if that cannot be, set most_rows in the coordinator's "
                "file"
            )


def _nameless(task: Task, profiles: Sequence[Profile]) -> Iterator[str]:
    """Yield a warning of text columns in which no value is frequent enough to be named."""
    rare = []
    for name in task.categorical or ():
        columns = [column for profile in profiles for column in profile.among([name])]
        values = sum(column.values for column in columns)
        if values >= FEW_ROWS and not any(column.levels for column in columns):
            rare.append(f"{name} ({values:,} values)")
    if rare:
        yield (
            f"no value is frequent enough to be named in {some_of(rare)}: they name rows or are "
            "free text, list them in task.ignore"
        )


def _left_out(profiles: Mapping[str, Profile], rows: Mapping[str, int]) -> Iterator[Treated]:
    """Yield a line for each client that uses fewer rows than its file has."""
    for name, used in rows.items():
        rows_of_file = profiles[name].rows if profiles[name].floor == 1 else used  # else rounded
        if lost := rows_of_file - used:
            of_rows = f"{name}: {lost:,} of {rows_of_file:,} rows left out"
            yield Treated("dropped", f"{of_rows}, values missing where none may be")


def _filled_in(sums: Mapping[str, EncoderStatistics]) -> Iterator[Treated]:
    """Yield a line for each column of which clients lack values."""
    gaps: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}
    for client, statistics in sums.items():
        for name, column in statistics.numeric.items():
            gap = column.missing, column.count + column.missing
            gaps.setdefault((name, "filled with the mean and marked"), {})[client] = gap
        for name, levels in statistics.categorical.items():
            gap = levels.get(MISSING, 0), sum(levels.values())
            gaps.setdefault((name, f"the level '{MISSING}'"), {})[client] = gap
    for (name, how), clients in gaps.items():
        lacking = [f"{c} {missing:,}" for c, (missing, _) in clients.items() if missing]
        if lacking:
            lost, total = (sum(counts) for counts in zip(*clients.values(), strict=True))
            values = f"{lost:,} of {total:,} values missing ({some_of(lacking)})"
            yield Treated("filled", f"column '{name}': {values}, {how}")
