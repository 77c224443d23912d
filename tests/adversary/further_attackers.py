"""Ways to isolate rows beside the first four: batches, controllers, groups that shift, rules of
reading that select rows, refusals, cuts, profiles and audits.

Each was found by asking what else depends on few rows: an optimiser that forgets all but its last
batch, a gap of a group of one, two partitions that differ in one row, the reason of a refusal.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from attackers import (
    CATEGORICAL,
    DECISION,
    FAVOURABLE,
    LABEL,
    NUMERIC,
    ROWS,
    SCALES,
    Claim,
    Coordinator,
    Line,
    Split,
    by_steps,
    decoded,
    exact_encoder,
    fine_groupings,
    full_gradient,
    is_row,
    levels_told,
    plain_task,
    totals,
)
from mfairfl.data import Encoder, Task
from mfairfl.data.encoder import CategoricalColumn, NumericColumn
from mfairfl.wire.packing import make_packet

ALL_TRAIN = Split(test=0.0)

# ------------------------------------------------------------------ batches

RATE = 2.0**-29
FORGETFUL: tuple[dict[str, Any], ...] = (
    # Decay, or the pull to the server's weights, undoes every step but the last.
    {"optimizer": {"name": "sgd", "lr": RATE, "weight_decay": 1 / RATE}},
    {"optimizer": {"name": "sgd", "lr": RATE, "weight_decay": 0.0}, "proximal": 1 / RATE},
    {  # with a huge eps AdamW is plain descent
        "optimizer": {
            "name": "adamw",
            "lr": 1.0,
            "weight_decay": 1 - 2.0**-30,
            "beta1": 0.0,
            "beta2": 0.0,
            "eps": 1 / RATE,
        }
    },
)
"""Plans whose outcome depends on their last batch alone."""


def train_rows(run: Coordinator) -> int | None:
    """Return how many rows train: one batch of them all is one step, any smaller are two."""
    low, high = 0, 2 * ROWS
    while high - low > 1:
        middle = (low + high) // 2
        plan = {"epochs": 1, "batch_size": middle, "optimizer": {"name": "gradient"}}
        found = run.train([plan], np.zeros(run.model.size))
        if found is not None and found[0][0]["steps"] == 1:
            high = middle
        else:
            low = middle
    return None if high == 2 * ROWS else high


def enrolled_run(line: Line, name: str, encoder: Encoder) -> tuple[Coordinator, int] | None:
    """Enrol the silo; return its run, and how many rows train."""
    run = Coordinator(line, name)
    if run.encode(plain_task(), ALL_TRAIN, encoder) is None:
        return None
    rows = train_rows(run)
    return None if rows is None else (run, rows)


def last_batches(line: Line) -> Iterator[Claim]:
    """Batches of one row, or a last batch of one, under an optimiser that forgets the others."""
    levels = levels_told(line)
    for number, forgetful in enumerate(FORGETFUL):
        found = enrolled_run(line, f"batches-{number}", exact_encoder(levels))
        if found is None:
            continue
        run, rows = found
        for size in (1, rows - 1):
            yield from _last_rows(run, forgetful | {"epochs": 1, "batch_size": size}, levels)


def _last_rows(run: Coordinator, plan: Mapping[str, Any], levels: Any) -> Iterator[Claim]:
    for round_ in range(40):
        jobs = [{"keep": f"slot{i}"} for i in range(4)]  # each has an order of rows of its own
        found = _train_jobs(run, [plan] * 4, jobs, round_)
        if found is None:
            return
        for update in found:
            inputs = update[:-1] / update[-1] if update[-1] else update[:-1]
            if update[-1] and is_row(inputs, 1.0):
                yield decoded(inputs, levels)


def _train_jobs(
    run: Coordinator,
    plans: Sequence[Mapping[str, Any]],
    jobs: Sequence[Mapping[str, Any]],
    round_: int,
) -> list[np.ndarray] | None:
    said = [
        {"client": "clinic", "plan": plan} | job for plan, job in zip(plans, jobs, strict=True)
    ]
    arrays = {"server": np.zeros(run.model.size, np.float32)}
    packet = make_packet("train", {"round": round_, "jobs": said}, arrays)
    answer = run.line.ask(packet, run.run)
    if answer is None:
        return None
    return [answer.arrays[f"update/{i}"].astype(np.float64) for i in range(len(jobs))]


STEPS = {"age": 2.0, "income": 128.0, "tenure": 0.5}


def ladder_encoder(levels: Mapping[str, Sequence[str]]) -> Encoder:
    """Return an encoder that has many pieces to a number: errors of an input hardly matter."""
    most = {"age": 80.0, "income": 131_072.0, "tenure": 40.0}
    return Encoder(
        numeric=tuple(
            NumericColumn(
                name=name,
                mean=0.0,
                scale=SCALES[name],
                indicator=False,
                edges=tuple(np.arange(0, most[name] + 1, STEPS[name]).tolist()),
            )
            for name in NUMERIC
        ),
        categorical=tuple(
            CategoricalColumn(name=name, levels=tuple(sorted(levels[name])))
            for name in CATEGORICAL
        ),
        unknown_category="ignore",
    )


def _written(number: float) -> float:
    """Return the number that was meant: those in files have few digits."""
    short = round(float(number), 2)
    return short if abs(short - number) < 1e-3 else float(number)


def from_ladder(inputs: np.ndarray, encoder: Encoder, levels: Any) -> Claim | None:
    """Return the row that has these features, if they are those of one row."""
    first, numeric = len(NUMERIC), {}
    for column in encoder.numeric:
        rungs = inputs[first : first + len(column.edges) - 1]
        first += len(rungs)
        full = int(np.floor(rungs.sum() + 1e-3))
        if not 0 <= full < len(rungs):  # beyond the ladder
            return None
        expected = np.where(np.arange(len(rungs)) < full, 1.0, 0.0)
        if np.abs(np.delete(rungs - expected, full)).max() > 1e-3:
            return None
        numeric[column.name] = _written(
            column.edges[0] + STEPS[column.name] * (full + rungs[full])
        )
    rest = np.concatenate([np.zeros(len(NUMERIC)), inputs[first:]])
    if not is_row(rest, 1.0):
        return None
    return Claim(numeric, decoded(rest, levels).categorical)


PLAIN: dict[str, Any] = {"optimizer": {"name": "sgd", "lr": RATE, "weight_decay": 0.0}}
"""Steps so small that all gradients are those at the start; nothing about it is unusual."""


def lone_remainders(line: Line) -> Iterator[Claim]:
    """A batch of all rows but one, and a second of that one, which counts as much as the first.

    With the mean gradient of all rows, which is one more message, that is its row.
    """
    yield from _from_suffixes(line, "remainder", [PLAIN], lambda rows: range(1))


def nested_batches(line: Line) -> Iterator[Claim]:
    """Last batches of 10, 11, 12 … rows of one order: each has one row more than the one before.

    No batch is below the floor; only the difference of two is.
    """
    yield from _from_suffixes(
        line, "nested", [*FORGETFUL, PLAIN], lambda rows: range(10, rows // 2 - 2)
    )


def _from_suffixes(
    line: Line,
    name: str,
    ways: Sequence[Mapping[str, Any]],
    sizes_of: Callable[[int], range],
) -> Iterator[Claim]:
    levels = levels_told(line)
    encoder, seen = ladder_encoder(levels), Counter[tuple[float, ...]]()
    for number, way in enumerate(ways):
        found = enrolled_run(line, f"{name}-{number}", encoder)
        if found is None:
            continue
        run, rows = found
        for round_ in range(12 if len(sizes_of(rows)) > 1 else 120):
            sums = _suffixes(run, way, rows, sizes_of(rows), round_)
            if sums is None:
                break
            for fewer, more in itertools.pairwise(sums):
                row = more - fewer
                if abs(abs(row[-1]) - 0.5) < 1e-2:  # the slope of one row where p = ½
                    claim = from_ladder(row[:-1] / row[-1], encoder, levels)
                    if claim is None:
                        continue
                    seen[tuple(claim.numeric.values())] += 1
                    if seen[tuple(claim.numeric.values())] == 2:  # rounding errors do not repeat
                        yield claim


def _suffixes(
    run: Coordinator, way: Mapping[str, Any], rows: int, sizes: range, round_: int
) -> list[np.ndarray] | None:
    """Return the summed gradients of the last rows of the round's order, so many and one more."""
    whole = _train_jobs(run, [full_gradient(batch_size=rows)], [{}], round_)
    if whole is None:
        return None
    found = [np.zeros(run.model.size)] if sizes.start == 0 else []
    asked = [size for size in (*sizes, sizes.stop) if size]
    for some in (asked[i : i + 4] for i in range(0, len(asked), 4)):
        plans = [way | {"epochs": 1, "batch_size": rows - size} for size in some]
        updates = _train_jobs(run, plans, [{}] * len(plans), round_)
        if updates is None:
            return None
        for size, update in zip(some, updates, strict=True):
            first = rows - size
            last = update / RATE  # what the last batch adds, and unless forgotten, the first
            if way is PLAIN:
                last = (rows * whole[0] - first * last) / (size - first)
            found.append(size * last)
    return found


