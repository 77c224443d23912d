"""A silo that holds rows of Adult, the line to it, and the judge of what was read.

Everything runs in this process. The coordinator sees answers only, as over a network; the file is
opened again by the judge alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import mfairfl
import mfairfl.models
from attackers import NAME, Coordinator, Line
from mfairfl.coordinator.enrolment import EnrolmentTerms, enrol
from mfairfl.data import Encoder, Task
from mfairfl.data.encoder import CategoricalColumn, NumericColumn
from mfairfl.engine.state import Measure, Score
from mfairfl.fairness.cells import SUMS, Cells
from mfairfl.silo.policy import Policy
from mfairfl.silo.silo_file import SiloSettings
from mfairfl.wire.enrolment_messages import ModelTerms
from mfairfl.wire.packing import Packet, make_packet
from mfairfl.wire.run_messages import pack_ask

LABEL, HIGH, LOW = "income", "high", "low"
SPLITS = ("train", "test")
HIDDEN = (64, 64)  # the default model
RARE = "(rare)"  # stands for every level that the encoder does not tell from other rare ones
SIZES = {  # numbers from 0, all whole; Adult's documentation gives the ranges
    "age": 100,
    "education-num": 17,
    "capital-gain": 100_000,
    "capital-loss": 5_000,
    "hours-per-week": 100,
}


def adult_rows(seed: int, count: int) -> pd.DataFrame:
    """Return so many rows of the bundled Adult, drawn at random, with their label."""
    adult = mfairfl.load_dataset("adult", offline=True)
    chosen = np.random.default_rng(seed).choice(len(adult), count, replace=False)
    frame = adult.X.iloc[chosen].reset_index(drop=True)
    frame[LABEL] = np.where(adult.y[chosen] == 1, HIGH, LOW)
    return frame


def adult_task(*sensitive: Any) -> Task:
    """Return a task in which nothing is left for a file to decide; by default about sex."""
    adult = mfairfl.load_dataset("adult", offline=True)
    return Task.model_validate(
        {
            "label": LABEL,
            "favourable": HIGH,
            "unfavourable": LOW,
            "sensitive": sensitive or [{"column": "sex", "groups": ("Female", "Male")}],
            "numeric": adult.task.numeric,
            "categorical": adult.task.categorical,
        }
    )


def exact_encoder() -> Encoder:
    """Return an encoder of the coordinator's choice: the numbers as they are, every level."""
    adult = mfairfl.load_dataset("adult", offline=True)
    return Encoder(
        numeric=tuple(
            NumericColumn(name=name, mean=0.0, scale=1.0, indicator=False)
            for name in adult.task.numeric
        ),
        categorical=tuple(
            CategoricalColumn(name=name, levels=tuple(sorted(adult.X[name].unique())))
            for name in adult.task.categorical
        ),
        unknown_category="ignore",
    )


_AGREED = f"""[task]
label = "{LABEL}"
favourable = "{HIGH}"
sensitive = [{{column = "sex"}}]
"""


def line_to(folder: Path, frame: pd.DataFrame, *, agreed: bool = False, audit: Any = None) -> Line:
    """Write the silo's file; return the line to it, under the default policy.

    With `agreed` it also holds a run.toml: the task, and defaults for all else.
    """
    csv, task = folder / "silo.csv", folder / "run.toml"
    frame.to_csv(csv, index=False)
    task.write_text(_AGREED, encoding="utf-8")
    own = {"task": task} if agreed else {}
    settings = SiloSettings(name=NAME, csv=csv, state=folder / "state", audit=audit, **own)
    return Line(settings, Policy(), budget=10**6)


class RefusedError(Exception):
    """The silo did not answer."""


class Run(Coordinator):
    """One run with a silo: enrolment, scores and sums of train and test rows together.

    `exact` says whether numbers are inputs as they are, and every level has one; `cells` is how
    many combinations of groups an honest enrolment agreed on.
    """

    exact: bool
    cells: int

    def enrol_freely(self, task: Task, encoder: Encoder, hidden: Sequence[int] = HIDDEN) -> None:
        """Enrol with an encoder and a model that nobody agreed to."""
        said = {"task": task.model_dump(mode="json"), "seed": 0, "test": 0.2, "validation": 0.0}
        said |= {
            "encoder": encoder.model_dump(mode="json"),
            "model": {"kind": "mlp", "hidden": [*hidden]},
        }
        self._answer(make_packet("encode", said))
        self._begin(encoder, hidden, exact=True)

    def enrol_as_agreed(self, task: Task) -> None:
        """Enrol as an honest coordinator does: default encoder and model, fitted to answers."""
        terms = EnrolmentTerms(task=task, seed=0, model=ModelTerms(hidden=HIDDEN))
        enrolled = enrol(self, [NAME], terms)
        self.cells = Cells(enrolled.attributes).size
        self._begin(enrolled.encoder, HIDDEN, exact=False)

    def exchange(self, asks: Mapping[str, Packet]) -> dict[str, Packet]:
        """Carry the messages of an honest enrolment."""
        return {name: self._answer(packet) for name, packet in asks.items()}

    def logit_counts(self, model: np.ndarray) -> np.ndarray:
        """Return rows by split, cell, label and bin of the model's logit."""
        answer = self._answer(pack_ask(Score(model, SPLITS, None, None, False), NAME))
        return np.stack([answer.arrays[f"scores/{split}/histogram"] for split in SPLITS])

    def losses(self, models: Sequence[np.ndarray]) -> np.ndarray:
        """Return sums of losses by model, split, cell and label."""
        most, found = self.line.policy.disclosure.models, []
        for first in range(0, len(models), most):
            part = tuple(models[first : first + most])
            answer = self._answer(pack_ask(Measure(part, SPLITS, None, None, None), NAME))
            found += [
                np.stack(
                    [answer.arrays[f"sums/{i}/{split}"][SUMS.index("losses")] for split in SPLITS]
                )
                for i in range(len(part))
            ]
        return np.array(found)

    def _begin(self, encoder: Encoder, hidden: Sequence[int], *, exact: bool) -> None:
        self.encoder, self.exact = encoder, exact
        self.model = mfairfl.models.MLP(len(encoder.feature_names), tuple(hidden))

    def _answer(self, packet: Packet) -> Packet:
        answer = self.line.ask(packet, self.run)
        if answer is None:
            raise RefusedError(self.line.reason)
        return answer


class Reading(NamedTuple):
    """What of a file was read.

    Parameters
    ----------
    right : int
        Rows right in every column; a level without an input of its own is told to be rare.
    named : int
        Those of them without such a level.
    wrong : int
        Claims that fit no further row.
    """

    right: int
    named: int
    wrong: int


def judge_rows(claims: pd.DataFrame, rows: pd.DataFrame, encoder: Encoder) -> Reading:
    """Compare claims with the rows of the file, all columns; each row is found once at most."""
    true = rows.copy()
    for column in encoder.categorical:
        told = true[column.name].isin(column.levels)
        true[column.name] = true[column.name].where(told, RARE)
    held, claimed = _counted(true), _counted(claims[true.columns])
    found = {row: min(count, held[row]) for row, count in claimed.items()}
    named = sum(count for row, count in found.items() if RARE not in row)
    right = sum(found.values())
    return Reading(right, named, claimed.total() - right)


def _counted(frame: pd.DataFrame) -> Counter[tuple[Any, ...]]:
    return Counter(frame.itertuples(index=False, name=None))
