from __future__ import annotations

import functools
import itertools
import json
import math
import operator
import statistics as stdlib
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, StandardScaler

from mfairfl.data import Encoder, EncoderConfig, EncoderStatistics, Task, statistics
from mfairfl.data.encoder import fit_encoder
from mfairfl.data.sums import Histogram, NumericStatistics
from mfairfl.errors import ConfigError, DataError

TASK = Task(
    label="y", favourable=1, sensitive=("sex",), numeric=("age", "gain"), categorical=("job",)
)
X = pd.DataFrame(
    {
        "age": [20.0, 40.0, 60.0, 40.0],
        "gain": [5.0, np.nan, 5.0, 5.0],
        "job": ["smith", "clerk", "?", "smith"],
    }
)

NUMBERS = st.one_of(
    st.none(),
    st.integers(-(10**9), 10**9).map(float),
    st.floats(-1e99, 1e99),
    st.sampled_from([1e16, 1.0, -1e16, 0.1, 1e-300]),
)
ROWS = st.lists(
    st.tuples(NUMBERS, NUMBERS, st.sampled_from(["a", "b", "?", "ü", "A"]), st.integers(0, 3)),
    max_size=25,
)


AGE = {"name": "age", "mean": 40.0, "scale": 10.0, "indicator": False}


def features(rows):
    frame = pd.DataFrame([row[:3] for row in rows], columns=["age", "gain", "job"])
    return frame.astype({"age": float, "gain": float})


@settings(max_examples=40)
@given(ROWS)
def test_statistics_of_shards_add_up_to_those_of_all_rows(rows):
    """To the last bit, in any order, with empty shards."""
    shards = [features([row for row in rows if row[3] == k]) for k in range(4)]
    parts = [statistics(shard, TASK) for shard in shards]
    pooled = statistics(features(rows), TASK)
    forwards = functools.reduce(operator.add, parts)
    backwards = functools.reduce(operator.add, reversed(parts))
    assert forwards == backwards == pooled
    assert Encoder.fit(forwards, TASK).sha256 == Encoder.fit(pooled, TASK).sha256


@given(st.lists(st.floats(-1e99, 1e99).filter(lambda x: x == 0 or abs(x) > 1e-99), min_size=1))
@example([1e9 + 0.1, 1e9 + 0.2, 1e9 + 0.3])
@example([1e99, -1e99, 1.0])
def test_mean_and_deviation_are_those_of_exact_arithmetic(values):
    sums = NumericStatistics.of(np.array(values))
    exact = [Fraction(value) for value in values]
    mean = sum(exact) / len(exact)
    variance = sum((x - mean) ** 2 for x in exact) / len(exact)
    assert sums.count == len(values)
    assert sums.mean == float(mean)
    assert sums.deviation == math.sqrt(variance)
    assert sums.deviation == pytest.approx(stdlib.pstdev(exact), rel=1e-15, abs=0)