# ------------------------------------------------------------------ controllers


def _controller(attribute: str, groups: int, **more: Any) -> dict[str, Any]:
    zeros = [0.0] * groups
    goal = {"notions": ["demographic_parity"], "attributes": [attribute]}
    return {"goal": goal, "multipliers": zeros, "step": zeros} | more


def gaps_of_groups(line: Line) -> Iterator[Claim]:
    """The gaps in a report: overall rate less the group's, which for a group of one is its row.

    With weights of ε on one feature a rate is ½ + ε·mean/4; the overall mean is in the sums.
    """
    levels, epsilon = levels_told(line), 2.0**-10
    for number, grouping in enumerate(fine_groupings()[:3]):
        task = plain_task(*grouping)
        run = Coordinator(line, f"gaps-{number}")
        sums = run.sums(task, ALL_TRAIN)
        counts = run.encode(task, ALL_TRAIN, exact_encoder(levels))
        if sums is None or counts is None:
            continue
        rows, known = totals(sums["train"])
        groups = counts["train"].shape[0]
        smooth = {"driven_by": "smooth"}
        plan = {
            "epochs": 1,
            "batch_size": ROWS,
            "optimizer": {"name": "sgd", "lr": 0.0, "weight_decay": 0.0},
            "controller": _controller(task.sensitive[0].name, groups, prices=smooth),
        }
        means = []
        for place, column in enumerate(NUMERIC):
            weights = np.zeros(run.model.size)
            weights[place] = epsilon
            found = run.train([plan], weights)
            if found is None:
                break
            gaps = np.array(found[0][0]["gaps"])
            overall = float(known[column] / rows) / SCALES[column]
            means.append((overall - 4 * gaps / epsilon) * SCALES[column])
        if len(means) == len(NUMERIC):
            told = counts["train"].sum(axis=1)
            for group in np.flatnonzero((told <= 1) & (np.abs(gaps) > 0)):
                yield Claim({c: float(m[group]) for c, m in zip(NUMERIC, means, strict=True)})


