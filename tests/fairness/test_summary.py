"""The summary holds every number once, under the names of run.json."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from mfairfl import fairness
from mfairfl.data import Attribute
from mfairfl.errors import ConfigError
from mfairfl.fairness import Tally, constant_classifier, intervals, summarise

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
    summary = summarise(tally)
    numbers = summary.to_json()["values"]
    assert set(numbers) == NAMES
    assert summary.undefined == {}
    for name, value in numbers.items():
        assert value == pytest.approx(getattr(fairness, name)(tally), abs=1e-15)
    assert list(summary.by_attribute) == ["sex", "age", "sex × age"]
    for attribute, numbers in summary.by_attribute.items():
        assert set(numbers) == {name for name in NAMES if "parity" in name or "equal" in name}
        for name, value in numbers.items():
            chosen = "intersection" if "×" in attribute else attribute
            expected = getattr(fairness, name)(tally, attribute=chosen)
            assert value == pytest.approx(expected, abs=1e-15)


def test_tables_equal_pandas():
    y, p, frame, client = big(1)
    tally = Tally.from_predictions(y, p, sensitive_features=frame, clients=client)
    summary = summarise(tally)
    crossed = {"sex × age": frame["sex"] + " × " + frame["age"]}
    rows = frame.assign(y=y, p=p, client=client, **crossed)
    tables = [("client", summary.by_client), *summary.by_group.items()]
    assert [name for name, _ in tables] == ["client", "sex", "age", "sex × age"]
    for column, table in tables:
        for key, part in rows.groupby(column):
            rates = {k: v for k, v in table[key].items() if not k.endswith("_violation")}
            assert (rates != table[key]) == (column == "client")
            assert rates == pytest.approx(
                {
                    "n": len(part),
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
    for name, found in summarise(tally).by_client.items():
        here = client == name
        for notion in ("demographic_parity", "equalized_odds", "accuracy_parity"):
            alone = getattr(fairness, f"{notion}_violation")(
                y[here], p[here], sensitive_features=frame[here]
            )
            assert found[f"{notion}_violation"] == pytest.approx(alone, abs=1e-15)


def test_a_client_without_a_group_has_no_violation():
    tally = Tally.from_predictions(
        [1, 0, 1, 0, 1],
        [1, 1, 0, 0, 1],
        sensitive_features=["F", "F", "F", "M", "M"],
        clients=["one", "one", "two", "two", "two"],
    )
    found = summarise(tally)
    assert found.by_client["one"]["demographic_parity_violation"] is None
    assert found.undefined["by_client.one.demographic_parity_violation"] == (
        "group 'M' of 'sensitive_feature' has no rows"
    )
    # Of two's favourable decisions, 1 of 3: F has 0 of 1, M has 1 of 2.
    assert found.by_client["two"]["demographic_parity_violation"] == pytest.approx(1 / 3)
    assert found.undefined["by_client.two.equalized_odds_violation"] == (
        "group 'F' of 'sensitive_feature' has no rows with y=0"
    )
    limits = intervals(tally, draws=200).by_client
    assert limits["one"]["demographic_parity_violation"] is None
    low, high = limits["two"]["demographic_parity_violation"]
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
    summary = summarise(tally)
    numbers = summary.to_json()["values"]
    assert numbers["accuracy"] == 0.75
    assert numbers["demographic_parity_violation"] is None
    reason = "group 'never' of 'race' has no rows"
    assert summary.undefined["demographic_parity_violation"] == reason
    assert summary.undefined["race.demographic_parity_violation"] == reason
    assert "sex.demographic_parity_violation" not in summary.undefined
    assert summary.by_attribute["race"]["demographic_parity_violation"] is None
    assert summary.by_attribute["sex"]["demographic_parity_violation"] == 0.25
    # Nobody has a false positive, so the true positive rates, 1 and 0, are all there is.
    assert summary.by_attribute["sex"]["equalized_odds_ratio"] == 0.0
    nobody = Tally.from_predictions([1, 0, 1, 0], [0] * 4, sensitive_features=list("FFMM"))
    assert summarise(nobody).undefined["equalized_odds_ratio"] == (
        "no favourable decision in an event: the ratio is 0/0"
    )
    assert summary.by_group["race"]["never"] == {
        "n": 0,
        "accuracy": None,
        "selection_rate": None,
        "true_positive_rate": None,
        "false_positive_rate": None,
        "base_rate": None,
    }
    missing = {name for name, value in numbers.items() if value is None}
    assert missing == {name for name in summary.undefined if "." not in name}


def test_summary_is_plain_json_even_for_nobody():
    nobody = Tally(np.zeros((0, 1, 2, 2), int), (), ())
    document = json.loads(json.dumps(summarise(nobody).to_json(), allow_nan=False))
    assert set(document["values"].values()) == {None}
    assert document["undefined"]["client_accuracy_std"] == "there are no clients"


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
    numbers = summarise(constant_classifier(tally)).to_json()["values"]
    assert numbers["accuracy"] == pytest.approx(1 - 11687 / 48842)
    assert numbers["demographic_parity_violation"] == 0.0
    assert numbers["demographic_parity_ratio"] is None
