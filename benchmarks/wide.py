"""One epoch and one measurement with very many categories, against a narrow form of the same rows.

Side by side in one run, on one thread, for the default model:

narrow   without the two widest columns,
indices  all columns, categories held as indices (what mfairfl does),
dense    all columns, every input a number (what it did before).

The table is made up in the form of ACSIncome: two numbers, categories of 530, 224 and six small
numbers of levels. With a file (a reduced table of ACSIncome) its own rows are taken, `--rows` of
them drawn at random. Times are the best of alternating repetitions, in processor seconds; ratios
are to the narrowest form. Aim: indices at most 2 ×.

With `--layer`, what the first layer costs alone in several ways to compute it, and from how many
one-hot inputs on indices are faster than numbers.
"""

from __future__ import annotations

import argparse
import time
import warnings
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
from mfairfl.models import MLP, add_looked_up, sums_by_code, with_one_hot
from mfairfl.randomness import stream
from mfairfl.training.batches import RowStore
from mfairfl.training.execution import steady_arithmetic
from mfairfl.training.measure import Probe, measure
from mfairfl.training.plan import Recipe
from mfairfl.training.trainer import Work, run_works

Way = Callable[[], object]
AIM = 2.0
LEVELS = {"COW": 8, "SCHL": 24, "MAR": 4, "OCCP": 530, "POBP": 224, "RELP": 18, "RAC1P": 5}
WIDEST = ("OCCP", "POBP")
NUMBERS = ("AGEP", "WKHP")
CLIENTS = 20


@dataclass(frozen=True)
class Form:
    """A way to hold the rows."""

    name: str
    store: RowStore
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
        store, ranges = RowStore.from_arrays(held, cells=2)
        nbytes = sum(one.nbytes for one, _, _ in held)
        return cls(name, store, ranges, federation.pool.inputs.width, nbytes)

    def train(self) -> None:
        """Take one epoch of every client."""
        model, plan = MLP(self.inputs), Recipe(local_epochs=1).plan(0, 1)
        start = model.init(stream(0, "init"))
        works = [
            Work(plan=plan, start=start, rows=rows, rng=stream(0, "batches", k))
            for k, rows in enumerate(self.ranges)
        ]
        with steady_arithmetic():
            run_works(works, model, self.store)

    def measure(self) -> None:
        """Measure one model on the rows of every client."""
        model = MLP(self.inputs)
        weights = model.init(stream(0, "init"))
        with steady_arithmetic():
            measure([Probe(weights, rows) for rows in self.ranges], model, self.store)


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


def best(repeats: int, functions: Sequence[Way]) -> list[float]:
    """Return each function's least processor time over alternating repetitions."""
    times = [float("inf")] * len(functions)
    for _ in range(repeats):
        for i, function in enumerate(functions):
            start = time.process_time()
            function()
            times[i] = min(times[i], time.process_time() - start)
    return times


# ------------------------------------------------------------------ the first layer alone