def prices_of_groups(line: Line) -> Iterator[Claim]:
    """Multipliers that price one group, by counts that the server makes up: its gradient alone."""
    levels = levels_told(line)
    for number, grouping in enumerate(fine_groupings()[:3]):
        task = plain_task(*grouping)
        run = Coordinator(line, f"multipliers-{number}")
        counts = run.encode(task, ALL_TRAIN, exact_encoder(levels))
        if counts is None:
            continue
        rows = counts["train"].sum(axis=1)
        few = [*np.flatnonzero(rows == 1), *np.flatnonzero(rows == 0)][:60]
        for price in (1000.0, 20.0):  # the largest that is allowed
            plans = [_group_price(task, len(rows), group, price) for group in few]
            claims = [_priced_group(run, plan, price, levels) for plan in plans]
            yield from filter(None, claims)
            if any(claims):
                break


def _group_price(task: Task, groups: int, group: int, price: float) -> dict[str, Any]:
    """Return a plan whose controller prices a group so, and all others next to nothing."""
    made_up = np.full((groups, 2), 1e9)
    made_up[group] = 0.5
    multipliers = [0.0] * groups
    multipliers[group] = price / float(made_up.sum())
    return full_gradient(
        controller=_controller(
            task.sensitive[0].name,
            groups,
            multipliers=multipliers,
            counts=made_up.tolist(),
            prices={"cap": price, "counter_cap": price},
        )
    )


