"""What silos take apart and a server puts together is the sum of what they would have told."""

from __future__ import annotations

import functools
import operator
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mfairfl.data import SPLITS, EncoderStatistics, Task
from mfairfl.data.binning import Histogram
from mfairfl.data.sums import NumericStatistics
from mfairfl.engine.state import Measure, Score
from mfairfl.errors import MessageError
from mfairfl.fairness.cells import SUMS, Statistics
from mfairfl.fairness.scores import RowScores, ScoreSums, pooled_scores
from mfairfl.fairness.thresholds import Thresholds
from mfairfl.guard.modular import UNIT
from mfairfl.remote.codec import Shape, make_packet, pack_answer
from mfairfl.remote.histograms import pack_histograms
from mfairfl.remote.masked_forms import (
    hide_measures,
    hide_scores,
    open_measures,
    open_scores,
)
from mfairfl.remote.masked_messages import pack_masked, total_words
from mfairfl.remote.masked_tables import (
    FileFacts,
    hide_counts,
    hide_histograms,
    hide_sums,
    open_counts,
    open_histograms,
    open_sums,
    read_counts,
)

SHAPE = Shape(weights=1, cells=2)
SILOS = st.integers(3, 6)
SEEDS = st.integers(0, 2**32 - 1)
MODEL = np.zeros(1, np.float32)


def statistics(rng, *, expected=False):
    counts = rng.integers(0, 50, (2, 2)).astype(float)
    share = rng.random((3, 2, 2))
    positives = counts * share[0] if expected else np.floor(counts * share[0])
    return Statistics(
        counts=counts, positives=positives, scores=counts * share[1], losses=9 * counts * share[2]
    )


@given(SILOS, SEEDS, st.booleans())
def test_measurements_add_up(silos, seed, expected):
    rng = np.random.default_rng(seed)
    rule = Thresholds(np.zeros((2, 1)), np.ones((2, 1))) if expected else None
    ask = Measure((MODEL, MODEL), ("train", "test"), thresholds=rule)
    question = {"models": 2, "splits": ask.splits, "thresholds": {} if expected else None}
    held = [
        tuple({s: statistics(rng, expected=expected) for s in ask.splits} for _ in range(2))
        for _ in range(silos)
    ]
    parts = {
        str(i): hide_measures(question, pack_answer(one), silos) for i, one in enumerate(held)
    }
    found = open_measures(ask, SHAPE, parts, total_words(list(parts.values())))
    for model in range(2):
        for split in ask.splits:
            own = [one[model][split] for one in held]
            whole, sums = Statistics.total(own), found[model][split]
            exact = ("counts",) if expected else ("counts", "positives")
            for name in SUMS:
                ours, theirs = getattr(sums.whole, name), getattr(whole, name)
                off = 0 if name in exact else silos * UNIT
                assert np.abs(ours - theirs).max() <= off, name
            for name, one in zip(sums, own, strict=True):
                assert sums[name].losses.sum() == one.losses.sum()  # told as it is
                assert sums[name].counts.sum() == one.counts.sum()
                wrong = one.positives[:, 0] + one.counts[:, 1] - one.positives[:, 1]
                assert sums[name].positives.sum() == pytest.approx(wrong.sum())


def test_without_sums_there_is_what_silos_tell():
    ask = Measure((MODEL,), ("train",))
    question = {"models": 1, "splits": ("train",), "thresholds": None}
    one = statistics(np.random.default_rng(0))
    parts = hide_measures(question, pack_answer(({"train": one},)), 3)
    (found,) = open_measures(ask, SHAPE, {"a": parts}, None)
    assert found["train"].whole is None
    assert found["train"]["a"].counts.sum() == one.counts.sum()


@given(SILOS, SEEDS)
@settings(max_examples=25)
def test_scores_add_up_also_on_the_edges_of_bins(silos, seed):
    rng = np.random.default_rng(seed)
    held = []
    for _ in range(silos):
        rows = int(rng.integers(0, 40))
        edge = rng.integers(0, 16, rows) / 15  # rounding must not move a sum out of its bin
        chance = np.where(rng.random(rows) < 0.5, edge, rng.random(rows))
        cells, y = rng.integers(0, 2, (2, rows))
        held.append(ScoreSums.from_rows(RowScores.from_probabilities(chance), cells, y, size=2))
    question = {"splits": ("test",)}
    parts = [hide_scores(question, pack_answer({"test": one}), silos) for one in held]
    found = open_scores(Score(MODEL, ("test",)), SHAPE, total_words(parts), silos)["test"]
    whole = pooled_scores(held)
    assert np.array_equal(found.histogram.counts, whole.histogram.counts)
    assert np.array_equal(found.rows, whole.rows)
    assert np.abs(found.sums - whole.sums).max() <= silos * UNIT
    assert np.abs(found.losses - whole.losses).max() <= silos * UNIT


TASK = Task(
    label="y", favourable=1, sensitive=("job",), numeric=("age", "pay"), categorical=("job",)
)