def ways(stack: int = 8, batch: int = 512, units: int = 64, numbers: int = 66) -> dict[str, Way]:
    """Return ways to look the rows of categories up, and to add up their gradients."""
    rng = np.random.default_rng(0)
    levels = np.array([*LEVELS.values(), 2])
    first = numbers + np.cumsum(levels) - levels
    width, columns = numbers + int(levels.sum()), len(levels)
    drawn = first + rng.zipf(1.3, (stack, batch, columns)) % levels
    codes = torch.tensor(drawn, dtype=torch.int32)
    X = with_one_hot(torch.zeros(stack, batch, numbers), codes, width)
    W, upper = torch.randn(stack, width, units), torch.randn(stack, batch, units)
    out, slopes = torch.empty(stack, batch, units), torch.empty(stack, width, units)
    # All of the stack in one matrix, for what cannot take a stack.
    flat = (codes.to(torch.int64) + width * torch.arange(stack)[:, None, None]).reshape(-1)
    rows, matrix, size = upper.view(-1, units), W.view(-1, units), stack * width
    owner = torch.arange(stack * batch).repeat_interleave(columns)
    starts, ones = torch.arange(0, len(flat) + 1, columns), torch.ones(len(flat))
    csr = torch.sparse_csr_tensor(starts, flat, ones, (stack * batch, size))
    csc = torch.sparse_csc_tensor(starts, flat, ones, (size, stack * batch))
    none, aten = torch.empty(0, dtype=torch.int64), torch.ops.aten

    def added() -> torch.Tensor:
        return torch.zeros(size, units).index_add_(0, flat, rows[owner])

    def scattered() -> torch.Tensor:
        index = flat[:, None].expand(-1, units)
        return torch.zeros(size, units).scatter_add_(0, index, rows[owner])

    def bag_back() -> object:
        options = (none, none, size, False, 0, None, -1)
        return aten._embedding_bag_dense_backward(rows, flat, owner, *options)

    return {
        "forward: dense product": lambda: torch.bmm(X, W, out=out),
        "forward: embedding_bag, client by client": lambda: add_looked_up(out, W, codes),
        "forward: sparse product": lambda: csr @ matrix,
        "forward: index_select, sum": lambda: matrix[flat].view(-1, columns, units).sum(dim=1),
        "back: dense product": lambda: torch.bmm(X.transpose(1, 2), upper, out=slopes),
        "back: sorted, embedding_bag": lambda: sums_by_code(upper, codes, numbers, width),
        "back: index_add_": added,
        "back: scatter_add_": scattered,
        "back: sparse product": lambda: csc @ rows,
        "back: _embedding_bag_dense_backward": bag_back,
        "back: embedding_dense_backward": lambda: aten.embedding_dense_backward(
            rows[owner], flat, size, -1, False
        ),
    }


def compare_ways(repeats: int, stack: int = 8) -> None:
    """Print what each way takes for one client's batch."""
    with steady_arithmetic(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sparse tensors are called new
        found = ways(stack)
        # One after the other: in a step the rows are at hand.
        times = [best(20 * repeats, [way])[0] for way in found.values()]
    print("\nFirst layer, µs for one client's 512 rows, 8 columns of categories, 64 units")
    for name, seconds in zip(found, times, strict=True):
        print(f"{name:<42} {1e6 * seconds / stack:7.1f}")


def break_even(repeats: int) -> None:
    """Print how long an epoch takes with indices, as a multiple of the same with numbers."""
    print("\nIndices as a multiple of dense rows; 18 numbers and 7 columns of categories")
    rng, clients, rows, numbers = np.random.default_rng(0), 10, 5_000, 18
    for inputs in (35, 70, 140, 252, 511):
        levels, n = inputs // 7, clients * rows
        codes = numbers + levels * np.arange(7) + rng.integers(0, levels, (n, 7))
        values = rng.normal(size=(n, numbers)).astype(np.float32)
        whole = Inputs(values, codes.astype(np.int32), numbers + 7 * levels)
        y, cells = rng.integers(0, 2, n), np.zeros(n, np.int64)
        forms = []
        for one in (whole, Inputs.of(whole.dense())):
            cut = [slice(k * rows, (k + 1) * rows) for k in range(clients)]
            store, ranges = RowStore.from_arrays(
                [(one[at], y[at], cells[at]) for at in cut], cells=1
            )
            forms.append(Form("", store, ranges, one.width, one.nbytes))
        asked = [f for form in forms for f in (form.train, form.measure)]
        train, measured, dense_train, dense_measured = best(repeats, asked)
        print(
            f"{7 * levels:>4} one-hot inputs: epoch {train / dense_train:.2f}, "
            f"measurement {measured / dense_measured:.2f}, "
            f"memory {forms[0].nbytes / forms[1].nbytes:.2f}"
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", help="a reduced table of ACSIncome")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--layer", action="store_true", help="the first layer alone")
    given = parser.parse_args()
    if given.layer:
        compare_ways(given.repeats)
        break_even(given.repeats)
        return
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
            f"{form.name:<18} {form.inputs:>6} {form.nbytes / 1e6:8.1f} {epoch:8.3f} "
            f"{epoch / trained[0]:6.2f} {once:9.3f} {once / measured[0]:6.2f}"
        )


if __name__ == "__main__":
    main()