@given(st.lists(st.floats(-1e99, 1e99)))
@example([5e-324, 1.0, -1e99, 3e-320])
def test_sums_are_those_of_the_standard_library(values):
    """The same floats as if every term went through `math.fsum`, chunk or not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mfairfl.data.sums._CHUNK", 3)
        found = NumericStatistics.of(np.array(values, dtype=float)).total
    rest, parts = list(values), []
    while (part := math.fsum(rest)) != 0:
        parts.append(part)
        rest.append(-part)
    assert found == tuple(parts)


def test_a_large_offset_does_not_spoil_the_deviation():
    # Half the rows at c, half at c + 2: the deviation is 1 whatever c is.
    for offset in (0.0, 1e9, 1e15):
        numbers = np.array([offset, offset + 2] * 500)
        assert NumericStatistics.of(numbers).deviation == 1.0
        assert NumericStatistics.of(numbers).mean == offset + 1


def test_a_constant_column_has_deviation_zero_exactly():
    assert NumericStatistics.of(np.full(1001, 0.1)).deviation == 0.0
    assert NumericStatistics.of(np.full(7, 1e-300)).deviation == 0.0


def test_numbers_by_hand():
    encoder = Encoder.fit(statistics(X, TASK), TASK)
    assert encoder.feature_names == ("age", "gain", "gain=?", "job=?", "job=clerk", "job=smith")
    # age: mean 40, deviation sqrt((400 + 0 + 400 + 0) / 4) = sqrt(200); gain is constant
    r = np.float32(20 / math.sqrt(200))
    expected = [
        [-r, 0, 0, 0, 0, 1],
        [0, 0, 1, 0, 1, 0],
        [r, 0, 0, 1, 0, 0],
        [0, 0, 0, 0, 0, 1],
    ]
    encoded = encoder.transform(X)
    assert encoded.dtype == np.float32
    np.testing.assert_array_equal(encoded, np.array(expected, dtype=np.float32))


def test_encoding_equals_scikit_learn():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40, 12, 500),
            "gain": rng.lognormal(3, 2, 500),
            "job": rng.choice(["clerk", "smith", "baker", "?"], 500),
        }
    )
    new = frame.sample(50, random_state=1).reset_index(drop=True)
    new.loc[0, "job"] = "pilot"
    scaler = StandardScaler().fit(frame[["age", "gain"]])
    onehot = OneHotEncoder(sparse_output=False, handle_unknown="ignore").fit(frame[["job"]])
    expected = np.hstack([scaler.transform(new[["age", "gain"]]), onehot.transform(new[["job"]])])
    encoded = Encoder.fit(statistics(frame, TASK), TASK).transform(new)
    # float32 keeps 24 bits: half a unit in the last place is 2^-24 of the value
    np.testing.assert_allclose(encoded, expected, rtol=2**-24, atol=1e-12)


def test_without_missing_values_in_the_fit_there_is_no_mark():
    encoder = Encoder.fit(statistics(X[["age", "job"]].assign(gain=1.0), TASK), TASK)
    assert "age=?" not in encoder.feature_names
    encoded = encoder.transform(X.assign(age=np.nan))
    assert encoded[:, 0].tolist() == [0, 0, 0, 0]


def test_a_column_that_is_always_missing_becomes_zeros_and_a_mark():
    encoder = Encoder.fit(statistics(X.assign(gain=np.nan), TASK), TASK)
    encoded = encoder.transform(X.assign(gain=[np.nan, 2.0, np.nan, np.nan]))
    assert encoded[[0, 2, 3], 1].tolist() == [0, 0, 0]
    assert encoded[:, 2].tolist() == [1, 0, 1, 1]


def test_a_constant_column_keeps_the_distance_of_new_values():
    encoder = Encoder.fit(statistics(X.assign(gain=5.0), TASK), TASK)
    assert encoder.transform(X.assign(gain=[5.0, 8.0, 4.5, 5.0]))[:, 1].tolist() == [0, 3, -0.5, 0]


def test_unknown_categories_follow_the_policy():
    new = X.assign(job=["smith", "smithh", "clerk", "clerk"])
    ignoring = Encoder.fit(statistics(X, TASK), TASK)
    assert ignoring.transform(new)[1, 3:].tolist() == [0, 0, 0]
    strict = TASK.model_copy(update={"unknown_category": "error"})
    encoder = Encoder.fit(statistics(X, strict), strict)
    assert encoder.transform(X).shape == (4, 6)
    with pytest.raises(DataError) as caught:
        encoder.transform(new)
    message = str(caught.value)
    for word in ("row 1", "column 'job'", "'smithh'", "did you mean 'smith'"):
        assert word in message


def test_rare_levels_are_merged_and_take_in_unseen_ones():
    encoder = Encoder.fit(statistics(X, TASK), TASK, min_level_rows=2)
    assert encoder.feature_names[3:] == ("job=smith", "job=(rare)")
    assert encoder.transform(X)[:, 3:].tolist() == [[1, 0], [0, 1], [0, 1], [1, 0]]
    assert encoder.transform(X.assign(job="pilot"))[:, 3:].tolist() == [[0, 1]] * 4
    strict = TASK.model_copy(update={"unknown_category": "error"})
    encoder = Encoder.fit(statistics(X, strict), strict, min_level_rows=2)
    assert encoder.transform(X)[:, 4].tolist() == [0, 1, 1, 0]  # rare, but known
    with pytest.raises(DataError, match="unknown category 'clark': did you mean 'clerk'"):
        encoder.transform(X.assign(job="clark"))


def test_without_a_rare_level_an_unseen_one_is_all_zeros():
    encoder = Encoder.fit(statistics(X, TASK), TASK, min_level_rows=1)
    assert encoder.categorical[0].rare == ()
    assert not encoder.transform(X.assign(job="pilot"))[:, 3:].any()


def test_rare_levels_are_those_of_scikit_learn():
    rng = np.random.default_rng(4)
    jobs = [f"job {k}" for k in rng.zipf(1.4, 900) if k < 80]
    new = [*jobs[:50], "unseen", "job 79"]
    blank = {"age": 1.0, "gain": 1.0}
    ours = Encoder.fit(
        statistics(pd.DataFrame(blank | {"job": jobs}), TASK), TASK, min_level_rows=20
    )
    onehot = OneHotEncoder(
        sparse_output=False, min_frequency=20, handle_unknown="infrequent_if_exist"
    ).fit(np.array(jobs)[:, None])
    assert 3 < len(ours.categorical[0].levels) < 20
    found = ours.transform(pd.DataFrame(blank | {"job": new}))[:, 2:]
    np.testing.assert_array_equal(found, onehot.transform(np.array(new)[:, None]))


def test_a_level_called_rare_is_not_the_merged_one():
    jobs = pd.DataFrame({"age": 1.0, "gain": 1.0, "job": ["(rare)"] * 3 + ["pilot"]})
    encoder = Encoder.fit(statistics(jobs, TASK), TASK, min_level_rows=2)
    assert encoder.feature_names[2:] == ("job=(rare)", "job=((rare))")
    plain = json.loads(encoder.to_json())["categorical"][0]
    assert plain == {"name": "job", "levels": ["(rare)"], "rare": ["pilot"]}
    assert encoder.transform(jobs)[:, 2:].tolist() == [[1, 0]] * 3 + [[0, 1]]


def test_levels_come_from_all_clients():
    parts = [statistics(X.iloc[i : i + 1], TASK) for i in range(4)]
    encoder = Encoder.fit(functools.reduce(operator.add, parts), TASK)
    assert encoder.categorical[0].levels == ("?", "clerk", "smith")
    assert parts[0].categorical == {"job": {"smith": 1}}


def test_statistics_of_other_columns_do_not_add():
    with pytest.raises(DataError, match="'age' is in one client's statistics"):
        statistics(X, TASK) + EncoderStatistics(categorical={"job": {"smith": 1}})


def test_features_must_be_there_and_be_finite():
    encoder = Encoder.fit(statistics(X, TASK), TASK)
    with pytest.raises(DataError, match="unknown column 'gain'"):
        encoder.transform(X.drop(columns="gain"))
    with pytest.raises(DataError, match="unknown column 'job'"):
        statistics(X.drop(columns="job"), TASK)
    with pytest.raises(DataError, match="row 2, column 'age'"):
        statistics(X.assign(age=[1, 2, np.inf, 4]), TASK)
    with pytest.raises(DataError, match="row 3, column 'age': 1e\\+50 is beyond any scale"):
        encoder.transform(X.assign(age=[1, 2, 3, 1e50]))
    with pytest.raises(ConfigError, match="no roles"):
        statistics(X, TASK.model_copy(update={"numeric": None}))


def fitted(rows, **settings):
    """Fit an encoder with bins to the rows of one client."""
    config = EncoderConfig(**{"numeric": "bins", "bins": 4, "min_rows": 2} | settings)
    sums, frame = statistics(features(rows), TASK), features(rows)

    def count(cuts):
        return {c: Histogram.of(frame[c].to_numpy(), given) for c, given in cuts.items()}

    return fit_encoder(config, TASK, train=sums, schema=sums, count=count)


INDICATORS = st.sampled_from(["none", "atoms", "bins"])


@given(ROWS, INDICATORS, st.integers(1, 3))
def test_json_round_trip_is_exact(rows, indicators, min_level_rows):
    encoder = fitted(rows, indicators=indicators, min_level_rows=min_level_rows)
    again = Encoder.from_json(encoder.to_json())
    assert again == encoder
    assert again.to_json() == encoder.to_json()
    for mine, theirs in zip(encoder.numeric, again.numeric, strict=True):
        for key in ("mean", "scale", "edges", "atoms"):
            assert repr(getattr(mine, key)) == repr(getattr(theirs, key))


def piecewise(x, column):
    """Return the inputs of one number beside the standardised one, by the definition."""
    number = column.mean if np.isnan(x) else x
    found = []
    for low, high in itertools.pairwise(column.edges):
        share = 0.0 if number < low else 1.0 if number >= high else (number - low) / (high - low)
        found.append(share)
    found += [float(x == atom) for atom in column.atoms]
    if column.bin_indicators:
        place = None if np.isnan(x) else max(sum(x >= edge for edge in column.edges) - 1, 0)
        found += [float(i == place) for i in range(len(column.edges))]
    return found


# In thousandths: beside a tiny deviation a large number is refused as beyond any scale.
THOUSANDTHS = st.integers(-(10**9), 10**9).map(lambda i: i / 1000)
MODERATE = st.one_of(st.none(), st.integers(-3, 9).map(float), THOUSANDTHS)
MODERATE_ROWS = st.lists(st.tuples(MODERATE, MODERATE, st.just("a")), max_size=40)


@given(MODERATE_ROWS, MODERATE_ROWS, INDICATORS)
def test_bins_equal_a_loop_over_rows(rows, new, indicators):
    encoder, frame = fitted(rows, indicators=indicators), features(new)
    encoded = encoder.transform(frame)
    first = 2 + sum(column.indicator for column in encoder.numeric)
    for i, row in enumerate(frame.itertuples(index=False)):
        expected = [
            *piecewise(row.age, encoder.numeric[0]),
            *piecewise(row.gain, encoder.numeric[1]),
        ]
        found = encoded[i, first : first + len(expected)]
        np.testing.assert_array_equal(found, np.array(expected, dtype=np.float32))
    assert np.isfinite(encoded).all()
    assert len(set(encoder.feature_names)) == len(encoder.feature_names) == encoded.shape[1]


def test_bins_by_hand():
    gain = AGE | {"name": "gain", "indicator": True, "edges": (0, 10, 30), "bin_indicators": True}
    encoder = Encoder(
        numeric=(AGE | {"edges": (20, 40), "atoms": (40,)}, gain),
        categorical=(),
        unknown_category="ignore",
    )
    assert encoder.feature_names == (
        "age",
        "gain",
        "gain=?",
        "age from 20 to 40",
        "age=40",
        "gain from 0 to 10",
        "gain from 10 to 30",
        "gain<10",
        "gain in [10, 30)",
        "gain>=30",
    )
    rows = pd.DataFrame({"age": [25.0, 40.0, np.nan, 99.0], "gain": [-5.0, 15.0, np.nan, 30.0]})
    expected = [
        [-1.5, -4.5, 0, 0.25, 0, 0, 0, 1, 0, 0],
        [0, -2.5, 0, 1, 1, 1, 0.25, 0, 1, 0],
        [0, 0, 1, 1, 0, 1, 1, 0, 0, 0],  # missing: the mean, 40, and no indicator
        [5.9, -1, 0, 1, 0, 1, 1, 0, 0, 1],
    ]
    np.testing.assert_array_equal(encoder.transform(rows), np.array(expected, dtype=np.float32))


def test_bin_indicators_are_those_of_scikit_learn():
    rng = np.random.default_rng(6)
    rows = rng.lognormal(1, 1, (400, 1))
    theirs = KBinsDiscretizer(8, encode="onehot-dense", strategy="uniform").fit(rows)
    age = AGE | {"edges": tuple(theirs.bin_edges_[0][:-1]), "bin_indicators": True}
    encoder = Encoder(numeric=(age,), categorical=(), unknown_category="ignore")
    new = np.array([*rng.lognormal(1, 2, 99), -1.0, 1e6, *theirs.bin_edges_[0]])
    found = encoder.transform(pd.DataFrame({"age": new}))[:, -8:]
    np.testing.assert_array_equal(found, theirs.transform(new[:, None]))


def test_large_numbers_and_narrow_bins_stay_finite():
    age = AGE | {"scale": 1e90, "edges": (0.0, 5e-324, 1e-300, 1e99)}
    encoder = Encoder(numeric=(age,), categorical=(), unknown_category="ignore")
    encoded = encoder.transform(pd.DataFrame({"age": [-1e99, 0.0, 5e-324, 1e99]}))
    assert encoded[:, 1:].tolist() == [[0, 0, 0], [0, 0, 0], [1, 0, 0], [1, 1, 1]]


@given(ROWS, INDICATORS)
def test_chosen_rows_are_encoded_as_in_the_whole(rows, indicators):
    encoder, frame = fitted(rows, indicators=indicators), features(rows)
    chosen = np.arange(len(rows))[::-2]
    encoded = encoder.encode(frame, chosen)
    np.testing.assert_array_equal(encoded.dense(), encoder.transform(frame)[chosen])


def test_standard_is_the_encoding_of_earlier_versions():
    rows = [(float(k), k / 3, "ab"[k % 2], 0) for k in range(40)]
    plain = fitted(rows, numeric="standard", indicators="bins")
    assert plain == Encoder.fit(statistics(features(rows), TASK), TASK)
    assert plain.feature_names == ("age", "gain", "job=a", "job=b")


def test_json_keeps_the_encoder():
    encoder = Encoder.fit(statistics(X, TASK), TASK)
    again = Encoder.from_json(encoder.to_json())
    assert again == encoder
    assert again.sha256 == encoder.sha256
    np.testing.assert_array_equal(again.transform(X), encoder.transform(X))
    other = Encoder.fit(statistics(X.iloc[:3], TASK), TASK)
    assert other.sha256 != encoder.sha256


def test_the_json_is_plain():
    data = json.loads(Encoder.fit(statistics(X, TASK), TASK).to_json())
    assert data["schema_version"] == 2
    assert data["numeric"][0] == {
        "name": "age",
        "mean": 40.0,
        "scale": 14.142135623730951,
        "indicator": False,
        "edges": [],
        "atoms": [],
        "bin_indicators": False,
    }
    levels = {"name": "job", "levels": ["?", "clerk", "smith"], "rare": []}
    assert data["categorical"] == [levels]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema_version": 3}, "schema_version"),
        ({"extra": 1}, "extra"),
        ({"unknown_category": "drop"}, "unknown_category"),
        (
            {"numeric": [{"name": "a", "mean": 0, "scale": 0, "indicator": False}]},
            "numeric.0.scale",
        ),
        ({"numeric": [{"name": "a", "mean": "NaN", "scale": 1, "indicator": False}]}, "mean"),
        ({"categorical": [{"name": "a", "levels": ["y", "x"]}]}, "sorted"),
        ({"categorical": [{"name": "a", "levels": ["x", "x"]}]}, "distinct"),
        ({"categorical": [{"name": "a", "levels": ["x"], "rare": ["z", "y"]}]}, "sorted"),
        ({"categorical": [{"name": "a", "levels": ["x"], "rare": ["x"]}]}, "rare and have"),
        ({"numeric": [AGE | {"edges": [2, 1]}]}, "must increase"),
        ({"numeric": [AGE | {"atoms": [1, 1]}]}, "must increase"),
        ({"numeric": [AGE | {"edges": [1, "Infinity"]}]}, "edges.1"),
        ({"numeric": [AGE | {"edges": [1]}]}, "at least two edges"),
        ({"numeric": [AGE | {"bin_indicators": True}]}, "at least two edges"),
    ],
)
def test_damaged_encoders_are_refused(change, words):
    good = json.loads(Encoder.fit(statistics(X, TASK), TASK).to_json())
    with pytest.raises(DataError) as caught:
        Encoder.from_json(json.dumps(good | change), name="encoder.json")
    assert "encoder.json" in str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_cut_encoder_is_refused():
    text = Encoder.fit(statistics(X, TASK), TASK).to_json()[:-9]
    with pytest.raises(DataError, match="not an encoder of mfairfl"):
        Encoder.from_json(text)
