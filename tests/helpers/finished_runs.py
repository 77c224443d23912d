"""Run directories of finished runs, written by hand, and what a figure of them shows."""

from __future__ import annotations

import numpy as np

from records import make_record

ROUNDS = """\
round,train_accuracy,train_demographic_parity_violation,test_accuracy,\
test_demographic_parity_violation,train_violation,test_violation
0,0.25,0,0.2,0,0,0
1,0.7,0.3,0.6,,0.3,
2,0.8,0.1,nan,0.2,0.1,0.2
3,0.75,0.05,0.7,0.15,0.05,0.15
"""
CLIENTS = """\
round,client,coefficient,train_rows
0,NA,,30
0,$b^$,,10
1,NA,0.6,30
1,$b^$,0.4,10
2,NA,,30
2,$b^$,1.0,10
3,NA,0.9,30
3,$b^$,-0.1,10
"""


def cell(accuracy, selected, found):
    keys = ("accuracy", "selection_rate", "true_positive_rate")
    return {"n": 50, **dict(zip(keys, (accuracy, selected, found), strict=True))}


def ranges(cells):
    """Intervals that reach 0.01 to either side."""
    return {
        whom: {k: None if v is None else [v - 0.01, v + 0.01] for k, v in one.items() if k != "n"}
        for whom, one in cells.items()
    }


def write_run(
    folder,
    *,
    strategy="fedavg",
    served=("round 2",),
    notion=None,
    status="complete",
    seed=0,
    accuracy=0.8,
    violation=0.2,
    groups=None,
    clients=None,
    note="",
    thresholds=None,
):
    groups = groups or {"f": cell(0.9, 0.1, 0.5), "m": cell(0.7, 0.3, None)}
    clients = clients or {"NA": cell(0.85, 0.2, 0.4), "$b^$": cell(0.75, 0.2, 0.4)}
    values = {
        "accuracy": accuracy,
        "demographic_parity_violation": violation,
        "worst_client_accuracy": min(c["accuracy"] for c in clients.values()),
        "client_accuracy_gap": 0.1,
    }
    spans = {name: None if v is None else [v - 0.02, v + 0.02] for name, v in values.items()}
    record = make_record(
        status=status,
        config={
            "strategy": {"name": strategy},
            "fairness": {"notion": notion or ["demographic_parity"]},
        },
        federation={"seed": seed},
        clients=clients,
        served={"names": list(served), "note": note, "thresholds": thresholds},
        metrics={"test": {**values, "by_group": {"sex": groups}, "by_client": clients}},
        intervals={
            "test": {
                "level": 0.95,
                **spans,
                "by_group": {"sex": ranges(groups)},
                "by_client": ranges(clients),
            }
        },
        noise_floor={"test": {"demographic_parity_violation": 0.03}},
        constant_classifier={"test": {}},
    )
    folder.mkdir()
    record.write(folder)
    (folder / "rounds.csv").write_text(ROUNDS, encoding="utf-8")
    (folder / "clients.csv").write_text(CLIENTS, encoding="utf-8")
    return folder


def drawn(panel, label):
    """Return x and y of the one line of this label."""
    (line,) = [line for line in panel.lines if line.get_label() == label]
    return [float(x) for x in line.get_xdata()], [float(y) for y in line.get_ydata()]


def same(found, expected):
    return np.array_equal(found, expected, equal_nan=True)
