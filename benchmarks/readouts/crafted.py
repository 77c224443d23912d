"""Crafted requests: fifteen ways to isolate rows by splits, groups, prices, batches and audits.

Each takes a made-up file of ninety people and sends at most a thousand messages; what it says it
read is compared with the file (`tests/attackers.py`, `tests/further_attackers.py`).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import attackers
import further_attackers
from attackers import CATEGORICAL, NAME, Line, Verdict, carry_out
from mfairfl.silo.policy import Policy
from mfairfl.silo.silo_file import SiloSettings

ATTACKS = attackers.ATTACKS | further_attackers.FURTHER

_AGREED = """[task]
label = "hired"
favourable = "yes"
sensitive = [{column = "sex"}, {column = "country"}]
"""


def crafted_requests(name: str, policy: Policy, *, agreed: bool) -> Verdict:
    """Let one attack ask a silo; with `agreed`, one that holds a run.toml."""
    frame = attackers.made_up_file()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        task = folder / "run.toml"
        task.write_text(_AGREED, encoding="utf-8")
        settings = SiloSettings(
            name=NAME,
            csv=attackers.silo_file(folder, frame),
            state=folder / "state",
            task=task if agreed else None,
            audit={
                "label": attackers.LABEL,
                "favourable": attackers.FAVOURABLE,
                "prediction": attackers.DECISION,
                "selected": attackers.FAVOURABLE,
                "sensitive": CATEGORICAL,
            },
        )
        return carry_out(ATTACKS[name], Line(settings, policy), frame)
