"""A table holds every number once, under the names of run.json."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from metric_tables import quick_table, values
from mfairfl import fairness
from mfairfl.data import Attribute
from mfairfl.errors import ConfigError, DataError
from mfairfl.fairness import MetricTable, Tally, constant_classifier
from mfairfl.runs.record import StoredTable

NAMES = {
    "accuracy",
    "balanced_accuracy",
    "f1",
    "true_positive_rate",
    "false_positive_rate",
    "selection_rate",
    *(
        f"{name}_{kind}"
        for name in (
            "demographic_parity",
            "equalized_odds",
            "equal_opportunity",
            "accuracy_parity",
        )
        for kind in ("violation", "difference", "ratio")
    ),
    "client_accuracy_std",
    "client_accuracy_gap",
    "worst_client_accuracy",
    "best_client_accuracy",
}


def big(seed=0, n=400):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"sex": rng.choice(["F", "M"], n), "age": rng.choice(list("abc"), n)})
    y, p = rng.integers(0, 2, n), rng.integers(0, 2, n)
    return y, p, frame, rng.choice(["x", "y", "z"], n)


def test_every_number_equals_its_metric():
    y, p, frame, client = big()
    tally = Tally.from_predictions(y, p, sensitive_features=frame, clients=client)
    table = quick_table(tally)
    assert set(table.overall) == NAMES
    for name, number in table.overall.items():
        assert number.undefined == ""
        assert number.value == pytest.approx(getattr(fairness, name)(tally), abs=1e-15)
    assert list(table.by_group) == ["sex", "age", "sex × age"]
    for attribute in table.by_group:
        numbers = values(table.measures(attribute))
        assert set(numbers) == {name for name in NAMES if "parity" in name or "equal" in name}
        for name, value in numbers.items():
            chosen = "intersection" if "×" in attribute else attribute
            expected = getattr(fairness, name)(tally, attribute=chosen)
            assert value == pytest.approx(expected, abs=1e-15)


def test_tables_equal_pandas():
    y, p, frame, client = big(1)
    tally = Tally.from_predictions(y, p, sensitive_features=frame, clients=client)
    table = quick_table(tally)
    crossed = {"sex × age": frame["sex"] + " × " + frame["age"]}
    rows = frame.assign(y=y, p=p, client=client, **crossed)
    slices = [("client", table.by_client), *table.by_group.items()]
    assert [name for name, _ in slices] == ["client", "sex", "age", "sex × age"]
    for column, by_name in slices:
        for key, part in rows.groupby(column):
            numbers = values(by_name[key])
            rates = {k: v for k, v in numbers.items() if not k.endswith("_violation")}
            assert (rates != numbers) == (column == "client")
            assert by_name[key].rows == len(part)
            assert rates == pytest.approx(
                {
                    "accuracy": (part.y == part.p).mean(),
                    "selection_rate": part.p.mean(),
                    "true_positive_rate": part.p[part.y == 1].mean(),
                    "false_positive_rate": part.p[part.y == 0].mean(),
                    "base_rate": part.y.mean(),
                }
            )


def test_a_clients_violations_are_those_of_its_own_rows():
    y, p, frame, client = big(2)
    tally = Tally.from_predictions(y, p, sensitive_features=frame, clients=client)
    for slice_ in quick_table(tally).clients:
        here = client == slice_.name
        for notion in ("demographic_parity", "equalized_odds", "accuracy_parity"):
            alone = getattr(fairness, f"{notion}_violation")(
                y[here], p[here], sensitive_features=frame[here]
            )
            assert slice_[f"{notion}_violation"].value == pytest.approx(alone, abs=1e-15)


def test_a_client_without_a_group_has_no_violation():
    tally = Tally.from_predictions(
        [1, 0, 1, 0, 1],
        [1, 1, 0, 0, 1],
        sensitive_features=["F", "F", "F", "M", "M"],
        clients=["one", "one", "two", "two", "two"],
    )
    one, two = MetricTable.from_tally(tally, draws=200).clients
    assert one["demographic_parity_violation"].value is None
    assert one["demographic_parity_violation"].interval is None
    reason = "group 'M' of 'sensitive_feature' has no rows"
    assert one["demographic_parity_violation"].undefined == reason
    # Of two's favourable decisions, 1 of 3: F has 0 of 1, M has 1 of 2.
    assert two["demographic_parity_violation"].value == pytest.approx(1 / 3)
    reason = "group 'F' of 'sensitive_feature' has no rows with y=0"
    assert two["equalized_odds_violation"].undefined == reason
    low, high = two["demographic_parity_violation"].interval
    assert low <= 1 / 3 <= high


def test_undefined_numbers_are_none_with_a_reason():
    race = Attribute("race", ("a", "b", "never"))
    sex = Attribute("sex", ("F", "M"))
    tally = Tally.from_predictions(
        [1, 0, 1, 0],
        [1, 0, 0, 0],
        sensitive_features={"race": list("aabb"), "sex": list("FFMM")},
        attributes=(race, sex),
        clients=["x", "x", "y", "y"],
    )
    table, name = quick_table(tally), "demographic_parity_violation"
    assert table["accuracy"].value == 0.75
    assert table[name].value is table.measures("race")[name].value is None
    reason = "group 'never' of 'race' has no rows"
    assert table[name].undefined == table.measures("race")[name].undefined == reason
    assert table.measures("sex")[name].value == 0.25
    assert table.measures("sex")[name].undefined == ""
    # Nobody has a false positive, so the true positive rates, 1 and 0, are all there is.
    assert table.measures("sex")["equalized_odds_ratio"].value == 0.0
    nobody = Tally.from_predictions([1, 0, 1, 0], [0] * 4, sensitive_features=list("FFMM"))
    assert quick_table(nobody)["equalized_odds_ratio"].undefined == (
        "no favourable decision in an event: the ratio is 0/0"
    )
    never = table.by_group["race"]["never"]
    assert never.rows == 0
    assert never["accuracy"].undefined == "there are no rows"
    assert values(never) == {
        "accuracy": None,
        "selection_rate": None,
        "true_positive_rate": None,
        "false_positive_rate": None,
        "base_rate": None,
    }
    assert all(
        (number.value is None) == bool(number.undefined) for number in table.overall.values()
    )


def test_a_table_of_no_clients_is_undefined():
    table = quick_table(Tally(np.zeros((0, 1, 2, 2), int), (), ()))
    assert set(values(table).values()) == {None}
    assert table["client_accuracy_std"].undefined == "there are no clients"


@pytest.mark.parametrize("columns", [["sex"], ["sex", "age"]])
def test_a_table_is_the_same_after_it_was_stored(columns):
    y, p, frame, client = big(3)
    frame.loc[client == "x", "sex"] = "F"  # its violations are undefined
    tally = Tally.from_predictions(y, p, sensitive_features=frame[columns], clients=client)
    table = MetricTable.from_tally(tally, draws=50)
    stored = StoredTable.model_validate_json(StoredTable.of(table).model_dump_json())
    assert stored.table() == table
    assert stored.metrics.by_client["x"]["n"] == (client == "x").sum()
    why = stored.metrics.undefined["by_client.x.demographic_parity_violation"]
    assert why == "group 'M' of 'sex' has no rows"


def test_predictions_with_probabilities_give_what_their_counts_give():
    y, p, frame, client = big(4)
    chance = np.clip(0.5 * p + 0.3 * y, 0, 1)
    rows = {"sensitive_features": frame, "clients": client}
    table = MetricTable.from_predictions(y, p, **rows, probabilities=chance, draws=20)
    counted = MetricTable.from_tally(Tally.from_predictions(y, p, **rows), draws=20)
    assert {name: table[name] for name in counted.overall} == counted.overall
    assert table["roc_auc"].value == pytest.approx(roc_auc_score(y, chance), abs=1e-12)
    women = (frame["sex"] == "F").to_numpy()
    area = table.by_group["sex"]["F"]["roc_auc"]
    assert area.value == pytest.approx(roc_auc_score(y[women], chance[women]), abs=1e-12)
    assert area.interval[0] < area.value < area.interval[1]


def test_the_frame_has_a_row_for_each_number():
    y, p, frame, client = big(5)
    table = MetricTable.from_predictions(y, p, sensitive_features=frame, clients=client, draws=20)
    tidy = table.to_frame()
    assert tidy["scope"].value_counts().to_dict() == {
        "overall": len(table.overall),
        "attribute": sum(len(section.measures) for section in table.sections),
        "group": 5 * (2 + 3 + 6),
        "client": 3 * (5 + 4),
    }
    accuracy = tidy[(tidy["attribute"] == "sex") & (tidy["number"] == "accuracy")]
    expected = pd.Series(y == p).groupby(frame["sex"]).mean()
    assert accuracy.set_index("slice")["value"].to_dict() == pytest.approx(expected.to_dict())
    selected = tidy[(tidy["scope"] == "client") & (tidy["slice"] == "x")]
    assert (selected["rows"] == (client == "x").sum()).all()


def test_the_worst_group_and_client():
    y, p, frame, client = big(6)
    table = MetricTable.from_predictions(y, p, sensitive_features=frame, clients=client, draws=20)
    by_client = pd.Series(y == p).groupby(client).mean()
    assert table.worst("accuracy", "clients").name == by_client.idxmin()
    wrong = pd.Series(p[y == 0]).groupby(frame["age"].to_numpy()[y == 0]).mean()
    assert table.worst("false_positive_rate", "age").name == wrong.idxmax()
    assert table.worst("accuracy").name in {g for s in table.by_group.values() for g in s}
    assert table.worst("roc_auc") is None
    with pytest.raises(ConfigError, match="did you mean 'age'"):
        table.worst("accuracy", "aeg")
    with pytest.raises(ConfigError, match="did you mean 'accuracy'"):
        table["acuracy"]


def test_constant_classifier():
    tally = Tally.from_predictions(
        [1, 0, 0, 1, 1], [1, 1, 0, 0, 1], sensitive_features=list("aabbb"), clients=list("uvuvu")
    )
    always = constant_classifier(tally)
    assert always == Tally.from_predictions(
        [1, 0, 0, 1, 1], [1] * 5, sensitive_features=list("aabbb"), clients=list("uvuvu")
    )
    train = Tally.from_predictions([0, 0, 1], [1, 1, 1], sensitive_features=list("abb"))
    never = constant_classifier(tally, majority=train)
    assert never == constant_classifier(tally, majority=0)
    assert fairness.accuracy(never) == pytest.approx(0.4)
    tie = Tally.from_predictions([0, 1], [1, 1], sensitive_features=list("ab"))
    assert fairness.selection_rate(constant_classifier(tie)) == 0.0
    with pytest.raises(ConfigError, match="majority = 2"):
        constant_classifier(tally, majority=2)


def test_constant_classifier_of_adult():
    # 23.9 % of Adult's 48,842 rows are positive.
    counts = np.zeros((1, 2, 2, 2), int)
    counts[0, :, :, 1] = [[16192 - 1769, 1769], [32650 - 9918, 9918]]
    tally = Tally(counts, ("all",), (Attribute("sex", ("Female", "Male")),))
    numbers = values(quick_table(constant_classifier(tally)))
    assert numbers["accuracy"] == pytest.approx(1 - 11687 / 48842)
    assert numbers["demographic_parity_violation"] == 0.0
    assert numbers["demographic_parity_ratio"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probabilities": [0.2, 1.2]}, "probabilities: row 1 holds 1.2"),
        ({"probabilities": [0.2]}, "y_true 2, probabilities 1"),
        ({"y_pred": [0, 2]}, "y_pred: row 1 holds 2"),
        ({"y_pred": [0, np.nan]}, "y_pred: row 1 is missing"),
        ({"sensitive_features": [0]}, "differ in length"),
        ({"clients": ["a", "b", "c"]}, "differ in length"),
    ],
)
def test_what_cannot_be_measured_is_one_line(change, message):
    good = {"probabilities": [0.2, 0.8], "y_pred": [0, 1], "sensitive_features": [0, 1]}
    with pytest.raises(DataError, match=message) as caught:
        MetricTable.from_predictions([0, 1], **good | change)
    assert "\n" not in str(caught.value)


def test_printed_it_shows_everyone_then_groups_and_clients():
    y, p = np.array([1, 0, 1, 0]), np.array([1, 0, 0, 0])
    rows = {"sensitive_features": {"sex": list("FFMM")}, "clients": list("abab")}
    everyone, slices = str(MetricTable.from_predictions(y, p, **rows, draws=20)).split("\n\n")
    (accuracy,) = re.findall(r"^accuracy +([\d.]+)", everyone, flags=re.M)
    assert float(accuracy) == 0.75
    (men,) = re.findall(r"^ +M +([\d.]+)", slices, flags=re.M)
    assert float(men) == 0.5
    assert str(MetricTable(level=0.95, overall={})) == ""
