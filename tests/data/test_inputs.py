"""Rows with very many categories are held as indices, and mean what a dense row means."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import federations as fed
from mfairfl.data import Encoder, Inputs, Task, load_dataset, partition, statistics
from mfairfl.errors import DataError

TASK = Task(label="y", favourable=1, sensitive=("s",), numeric=("x",), categorical=("place", "s"))


def places(count, **more):
    """One row for each place, and one that has no number and no place."""
    frame = pd.DataFrame(
        {
            "x": np.arange(count + 1.0),
            "place": [*(f"place {i:04d}" for i in range(count)), "?"],
            "s": [*("fm" * count)[:count], "m"],
        }
    )
    frame.loc[count, "x"] = np.nan
    return frame.assign(**more)


def fitted(frame, task=TASK, **options):
    return Encoder.fit(statistics(frame, task), task, **options)


def by_hand(encoder, frame):
    """Every input of every row, from its name."""
    found = np.zeros((len(frame), len(encoder.feature_names)), np.float32)
    (number,) = encoder.numeric
    for i, row in enumerate(frame.itertuples()):
        for j, name in enumerate(encoder.feature_names):
            if name == "x":
                missing = np.isnan(row.x)
                found[i, j] = 0 if missing else np.float32((row.x - number.mean) / number.scale)
            elif name == "x=?":
                found[i, j] = np.isnan(row.x)
            else:
                column, _, level = name.partition("=")
                held = getattr(row, column)
                rare = next(c for c in encoder.categorical if c.name == column).rare
                known = {c.name: (*c.levels, *c.rare) for c in encoder.categorical}[column]
                merged = held in rare or (bool(rare) and held not in known)
                found[i, j] = merged if level == "(rare)" else held == level
    return found


# ------------------------------------------------------------------ the rows


def test_dense_rows_by_hand():
    codes = np.array([[1, 3], [2, -1], [-1, -1]], np.int32)
    rows = Inputs(np.array([[5], [6], [7]], np.float32), codes, 4)
    expected = [[5, 1, 0, 1], [6, 0, 1, 0], [7, 0, 0, 0]]
    assert rows.dense().tolist() == expected
    assert rows[1:].dense().tolist() == expected[1:]
    assert rows[np.array([2, 0, 2])].dense().tolist() == [expected[i] for i in (2, 0, 2)]
    assert (len(rows), rows.layout, rows.nbytes) == (3, (1, 2, 4), 3 * 4 + 6 * 4)
    assert np.shares_memory(rows[1:].numbers, rows.numbers)


def test_dense_rows_stay_the_array_they_are():
    X = np.ones((2, 3), np.float32)
    rows = Inputs.of(X)
    assert rows.dense() is X
    assert rows.layout == (3, 0, 3)
    assert Inputs.of(rows) is rows


# ------------------------------------------------------------------ the encoder


@pytest.mark.parametrize(("levels", "compact"), [(252, False), (253, True)])
def test_256_one_hot_inputs_make_an_encoder_compact(levels, compact):
    # A place of its own for "?", and two sexes.
    encoder = fitted(places(levels))
    assert encoder.compact is compact
    width = levels + 5
    assert len(encoder.feature_names) == width
    assert encoder.layout == ((2, 2, width) if compact else (width, 0, width))
    assert encoder.row_bytes == 4 * (4 if compact else width)
    rows = encoder.encode(places(levels))
    assert rows.nbytes == encoder.row_bytes * len(rows)
    assert np.array_equal(rows.dense(), by_hand(encoder, places(levels)))
    assert np.array_equal(encoder.transform(places(levels)), rows.dense())


@pytest.mark.parametrize("merged", [False, True])
def test_unknown_levels_have_no_input_or_that_of_the_rare(merged):
    frame = places(400)
    frame = pd.concat([frame, frame.iloc[:300]], ignore_index=True)
    encoder = fitted(frame, min_level_rows=2 if merged else 1)
    assert encoder.compact
    new = places(400, place=[*(f"place {i:04d}" for i in range(399)), "nowhere", "?"], s="x")
    rows = encoder.encode(new)
    assert np.array_equal(rows.dense(), by_hand(encoder, new))
    assert (rows.codes[:, 1] == -1).all()  # a sex that nobody has
    assert (rows.codes[399, 0] == -1) is not merged
    place = encoder.feature_names[rows.codes[399, 0]] if merged else None
    assert place == ("place=(rare)" if merged else None)


def test_an_unknown_level_is_refused_where_the_task_says_so():
    task = TASK.model_copy(update={"unknown_category": "error"})
    encoder = fitted(places(400), task)
    assert encoder.compact
    new = places(400)
    new.loc[3, "place"] = "plaec 0003"
    with pytest.raises(DataError, match="unknown category 'plaec 0003'"):
        encoder.encode(new)


def test_chosen_rows_are_encoded():
    encoder, frame = fitted(places(300)), places(300)
    rows = np.array([5, 300, 0])
    assert np.array_equal(encoder.encode(frame, rows).dense(), by_hand(encoder, frame.iloc[rows]))
    with pytest.raises(DataError, match="unknown column 'place'"):
        encoder.encode(frame.drop(columns="place"))


def test_an_encoder_without_numbers_has_only_indices():
    task = TASK.model_copy(update={"numeric": (), "categorical": ("place",)})
    encoder = fitted(places(300), task)
    rows = encoder.encode(places(300))
    assert rows.layout == (0, 1, 301)
    assert rows.dense().sum(axis=1).tolist() == [1.0] * 301


@pytest.mark.parametrize("name", ["adult", "bank", "compas", "german"])
def test_the_usual_data_sets_stay_dense(name):
    federation = partition(load_dataset(name), "iid", clients=2)
    assert not federation.encoder.compact
    assert federation.pool.X is federation.pool.inputs.numbers


# ------------------------------------------------------------------ a federation


def test_a_wide_federation_holds_every_row_as_indices_once():
    federation = fed.wide_federation(validation=0.1)
    table = fed.people_table(fed.wide_people())
    pool, encoder = federation.pool, federation.encoder
    assert encoder.compact
    assert pool.inputs.layout == encoder.layout
    assert pool.inputs.codes.shape == (700, 5)  # job, sex, age, town, street
    assert federation.summary()["features"] == len(encoder.feature_names) > 300
    assert pool.inputs.nbytes == 700 * encoder.row_bytes < pool.X.nbytes / 5
    assert any(column.rare for column in encoder.categorical)
    for array in (pool.inputs.numbers, pool.inputs.codes):
        assert not array.flags.writeable
    for client in federation.clients:
        for shard in (client.train, client.validation, client.test):
            assert np.shares_memory(shard.inputs.codes, pool.inputs.codes)
            assert np.array_equal(shard.X, encoder.transform(table.X, shard.rows))
