"""Suspicious tables: columns that mislead, and copied rows; by hand, and by scikit-learn."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from mfairfl.data import Table, Task, load_dataset, partition, table_from_frame
from mfairfl.data.quality import Distinct, copies_of, trap_lines, traps_of
from mfairfl.data.quality import alone as judge


def alone(column, y):
    return judge(Distinct.of(column), y)


def unlabelled(X):
    """A table of features without groups, whose labels are too much alike to be judged."""
    return Table(
        X=X,
        y=np.zeros(len(X), np.int8),
        groups=np.empty((len(X), 0), np.int16),
        attributes=(),
        clients=None,
        task=Task(label="y", favourable=1, sensitive=()),
        name="people",
        sha256="",
        notes=(),
    )


@pytest.mark.parametrize(
    ("column", "y", "right"),
    [
        ([1.0, 2.0, 3.0, 4.0], [0, 0, 1, 1], 1.0),
        ([1.0, 2.0, 3.0, 4.0], [1, 1, 0, 0], 1.0),  # the other way round
        ([1.0, 1.0, 2.0, 2.0], [0, 1, 1, 1], 0.75),  # no cut between equal values
        ([5.0, 5.0, 5.0, 5.0], [0, 0, 0, 1], 0.75),
        ([3.0, 1.0, 2.0, np.nan], [1, 0, 0, 1], 1.0),  # missing ones lie above
        ([1.0] + [np.nan] * 5, [1, 0, 0, 0, 1, 1], 4 / 6),  # no cut between missing ones
        (list("aabb") * 2, [0, 0, 1, 1] * 2, 1.0),
        (list("aabb") * 2, [0, 0, 1, 1, 0, 0, 1, 0], 0.875),
        (list("abcd"), [0, 1, 1, 1], 0.75),  # values of single rows say nothing
        ([0.0, 1.0, 2.0] * 4, [1, 0, 1] * 4, 1.0),  # no threshold, but an answer for each value
    ],
)
def test_accuracy_of_the_best_rule_by_hand(column, y, right):
    assert alone(pd.Series(column), np.array(y, dtype=np.int8)).accuracy == right


def test_auc_of_numbers_is_that_of_scikit_learn():
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 500).astype(np.int8)
    x = np.round(rng.normal(size=500) - 0.7 * y, 1)
    assert alone(pd.Series(x), y).auc == pytest.approx(roc_auc_score(y, -x), abs=1e-12)


def by_threshold(numbers, y):
    """Try every cut, one by one; missing numbers lie above all others."""
    x = np.where(np.isnan(numbers), np.inf, numbers)
    shares = [((x <= cut) == y).mean() for cut in (-np.inf, *x)]
    auc = roc_auc_score(y, np.where(np.isinf(x), 1e9, x))
    return max(*shares, *(1 - np.array(shares))), max(auc, 1 - auc)


def by_values(values, y):
    """Answer each row by the share of favourable labels among the other half's rows like it."""
    seen, half = {0: 0, 1: 0}, []
    for label in y.tolist():
        half.append(seen[label] % 2)
        seen[label] += 1
    scores = []
    for value, own in zip(values, half, strict=True):
        others = [y[i] for i, v in enumerate(values) if half[i] != own and v == value]
        scores.append((sum(others) + y.mean()) / (len(others) + 1))
    scores, half = np.array(scores), np.array(half)
    aucs = [roc_auc_score(y[half == here], scores[half == here]) for here in (0, 1)]
    return ((scores > 0.5) == y).mean(), np.mean(aucs)


@pytest.mark.parametrize("seed", range(12))
def test_the_best_rule_is_that_of_plain_loops(seed):
    rng = np.random.default_rng(seed)
    y = (rng.random(80) < 0.4).astype(np.int8)
    x = np.round(rng.normal(size=80) + 1.5 * y, rng.integers(0, 2)) + 0.0  # no -0.0
    x[rng.random(80) < 0.2] = np.nan
    texts = np.where(np.isnan(x), "?", x.astype(str))
    constant, of_values = (max(y.mean(), 1 - y.mean()), 0.5), by_values(texts.tolist(), y)
    for column, more in ((texts, []), (x, [by_threshold(x, y)])):
        judged = alone(pd.Series(column), y)
        few = 2 * pd.Series(column).nunique() <= len(y)  # else values of single rows
        found = [constant, *more, *([of_values] if few else [])]
        assert judged.accuracy == pytest.approx(max(right for right, _ in found), abs=1e-12)
        assert judged.auc == pytest.approx(max(auc for _, auc in found), abs=1e-12)


def test_answers_of_values_are_judged_on_other_rows():
    """Levels of two rows fit any label in sample; on the other half they are worth nothing."""
    rng = np.random.default_rng(5)
    y = rng.integers(0, 2, 4000).astype(np.int8)
    found = alone(pd.Series([f"v{i // 2}" for i in rng.permutation(4000)]), y)
    assert found.auc == pytest.approx(0.5, abs=0.04)
    assert found.accuracy == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize("share", [0.5, 0.2, 0.1])
