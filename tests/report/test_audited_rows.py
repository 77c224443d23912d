"""From columns of any tool to counts: what is detected, what is refused, what is left out."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest

import mfairfl
from mfairfl.data import read_frame
from mfairfl.data.files import FileContent
from mfairfl.errors import ConfigError, DataError
from mfairfl.report.audit_settings import RowOptions
from mfairfl.report.audited_rows import audit_content

FRAME = pd.DataFrame(
    {
        "sex": ["F", "F", "M", "M", ""],
        "age": [25, 45, 61, 40, 39],
        "hired": ["yes", "no", "yes", "", "no"],
        "decision": [1, 0, 1, 1, 0],
        "score": [0.9, 0.1, 0.8, 0.7, 0.2],
        "site": ["a", "a", "b", "b", "b"],
    }
)


def counted(frame=FRAME, **options):
    """What an audit of a frame counted, and what it says of the rows."""
    given = {"sensitive": "sex", "prediction": "decision"} | options
    content = FileContent(read_frame(frame), sha256="")
    document = audit_content(content, RowOptions(**given), name="people")
    (source,) = document.sources
    return SimpleNamespace(
        counts=document.counts.counts(),
        meaning=document.settings.meaning,
        left_out=source.left_out,
        notes=source.notes,
        bias_tables=document.bias_tables,
    )


def selected(found):
    """How many of each group are selected."""
    hits = found.counts.decided.sum(axis=(0, 2))[:, 1].tolist()
    return dict(zip(found.counts.attributes[0].groups, hits, strict=True))


def test_zeros_and_ones_need_no_words():
    found = counted()
    assert selected(found) == {"F": 1, "M": 2, "?": 0}
    assert (found.meaning.prediction, found.meaning.selected) == ("decision", "1")


@pytest.mark.parametrize(
    ("yes", "no"), [(True, False), ("true", "false"), ("True", "False"), (1.0, 0.0), ("1", "0")]
)
def test_truths_in_any_spelling(yes, no):
    found = counted(FRAME.assign(decision=np.where(FRAME.decision == 1, yes, no)))
    assert selected(found) == {"F": 1, "M": 2, "?": 0}


def test_labels_and_missing_ones():
    found = counted(label="hired", favourable="yes")
    assert found.counts.decided.sum(axis=(0, 1)).tolist() == [[2, 0], [0, 2], [0, 1]]
    assert (found.meaning.label, found.meaning.favourable) == ("hired", "yes")


def test_favourable_is_the_decision_too():
    decided = FRAME.assign(decision=np.where(FRAME.decision == 1, "yes", "no"))
    found = counted(decided, label="hired", favourable="yes")
    assert selected(found) == {"F": 1, "M": 2, "?": 0}
    assert found.meaning.selected == "yes"


def test_a_decision_that_is_written_otherwise():
    decided = FRAME.assign(decision=["hire", "hold", "hire", "hire", "reject"])
    found = counted(decided, label="hired", favourable="yes", selected="hire")
    assert selected(found) == {"F": 1, "M": 2, "?": 0}
    assert found.meaning.selected == "hire"


@pytest.mark.parametrize(
    ("changes", "roles", "message"),
    [
        ({}, {"label": "hired"}, "which value of 'hired' is good.*no, yes"),
        ({"decision": list("abaab")}, {}, "which value of 'decision' is a favourable.*a, b"),
        ({}, {"selected": "hire"}, "never holds 'hire'.*0, 1"),
        ({"hired": list("abcab")}, {"label": "hired", "favourable": "a"}, "two values"),
        ({}, {"label": "hird"}, "unknown column 'hird': did you mean 'hired'"),
        ({}, {"sensitive": ("sexx",)}, "did you mean 'sex'"),
        ({}, {"sensitive": ("age",), "score": "sex"}, "is not a number"),
        ({"sex": [""] * 5}, {}, "sensitive column 'sex' has no value"),
        ({"decision": [None] * 5}, {}, "no row can be counted"),
        ({"score": [2.0] * 5}, {"score": "score"}, "outside 0 to 1"),
    ],
)
def test_refusals_are_one_line(changes, roles, message):
    with pytest.raises(DataError, match=message) as error:
        counted(FRAME.assign(**changes), **roles)
    assert "\n" not in str(error.value)


def test_ages_are_refused_and_binned():
    many = pd.DataFrame({"age": range(18, 80), "decision": [1, 0] * 31})
    with pytest.raises(DataError, match=r'62 values .*--bins "age=40,60"'):
        counted(many, sensitive=("age",))
    found = counted(many, sensitive=("age",), bins={"age": (40, 60)})
    groups = found.counts.attributes[0].groups
    assert groups == ("under 40", "40 to under 60", "60 and over")
    assert found.counts.rows.sum(axis=(0, 2)).tolist() == [22, 20, 20]  # 18–39, 40–59, 60–79


def test_an_age_that_is_missing_is_unknown():
    aged = pd.DataFrame({"age": ["39", "", "60"], "decision": [1, 0, 1]})
    found = counted(aged, sensitive=("age",), bins={"age": (40,)})
    assert found.counts.attributes[0].groups == ("under 40", "40 and over", "?")


@pytest.mark.parametrize("cuts", [(), (60, 40), (40, 40)])
def test_cuts_must_ascend(cuts):
    with pytest.raises(ConfigError, match="ascending numbers"):
        counted(sensitive=("age",), bins={"age": cuts})


def test_bins_of_what_is_not_compared():
    with pytest.raises(ConfigError, match="not a sensitive column"):
        counted(bins={"age": (40,)})


def test_few_numbers_are_groups_in_their_order():
    frame = pd.DataFrame({"grade": [10, 9, 10, 2], "decision": [1, 0, 1, 0]})
    assert counted(frame, sensitive=("grade",)).counts.attributes[0].groups == ("2", "9", "10")


def test_too_many_groups_are_refused():
    names = [f"g{i}" for i in range(60)]
    frame = pd.DataFrame({"a": names, "decision": [1, 0] * 30})
    with pytest.raises(DataError, match="60 values"):
        counted(frame, sensitive=("a",))
    frame = pd.DataFrame({"a": names[:40] * 2, "b": names[:40] * 2, "decision": [1, 0] * 40})
    with pytest.raises(DataError, match="1,600 combinations of groups"):
        counted(frame, sensitive=("a", "b"))


def test_combinations_of_the_same_name_are_refused():
    frame = pd.DataFrame({"a": ["x", "x × y"], "b": ["y × z", "z"], "decision": [1, 0]})
    with pytest.raises(DataError, match="two combinations of groups are called 'x × y × z'"):
        counted(frame, sensitive=("a", "b"))


def test_too_many_clients_are_refused():
    frame = pd.DataFrame({"a": ["x", "y"] * 3000, "c": range(6000), "decision": [1, 0] * 3000})
    with pytest.raises(DataError, match="6,000 clients"):
        counted(frame, sensitive=("a",), client="c")


def test_what_is_left_out_is_counted():
    frame = FRAME.assign(decision=[1, None, 1, None, 0], score=[0.9, 0.1, None, 0.7, 0.2])
    found = counted(frame, score="score")
    assert found.left_out == {"no decision": 2, "no score": 1}
    assert found.counts.rows.sum() == 2


def test_values_that_mean_nothing_is_known():
    frame = FRAME.assign(sex=["F", "F", "M", "M", "Unknown"])
    found = counted(frame)
    assert found.counts.attributes[0].groups == ("F", "M", "Unknown")
    assert "--unknown 'Unknown'" in found.notes[0]
    told = counted(frame, unknown=("Unknown",))
    assert told.counts.attributes[0].groups == ("F", "M", "?")
    assert told.notes == []


def test_scores_above_a_threshold_are_decisions():
    found = counted(prediction=None, score="score", threshold=0.75)
    assert selected(found) == {"F": 1, "M": 1, "?": 0}
    assert (found.meaning.threshold, found.meaning.selected) == (0.75, "")
    on_it = counted(prediction=None, score="score", threshold=0.8)
    assert selected(on_it) == {"F": 1, "M": 0, "?": 0}  # above, not at


def test_the_median_is_exact():
    """.1 .2 .7 .8 .9: the median is .7, above are .8 (M) and .9 (F)."""
    _, scoring = counted(score="score", sex="sex").bias_tables
    assert (scoring.median, scoring.median_kind) == (0.7, "sample median")
    assert {row.category: row.selected for row in scoring.rows} == {"F": 1, "M": 1}


# ------------------------------------------------------------------ as `mfairfl predict` writes


PREDICTED = pd.DataFrame(
    {
        "row": range(4),
        "sex": ["F", "M", "F", "M"],
        "income": [">50K", "<=50K", ">50K", "<=50K"],
        "score": [0.7, 0.6, 0.2, 0.1],
        "decision": [">50K", ">50K", "<=50K", "<=50K"],
        "favourable": [1, 1, 0, 0],
    }
)


def test_what_predict_writes_is_understood():
    found = counted(PREDICTED, label="income", score="score")
    assert selected(found) == {"F": 1, "M": 1}
    assert found.counts.decided.sum(axis=(0, 1)).tolist() == [[1, 1], [1, 1], [0, 0]]
    meaning = found.meaning
    assert (meaning.favourable, meaning.prediction, meaning.selected) == (
        ">50K",
        "decision",
        ">50K",
    )


def test_nobody_was_decided_favourably():
    nobody = PREDICTED.assign(decision="<=50K", favourable=0)
    found = counted(nobody, label="income")
    assert selected(found) == {"F": 0, "M": 0}
    assert found.meaning.favourable == ">50K"


def test_another_tools_columns_of_these_names_are_not_taken_for_ours():
    odd = PREDICTED.assign(favourable=[1, 0, 1, 0])  # a decision is worth both
    with pytest.raises(DataError, match="which value of 'decision'"):
        counted(odd)
    assert selected(counted(odd, selected="<=50K")) == {"F": 1, "M": 1}


# ------------------------------------------------------------------ mfairfl.audit


ROLES = {"label": "hired", "favourable": "yes", "prediction": "decision", "sensitive": "sex"}


@pytest.mark.parametrize("kind", ["pandas", "polars", "csv", "parquet", "json", "semicolons"])
def test_a_frame_or_a_file(tmp_path, kind):
    path = tmp_path / f"rows.{kind}"
    if kind == "csv":
        FRAME.to_csv(path, index=False)
    elif kind == "semicolons":
        FRAME.to_csv(path, index=False, sep=";", encoding="utf-16")
    elif kind == "parquet":
        FRAME.to_parquet(path)
    elif kind == "json":
        FRAME.to_json(path, orient="records")
    source = {"pandas": FRAME, "polars": pl.from_pandas(FRAME)}.get(kind, path)
    document = mfairfl.audit(source, **ROLES)
    assert document.rows.counted == 5
    assert document.rows.labelled == 4
    assert document.rows.unknown_group == {"sex": 1}
    assert document.sources[0].name == ("the rows" if kind in ("pandas", "polars") else path.name)
    assert bool(document.sources[0].sha256) == (kind not in ("pandas", "polars"))


def test_columns_as_they_are_give_the_same():
    of_frame = mfairfl.audit(FRAME, **ROLES, client="site", score="score")
    of_arrays = mfairfl.audit(
        y_true=[1, 0, 1, None, 0],
        y_pred=FRAME.decision.tolist(),
        scores=FRAME.score.to_numpy(),
        clients=pl.Series(FRAME.site.tolist()),
        sensitive_features=FRAME[["sex"]].replace({"": None}),
    )
    assert of_arrays.overall == of_frame.overall
    assert of_arrays.sections == of_frame.sections
    assert of_arrays.clients == of_frame.clients
    assert of_arrays.counts == of_frame.counts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "fair for whom"),
        ({"sensitive": "sex"}, "names of columns need rows"),
        ({"sensitive_features": [1, 2], "y_pred": [1]}, "differ in length"),
        ({"sensitive_features": {"prediction": ["F"]}, "y_pred": [1]}, "'prediction': rename"),
        ({"rows": FRAME, "sensitive_features": ["F"]}, "rows and arrays"),
        ({"rows": FRAME, "sensitive": "sex"}, "no decisions"),
        ({"rows": FRAME, "sensitive": (), "prediction": "decision"}, "fair for whom"),
        ({"rows": FRAME, **ROLES, "tolerance": 1.5}, "tolerance"),
        ({"rows": FRAME, **ROLES, "level": 95}, "level"),
        ({"rows": FRAME, **ROLES, "sex": "sex", "race": "sex"}, "as sex and as race"),
        ({"rows": FRAME, **ROLES, "sensitive": ["sex", "hired"]}, "'hired' is named for two"),
        ({"rows": FRAME, **ROLES, "score_range": (1, 0)}, "score range"),
        ({"rows": 3, **ROLES}, "cannot read a int"),
    ],
)
def test_what_audit_refuses(options, message):
    with pytest.raises((ConfigError, DataError), match=message) as error:
        mfairfl.audit(**options)
    assert "\n" not in str(error.value)


def test_the_columns_of_the_tables_are_sensitive():
    document = mfairfl.audit(FRAME.assign(race="A"), prediction="decision", sex="sex", race="race")
    assert [one.name for one in document.counts.attributes] == ["sex", "race"]
    assert [table.name for table in document.bias_tables] == ["sex", "race", "sex_race"]


def test_one_row_is_a_document():
    document = mfairfl.audit(FRAME.head(1), prediction="decision", sensitive="sex", tolerance=0.1)
    assert document.rows.counted == 1
    assert "Audit of decisions" in str(document)