def _priced_group(
    run: Coordinator, plan: Mapping[str, Any], price: float, levels: Any
) -> Claim | None:
    found = run.train([full_gradient(), plan], np.zeros(run.model.size))
    if found is None:
        return None
    more = found[1][1].astype(np.float64) - found[1][0]
    inputs = more[:-1] / more[-1] if more[-1] else more[:-1]
    return decoded(inputs, levels) if more[-1] and is_row(inputs, price) else None


# ------------------------------------------------------------------ groups that shift by a row


def shifted_groups(line: Line) -> Iterator[Claim]:
    """Two runs whose groups are large, and differ in one row: the difference of their sums."""
    levels = levels_told(line)
    encoder = exact_encoder(levels)
    ask = _Shifting(line, encoder)
    low, high = 3_000.0, 60_000.0
    for target in range(15, ROWS - 15, 6):
        found = _crossing(ask, low, high, target)
        if found is None:
            return
        below, above = found
        tables = [ask.scores(edge) for edge in (below, above)]
        if any(one is None for one in tables):
            continue
        scores = tables[1] - tables[0]
        if ((scores > 0) & (scores < 1)).all():
            yield decoded(np.log(scores / (1 - scores)), levels)


class _Shifting:
    """Asks about the rows with an income below an edge, a run for each."""

    def __init__(self, line: Line, encoder: Encoder) -> None:
        self._line, self._encoder = line, encoder
        self._runs: dict[float, tuple[Coordinator, int]] = {}

    def below(self, edge: float) -> int | None:
        """Return how many rows have an income below the edge."""
        if edge not in self._runs:
            # One run's name for all: it is enrolled anew, as a coordinator may.
            run = Coordinator(self._line, "shifting")
            task = plain_task(by_steps("income", [0.0, edge]))
            counts = run.encode(task, ALL_TRAIN, self._encoder)
            if counts is None:
                return None
            self._runs[edge] = run, int(sum(counts[part][0].sum() for part in counts))
        return self._runs[edge][1]

    def scores(self, edge: float) -> np.ndarray | None:
        """Return the sum of each feature's σ over these rows."""
        self._runs.pop(edge, None)
        if self.below(edge) is None:
            return None
        run = self._runs[edge][0]
        size = run.model.size
        found = run.measure(list(np.eye(size)[: size - 1]))
        return None if found is None else np.array([table[2][0].sum() for table in found])


def _crossing(ask: _Shifting, low: float, high: float, target: int) -> tuple[float, float] | None:
    """Return two edges between which one row lies."""
    for _ in range(30):
        middle = (low + high) / 2
        rows = ask.below(middle)
        if rows is None:
            return None
        if rows == target:
            low_rows = target
            return _one_more(ask, middle, high, low_rows)
        low, high = (middle, high) if rows < target else (low, middle)
    return None


def _one_more(ask: _Shifting, low: float, high: float, rows: int) -> tuple[float, float] | None:
    for _ in range(30):
        middle = (low + high) / 2
        found = ask.below(middle)
        if found is None:
            return None
        if found == rows + 1:
            return low, middle
        low, high = (middle, high) if found == rows else (low, middle)
    return None