@pytest.mark.parametrize(("right", "suspicious"), [(0.97, True), (0.85, False)])
def test_a_column_that_is_right_in_97_of_100_rows_is_suspicious(share, right, suspicious):
    rng = np.random.default_rng(7)
    y = (rng.random(3000) < share).astype(np.int8)
    told = np.where(rng.random(3000) < right, y, 1 - y)
    assert alone(pd.Series(np.where(told, "signed", "open")), y).suspicious is suspicious
    assert alone(pd.Series(told + rng.random(3000) / 4), y).suspicious is suspicious


TASK = Task(label="hired", favourable=1, sensitive=("sex",))


def people(rows, seed=0, *, coarse=False):
    rng = np.random.default_rng(seed)
    score = rng.integers(0, 4, rows) if coarse else rng.normal(size=rows)
    sex, hired = rng.choice(["f", "m"], rows), rng.integers(0, 2, rows)
    return pd.DataFrame(
        {"score": score, "age": rng.integers(20, 40, rows), "sex": sex, "hired": hired}
    )


def copies(frame):
    table = table_from_frame(frame, TASK)
    federation = partition(table, "iid", clients=2)
    found = copies_of(table, federation)
    # The naive way: look for each test row among the train rows.
    rows = [tuple(row) for row in frame.itertuples(index=False)]
    train = {rows[i] for i in federation.pooled("train").rows}
    assert found.copied == sum(rows[i] in train for i in federation.pooled("test").rows)
    assert found.test == len(federation.pooled("test"))
    return found


def test_copied_rows_are_told_from_people_who_are_alike():
    whole = people(400)
    none = copies(whole)
    assert (none.copied, none.serious) == (0, False)
    assert none.line == "no test row equals a train row"
    doubled = copies(pd.concat([whole, whole.head(100)], ignore_index=True))
    assert doubled.pairs == 100
    assert doubled.serious
    assert doubled.line.endswith("in features and label: leave repeated rows out of the file")
    alike = copies(people(2000, coarse=True))
    assert alike.copied > 300
    assert alike.by_chance
    assert not alike.serious


def test_copies_among_people_who_are_alike_are_found_as_well():
    whole = people(2000, coarse=True).assign(pay=lambda f: 1000 + np.arange(2000) % 1000)
    assert copies(whole).by_chance
    assert copies(pd.concat([whole, whole.head(300)], ignore_index=True)).serious


N = 600
RNG = np.random.default_rng(1)


