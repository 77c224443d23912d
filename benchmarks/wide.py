"""One epoch and one measurement with very many categories, against a narrow form of the same rows.

Side by side in one run, on one thread, for the default model:

narrow   without the two widest columns,
indices  all columns, categories held as indices (what mfairfl does),
dense    all columns, every input a number (what it did before).

The table is made up in the form of ACSIncome: two numbers, categories of 530, 224 and six small
numbers of levels. With a file (a reduced table of ACSIncome) its own rows are taken, `--rows` of
them drawn at random. Times are the best of alternating repetitions, in processor seconds; ratios
are to the narrowest form. Aim: indices at most 2 ×.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from mfairfl.data import (
    EncoderConfig,
    Federation,
    Inputs,
    Table,
    Task,
    partition,
    table_from_frame,
)
from mfairfl.models import MLP
from mfairfl.randomness import stream
from mfairfl.training.arithmetic import steady_arithmetic
from mfairfl.training.batches import Pool
from mfairfl.training.measure import Probe, measure
from mfairfl.training.plan import Recipe
from mfairfl.training.trainer import Work, run_works

AIM = 2.0
LEVELS = {"COW": 8, "SCHL": 24, "MAR": 4, "OCCP": 530, "POBP": 224, "RELP": 18, "RAC1P": 5}
WIDEST = ("OCCP", "POBP")
NUMBERS = ("AGEP", "WKHP")
CLIENTS = 20


@dataclass(frozen=True)
class Form:
    """A way to hold the rows."""

    name: str
    pool: Pool
    ranges: list[range]
    inputs: int
    nbytes: int

    @classmethod
    def of(cls, name: str, federation: Federation, *, dense: bool = False) -> Form:
        """Take the train rows of a federation."""
        held = [(c.train.inputs, c.train.y, c.train.cells) for c in federation.clients]
        if dense:
            whole = federation.pooled("train").X
            ends = np.cumsum([0, *(len(y) for _, y, _ in held)]).tolist()
            held = [
                (Inputs.of(whole[a:b]), y, cells)
                for (_, y, cells), a, b in zip(held, ends[:-1], ends[1:], strict=True)
            ]
        pool, ranges = Pool.from_arrays(held, cells=2)
        nbytes = sum(one.nbytes for one, _, _ in held)
        return cls(name, pool, ranges, federation.pool.inputs.width, nbytes)

    def train(self) -> None:
        """Take one epoch of every client."""
        model, plan = MLP(self.inputs), Recipe(local_epochs=1).plan(0, 1)
        start = model.init(stream(0, "init"))
        works = [
            Work(plan=plan, start=start, rows=rows, rng=stream(0, "batches", k))
            for k, rows in enumerate(self.ranges)
        ]
        with steady_arithmetic():
            run_works(works, model, self.pool)

    def measure(self) -> None:
        """Measure one model on the rows of every client."""
        model = MLP(self.inputs)
        weights = model.init(stream(0, "init"))
        with steady_arithmetic():
            measure([Probe(weights, rows) for rows in self.ranges], model, self.pool)


def made_up(rows: int) -> pd.DataFrame:
    """Draw people; few levels of a column are frequent, most are rare, as in a census."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"AGEP": rng.integers(17, 95, rows), "WKHP": rng.integers(1, 99, rows)})
    for column, levels in LEVELS.items():
        chance = 1 / np.arange(3, levels + 3)
        frame[column] = rng.choice(levels, size=rows, p=chance / chance.sum()).astype(str)
    frame["SEX"] = rng.choice(["1", "2"], size=rows)
    lean = (frame["AGEP"] + frame["WKHP"]) / 60 + rng.normal(size=rows)
    return frame.assign(PINCP=np.where(lean > lean.median(), "more", "less"))


def from_file(file: Path, rows: int) -> pd.DataFrame:
    """Draw rows of a reduced table of ACSIncome."""
    frame = pd.read_parquet(file) if file.suffix == ".parquet" else pd.read_csv(file)
    frame = frame.sample(min(rows, len(frame)), random_state=0).reset_index(drop=True)
    codes = {column: frame[column].astype(str) for column in [*LEVELS, "SEX"]}
    income = frame["PINCP"]
    if pd.api.types.is_numeric_dtype(income):
        income = pd.Series(np.where(income > 50_000, "more", "less"))
    return frame[list(NUMBERS)].assign(**codes, PINCP=income)


def table_of(frame: pd.DataFrame, without: Sequence[str] = ()) -> Table:
    """Read the frame with the columns as they are meant."""
    categorical = tuple(one for one in [*LEVELS, "SEX"] if one not in without)
    task = Task(
        label="PINCP",
        favourable=max(frame["PINCP"].unique()),
        sensitive=("SEX",),
        numeric=NUMBERS,
        categorical=categorical,
    )
    return table_from_frame(frame.drop(columns=list(without)), task, name="acs")


def forms_of(frame: pd.DataFrame) -> list[Form]:
    """Encode the rows in every form, the narrowest first."""
    found = []
    for numeric in ("standard", "bins"):
        encoder = EncoderConfig(numeric=numeric)
        narrow, wide = (
            partition(table_of(frame, without), "iid", clients=CLIENTS, encoder=encoder)
            for without in (WIDEST, ())
        )
        found += [
            Form.of(f"narrow, {numeric}", narrow),
            Form.of(f"indices, {numeric}", wide),
            Form.of(f"dense, {numeric}", wide, dense=True),
        ]
    return found


def best(repeats: int, functions: Sequence[Callable[[], None]]) -> list[float]:
    """Return each function's least processor time over alternating repetitions."""
    times = [float("inf")] * len(functions)
    for _ in range(repeats):
        for i, function in enumerate(functions):
            start = time.process_time()
            function()
            times[i] = min(times[i], time.process_time() - start)
    return times


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", help="a reduced table of ACSIncome")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=4)
    given = parser.parse_args()
    frame = made_up(given.rows) if given.file is None else from_file(given.file, given.rows)
    forms = forms_of(frame)
    asked = [form.train for form in forms] + [form.measure for form in forms]
    times = best(given.repeats, asked)
    trained, measured = times[: len(forms)], times[len(forms) :]
    source = "made up in the form of ACSIncome" if given.file is None else "of ACSIncome"
    print(
        f"{len(frame):,} rows {source}, {sum(map(len, forms[0].ranges)):,} of them to train on, "
        f"{CLIENTS} clients; torch {torch.__version__.split('+')[0]}, one thread, "
        f"best of {given.repeats}; aim: indices at most {AIM:g} ×"
    )
    head = f"{'form':<18} {'inputs':>6} {'MB held':>8} {'epoch s':>8} {'×':>6}"
    print(f"{head} {'measure s':>9} {'×':>6}")
    for form, epoch, once in zip(forms, trained, measured, strict=True):
        print(
            f"{form.name:<18} {form.inputs:>6} {form.nbytes / 1e6:8.1f} {epoch:8.2f} "
            f"{epoch / trained[0]:6.2f} {once:9.3f} {once / measured[0]:6.2f}"
        )


if __name__ == "__main__":
    main()
