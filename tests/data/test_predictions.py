"""Files of predictions, however labels and decisions are written in them."""

from __future__ import annotations

import pandas as pd
import pytest

from answers import one_line
from mfairfl.data.columns import columns_of
from mfairfl.data.predictions import PredictionColumns, read_predictions
from mfairfl.errors import ConfigError, DataError


def read(labels, decisions, **roles):
    frame = pd.DataFrame({"sex": ["f", "m"] * (len(decisions) // 2), "decision": decisions})
    if labels is not None:
        frame["hired"] = labels
        roles = {"label": "hired"} | roles
    found = PredictionColumns(**({"sensitive": ("sex",), "prediction": "decision"} | roles))
    return read_predictions(columns_of(frame, "p.csv"), found, "p.csv")


@pytest.mark.parametrize(
    ("labels", "decisions", "said"),
    [
        (["1", "0"], ["1", "0"], {}),
        ([1.0, 0.0], [True, False], {}),
        (["yes", "no"], ["yes", "no"], {"favourable": "yes"}),
        (["yes", "no"], ["Yes", "No"], {"favourable": "yes"}),
        (["yes", "no"], ["1", "0"], {"favourable": "yes"}),
        ([">50K", "<=50K"], ["1", "0"], {"favourable": ">50K"}),
        ([">50K", "<=50K"], [">50K", "<=50K"], {"favourable": ">50K"}),
        ([">50K", "<=50K"], ["hire", "reject"], {"favourable": ">50K", "selected": "hire"}),
        (["0", "1"], ["0", "1"], {"favourable": "0", "selected": "0"}),
        (["no", "yes"], ["1", "0"], {"favourable": "no", "selected": 1}),
        (["1", "0"], ["-1", "1"], {"selected": "-1"}),
    ],
)
def test_labels_and_decisions_are_read_in_every_spelling(labels, decisions, said):
    found = read(labels, decisions, **said)
    assert found.labels.tolist() == [1, 0]
    assert found.decisions.tolist() == [1, 0]
    assert found.left_out == {}


def test_every_other_decision_than_the_selected_one_is_unfavourable():
    decisions = ["hire", "interview", "reject", "Hire"]
    assert read(None, decisions, selected="hire").decisions.tolist() == [1, 0, 0, 0]
    assert read(None, ["HIRE", "reject"], selected="hire").decisions.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("labels", "decisions", "said"),
    [
        (["0", "1"], ["0", "1"], {"favourable": "0"}),  # 1: the label 1, or favourable?
        (["no", "yes"], ["1", "0"], {"favourable": "no"}),
        (["1", "0"], ["hire", "reject"], {}),
        (["1", "0"], ["hire", "reject"], {"selected": "hired"}),
    ],
)
def test_decisions_that_could_mean_either_are_refused(labels, decisions, said):
    with pytest.raises(DataError, match="selected") as caught:
        read(labels, decisions, **said)
    assert one_line(caught).startswith("p.csv: ")


def test_a_file_in_which_nobody_is_selected_can_be_read():
    found = read(["no", "no"], ["no", "no"], favourable="yes")
    assert (found.labels.tolist(), found.decisions.tolist()) == ([0, 0], [0, 0])
    assert read(None, ["reject", "reject"], selected="hire").decisions.tolist() == [0, 0]
    assert read(["0", "0"], ["0", "0"]).decisions.tolist() == [0, 0]


def predicted(labels, decisions, worth, **roles):
    """Read a file with the column that predict writes beside decisions."""
    frame = pd.DataFrame({"sex": ["f", "m"], "hired": labels, "decision": decisions})
    frame["favourable"] = worth
    given = {"sensitive": ("sex",), "label": "hired", "prediction": "decision"} | roles
    return read_predictions(columns_of(frame, "p.csv"), PredictionColumns(**given), "p.csv")


@pytest.mark.parametrize(
    ("labels", "decisions", "worth", "codes"),
    [
        (["No", "Yes"], ["Yes", "Yes"], [0, 0], [1, 0]),
        (["0", "1"], ["1", "1"], [0, 0], [1, 0]),
        (["0", "1"], ["0", "0"], [1, 1], [1, 0]),
        (["1", "1"], ["0", "1"], [1, 0], [0, 0]),
        (["NO", "yes"], ["Yes", "No"], [0, 1], [1, 0]),
        (["0", "1"], ["0", "0"], [0, 0], [0, 1]),
    ],
)
def test_what_predict_wrote_is_read_where_values_are_lacking(labels, decisions, worth, codes):
    found = predicted(labels, decisions, worth)
    assert found.labels.tolist() == codes
    assert found.decisions.tolist() == worth


@pytest.mark.parametrize(
    ("labels", "decisions", "worth", "said", "message"),
    [
        (["1", "1"], ["1", "1"], [0, 0], {}, "which value of 'hired' is good"),
        (["No", "Yes"], ["0", "1"], [0, 1], {}, "which value of 'hired' is good"),
        (["0", "1"], ["0", "1"], [0, 1], {"favourable": "0"}, "says that deciding '0' is not"),
        (["0", "1"], ["0", "1"], [1, 0], {"favourable": "1"}, "says that deciding '1' is not"),
        (["No", "Yes"], ["No", "Yes"], [1, 0], {"favourable": "yes"}, "deciding 'yes' is not"),
    ],
)
def test_a_favourable_label_that_is_unknown_or_contradicted_is_refused(
    labels, decisions, worth, said, message
):
    with pytest.raises(DataError, match=message) as caught:
        predicted(labels, decisions, worth, **said)
    assert one_line(caught).startswith("p.csv: ")


def test_0_and_1_beside_words_say_who_is_favoured_once_the_label_is_named():
    found = predicted(["No", "Yes"], ["1", "0"], [1, 0], favourable="No")
    assert (found.labels.tolist(), found.decisions.tolist()) == ([1, 0], [1, 0])


def test_a_column_favourable_of_another_kind_is_not_looked_at():
    found = predicted(["yes", "no"], ["yes", "no"], ["3", "4"], favourable="yes")
    assert found.decisions.tolist() == [1, 0]
    assert predicted([1, 0], ["yes", "no"], [0, 1], selected="yes").decisions.tolist() == [1, 0]
    assert predicted([1, 0], ["1", "0"], [0, 1], label="favourable").labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("labels", "said", "message"),
    [
        (["yes", "no"], {}, "which value of 'hired' is good for a person"),
        (["yes", "maybe"], {"favourable": "ja"}, "one of them 'ja'"),
        (["yes", "no", "maybe", ""], {"favourable": "yes"}, "a label has two values"),
    ],
)
def test_labels_that_are_not_two_values_are_refused(labels, said, message):
    with pytest.raises(DataError, match=message):
        read(labels, ["1", "0"] * (len(labels) // 2), **said)


def test_an_unknown_label_is_none_and_rows_without_a_decision_or_score_are_left_out():
    frame = pd.DataFrame(
        {
            "sex": ["f", "", "m", "f", "m"],
            "hired": ["1", "", "0", "1", "?"],
            "decision": ["1", "0", "", "1", "0"],
            "score": ["0.9", "0.2", "0.3", "NA", "0.1"],
        }
    )
    roles = PredictionColumns(
        sensitive=("sex",), label="hired", prediction="decision", score="score"
    )
    found = read_predictions(columns_of(frame, "p.csv"), roles, "p.csv")
    assert found.labels.tolist() == [1, None, None]
    assert found.decisions.tolist() == [1, 0, 0]
    assert found.scores.tolist() == [0.9, 0.2, 0.1]
    assert found.groups["sex"].tolist() == ["f", "?", "m"]
    assert found.left_out == {"no decision": 1, "no score": 1}


def test_a_score_above_the_threshold_is_a_decision():
    frame = pd.DataFrame({"sex": ["f", "m", "f"], "score": [0.5, 0.51, 0.2]})
    roles = PredictionColumns(sensitive=("sex",), score="score", threshold=0.5)
    found = read_predictions(columns_of(frame, "p.csv"), roles, "p.csv")
    assert found.decisions.tolist() == [0, 1, 0]
    assert found.labels is None


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({}, "no decisions"),
        ({"score": "s"}, "no decisions"),
        ({"prediction": "d", "score": "s", "threshold": 0.5}, "only one of them"),
        ({"prediction": "sex"}, "column 'sex' is named for two things"),
    ],
)
def test_columns_that_make_no_decisions_are_refused(roles, message):
    with pytest.raises(ConfigError, match=message):
        PredictionColumns(sensitive=("sex",), **roles)


def test_a_column_that_is_not_there_is_named_with_the_nearest():
    with pytest.raises(DataError, match=r"p\.csv: unknown column 'decison': did you mean"):
        read(None, ["1", "0"], prediction="decison")
