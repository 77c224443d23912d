"""A coordinator that chooses its messages to isolate rows, and a judge of what it got.

It sees what a real one sees: the answers, and of a refusal the text that leaves a silo. It knows
the columns of the file and which of them are numbers, since it proposes the task, and nothing else
of the rows. Every attack is a generator of claims that adapts to what it is told, within a budget
of messages; it claims only what its answers imply, never a guess.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mfairfl.data import Encoder, Task
from mfairfl.data.encoder import CategoricalColumn, NumericColumn
from mfairfl.errors import ConfigError, MessageError, MfairflError
from mfairfl.models import MLP
from mfairfl.runs.silo_runs import read_consent
from mfairfl.silo.policy import Disclosure, Policy
from mfairfl.silo.responder import Responder
from mfairfl.silo.silo_file import SiloSettings
from mfairfl.wire.packing import Packet, make_packet

NAME = "clinic"
NUMERIC = ("age", "income", "tenure")
CATEGORICAL = ("city", "country", "job", "sex")
LABEL, FAVOURABLE, OTHER = "hired", "yes", "no"
DECISION = "decision"
BUDGET = 1000
ROWS = 90

OPEN = Policy(disclosure=Disclosure(min_rows=1))
"""The policy of a silo that has no floor: against it every attack succeeds."""


def made_up_file(seed: int = 0) -> pd.DataFrame:
    """Ninety people, cities within countries, and one woman alone in her country."""
    rng = np.random.default_rng(seed)
    cities = {"north": ("Aa", "Bo", "Cu"), "south": ("Du", "El"), "isle": ("Fo",)}
    country = rng.permutation(["north"] * 47 + ["south"] * 33 + ["isle"] * 10)
    sex = rng.choice(["F", "M"], ROWS, p=[0.45, 0.55])
    isle = np.flatnonzero(country == "isle")
    sex[isle], sex[isle[0]] = "M", "F"
    income = np.round(rng.lognormal(10, 0.6, ROWS), 2)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 73, ROWS),
            "income": income,
            "tenure": np.round(rng.gamma(2.0, 4.0, ROWS), 1),
            "city": [str(rng.choice(cities[one])) for one in country],
            "country": country,
            "job": rng.choice(["clerk", "cook", "nurse", "smith"], ROWS, p=[0.4, 0.3, 0.2, 0.1]),
            "sex": sex,
            LABEL: np.where(income > np.median(income), FAVOURABLE, OTHER),
            DECISION: rng.choice([FAVOURABLE, OTHER], ROWS),
        }
    )


# ------------------------------------------------------------------ claims and their judge


@dataclass(frozen=True)
class Claim:
    """What an attacker says that some row holds, as far as it knows it."""

    numeric: Mapping[str, float] = field(default_factory=dict)
    categorical: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """How many rows of the file were recovered, and how many claims fit no row."""

    recovered: int
    wrong: int
    messages: int


def judge(claims: Sequence[Claim], frame: pd.DataFrame, messages: int = 0) -> Verdict:
    """Compare claims with the file.

    A row is recovered if a claim has all its numbers (to 1e-6 of each), or all its categories.
    """
    found: set[int] = set()
    wrong = 0
    for claim in claims:
        rows = [
            _rows_with(frame, part, columns)
            for part, columns in ((claim.numeric, NUMERIC), (claim.categorical, CATEGORICAL))
            if set(columns) <= set(part)
        ]
        if not rows:
            continue
        # One claim is one row: where all parts are known, the row that has them all.
        held = [i for i in range(len(frame)) if all(i in one for one in rows)]
        wrong += not held
        new = [i for i in held if i not in found]
        found |= set(new[:1])
    return Verdict(len(found), wrong, messages)


def _rows_with(frame: pd.DataFrame, part: Mapping[str, Any], columns: Sequence[str]) -> set[int]:
    same = np.ones(len(frame), dtype=bool)
    for column in columns:
        held = frame[column].to_numpy()
        if column in NUMERIC:
            same &= np.isclose(held.astype(float), part[column], rtol=1e-6, atol=0)
        else:
            same &= held == part[column]
    return set(np.flatnonzero(same).tolist())


# ------------------------------------------------------------------ the line to a silo


class SpentError(Exception):
    """The attacker has no message left."""


@dataclass
class Line:
    """The only way to a silo: messages and answers, so many and no more.

    Each message reaches a new process, as in a deployment: what a silo remembers is on its disk.
    """

    settings: SiloSettings
    policy: Policy
    budget: int = BUDGET
    sent: int = 0
    refused: int = 0
    reason: str = ""

    def ask(self, packet: Packet, run: str) -> Packet | None:
        """Return the answer; None if it was refused, `reason` then says what a silo tells."""
        if self.sent == self.budget:
            raise SpentError
        self.sent += 1
        try:
            consent = read_consent(self.settings)
            return Responder(self.settings, self.policy, consent).handle(run, packet)
        except (MessageError, ConfigError) as error:
            self.reason = str(error)
        except MfairflError as error:  # its text may quote the file and stays there
            self.reason = type(error).__name__
        self.refused += 1
        return None


@dataclass(frozen=True)
class Split:
    """Which rows train: what a coordinator may choose about it."""

    seed: int = 0
    test: float = 0.2
    validation: float = 0.0

    def header(self) -> dict[str, Any]:
        return {"seed": self.seed, "test": self.test, "validation": self.validation}


class Coordinator:
    """Sends messages of one run and reads their answers."""

    def __init__(self, line: Line, run: str = "run-1") -> None:
        self.line, self.run = line, run
        self.encoder: Encoder | None = None
        self.model: MLP | None = None

    def profile(self, task: Task) -> dict[str, Any] | None:
        """Return the description of each column."""
        answer = self._ask("profile", {"task": task.model_dump(mode="json")})
        if answer is None:
            return None
        return {one["name"]: one for one in answer.request.fields["profile"]["columns"]}

    def sums(self, task: Task, split: Split) -> dict[str, Any] | None:
        """Return the sums for the encoder, of train rows and of the others."""
        said = {"task": task.model_dump(mode="json")} | split.header()
        answer = self._ask("sums", said)
        return None if answer is None else answer.request.fields

    def cuts(self, task: Task, split: Split, cuts: Mapping[str, Any]) -> list[Any] | None:
        """Return for each column the counts between its cuts, and the values told."""
        said = {"task": task.model_dump(mode="json")} | split.header()
        said["columns"] = list(cuts)
        arrays = {f"cuts/{i}": np.asarray(own) for i, own in enumerate(cuts.values())}
        answer = self._ask("cuts", said, arrays)
        if answer is None:
            return None
        return [
            (answer.arrays[f"counts/{i}"], answer.arrays[f"values/{i}"]) for i in range(len(cuts))
        ]

    def encode(
        self, task: Task, split: Split, encoder: Encoder, hidden: tuple[int, ...] = ()
    ) -> Mapping[str, np.ndarray] | None:
        """Enrol the silo; return its counts by split."""
        said = {"task": task.model_dump(mode="json")} | split.header()
        said |= {
            "encoder": encoder.model_dump(mode="json"),
            "model": {"kind": "mlp", "hidden": list(hidden)},
        }
        answer = self._ask("encode", said)
        if answer is None:
            return None
        self.encoder = encoder
        self.model = MLP(inputs=len(encoder.feature_names), hidden=hidden)
        return answer.arrays

    def measure(
        self, models: Sequence[np.ndarray], split: str = "train", thresholds: Any = None
    ) -> list[np.ndarray] | None:
        """Return each model's table: counts, positives, scores and losses by cell and label."""
        arrays = {f"model/{i}": one.astype(np.float32) for i, one in enumerate(models)}
        said = {"splits": [split], "slot": None, "thresholds": thresholds}
        answer = self._ask("measure", said, arrays)
        return (
            None
            if answer is None
            else [answer.arrays[f"sums/{i}/{split}"] for i in range(len(models))]
        )

    def score(self, model: np.ndarray, split: str = "train") -> Mapping[str, np.ndarray] | None:
        """Return histograms and sums of one model's scores by cell and label."""
        said = {"splits": [split], "slot": None, "drawn": False}
        answer = self._ask("score", said, {"model/0": model.astype(np.float32)})
        if answer is None:
            return None
        return {name.removeprefix(f"scores/{split}/"): one for name, one in answer.arrays.items()}

    def train(
        self, plans: Sequence[Mapping[str, Any]], weights: np.ndarray, round_: int = 0, **job: Any
    ) -> tuple[list[dict[str, Any]], list[np.ndarray]] | None:
        """Return what each job reports, and its update."""
        jobs = [{"client": NAME, "plan": plan} | job for plan in plans]
        arrays = {"server": weights.astype(np.float32)}
        answer = self._ask("train", {"round": round_, "jobs": jobs}, arrays)
        if answer is None:
            return None
        reports = json.loads(answer.text)["reports"]
        return reports, [answer.arrays[f"update/{i}"] for i in range(len(reports))]

    def _ask(self, kind: str, said: Mapping[str, Any], arrays: Any = None) -> Packet | None:
        return self.line.ask(make_packet(kind, said, arrays), self.run)