# ------------------------------------------------------------------ rules of reading


def dropping(**codes: Sequence[str]) -> Task:
    """Return a task that leaves out the rows with these values, as if they were missing."""
    rules = {
        name: {"missing": "drop", "missing_codes": list(held)} for name, held in codes.items()
    }
    return plain_task(columns=rules)


class _Remainders:
    """Totals over all rows but those that are left out."""

    def __init__(self, line: Line) -> None:
        self.run = Coordinator(line, "dropping")
        self._known: dict[Any, tuple[int, dict[str, Fraction]] | None] = {}

    def __call__(self, **codes: Sequence[str]) -> tuple[int, dict[str, Fraction]] | None:
        key = tuple(sorted((name, tuple(held)) for name, held in codes.items()))
        if key not in self._known:
            sums = self.run.sums(dropping(**codes), Split())
            self._known[key] = None if sums is None else _all_rows(sums)
        return self._known[key]


def _all_rows(sums: Mapping[str, Any]) -> tuple[int, dict[str, Fraction]]:
    (a, first), (b, second) = totals(sums["train"]), totals(sums["others"])
    return a + b, {name: first[name] + second[name] for name in first}


def selected_rows(line: Line) -> Iterator[Claim]:
    """All values but one of each of three columns are called missing: who is left is alone."""
    levels, left = levels_told(line), _Remainders(line)
    names = ("city", "job", "sex")
    refused = 0
    for chosen in itertools.product(*(levels[name] for name in names)):
        others = {
            name: [level for level in levels[name] if level != own]
            for name, own in zip(names, chosen, strict=True)
        }
        found = left(**others)
        refused = refused + 1 if found is None else 0
        if found is not None and found[0] == 1:
            yield Claim({name: float(x) for name, x in found[1].items()})
        if refused == 60:
            return


def subtracted_rows(line: Line) -> Iterator[Claim]:
    """Each answer is about many rows; all but A, all but B and all but both give A and B's few."""
    levels, left = levels_told(line), _Remainders(line)
    everyone = left()
    if everyone is None:
        return
    for age in range(18, 80):
        yield from _alone(_minus([(1, everyone), (-1, left(age=[str(age)]))]))
    for a, b in itertools.combinations(("city", "job", "sex", "country"), 2):
        for one, other in itertools.product(levels[a], levels[b]):
            parts = [left(**{a: [one]}), left(**{b: [other]}), left(**{a: [one], b: [other]})]
            yield from _alone(_minus([(1, everyone), *zip((-1, -1, 1), parts, strict=True)]))
    for age in range(18, 80):  # pairs of the same age, told apart by sex
        both = left(age=[str(age)], sex=["F"])
        parts = [left(age=[str(age)]), left(sex=["F"]), both]
        yield from _alone(_minus([(1, everyone), *zip((-1, -1, 1), parts, strict=True)]))


def _minus(terms: Sequence[tuple[int, Any]]) -> tuple[int, dict[str, Fraction]] | None:
    if any(term is None for _, term in terms):
        return None
    count = sum(sign * term[0] for sign, term in terms)
    return count, {name: sum(sign * term[1][name] for sign, term in terms) for name in NUMERIC}


def _alone(found: tuple[int, dict[str, Fraction]] | None) -> Iterator[Claim]:
    if found is not None and found[0] == 1:
        yield Claim({name: float(x) for name, x in found[1].items()})


def refusals(line: Line) -> Iterator[Claim]:
    """A refusal for want of any row differs from one for too few: somebody has these categories.

    Nothing but the reason is read.
    """
    levels, run = levels_told(line), Coordinator(line, "refusals")
    run.sums(dropping(sex=levels["sex"]), Split())
    nobody = line.reason
    names = ("city", "country", "job", "sex")
    for chosen in itertools.product(*(levels[name] for name in names)):
        others = {
            name: [level for level in levels[name] if level != own]
            for name, own in zip(names, chosen, strict=True)
        }
        if run.sums(dropping(**others), Split()) is not None or line.reason != nobody:
            yield Claim(categorical=dict(zip(names, chosen, strict=True)))


