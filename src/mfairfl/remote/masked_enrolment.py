"""Before the first round, under masks: one task, one encoder, and counts over all silos.

Silos describe their files without counts and name the levels of their columns. Who does not fit,
or gives no keys, stays out. From then on the roster is fixed: what the encoder is fitted from,
rows between cuts and counts are summed over all that are left, and each of them must answer. The
same command can be given again; with fewer silos it would be refused by those that have answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from mfairfl.data import SPLITS, EncoderConfig, EncoderStatistics, Split, Task
from mfairfl.data.agreement import Agreement, Profile, settle
from mfairfl.data.binning import Histogram
from mfairfl.data.encoder import Encoder, fit_encoder
from mfairfl.data.treatment import Treated
from mfairfl.errors import FederationError
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.masked import EVERYBODY
from mfairfl.guard.rosters import FEWEST
from mfairfl.remote.codec import make_packet
from mfairfl.remote.enrolment import Enrolled, EnrolmentTerms, claimed, note_lines
from mfairfl.remote.enrolment_answers import read_profile
from mfairfl.remote.histograms import Cuts, pack_cuts
from mfairfl.remote.mask_keys import AllSilos
from mfairfl.remote.masked_messages import total_words
from mfairfl.remote.masked_tables import (
    FileFacts,
    Levels,
    MaskedCounts,
    open_counts,
    open_histograms,
    open_sums,
    read_counts,
    read_histograms,
    read_levels,
    read_sums,
)
from mfairfl.remote.participants import Participants
from mfairfl.remote.remarks import (
    dominant,
    filled_in,
    left_out,
    nameless,
    odd_columns,
    unrecorded,
)
from mfairfl.remote.transport import Transport

__all__ = ["enrol_masked"]


def enrol_masked(
    transport: Transport, names: Sequence[str], terms: EnrolmentTerms, *, minimum: int = FEWEST
) -> Enrolled:
    """Agree with the silos; raise if fewer than `minimum`, or than three, are left."""
    clients = Participants(transport, sorted(names), max(minimum, FEWEST))
    task = terms.task.model_copy(update={"client": None})
    request = make_packet("profile", {"task": task.model_dump(mode="json")})
    profiles = clients.ask(
        request, lambda name, reply: claimed(read_profile(name, reply, task), terms.most_rows)
    )
    agreement = settle(list(profiles.values()), task)
    clients.refuse({name: "; ".join(why) for name, why in agreement.refused.items()})
    split = {
        "task": agreement.task.model_dump(mode="json"),
        "seed": terms.seed,
        "test": terms.test,
        "validation": terms.validation,
    }
    levels = _agreed_levels(clients, split, agreement.task)
    silos = AllSilos.ready(clients)
    found = silos.ask(
        make_packet("sums", {**split, "levels": levels}),
        lambda name, reply: read_sums(reply, agreement.task, levels, profiles[name].rows),
    )
    facts = {name: one for name, (_, one) in found.items()}
    sums = open_sums(
        total_words([one for one, _ in found.values()]),
        agreement.task,
        levels,
        sum(one.rows for one in facts.values()),
    )
    encoder = _agreed_encoder(silos, sums, split, terms.encoder, agreement.task)
    agreed = split | {"encoder": encoder.to_json(), "model": asdict(terms.model)}
    cells = Cells(agreement.task.attributes).size
    counted = silos.ask(
        make_packet("encode", agreed), lambda name, reply: read_counts(reply, cells, facts[name])
    )
    tables = list(counted.values())
    whole = open_counts(total_words([one.parts for one in tables]), cells, tables)
    _require_both_labels(whole["train"], agreement.task)
    return _enrolled(
        agreement,
        encoder,
        profiles,
        facts=facts,
        sums=sums,
        counted=counted,
        whole=whole,
        refused=clients.refused,
    )


def _agreed_levels(clients: Participants, split: Mapping[str, Any], task: Task) -> Levels:
    """Return all names of levels, by column, in their order."""
    told = clients.ask(make_packet("levels", split), lambda _, reply: read_levels(reply, task))
    return {
        column: sorted({level for own in told.values() for level in own[column]})
        for column in task.categorical or ()
    }


def _agreed_encoder(
    silos: AllSilos,
    sums: Sequence[EncoderStatistics],
    split: Mapping[str, Any],
    config: EncoderConfig,
    task: Task,
) -> Encoder:
    """Fit the encoder to the sums of all silos, and to their counts between cuts."""
    train, others = sums

    def count(cuts: Cuts) -> dict[str, Histogram]:
        found = silos.ask(pack_cuts(cuts, split), lambda _, reply: read_histograms(reply, cuts))
        rows = {column: train.numeric[column].count for column in cuts}
        parts = list(found.values())
        return open_histograms(total_words(parts), parts, cuts, rows)

    return fit_encoder(config, task, train=train, schema=train + others, count=count)


def _require_both_labels(train: np.ndarray, task: Task) -> None:
    if (train.sum(axis=0) == 0).any():
        raise FederationError(
            f"label '{task.label}': all train rows of all clients hold one value; a model needs "
            "rows with both"
        )


def _enrolled(
    agreement: Agreement,
    encoder: Encoder,
    profiles: Mapping[str, Profile],
    *,
    facts: Mapping[str, FileFacts],
    sums: Sequence[EncoderStatistics],
    counted: Mapping[str, MaskedCounts],
    whole: dict[Split, np.ndarray],
    refused: dict[str, str],
) -> Enrolled:
    """Put together what was agreed; remarks are about all silos together."""
    task, together = agreement.task, {EVERYBODY: sums[0] + sums[1]}
    counts: dict[Split, dict[str, np.ndarray]] = {
        part: {
            name: np.array([[float(own.rows[part] - own.disclosure.rows[part])]])
            for name, own in counted.items()
        }
        for part in SPLITS
    }
    used = {name: one.rows for name, one in facts.items()}
    everybody: dict[Split, dict[str, np.ndarray]] = {p: {EVERYBODY: t} for p, t in whole.items()}
    done = (*agreement.treatment, *left_out(profiles, used), *filled_in(together))
    return Enrolled(
        task=task,
        encoder=encoder,
        counts=counts,
        sha256={name: one.sha256 for name, one in facts.items()},
        refused=refused,
        disclosure={name: own.disclosure for name, own in counted.items()},
        notes=note_lines(*agreement.notes, *unrecorded(task, everybody)),
        warnings=note_lines(
            *dominant(counts),
            *nameless(task, [profiles[name] for name in counted]),
            *odd_columns(task, together),
        ),
        treatment=tuple(Treated(kind, *note_lines(line)) for kind, line in done),
        whole=whole,
    )