def encoder_sums(rng):
    """Numbers of very different sizes, and levels that not every silo has."""
    rows = int(rng.integers(0, 30))
    age = np.where(rng.random(rows) < 0.2, np.nan, rng.normal(size=rows))
    pay = rng.normal(size=rows) * 10.0 ** rng.integers(-60, 60)
    job = rng.choice(["cook", "nurse", "clerk", "pilot"], rows)
    counts = {level: int((job == level).sum()) for level in np.unique(job)}
    numbers = {"age": NumericStatistics.of(age), "pay": NumericStatistics.of(pay)}
    return rows, EncoderStatistics(numbers, {"job": counts})


@given(SILOS, SEEDS)
@settings(max_examples=30)
def test_the_encoder_s_sums_are_exactly_those_of_all_silos(silos, seed):
    rng = np.random.default_rng(seed)
    held = [[encoder_sums(rng), encoder_sums(rng)] for _ in range(silos)]
    levels = sorted(
        {level for one in held for _, sums in one for level in sums.categorical["job"]}
    )
    question = {"levels": {"job": levels}}
    parts, rows = [], 0
    for (n, train), (m, others) in held:
        rows += n + m
        said = {"sums": {"train": asdict(train), "others": asdict(others)}}
        answer = make_packet("sums", {**said, "sha256": "0" * 64, "rows": n + m})
        parts.append(hide_sums(question, answer, silos))
    train, others = open_sums(total_words(parts), TASK, {"job": levels}, rows)
    for place, found in enumerate((train, others)):
        assert found == functools.reduce(operator.add, [one[place][1] for one in held])
    with pytest.raises(MessageError, match=f"not those of {rows + 1} rows"):
        open_sums(total_words(parts), TASK, {"job": levels}, rows + 1)


@given(SILOS, SEEDS)
def test_rows_between_cuts_are_those_of_all_silos(silos, seed):
    rng = np.random.default_rng(seed)
    cuts = {"age": np.array([1.0, 2.0, 3.5]), "pay": np.array([0.0])}
    held = [
        [
            Histogram.of(rng.integers(0, 5, int(rng.integers(0, 9))).astype(float), given)
            for given in cuts.values()
        ]
        for _ in range(silos)
    ]
    question = {"columns": list(cuts)}
    parts = [hide_histograms(question, pack_histograms(one), silos) for one in held]
    whole = [functools.reduce(operator.add, column) for column in zip(*held, strict=True)]
    rows = {name: one.total for name, one in zip(cuts, whole, strict=True)}
    found = open_histograms(total_words(parts), parts, cuts, rows)
    for name, expected in zip(cuts, whole, strict=True):
        assert np.array_equal(found[name].counts, expected.counts)
        assert np.array_equal(found[name].values, expected.values, equal_nan=True)


@given(SILOS, SEEDS)
def test_counts_are_those_of_all_silos(silos, seed):
    rng = np.random.default_rng(seed)
    held = [{part: rng.integers(1, 99, (2, 2)) for part in SPLITS} for _ in range(silos)]
    withheld = [rng.choice([0, 12, 30], 3) for _ in range(silos)]
    hidden = {f"hidden/{part}": np.zeros((2, 2), np.int64) for part in SPLITS}
    for own, rows in zip(held, withheld, strict=True):  # one pair is, where rows are
        for part, some in zip(SPLITS, rows, strict=True):
            own[part][0, 1] *= not some
    answers = []
    for own, rows in zip(held, withheld, strict=True):
        masks = {key: mask.copy() for key, mask in hidden.items()}
        for part, some in zip(SPLITS, rows, strict=True):
            masks[f"hidden/{part}"][0, 1] = some > 0
        facts = {"floor": 10, "policy": "a" * 64}
        answers.append(make_packet("counts", facts, own | masks | {"withheld": rows}))
    parts = [hide_counts({}, answer, silos) for answer in answers]
    totals = [
        sum(int(own[p].sum()) for p in SPLITS) + int(w.sum())
        for own, w in zip(held, withheld, strict=True)
    ]
    facts = [FileFacts(sha256="b" * 64, rows=rows) for rows in totals]
    told = [read_counts(pack_masked(one), 2, fact) for one, fact in zip(parts, facts, strict=True)]
    for one, own, rows in zip(told, held, withheld, strict=True):
        assert one.rows == {
            p: int(own[p].sum()) + int(w) for p, w in zip(SPLITS, rows, strict=True)
        }
        assert one.disclosure.rows == dict(zip(SPLITS, rows.tolist(), strict=True))
    found = open_counts(total_words(parts), 2, told)
    for part in SPLITS:
        assert np.array_equal(found[part], sum(own[part] for own in held))
    told[0] = told[0]._replace(rows={**told[0].rows, "train": told[0].rows["train"] + 1})
    with pytest.raises(MessageError, match="the counts of train rows are not those of"):
        open_counts(total_words(parts), 2, told)