# ------------------------------------------------------------------ single values


# ------------------------------------------------------------------ audits


def audited_cells(line: Line) -> Iterator[Claim]:
    """Audits of all sets of columns; what they determine together of a full combination."""
    named = _audit_groups(line)
    if named is None:
        return
    sizes = [len(named[c]) for c in CATEGORICAL]
    cells = np.arange(np.prod(sizes) * 3).reshape(*sizes, 3)
    rows, told = [], []
    for count in range(1, 5):
        for columns in itertools.combinations(CATEGORICAL, count):
            for place, value in _audit(line, columns, named):
                keep = [
                    place[columns.index(c)] if c in columns else slice(None) for c in CATEGORICAL
                ]
                row = np.zeros(cells.size)
                row[cells[(*keep, place[-1])].ravel()] = 1
                rows.append(row)
                told.append(value)
    if not rows:
        return
    yield from _determined(np.array(rows), np.array(told), cells, named)


def _audit_groups(line: Line) -> dict[str, list[str]] | None:
    columns = _audited(CATEGORICAL)
    answer = line.ask(make_packet("audit-groups", {"columns": columns}), "audit")
    if answer is None:
        return None
    groups = answer.request.fields["groups"]
    return {column: [*groups[column], "?"] for column in CATEGORICAL}


def _audited(columns: Sequence[str]) -> dict[str, Any]:
    return {
        "label": LABEL,
        "favourable": FAVOURABLE,
        "prediction": DECISION,
        "selected": FAVOURABLE,
        "score": None,
        "sensitive": list(columns),
        "client": None,
    }


def _audit(
    line: Line, columns: Sequence[str], named: Mapping[str, list[str]]
) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield (groups, label) and the count of each entry that is told."""
    attributes = [{"name": c, "groups": named[c]} for c in columns]
    said = {"columns": _audited(columns), "attributes": attributes, "grid": None}
    answer = line.ask(make_packet("audit", said), "audit")
    if answer is None:
        return
    sizes = [len(named[c]) for c in columns]
    decided = answer.arrays["decided"].reshape(*sizes, 3, -1).sum(axis=-1)
    hidden = answer.arrays["hidden"].reshape(*sizes, 3)
    for place in np.ndindex(*decided.shape):
        if not hidden[place]:
            yield place, int(decided[place])


def _determined(
    rows: np.ndarray, told: np.ndarray, cells: np.ndarray, named: Mapping[str, list[str]]
) -> Iterator[Claim]:
    """Claim each full combination whose count the answers determine, if it is 1 to 9."""
    solution, *_ = np.linalg.lstsq(rows, told, rcond=None)
    free = np.eye(cells.size) - np.linalg.pinv(rows) @ rows
    sure = (np.abs(free).sum(axis=1) < 1e-8) & (solution > 0.5) & (solution < 9.5)
    for place in np.argwhere(sure.reshape(cells.shape)):
        groups = [named[c][i] for c, i in zip(CATEGORICAL, place[:-1], strict=True)]
        if "?" not in groups:
            yield Claim(categorical=dict(zip(CATEGORICAL, groups, strict=True)))


FURTHER: dict[str, Callable[[Line], Iterator[Claim]]] = {
    "last batches": last_batches,
    "lone remainders": lone_remainders,
    "nested batches": nested_batches,
    "gaps of groups": gaps_of_groups,
    "prices of groups": prices_of_groups,
    "shifted groups": shifted_groups,
    "selected rows": selected_rows,
    "subtracted rows": subtracted_rows,
    "reasons of refusals": refusals,
    "audited cells": audited_cells,
}
"""By name; each is called with the line to a silo."""
