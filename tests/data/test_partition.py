"""Oracles: the published percentages by hand, exact fractions, and set arithmetic on rows."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mfairfl.data import (
    SPLITS,
    EncoderConfig,
    Sensitive,
    Task,
    federation_from_tables,
    load_dataset,
    partition,
    table_from_frame,
)
from mfairfl.data.federation import split_rows
from mfairfl.data.sums import Histogram
from mfairfl.errors import DataError
from mfairfl.randomness import stream


def crowd(women, men, *, client=None, positive=0.5):
    """A table with the given numbers of women and men and a feature that is the row number."""
    n = women + men
    frame = pd.DataFrame(
        {
            "x": np.arange(n) * 1.0,
            "sex": ["Female"] * women + ["Male"] * men,
            "job": [("a", "b", "c")[i % 3] for i in range(n)],
            "y": [int(i * positive) != int((i + 1) * positive) for i in range(n)],
        }
    )
    frame["y"] = frame["y"].astype(int)
    if client is not None:
        frame["site"] = client
    task = Task(
        label="y",
        favourable=1,
        sensitive=(Sensitive(column="sex", groups=("Female", "Male")),),
        client=None if client is None else "site",
    )
    return table_from_frame(frame, task, name="people")


def counts(federation):
    """Rows of each group, per client, over all parts."""
    facts = federation.summary()["clients"]
    return [[cell["rows"] for cell in c["attributes"]["sex"].values()] for c in facts]


def shares(federation):
    return [women / (women + men) for women, men in counts(federation)]


def all_rows(federation):
    return np.concatenate([c.shard(p).rows for c in federation.clients for p in SPLITS])


def test_adult_high_split_by_hand():
    # Women 16,192 and men 32,650: edges at 50, 60, 70, 90 % and 10, 50, 80, 90 %, rounded.
    federation = partition(load_dataset("adult"), "high", seed=3)
    assert counts(federation) == [
        [8_096, 3_265],
        [1_619, 13_060],
        [1_619, 9_795],
        [3_239, 3_265],
        [1_619, 3_265],
    ]
    assert sorted(all_rows(federation)) == list(range(48_842))
    assert federation.notes[-1] == "group 0 of the split is sex Female, group 1 is the rest"


def test_bank_draws_the_minority_age_as_group_zero():
    federation = partition(load_dataset("bank"), "low")
    facts = federation.summary()["clients"]
    # 30 % of 1,997 is 599.1 and 10 % of 43,214 is 4,321.4.
    assert facts[0]["attributes"]["age"]["other"]["rows"] == 599
    assert facts[0]["attributes"]["age"]["25-60"]["rows"] == 4_321


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [("high", (5 / 7, 1 / 9, 1 / 7, 1 / 2, 1 / 3)), ("low", (3 / 5, 3 / 7, 1 / 3, 1 / 5, 1 / 7))],
)
def test_shares_with_one_third_of_women(scheme, expected):
    assert shares(partition(crowd(100, 200), scheme)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("scheme", "women", "men"),
    [
        ("high", (698, 139, 140, 279, 139), (582, 2_328, 1_745, 582, 582)),
        ("low", (419, 418, 279, 140, 139), (582, 1_164, 1_164, 1_163, 1_746)),
    ],
)
def test_group_sizes_of_compas_by_hand(scheme, women, men):
    # 1,395 women and 5,819 men; the running sums of the shares are rounded, halves upwards.
    found = counts(partition(crowd(1_395, 5_819), scheme))
    assert found == [list(pair) for pair in zip(women, men, strict=True)]


def test_cf_literal_leaves_rows_unused():
    federation = partition(crowd(100, 200), "cf-literal")
    assert counts(federation) == [[50, 0], [10, 0], [0, 20], [0, 40], [0, 20]]
    assert "160 of 300 rows belong to no client" in federation.notes
    assert federation.warnings == (
        "3 clients have no train row of sex Female: client-3, client-4, client-5",
        "2 clients have no train row of sex Male: client-1, client-2",
    )
    cell = federation.summary()["clients"][0]["attributes"]["sex"]["Male"]
    assert cell == {"rows": 0, "share": 0.0, "favourable": 0, "base_rate": None}


def test_another_group_can_be_group_zero():
    federation = partition(crowd(100, 200), "high", group="Male")
    assert counts(federation) == [[10, 100], [40, 20], [30, 20], [10, 40], [10, 20]]
    with pytest.raises(DataError, match=r"unknown group of sex 'men'.*known: Female, Male"):
        partition(crowd(100, 200), "high", group="men")


def test_three_groups_are_drawn_as_first_against_rest():
    frame = pd.DataFrame(
        {"x": range(300), "race": ["a", "b", "c"] * 100, "y": [0, 1, 1, 0, 0, 1] * 50}
    )
    task = Task(
        label="y", favourable=1, sensitive=(Sensitive(column="race", groups=("b", "a", "c")),)
    )
    federation = partition(table_from_frame(frame, task, name="three"), "high")
    rows = [c["attributes"]["race"] for c in federation.summary()["clients"]]
    assert [r["b"]["rows"] for r in rows] == [50, 10, 10, 20, 10]
    assert [r["a"]["rows"] + r["c"]["rows"] for r in rows] == [20, 80, 60, 20, 20]


def test_ratios_say_who_gets_what():
    federation = partition(crowd(100, 200), "ratio", ratios=[[0.25, 0.75, 0], [0, 0.5, 0.25]])
    assert counts(federation) == [[25, 0], [75, 100], [0, 50]]


def test_sizes_fall_with_rank():
    # 1 + 1/2 + 1/3 + 1/4 + 1/5 = 137/60.
    federation = partition(crowd(37, 100), "size-skew", skew=1.0)
    assert [len(client) for client in federation.clients] == [60, 30, 20, 15, 12]


def test_iid_chunks_are_equal():
    federation = partition(crowd(50, 53), "iid", clients=4)
    assert sorted(len(client) for client in federation.clients) == [25, 26, 26, 26]


@pytest.mark.parametrize("on", ["label", "group"])
def test_a_flat_dirichlet_is_nearly_even(on):
    # With alpha 1e8 the shares have standard deviation 2e-5: 400 rows a class give 100 ± 1.
    table = crowd(400, 400)
    facts = partition(table, "dirichlet", on=on, concentration=1e8, clients=4).summary()["clients"]
    rows = [
        c["favourable"] if on == "label" else c["attributes"]["sex"]["Female"]["rows"]
        for c in facts
    ]
    assert all(abs(n - 100) <= 1 for n in rows)


def test_dirichlet_on_groups_keeps_each_groups_total():
    federation = partition(crowd(300, 500), "dirichlet", on="group", concentration=0.8, seed=4)
    assert np.sum(counts(federation), axis=0).tolist() == [300, 500]


def test_the_client_column_is_the_default():
    table = crowd(30, 30, client=["north", "south", "east"] * 20)
    federation = partition(table)
    assert federation.scheme == "column"
    assert [client.name for client in federation.clients] == ["east", "north", "south"]
    assert sorted(all_rows(federation)) == list(range(60))
    north = federation.clients[1]
    assert {int(r) % 3 for part in SPLITS for r in north.shard(part).rows} == {0}


def test_own_tables_give_the_same_shards_as_the_client_column():
    whole = crowd(60, 60, client=["north", "south", "east"] * 40)
    together = partition(whole, seed=7, validation=0.1)
    own = {}
    for name in ("south", "north", "east"):
        rows = np.flatnonzero(whole.clients == name)
        own[name] = replace(
            whole,
            X=whole.X.iloc[rows].reset_index(drop=True),
            y=whole.y[rows],
            groups=whole.groups[rows],
            clients=whole.clients[rows],
        )
    apart = federation_from_tables(own, seed=7, validation=0.1)
    assert [c.name for c in apart.clients] == [c.name for c in together.clients]
    for one, other in zip(apart.clients, together.clients, strict=True):
        rows = np.flatnonzero(whole.clients == one.name)
        for part in SPLITS:
            a, b = one.shard(part), other.shard(part)
            assert np.array_equal(rows[a.rows], b.rows)
            assert np.array_equal(a.X, b.X)
            assert np.array_equal(a.y, b.y)


def test_tables_of_different_tasks_are_refused():
    first, second = crowd(20, 20), crowd(20, 20)
    task = second.task.model_copy(update={"numeric": ()})
    with pytest.raises(DataError, match="clients 'a' and 'b' differ in their task's numeric"):
        federation_from_tables({"a": first, "b": replace(second, task=task)})
    with pytest.raises(DataError, match="no client tables"):
        federation_from_tables({})


def test_shards_are_slices_of_one_pool():
    federation = partition(crowd(100, 200), "high", validation=0.1)
    start = 0
    for part in SPLITS:
        for client in federation.clients:
            shard = client.shard(part)
            end = start + len(shard)
            assert np.shares_memory(shard.X, federation.pool.X)
            assert np.array_equal(shard.X, federation.pool.X[start:end])
            assert np.array_equal(shard.rows, federation.pool.rows[start:end])
            start = end
    assert start == len(federation.pool) == 300
    assert federation.pool.X.flags.c_contiguous
    assert federation.pool.X.dtype == np.float32
    assert len(federation.pooled("train")) == sum(len(c.train) for c in federation.clients)
    assert np.array_equal(
        federation.pooled("test").rows, np.concatenate([c.test.rows for c in federation.clients])
    )
    with pytest.raises(ValueError, match="read-only"):
        federation.clients[0].train.X[0, 0] = 1


def test_shards_carry_the_tables_values():
    table = crowd(40, 60)
    federation = partition(table, "iid", clients=3)
    pool = federation.pool
    assert np.array_equal(pool.y, table.y[pool.rows])
    assert np.array_equal(pool.cells, table.cells[pool.rows])
    # The feature x is the row number: undoing the standardisation gives the rows back.
    x = federation.encoder.numeric[0]
    assert np.allclose(pool.X[:, 0] * x.scale + x.mean, pool.rows, atol=1e-3)


def test_means_and_scales_are_fitted_on_train_rows_only():
    table = crowd(100, 200)
    first = partition(table, "high", validation=0.1, seed=1)
    train = first.pooled("train")
    assert first.encoder.numeric[0].mean == pytest.approx(train.rows.mean(), rel=1e-12)
    assert first.encoder.numeric[0].scale == pytest.approx(train.rows.std(), rel=1e-12)
    X = table.X.copy()
    held_out = np.setdiff1d(np.arange(300), train.rows)
    X.loc[held_out, "x"] = 1e6
    X.loc[held_out, "job"] = "never seen in training"
    other = partition(replace(table, X=X), "high", validation=0.1, seed=1).encoder
    assert other.numeric == first.encoder.numeric


def test_the_width_of_the_encoding_does_not_depend_on_the_split():
    table = crowd(100, 200)
    jobs = table.X["job"].to_numpy(dtype=object, copy=True)
    jobs[17] = "only once"  # sometimes in train, sometimes held out
    table = replace(table, X=table.X.assign(job=jobs))
    every = EncoderConfig(min_level_rows=1)
    found = [partition(table, "iid", test=0.5, seed=seed, encoder=every) for seed in range(6)]
    held_out = {17 in federation.pooled("test").rows for federation in found}
    assert held_out == {True, False}
    assert {{c.name: c.levels for c in f.encoder.categorical}["job"] for f in found} == {
        tuple(sorted(set(jobs)))
    }


def test_test_shares_are_exact_and_stratified():
    federation = partition(load_dataset("adult"), "high", test=0.2, validation=0.1)
    for client in federation.clients:
        n = len(client)
        assert len(client.test) == int(n * 0.2 + 0.5)
        assert len(client.validation) == int(n * 0.1 + 0.5)
        strata = [
            2 * shard.cells + shard.y for shard in (client.train, client.validation, client.test)
        ]
        whole = np.bincount(np.concatenate(strata), minlength=4)
        assert (np.abs(np.bincount(strata[2], minlength=4) - 0.2 * whole) < 1.5).all()


def test_one_seed_one_federation():
    table = crowd(100, 200)
    first, again, other = (partition(table, "high", seed=s) for s in (5, 5, 6))
    assert np.array_equal(first.pool.rows, again.pool.rows)
    assert np.array_equal(first.pool.X, again.pool.X)
    assert not np.array_equal(first.pool.rows, other.pool.rows)


@settings(deadline=None, max_examples=40)
@given(
    women=st.integers(12, 60),
    men=st.integers(12, 60),
    scheme=st.sampled_from(["high", "low", "cf-literal", "iid", "size-skew"]),
    seed=st.integers(0, 2**32),
    validation=st.sampled_from([0.0, 0.15]),
)
def test_every_used_row_is_in_one_shard(women, men, scheme, seed, validation):
    table = crowd(women, men)
    federation = partition(table, scheme, seed=seed, validation=validation)
    rows = all_rows(federation)
    assert len(set(rows.tolist())) == len(rows)
    assert scheme == "cf-literal" or len(rows) == len(table)
    assert all(len(client.train) > 0 for client in federation.clients)
    assert [c.name for c in federation.clients] == [f"client-{i}" for i in range(1, 6)]


@settings(deadline=None, max_examples=100)
@given(
    strata=st.lists(st.integers(0, 5), min_size=1, max_size=80),
    test=st.sampled_from([0.0, 0.1, 0.2, 0.33]),
    validation=st.sampled_from([0.0, 0.1, 0.25]),
    seed=st.integers(0, 1000),
)
def test_split_is_exact_and_keeps_single_rows_in_train(strata, test, validation, seed):
    codes = np.array(strata, dtype=np.int64)
    n, sizes = len(codes), np.bincount(codes)
    parts = split_rows(codes, test=test, validation=validation, rng=stream(seed, "test"))
    assert sorted(np.concatenate(parts).tolist()) == list(range(n))
    train, _, out = parts
    # Train keeps one row of each stratum: that is all that can stop test from being exact.
    room = int(np.maximum(sizes - 1, 0).sum())
    assert len(out) == min(int(n * test + 0.5), room)
    assert set(codes[train].tolist()) == set(strata)


def test_clients_are_named_so_that_names_sort():
    federation = partition(crowd(60, 60), "iid", clients=12)
    assert [c.name for c in federation.clients] == [f"client-{i:02d}" for i in range(1, 13)]


def test_many_clients_that_lack_the_same_are_one_warning():
    rows = ["f", "m", "d"] * 40 + ["f", "m"] * 10 * 300
    site = ["whole"] * 120 + [f"site-{i:03d}" for i in range(300) for _ in range(20)]
    label = ["yes", "no", "no", "yes"] * (len(rows) // 4)
    frame = pd.DataFrame({"sex": rows, "site": site, "hired": label, "x": range(len(rows))})
    task = Task(label="hired", favourable="yes", sensitive=("sex",), client="site")
    federation = partition(table_from_frame(frame, task))
    assert federation.warnings == (
        "300 clients have no train row of sex d: site-000, site-001, site-002 and 297 more",
    )
    # Who holds how many is still known of each.
    held = {
        c["name"]: c["attributes"]["sex"]["d"]["rows"] for c in federation.summary()["clients"]
    }
    assert held.pop("whole") == 40
    assert set(held.values()) == {0}


def test_a_client_with_one_class_is_noted():
    table = crowd(50, 50, client=["a"] * 50 + ["b"] * 50)
    one = np.array([1] * 50 + [0, 1] * 25, dtype=np.int8)
    federation = partition(replace(table, y=one))
    assert "a: every train label is favourable" in federation.warnings
    assert "a: no train row of sex Male" in federation.warnings


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"scheme": "hihg"}, "did you mean 'high'"),
        ({"scheme": None}, "names no clients"),
        ({"scheme": "column"}, "set client= in its task"),
        ({"scheme": "high", "clients": 3}, "published for 5 clients"),
        ({"scheme": "iid", "clients": 0}, "clients=0"),
        ({"scheme": "iid", "clients": 400}, "leaves client-003 with no rows: lower clients"),
        ({"scheme": "iid", "seed": -1}, "seed=-1"),
        ({"scheme": "iid", "test": 0.8, "validation": 0.3}, "sum below 1"),
        ({"scheme": "iid", "alpha": 1.0}, "unknown option of scheme 'iid' 'alpha'"),
        ({"scheme": "high", "attribute": "sxe"}, "did you mean 'sex'"),
        ({"scheme": "dirichlet", "concentration": 0}, "concentration=0: give a number above 0"),
        ({"scheme": "dirichlet", "concentration": 1e-4}, "raise concentration"),
        ({"scheme": "dirichlet", "alpha": 1}, "unknown option of scheme 'dirichlet' 'alpha'"),
        ({"scheme": "iid", "concentration": 1}, "option of scheme 'iid'"),
        ({"scheme": "iid", "alpha": 1}, "option of scheme 'iid'"),
        ({"scheme": "dirichlet", "on": "labels"}, "did you mean 'label'"),
        ({"scheme": "size-skew", "skew": 60.0}, "no rows: lower skew or clients"),
        ({"scheme": "ratio"}, r"needs ratios=: 2 rows \(Female, Male\)"),
        ({"scheme": "ratio", "ratios": [[1], [1, 0]]}, "not a matrix"),
        ({"scheme": "ratio", "ratios": [[0.5, 0.5]]}, r"shape \(1, 2\)"),
        ({"scheme": "ratio", "ratios": [[0.5, 0.6], [0, 1]]}, "group 'Female'"),
        ({"scheme": "ratio", "ratios": [[1, 0], [1, 0]]}, "leaves client-2 with no rows"),
        ({"scheme": "ratio", "ratios": [[1], [1]], "clients": 2}, "1 columns but clients=2"),
    ],
)
def test_mistakes_are_named_in_one_line(call, message):
    with pytest.raises(DataError, match=message) as caught:
        partition(crowd(100, 200), **call)
    assert "\n" not in str(caught.value)


def test_without_groups_rows_are_dealt_by_schemes_that_read_none():
    table = crowd(100, 200)
    bare = table_from_frame(
        table.X.assign(y=table.y), Task(label="y", favourable=1, sensitive=()), name="bare"
    )
    for scheme in ("iid", "size-skew", "dirichlet"):
        found, known = (partition(one, scheme, clients=3, test=0) for one in (bare, table))
        assert found.options["attribute"] is None
        assert [c.train.rows.tolist() for c in found.clients] == [
            c.train.rows.tolist() for c in known.clients
        ]
        assert "attributes" in found.summary()["clients"][0]
    for call in ({"scheme": "high"}, {"scheme": "ratio", "ratios": [[1]]}):
        with pytest.raises(DataError, match="'bare' has no sensitive attribute that this scheme"):
            partition(bare, **call)
    with pytest.raises(DataError, match="unknown sensitive attribute 'sex'"):
        partition(bare, "iid", attribute="sex")


def test_folds_part_the_train_rows_and_leave_the_test_rows_alone():
    table = crowd(100, 200)
    whole = partition(table, "high", seed=2, validation=0.1)
    folds = [partition(table, "high", seed=2, validation=0.1, fold=(i, 3)) for i in range(3)]
    for k, client in enumerate(whole.clients):
        train = set(client.train.rows.tolist())
        held = [set(one.clients[k].test.rows.tolist()) for one in folds]
        assert set.union(*held) == train
        assert sum(map(len, held)) == len(train)
        strata = 2 * client.train.cells + client.train.y
        for one, out in zip(folds, held, strict=True):
            assert set(one.clients[k].train.rows.tolist()) == train - out
            assert len(one.clients[k].validation) == 0
            left = 2 * one.clients[k].test.cells + one.clients[k].test.y
            for stratum in np.unique(strata):
                share = (strata == stratum).sum() / 3
                assert abs((left == stratum).sum() - share) < 1
    assert folds[0].summary()["options"]["fold"] == [0, 3]
    with pytest.raises(DataError, match="fold=3 of 3: give a number from 0 to 2"):
        partition(table, "high", fold=(3, 3))


def test_the_encoding_does_not_depend_on_who_holds_which_rows():
    """Edges and rare levels come from sums: one client and five agree on the same."""
    table = crowd(300, 500)
    config = EncoderConfig(numeric="bins", bins=8, min_rows=10, min_level_rows=5)
    one, five = (
        partition(table, "iid", clients=count, test=0, encoder=config) for count in (1, 5)
    )
    assert one.encoder == five.encoder
    assert any(column.edges for column in one.encoder.numeric)
    order = [np.argsort(federation.pool.rows) for federation in (one, five)]
    assert one.pool.X[order[0]].tobytes() == five.pool.X[order[1]].tobytes()
    assert one.options["encoder"] == config.model_dump()
    tables = {"a": table, "b": table}
    assert federation_from_tables(tables, encoder=config).options["encoder"]["bins"] == 8


def test_edges_come_from_train_rows_only():
    table = crowd(300, 500)
    config = EncoderConfig(numeric="bins", bins=8, min_rows=10)
    federation = partition(table, "iid", seed=1, encoder=config)
    numbers = table.X.iloc[federation.pooled("train").rows]
    for column in federation.encoder.numeric:
        held = Histogram.of(numbers[column.name].to_numpy(), np.array(column.edges))
        assert (held.counts[1:] >= 10).all()


def test_summary_and_description():
    federation = partition(crowd(100, 200), "high", seed=2)
    facts = json.loads(json.dumps(federation.summary()))
    assert facts["options"] == {
        "test": 0.2,
        "validation": 0.0,
        "clients": 5,
        "attribute": "sex",
        "group": None,
    }
    first = facts["clients"][0]
    assert (first["train"], first["test"], first["rows"]) == (56, 14, 70)
    text = federation.describe().splitlines()
    inputs = len(federation.encoder.feature_names)
    assert text[0] == f"people: 300 rows, {inputs} features, 5 clients, scheme high, seed 2"
    assert "71.4 % (" in next(line for line in text if line.startswith("client-1"))