def carry_out(
    attack: Callable[[Line], Iterator[Claim]], line: Line, frame: pd.DataFrame
) -> Verdict:
    """Let an attack run until it ends or has no message left; judge its claims."""
    claims: list[Claim] = []
    with contextlib.suppress(SpentError):
        claims.extend(attack(line))  # what was claimed before the last message stays
    return judge(claims, frame, line.sent)


# ------------------------------------------------------------------ tasks and encoders


SEX = {"column": "sex", "groups": ("F", "M")}
COUNTRY = {"column": "country", "groups": ("isle", "north", "south")}


def plain_task(*sensitive: Any, **changes: Any) -> Task:
    """Return a resolved task: nothing is left for the silo's file to decide."""
    chosen = list(sensitive) or [SEX, COUNTRY]
    values = {
        "label": LABEL,
        "favourable": FAVOURABLE,
        "unfavourable": OTHER,
        "sensitive": chosen,
        "numeric": NUMERIC,
        "categorical": CATEGORICAL,
    }
    return Task.model_validate(values | changes)


def by_values(column: str, groups: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return a sensitive attribute with these sets of values as groups, and the rest as one."""
    bins = [{"name": f"g{i}", "values": list(values)} for i, values in enumerate(groups)]
    names = [one["name"] for one in bins] + ["rest"]
    return {"column": column, "bins": bins, "rest": "rest", "groups": names}


def by_steps(column: str, edges: Sequence[float]) -> dict[str, Any]:
    """Return a sensitive attribute with the intervals between these edges as groups."""
    bins = [
        {"name": f"from {low!r}", "min": low, "max": float(np.nextafter(high, -np.inf))}
        for low, high in itertools.pairwise(edges)
    ]
    names = [one["name"] for one in bins] + ["rest"]
    return {"column": column, "bins": bins, "rest": "rest", "groups": names}


def levels_told(line: Line) -> dict[str, list[str]]:
    """Return the levels that a profile names, by column."""
    found = Coordinator(line, "profile").profile(plain_task()) or {}
    return {name: sorted(found.get(name, {}).get("levels", {})) for name in CATEGORICAL}


SCALES = {"age": 128.0, "income": 2.0**19, "tenure": 128.0}
"""Powers of two beyond any value: an encoded number is then exactly the value, scaled."""


def exact_encoder(levels: Mapping[str, Sequence[str]]) -> Encoder:
    """Return an encoder that loses nothing of a number, one input for each named level."""
    return Encoder(
        numeric=tuple(
            NumericColumn(name=name, mean=0.0, scale=SCALES[name], indicator=False)
            for name in NUMERIC
        ),
        categorical=tuple(
            CategoricalColumn(name=name, levels=tuple(sorted(levels[name])))
            for name in CATEGORICAL
        ),
        unknown_category="ignore",
    )


def decoded(inputs: np.ndarray, levels: Mapping[str, Sequence[str]]) -> Claim:
    """Return the row that has these encoded features."""
    numeric = {c: float(inputs[i]) * SCALES[c] for i, c in enumerate(NUMERIC)}
    categorical, first = {}, len(NUMERIC)
    for column in CATEGORICAL:
        part = inputs[first : first + len(levels[column])]
        first += len(part)
        if len(part) and np.isclose(part.max(), 1.0, atol=1e-3) and (part > 0.5).sum() == 1:
            categorical[column] = sorted(levels[column])[int(part.argmax())]
    return Claim(numeric, categorical)


def whole(parts: Sequence[float]) -> Fraction:
    """Return the number that was told as an exact sum of floats."""
    return sum(map(Fraction, parts), Fraction(0))


def totals(sums: Mapping[str, Any]) -> tuple[int, dict[str, Fraction]]:
    """Return how many rows are behind sums, and the total of each column."""
    numeric = sums["numeric"]
    counts = [one["count"] + one["missing"] for one in numeric.values()]
    return max(counts, default=0), {name: whole(one["total"]) for name, one in numeric.items()}


GROUPINGS: tuple[tuple[Any, ...], ...] = (
    (),
    (by_values("country", [["north"]]),),
    (by_values("country", [["isle"], ["south"]]),),
    (by_values("job", [["clerk"], ["cook"]]),),
    (by_steps("age", [18, 30, 45, 60, 80]),),
    (SEX, by_values("job", [["clerk"]])),
)
"""Sensitive attributes that a coordinator may try: the largest stratum loses the single row."""

# ------------------------------------------------------------------ a, b: splits and sums

PATIENCE = 40  # messages without a new claim, or without an answer, before an attack tries another


def lone_rows(line: Line) -> Iterator[Claim]:
    """Sums with a test share of 1/n: "the others" are one row, another one for each seed."""
    for number, grouping in enumerate(GROUPINGS):
        share = ("test", "validation")[number % 2]
        yield from _lone(line, plain_task(*grouping), share)


def _lone(line: Line, task: Task, share: str) -> Iterator[Claim]:
    coordinator, seen, idle = Coordinator(line, "sums"), set(), 0
    for seed in itertools.count():
        shares = {"test": 0.0, "validation": 0.0} | {share: 1 / ROWS}
        sums = coordinator.sums(task, Split(seed, **shares))
        idle += 1
        if sums is not None:
            count, found = totals(sums["others"])
            if count == 1 and tuple(found.values()) not in seen:
                seen.add(tuple(found.values()))
                idle = 0
                yield Claim({name: float(x) for name, x in found.items()})
        if idle == PATIENCE // (1 if seen else 4):
            return


def differences(line: Line) -> Iterator[Claim]:
    """All rows less those that train: a single row's numbers and categories, its label, its group.

    The level of a column whose count falls by one is the row's, wherever both counts are told.
    """
    levels = levels_told(line)
    for grouping in GROUPINGS:
        task = plain_task(*grouping)
        coordinator = Coordinator(line, "differences")
        base = coordinator.sums(task, Split(test=0.0))
        if base is None:
            continue
        seen, idle = set(), 0
        for seed in itertools.count():
            split = Split(seed, test=1 / ROWS)
            idle += 1
            claim = _difference(coordinator, task, split, base)
            if claim is not None and tuple(claim.numeric.items()) not in seen:
                seen.add(tuple(claim.numeric.items()))
                idle = 0
                yield claim
                if len(seen) == 1:
                    _require_group(coordinator, task, split, levels)
            if idle == PATIENCE // (1 if seen else 4):
                break


def _difference(
    coordinator: Coordinator, task: Task, split: Split, base: Mapping[str, Any]
) -> Claim | None:
    sums = coordinator.sums(task, split)
    if sums is None:
        return None
    (before, all_rows), (after, train) = totals(base["train"]), totals(sums["train"])
    if before - after != 1:
        return None
    numeric = {name: float(all_rows[name] - train[name]) for name in NUMERIC}
    categorical = {}
    for column in CATEGORICAL:
        told, left = (one["train"]["categorical"][column] for one in (base, sums))
        fewer = [level for level, n in told.items() if n - left.get(level, n - 1) == 1]
        if len(fewer) == 1:  # a level at the floor vanishes when it loses its row
            categorical[column] = fewer[0]
    return Claim(numeric, categorical)


def _require_group(
    coordinator: Coordinator, task: Task, split: Split, levels: Mapping[str, Sequence[str]]
) -> None:
    """See that the counts at encoding also tell the single row's label and group."""
    counts = coordinator.encode(task, split, exact_encoder(levels))
    assert counts is None or counts["test"].sum() != 1 or (counts["test"] == 1).sum() == 1


# ------------------------------------------------------------------ c, d: cells of one row


def crowded_edges(low: float, high: float, parts: int) -> list[float]:
    """Return edges of as many intervals of equal width."""
    return np.linspace(low, high, parts + 1).tolist()


def fine_groupings() -> list[tuple[Any, ...]]:
    """Return groups so fine that many hold one row: incomes, single ages, and two attributes."""
    return [
        (by_steps("income", crowded_edges(3_000, 60_000, 200)),),
        (by_steps("age", [float(age) for age in range(18, 81)]),),
        (by_steps("tenure", crowded_edges(0, 40, 100)),),
        (SEX, COUNTRY),
    ]


def logits_of_cells(line: Line) -> Iterator[Claim]:
    """One model for each feature, all in one measurement: the features of one-row cells."""
    levels = levels_told(line)
    for number, grouping in enumerate(fine_groupings()):
        for split in (Split(), Split(test=0.0), Split(seed=1, test=0.5)):
            run = Coordinator(line, f"cells-{number}-{split.seed}-{split.test:g}")
            counts = run.encode(plain_task(*grouping), split, exact_encoder(levels))
            if counts is not None:
                yield from _logits(run, counts, levels)


def _logits(
    run: Coordinator, counts: Mapping[str, np.ndarray], levels: Mapping[str, Sequence[str]]
) -> Iterator[Claim]:
    size = run.model.size
    models = list(np.eye(size)[: size - 1])  # the logit is the feature
    for part in ("train", "test"):
        alone = counts[part] == 1
        found = run.measure(models, part) if alone.any() else None
        if found is None:
            continue
        for place in zip(*np.nonzero(alone), strict=True):
            scores = np.array([table[2][place] for table in found])
            if ((scores > 0) & (scores < 1)).all():
                yield decoded(np.log(scores / (1 - scores)), levels)


def priced_gradients(line: Line) -> Iterator[Claim]:
    """A full-batch gradient of one (cell, label) alone: its row, as dW/db of the first layer."""
    levels = levels_told(line)
    for number, grouping in enumerate(fine_groupings()):
        run = Coordinator(line, f"prices-{number}")
        task = plain_task(*grouping)
        counts = run.encode(task, Split(test=0.0), exact_encoder(levels))
        if counts is not None:
            alone = list(zip(*np.nonzero(counts["train"] == 1), strict=True))
            yield from _priced(run, counts["train"].shape, alone, levels)


def _priced(
    run: Coordinator, shape: tuple[int, ...], alone: Sequence[Any], levels: Any
) -> Iterator[Claim]:
    """Price one cell at a time: by the loss, then by the score, then as a difference."""
    weights, refused = np.zeros(run.model.size), 0
    for some in _fours(alone):
        for make in (_only, _scored):
            found = run.train([make(shape, place) for place in some], weights)
            if found is not None:
                for update in found[1]:
                    if update[-1]:
                        yield decoded(update[:-1] / update[-1], levels)
                break
        else:
            refused += 1
        if refused == 3:
            return


def _fours(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for i in range(0, len(items), 4):
        yield items[i : i + 4]


def full_gradient(**more: Any) -> dict[str, Any]:
    """Return a plan that takes no step: its update is the gradient over all train rows."""
    return {"epochs": 1, "batch_size": ROWS, "optimizer": {"name": "gradient"}} | more


def _only(shape: tuple[int, ...], place: Any) -> dict[str, Any]:
    table = np.zeros(shape)
    table[place] = 1.0
    return full_gradient(loss_table=table.tolist())


def _scored(shape: tuple[int, ...], place: Any) -> dict[str, Any]:
    table = np.zeros(shape)
    table[place] = 1.0
    return full_gradient(loss_table=np.zeros(shape).tolist(), score_table=table.tolist())


def two_prices(line: Line) -> Iterator[Claim]:
    """Two plans that differ in one cell's price: their difference is that cell's gradient."""
    levels = levels_told(line)
    for number, grouping in enumerate(fine_groupings()):
        run = Coordinator(line, f"two-{number}")
        counts = run.encode(plain_task(*grouping), Split(test=0.0), exact_encoder(levels))
        if counts is None:
            continue
        alone = list(zip(*np.nonzero(counts["train"] == 1), strict=True))
        for price in (1e6, 1e3, 20.0):  # the higher, the less of it is lost in a float32
            shape = counts["train"].shape
            claims = [_dearer(run, shape, place, price, levels) for place in alone[:40]]
            yield from filter(None, claims)
            if any(claims):
                break


def _dearer(
    run: Coordinator, shape: tuple[int, ...], place: Any, price: float, levels: Any
) -> Claim | None:
    table = np.ones(shape)
    table[place] = price
    both = [full_gradient(), full_gradient(loss_table=table.tolist())]
    found = run.train(both, np.zeros(run.model.size))
    if found is None:
        return None
    more = found[1][1].astype(np.float64) - found[1][0]
    inputs = more[:-1] / more[-1] if more[-1] else more[:-1]
    return decoded(inputs, levels) if is_row(inputs, price) else None


def is_row(inputs: np.ndarray, precision: float) -> bool:
    """Say whether these are the features of one row: its 0/1 inputs are 0 or 1."""
    marks = inputs[len(NUMERIC) :]
    off = np.minimum(np.abs(marks), np.abs(marks - 1)).max(initial=0.0)
    return bool(off < max(1e-3 / precision**0.5, 1e-5))


ATTACKS: dict[str, Callable[[Line], Iterator[Claim]]] = {
    "lone rows": lone_rows,
    "differences of sums": differences,
    "logits of cells": logits_of_cells,
    "priced gradients": priced_gradients,
    "two prices": two_prices,
}
"""By name; each is called with the line to a silo."""


def silo_file(folder: Path, frame: pd.DataFrame) -> Path:
    """Write the file of a silo."""
    path = folder / f"{NAME}.csv"
    frame.to_csv(path, index=False)
    return path
