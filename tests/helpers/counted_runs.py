"""Run folders whose numbers follow from counts that a test writes down."""

from __future__ import annotations

import numpy as np

from finished_runs import CLIENTS, ROUNDS
from mfairfl.data import Attribute
from mfairfl.fairness import MetricTable, Tally
from mfairfl.runs.config import make_config
from mfairfl.runs.record import StoredTable
from records import CLIENT, make_record

SEX = Attribute("sex", ("F", "M"))


def decided(rows, selected, right=None, of=None):
    """Label × decision of rows of which so many are selected; `right` of them deserved it.

    Unless said otherwise every decision is right; `of` is how many deserve it.
    """
    right = selected if right is None else right
    missed = 0 if of is None else of - right
    return [[rows - selected - missed, selected - right], [missed, right]]


def write_counted(
    folder,
    cells,
    *,
    strategy="mfairfl",
    rule="select",
    tolerance=None,
    attributes=(SEX,),
    splits=("train", "test"),
    fairness=None,
    clients=("north", "south"),
    federation=None,
    more=None,
):
    """Write the folder of a run with these counts (client, cell, label, decision) on each split.

    One table of cells is that of every client; `more` are metrics that counts do not tell.
    """
    counts = np.array(cells)
    counts = np.stack([counts] * len(clients)) if counts.ndim == 3 else counts
    tally = Tally(counts, clients, attributes)
    stored = StoredTable.of(MetricTable.from_tally(tally))
    held = {"rows": tally.n, "name": "people", "sha256": "abc"}
    goal = {"notion": ["demographic_parity"], **(fairness or {})}
    record = make_record(
        config={
            **make_config({}).model_dump(mode="json"),
            "strategy": {"name": strategy},
            "fairness": goal | {"verdict_tolerance": tolerance},
        },
        data=held,
        task={
            "label": "hired",
            "favourable": "yes",
            "unfavourable": "no",
            "sensitive": [{"column": a.name, "groups": a.groups} for a in attributes],
            "numeric": ["skill"],
            "categorical": [a.name for a in attributes],
        },
        federation={
            "scheme": "column",
            "clients": [{"name": name, **CLIENT} for name in clients],
            **(federation or {}),
        },
        served={"rule": rule},
        metrics=dict.fromkeys(splits, stored.metrics.model_dump() | (more or {})),
        intervals=dict.fromkeys(splits, stored.intervals),
        noise_floor=dict.fromkeys(splits, stored.noise_floor),
        constant_classifier=dict.fromkeys(splits, stored.constant_classifier),
        tallies=dict.fromkeys(splits, tally),
    )
    folder.mkdir()
    record.write(folder)
    (folder / "rounds.csv").write_text(ROUNDS, encoding="utf-8")
    (folder / "clients.csv").write_text(CLIENTS, encoding="utf-8")
    return folder