def kinds(**columns):
    found = traps_of(unlabelled(pd.DataFrame(columns)))
    return {trap.column: trap.kind for trap in found}


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("row", np.arange(N), "identifier"),
        ("row", RNG.permutation(np.arange(5 * N))[:N], "identifier"),  # gaps, no repeats
        ("EmployeeNumber", RNG.integers(1, 10 * N, N), "identifier"),  # the name tells
        ("id_student", np.repeat(RNG.permutation(10**6)[: N // 2], 2), "identifier"),
        ("customerID", RNG.integers(10**8, 10**9, N), "identifier"),
        ("stamp", RNG.permutation(10**9 + 7 * np.arange(N) ** 2), "unique"),  # a question only
        ("bill", RNG.integers(-90_000, 170_000, N), None),  # nobody is number -12
        ("pay", RNG.integers(900, 170_000, N), None),
        ("income", RNG.integers(10_000, 200_000, N // 6).repeat(6), None),
        ("income", np.round(RNG.lognormal(10, 0.5, N), -1), None),
        ("weight", RNG.lognormal(4, 0.2, N), None),  # numbers with decimals are measured
        ("year", 1990 + np.arange(N) % 30, None),
        ("age", RNG.integers(18, 80, N), None),
        ("NumberOfCars", RNG.integers(0, 5, N), None),
        ("education-num", RNG.integers(1, 17, N), None),
    ],
)
def test_numbers_that_name_rows(name, values, kind):
    assert kinds(**{name: np.asarray(values, dtype=float)}).get(name) == kind


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([f"person {i}" for i in range(N)], "identifier"),
        ([f"ticket {2 * i // 3}" for i in range(N)], "identifier"),
        ([f"ticket {i // 2}" for i in range(N)], None),
        ([f"street {i % 50}" for i in range(N)], None),
        (["?"] * (N - 100) + [f"cabin {i}" for i in range(100)], "identifier"),
        (["?"] * (N - 10) + [f"cabin {i}" for i in range(10)], None),  # too few to tell
    ],
)
def test_texts_that_name_rows(values, kind):
    assert kinds(text=values).get("text") == kind


def test_repeats_are_compared_with_evenly_spread_numbers():
    """600 draws of 3,000 numbers repeat about 56 times; 600 numbers given out never do."""
    drawn = np.random.default_rng(4).integers(0, 3000, N).astype(float)
    expected = N - 3000 * (1 - (1 - 1 / 3000) ** N)
    assert N - len(np.unique(drawn)) == pytest.approx(expected, abs=3 * np.sqrt(expected))
    assert kinds(a=drawn) == {}
    half = np.random.default_rng(4).permutation(3000)[:N].astype(float)
    assert kinds(a=half) == {"a": "identifier"}


def test_constant_columns():
    gaps = ["Y"] * (N - 1) + ["?"]
    found = kinds(hours=np.full(N, 80.0), over18=["Y"] * N, varied=gaps, known=[1.0, np.nan] * 300)
    assert found == {"hours": "constant", "over18": "constant"}


def test_a_column_that_repeats_another():
    level = RNG.integers(0, 9, N)
    height = RNG.normal(171, 9, N)
    X = pd.DataFrame(
        {
            "level": level.astype(float),
            "height": height,
            "inches": height / 2.54,
            "noisy": height + RNG.normal(0, 3, N),
            "name": [f"grade {i}" for i in level],
            "merged": [f"part {i // 2}" for i in level],
        }
    )
    found = {(t.kind, t.column, t.of) for t in traps_of(unlabelled(X))}
    assert found == {("duplicate", "name", "level"), ("duplicate", "inches", "height")}


def test_a_few_huge_values_in_two_columns_do_not_make_them_one():
    a, b = RNG.normal(size=N), RNG.normal(size=N)
    a[:3] = b[:3] = 1e9
    assert np.corrcoef(a, b)[0, 1] > 0.9999
    assert kinds(a=a, b=b) == {}


def test_columns_that_differ_in_every_row_are_no_copies():
    assert kinds(a=RNG.normal(size=N), b=RNG.normal(size=N)) == {}


def frame():
    sex = RNG.choice(["f", "m"], N)
    return pd.DataFrame(
        {
            "title": np.where(sex == "f", "Ms", "Mr"),
            "sex": sex,
            "x": RNG.normal(size=N),
            "hired": RNG.integers(0, 2, N),
        }
    )


def test_of_a_pair_the_sensitive_column_stays():
    table = table_from_frame(frame(), Task(label="hired", favourable=1, sensitive=("sex",)))
    assert [(t.kind, t.column, t.of) for t in traps_of(table)] == [("duplicate", "title", "sex")]


def test_a_proxy_of_a_column_that_is_kept_out():
    task = Task(label="hired", favourable=1, sensitive=("sex",), sensitive_as_features=False)
    found = traps_of(table_from_frame(frame(), task))
    assert trap_lines(found) == [
        (
            "proxy",
            "column 'title' repeats a sensitive column that is kept out (one value for each group "
            "of sex): list it in ignore",
        )
    ]


def test_a_column_that_decides_the_label():
    given = frame()
    given["contract"] = np.where(RNG.random(N) < 0.97, given["hired"], 1 - given["hired"])
    table = table_from_frame(given, Task(label="hired", favourable=1, sensitive=("sex",)))
    (trap,) = [t for t in traps_of(table) if t.kind == "label"]
    right = (given["contract"] == given["hired"]).mean()
    assert trap.column == "contract"
    assert trap.why.startswith(f"accuracy {right:.3f}, that of the constant classifier 0.5")


def test_many_columns_of_a_kind_are_one_line():
    X = pd.DataFrame({f"c{i}": ["same"] * N for i in range(14)})
    ((kind, line),) = trap_lines(traps_of(unlabelled(X)))
    assert kind == "constant"
    assert line.startswith("14 columns never change: c0 (same), c1 (same)")
    assert line.endswith("c9 (same) and 4 more: list them in ignore")


@pytest.mark.parametrize("name", ["adult", "bank"])
def test_no_alarm_on_published_data(name):
    assert traps_of(load_dataset(name)) == []


def test_adults_weights_are_measured_and_its_education_is_there_twice():
    table = load_dataset("adult", fnlwgt=True, education=True)
    assert [(t.kind, t.column, t.of) for t in traps_of(table)] == [
        ("duplicate", "education", "education-num")
    ]


def test_dates_and_amounts_without_a_gap_are_no_names_of_rows():
    days = pd.date_range("2020-01-01", periods=N).strftime("%d.%m.%Y")
    pay = [f"{amount:,}" for amount in RNG.permutation(np.arange(900, 900 + N))]
    given = frame().assign(since=days, pay=pay)
    table = table_from_frame(given, Task(label="hired", favourable=1, sensitive=("sex",)))
    assert {"since", "pay"} < set(table.task.numeric)
    assert not {"since", "pay"} & {trap.column for trap in traps_of(table)}
