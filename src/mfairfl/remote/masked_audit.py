"""An audit's counts under masks: what silos withhold is told of each, what they count of all.

Of a single silo are told: the names of its groups, which groups and labels it withholds and how
many rows those are, its floor and the hash of its file. In the result all counts are those of one
client, `EVERYBODY`; the silos stand beside it with what they withhold, so that bounds still
contain the numbers of all rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import ValidationError

from mfairfl.errors import FederationError, MessageError, MfairflError, first_problem
from mfairfl.fairness.audit_counts import AuditCounts
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.histogram import ScoreHistogram
from mfairfl.fairness.masked import EVERYBODY
from mfairfl.fairness.scores import CALIBRATION_BINS, LOGIT_BINS, RowScores, ScoreSums
from mfairfl.guard.modular import Words, fixed_words, from_fixed, from_whole, whole_words
from mfairfl.remote.audit_answers import SiloFacts
from mfairfl.remote.audit_questions import AuditAsk, pack_audit
from mfairfl.remote.codec import ArrayForm, Packet
from mfairfl.remote.mask_keys import AllSilos
from mfairfl.remote.masked_forms import within_bins
from mfairfl.remote.masked_messages import Parts, read_masked, total_words
from mfairfl.remote.participants import Participants
from mfairfl.strict_json import JsonLimits

__all__ = ["hide_audit", "sum_counts"]

_FACTS = JsonLimits(characters=4096, values=64)
_WHOLE, _ROUNDED = ("decided", "scored", "histogram", "rows"), ("sums", "losses")


def hide_audit(question: Mapping[str, Any], answer: Packet, silos: int) -> Parts:
    """Take a silo's counts apart."""
    del question
    header = json.loads(answer.text)
    told = {key: header[key] for key in header if key not in ("version", "kind")}
    arrays = {name: answer.arrays[name] for name in ("hidden", "withheld")}
    words = [whole_words(answer.arrays[name]) for name in _WHOLE if name in answer.arrays]
    words += [
        fixed_words(answer.arrays[name], silos) for name in _ROUNDED if name in answer.arrays
    ]
    return Parts(told, arrays, np.concatenate(words))


def sum_counts(silos: Participants, ask: AuditAsk) -> tuple[AuditCounts, dict[str, SiloFacts]]:
    """Ask silos for counts; return their sum, and what each tells beside it."""
    ready, shapes = AllSilos.ready(silos), _shapes(ask)
    cells = Cells(ask.attributes).size
    forms = {
        "hidden": ArrayForm(np.int64, (cells, 3)),
        "withheld": ArrayForm(np.int64, (1,)),
    }
    many = sum(int(np.prod(shape)) for shape in shapes.values())

    def read(name: str, reply: Packet) -> tuple[Parts, SiloFacts]:
        del name
        parts = read_masked(reply, forms, many, _FACTS)
        return parts, _facts(parts)

    found = ready.ask(pack_audit(ask), read)
    parts = {name: one for name, (one, _) in found.items()}
    try:
        counts = _counts(ask, parts, _opened(total_words(list(parts.values())), shapes))
    except MfairflError as error:
        raise FederationError(f"the sums over all silos cannot be true: {error}") from None
    return counts, {name: facts for name, (_, facts) in found.items()}


def _facts(parts: Parts) -> SiloFacts:
    if not np.isin(parts.arrays["hidden"], (0, 1)).all() or parts.arrays["withheld"][0] < 0:
        raise MessageError("what it withholds cannot be")
    try:
        return SiloFacts.model_validate(parts.told)
    except ValidationError as error:
        raise MessageError(first_problem(error)) from None


def _shapes(ask: AuditAsk) -> dict[str, tuple[int, ...]]:
    """Return the arrays that are summed, in the order of their words."""
    cells, grid = Cells(ask.attributes).size, ask.grid
    found: dict[str, tuple[int, ...]] = {"decided": (cells, 3, 2)}
    if grid is not None:
        found["scored"] = (cells, 3, len(grid.edges) + 1)
        if grid.probabilities:
            bins = (cells, 2, CALIBRATION_BINS)
            found |= {"histogram": (cells, 2, LOGIT_BINS), "rows": bins}
            found |= {"sums": bins, "losses": (cells, 2)}
    return found


def _opened(total: Words, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])
    return {
        name: (from_fixed(part) if name in _ROUNDED else from_whole(part)).reshape(shape)
        for (name, shape), part in zip(shapes.items(), np.split(total, ends[:-1]), strict=True)
    }


def _counts(
    ask: AuditAsk, parts: Mapping[str, Parts], total: Mapping[str, np.ndarray]
) -> AuditCounts:
    """Return the sums as those of one client, beside silos with what each withholds."""
    silos, cells = len(parts), Cells(ask.attributes).size
    return AuditCounts(
        decided=_alone(total["decided"], silos),
        clients=(EVERYBODY, *parts),
        attributes=ask.attributes,
        grid=ask.grid,
        scored=_alone(total["scored"], silos) if "scored" in total else None,
        sums=_score_sums(total, silos, cells) if "sums" in total else None,
        hidden=np.stack(
            [np.zeros((cells, 3), dtype=bool)]
            + [one.arrays["hidden"].astype(bool) for one in parts.values()]
        ),
        withheld=np.array([0, *(int(one.arrays["withheld"][0]) for one in parts.values())]),
    )


def _alone(total: np.ndarray, silos: int) -> np.ndarray:
    """Put zeros for every silo after the sum."""
    return np.concatenate([total[None], np.zeros((silos, *total.shape), total.dtype)])


def _score_sums(total: Mapping[str, np.ndarray], silos: int, cells: int) -> tuple[ScoreSums, ...]:
    nothing = ScoreSums.from_rows(RowScores.from_logits([]), [], [], size=cells)
    whole = ScoreSums(
        ScoreHistogram(total["histogram"]),
        total["rows"],
        within_bins(total["sums"], total["rows"], silos),
        total["losses"],
    )
    return (whole, *[nothing] * silos)
