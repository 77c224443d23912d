"""Silos with files of predictions, asked in this process, and the same rows in one table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import federations as fed
from mfairfl.data.columns import columns_of
from mfairfl.data.predictions import PredictedRows, PredictionColumns, read_predictions
from mfairfl.data.sums import stand_in
from mfairfl.engine.state import Refusal
from mfairfl.errors import MfairflError
from mfairfl.fairness.audit_counts import AuditCounts, ScoreGrid
from mfairfl.runs.silo_runs import read_consent
from mfairfl.silo.policy import Policy
from mfairfl.silo.responder import Responder
from mfairfl.silo.silo_file import AuditConsent, SiloSettings
from mfairfl.wire.packing import Packet

SILOS = ("east", "north", "west")
COLUMNS = PredictionColumns(
    sensitive=("sex", "race"),
    label="hired",
    favourable="yes",
    prediction="decision",
    score="score",
)
CONSENT = {
    "label": "hired",
    "prediction": "decision",
    "score": "score",
    "sensitive": ("sex", "race"),
}


def predictions(rows: int = 400, seed: int = 3) -> pd.DataFrame:
    """People of three silos; every silo has many of every group and label, known or not."""
    rng = np.random.default_rng(seed)
    n = 3 * rows
    sex, race = rng.choice(["F", "M"], n), rng.choice(["Black", "White"], n)
    score = np.clip(rng.beta(2, 2, n) + 0.1 * (sex == "M"), 0, 1).round(3)
    hired = np.where(rng.random(n) < score, "yes", "no")
    return pd.DataFrame(
        {
            "silo": np.repeat(SILOS, rows),
            "sex": sex,
            "race": race,
            "hired": np.where(rng.random(n) < 0.3, "", hired),
            "decision": np.where(score > 0.5, "yes", "no"),
            "score": score,
        }
    )


def policy(min_rows: int = 10, **values: Any) -> Policy:
    return fed.policy(min_rows=min_rows, **values)


def write_silos(
    folder: Path, frame: pd.DataFrame, consent: Mapping[str, Any] = CONSENT
) -> dict[str, SiloSettings]:
    """Write each silo's rows; return the silos' settings."""
    found = {}
    for name, part in frame.groupby("silo"):
        path = folder / f"{name}.csv"
        part.drop(columns="silo").to_csv(path, index=False)
        found[str(name)] = SiloSettings(
            name=str(name),
            csv=path,
            state=folder / "state" / str(name),
            audit=AuditConsent(**consent),
        )
    return found


class Silos:
    """A transport to responders in this process."""

    def __init__(
        self,
        settings: Mapping[str, SiloSettings],
        policies: Policy | Mapping[str, Policy] | None = None,
    ) -> None:
        each = policies if isinstance(policies, dict) else dict.fromkeys(settings, policies)
        self.responders = {
            name: Responder(silo, each[name], read_consent(silo))
            for name, silo in settings.items()
        }
        self.kept: list[dict[str, Packet | Refusal]] = []

    def exchange(self, asks: Mapping[str, Packet]) -> dict[str, Packet | Refusal]:
        self.kept.append({name: self._answer(name, ask) for name, ask in asks.items()})
        return self.kept[-1]

    def _answer(self, name: str, ask: Packet) -> Packet | Refusal:
        try:
            return self.responders[name].handle("audit-1", ask)
        except MfairflError as error:
            return Refusal(str(error))


def pooled(
    frame: pd.DataFrame,
    roles: PredictionColumns = COLUMNS,
    grid: ScoreGrid | None = None,
    floor: int = 1,
) -> AuditCounts:
    """Count the rows of all silos in one table.

    With a floor, scores of neighbouring rows of a silo, group and label count as one.
    """
    roles = roles.model_copy(update={"client": "silo"})
    rows = read_predictions(columns_of(frame, "all"), roles, "all")
    return AuditCounts.from_rows(
        rows.labels,
        rows.decisions,
        sensitive_features=dict(rows.groups),
        clients=rows.clients,
        scores=rows.scores if floor == 1 else told_scores(rows, floor),
        grid=grid,
    )


def told_scores(rows: PredictedRows, floor: int) -> np.ndarray | None:
    """Scores as a silo with a floor counts them, worked out one value after the other."""
    if rows.scores is None:
        return None
    labels = [None] * len(rows.scores) if rows.labels is None else rows.labels
    keys = list(zip(rows.clients, labels, *rows.groups.values(), strict=True))
    told = rows.scores.copy()
    for key in set(keys):
        left = sorted(i for i, own in enumerate(keys) if own == key)
        left.sort(key=lambda i: rows.scores[i])
        groups: list[list[int]] = [[]]
        for place, i in enumerate(left):
            other = place and rows.scores[i] != rows.scores[left[place - 1]]
            if other and len(groups[-1]) >= floor:
                groups.append([])
            groups[-1].append(i)
        if len(groups) > 1 and len(groups[-1]) < floor:
            groups[-2:] = [groups[-2] + groups[-1]]
        for group in groups:
            told[group] = stand_in(rows.scores[group], floor)[0]
    return told


def assert_same(one: AuditCounts, other: AuditCounts) -> None:
    """All that two counts hold is the same, to the bit."""
    assert (one.clients, one.attributes, one.grid) == (other.clients, other.attributes, other.grid)
    for name in ("decided", "scored", "hidden", "withheld"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert (one.sums is None) == (other.sums is None)
    for a, b in zip(one.sums or (), other.sums or (), strict=True):
        assert np.array_equal(a.histogram.counts, b.histogram.counts)
        for name in ("rows", "sums", "losses"):
            assert np.array_equal(getattr(a, name), getattr(b, name)), name
