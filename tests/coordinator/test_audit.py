"""The audit over silos: counts of all rows, but for what a silo's floor keeps back."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest

import federations as fed
import mfairfl
from answers import one_line
from audit_silos import (
    COLUMNS,
    CONSENT,
    SILOS,
    Silos,
    assert_same,
    policy,
    pooled,
    predictions,
    write_silos,
)
from mfairfl.coordinator.audit import AuditTerms, audit_name, gather_counts
from mfairfl.data.predictions import PredictionColumns
from mfairfl.engine import loop
from mfairfl.engine.output import Served
from mfairfl.errors import FederationError, MessageError, RunDirectoryError
from mfairfl.fairness.audit_counts import UNKNOWN, AuditCounts, ScoreGrid
from mfairfl.runs.predictor import model_to_send
from mfairfl.silo.responder import Responder
from mfairfl.silo.silo_file import AuditConsent
from mfairfl.wire.audit_messages import GroupsQuestion
from mfairfl.wire.packing import pack

TERMS = AuditTerms(subject=COLUMNS)


def gather(silos, terms=TERMS, minimum=1):
    return gather_counts(silos, sorted(silos.responders), terms, minimum=minimum)


# ------------------------------------------------------------------ predictions


def counted(frame):
    """Rows by silo, sex × race, label and decision, as pandas counts them."""
    keys = ["silo", "sex", "race", "hired", "decision"]
    levels = [SILOS, ["F", "M"], ["Black", "White"], ["no", "yes", ""], ["no", "yes"]]
    full = pd.MultiIndex.from_product(levels, names=keys)
    return frame.groupby(keys).size().reindex(full, fill_value=0).to_numpy().reshape(3, 4, 3, 2)


@pytest.mark.parametrize("floor", [1, 10])
def test_counts_over_silos_are_those_of_all_rows(tmp_path, floor):
    frame = predictions()
    found = gather(Silos(write_silos(tmp_path, frame), policy(min_rows=floor)))
    assert_same(found.counts, pooled(frame, floor=floor))
    assert np.array_equal(found.counts.decided, counted(frame))
    assert found.counts.rows.min() >= 10  # so that nothing had to be withheld
    assert found.left_out == {}
    assert [one.floor for one in found.silos.values()] == [floor] * 3


def test_with_a_floor_no_few_rows_have_a_score_of_their_own(tmp_path):
    frame = predictions()
    frame.loc[::3, "score"] = 0.25  # many rows hold it
    counts = gather(Silos(write_silos(tmp_path, frame), policy())).counts
    assert_same(counts, pooled(frame, floor=10))
    assert counts.scored[counts.scored > 0].min() >= 10
    fine = np.stack([own.histogram.counts for own in counts.sums])
    assert fine[fine > 0].min() >= 10


@pytest.mark.parametrize(
    "changes",
    [
        {"label": None, "favourable": None, "selected": "yes"},
        {"score": None},
        {"sensitive": ("race",)},
        {"label": None, "favourable": None, "score": None, "selected": "yes"},
        {"prediction": None, "threshold": 0.4},
    ],
)
@pytest.mark.parametrize("floor", [1, 10])
def test_less_can_be_asked_for_than_is_agreed_to(tmp_path, changes, floor):
    frame = predictions()
    roles = PredictionColumns(**(COLUMNS.model_dump() | changes))
    silos = Silos(
        write_silos(tmp_path, frame, CONSENT | {"threshold": 0.4}), policy(min_rows=floor)
    )
    found = gather(silos, AuditTerms(subject=roles))
    assert_same(found.counts, pooled(frame, roles, floor=floor))


def test_scores_of_another_range_are_counted_on_their_grid(tmp_path):
    frame = predictions()
    frame["score"] = (300 + 550 * frame["score"]).round()
    grid = ScoreGrid(300, 850)
    terms = AuditTerms(subject=COLUMNS, grid=grid)
    silos = Silos(write_silos(tmp_path, frame, CONSENT | {"score_range": (300, 850)}), policy())
    found = gather(silos, terms)
    assert_same(found.counts, pooled(frame, grid=grid, floor=10))
    assert found.counts.sums is None


@pytest.mark.parametrize(
    ("own", "asked", "said"),
    [
        ({}, {"threshold": 0.4}, "threshold = 0.4; agreed to: none (threshold under"),
        ({"threshold": 0.5}, {"threshold": 0.4}, "threshold = 0.4; agreed to: 0.5"),
        ({}, {"range": (0.2, 0.3)}, "score_range = (0.2, 0.3); agreed to: (0.0, 1.0)"),
    ],
)
def test_the_threshold_and_the_range_of_scores_are_agreed_on(tmp_path, own, asked, said):
    """A coordinator that chose them freely would find out every score, step by step."""
    silos = Silos(write_silos(tmp_path, predictions(), CONSENT | own), policy())
    grid = ScoreGrid(*asked.pop("range", (0.0, 1.0)))
    decided = {"prediction": None, **asked} if asked else {}
    roles = PredictionColumns(**(COLUMNS.model_dump() | decided))
    with pytest.raises(FederationError) as caught:
        gather(silos, AuditTerms(subject=roles, grid=grid))
    assert said in str(caught.value)


def test_a_silo_may_write_labels_and_decisions_its_own_way(tmp_path):
    frame = predictions()
    settings = write_silos(tmp_path, frame)
    north = frame[frame["silo"] == "north"].drop(columns="silo")
    north["hired"] = north["hired"].map({"yes": "in", "no": "out", "": ""})
    north["decision"] = north["decision"].map({"yes": "+", "no": "-"})
    north.to_csv(tmp_path / "own.csv", index=False, sep=";")
    consent = CONSENT | {"favourable": "in", "selected": "+", "file": tmp_path / "own.csv"}
    settings["north"] = settings["north"].model_copy(update={"audit": AuditConsent(**consent)})
    roles = COLUMNS.model_copy(update={"favourable": None, "selected": None})
    for name in ("east", "west"):
        own = AuditConsent(**CONSENT, favourable="yes")
        settings[name] = settings[name].model_copy(update={"audit": own})
    found = gather(Silos(settings, policy()), AuditTerms(subject=roles))
    assert found.left_out == {}
    assert_same(found.counts, pooled(frame, floor=10))


def rare(frame):
    """West has few of one group, and one person of a group that nobody else has."""
    few = (frame["silo"] == "west") & (frame["sex"] == "F") & (frame["race"] == "Black")
    frame = frame[~few | (few & (few.cumsum() <= 15))].reset_index(drop=True)
    frame.loc[frame.index[-1], "race"] = "Martian"
    return frame


def test_small_sets_are_withheld_and_where_is_said(tmp_path):
    frame = rare(predictions())
    found = gather(Silos(write_silos(tmp_path, frame), policy()))
    counts, every = found.counts, pooled(frame)
    west = counts.clients.index("west")
    assert not counts.hidden[[k for k in range(3) if k != west]].any()
    race = counts.attributes[1].groups
    assert race == ("Black", "White", "?")  # one person is no group that is named
    groups = np.array(list(np.ndindex(counts.cells.shape)))
    rows = counts.rows[west]
    assert rows[rows > 0].min() >= 10
    truth = frame[frame["silo"] == "west"]
    assert rows.sum() + counts.withheld[west] == len(truth)
    assert counts.withheld[west] >= 10
    for cell, (sex, which) in enumerate(groups):
        named = {"F": 0, "M": 1}
        here = (truth["sex"].map(named) == sex) & (
            truth["race"].map({"Black": 0, "White": 1}).fillna(2) == which
        )
        for label, text in enumerate(("no", "yes", "")):
            true = int((here & (truth["hired"] == text)).sum())
            if counts.hidden[west, cell, label]:
                assert 0 < true <= counts.withheld[west]
            else:
                assert rows[cell, label] == true
    assert counts.hidden[west].sum() >= 2
    assert every.attributes[1].groups == ("Black", "Martian", "White")


def test_a_silo_with_fewer_rows_than_its_floor_tells_nothing_but_that(tmp_path):
    frame = predictions()
    small = frame[(frame["silo"] != "west") | (frame["silo"] == "west").cumsum().between(1, 7)]
    found = gather(Silos(write_silos(tmp_path, small), policy()))
    west = found.counts.clients.index("west")
    assert found.counts.hidden[west].all()
    assert found.counts.rows[west].sum() == 0
    assert found.counts.withheld[west] == 9


def test_a_floor_of_one_hides_nothing(tmp_path):
    frame = rare(predictions())
    found = gather(Silos(write_silos(tmp_path, frame), policy(min_rows=1)))
    assert_same(found.counts, pooled(frame))


def test_rows_without_a_decision_are_left_out_and_few_are_told_as_at_most(tmp_path):
    frame = predictions()
    west, east = (np.flatnonzero(frame["silo"] == name) for name in ("west", "east"))
    frame.loc[west[:3], "decision"] = ""
    frame.loc[east[:25], "decision"] = ""
    found = gather(Silos(write_silos(tmp_path, frame), policy()))
    assert found.silos["west"].left_out == {"no decision": 9}
    assert found.silos["east"].left_out == {"no decision": 25}
    assert_same(found.counts, pooled(frame, floor=10))


def test_no_value_in_fewer_rows_than_the_floor_is_named(tmp_path):
    frame = predictions()
    frame.loc[:11, "race"] = "Other"
    settings = write_silos(tmp_path, frame)["east"]
    for floor, named in ((1, True), (10, True), (12, True), (13, False)):
        responder = Responder(settings, policy(min_rows=floor))
        answer = responder.handle("audit-1", pack(GroupsQuestion(columns=COLUMNS)))
        assert ("Other" in json.loads(answer.text)["groups"]["race"]) == named


# ------------------------------------------------------------------ refusals


def test_a_silo_without_the_section_answers_no_audit(tmp_path):
    frame = predictions()
    settings = write_silos(tmp_path, frame)
    settings["west"] = settings["west"].model_copy(update={"audit": None})
    found = gather(Silos(settings, policy()))
    assert found.left_out == {
        "west": "'west' takes part in no audit: its silo.toml has no section [audit]"
    }
    assert_same(found.counts, pooled(frame[frame["silo"] != "west"], floor=10))


@pytest.mark.parametrize(
    ("own", "key"),
    [
        ({"label": "promoted"}, "label"),
        ({"label": None}, "label"),
        ({"prediction": "hired"}, "prediction"),
        ({"score": None}, "score"),
        ({"sensitive": ("sex",)}, "sensitive"),
        ({"favourable": "no"}, "favourable"),
    ],
)
def test_a_request_for_other_columns_is_refused_with_the_key(tmp_path, own, key):
    settings = write_silos(tmp_path, predictions(), CONSENT | own)["east"]
    with pytest.raises(MessageError) as caught:
        Responder(settings, policy()).handle("audit-1", pack(GroupsQuestion(columns=COLUMNS)))
    said = one_line(caught)
    assert said.startswith(f"the coordinator asks for {key} = ")
    assert said.endswith(f"({key} under [audit] of its silo.toml)")


def test_too_few_silos_end_the_audit_with_the_reasons(tmp_path):
    settings = write_silos(tmp_path, predictions())
    settings["west"] = settings["west"].model_copy(update={"audit": None})
    with pytest.raises(FederationError, match="2 of 3 clients take part, at least 3 must"):
        gather(Silos(settings, policy()), minimum=3)


def test_an_audit_counts_as_a_run_and_its_requests_are_limited(tmp_path):
    settings = write_silos(tmp_path, predictions())["east"]
    responder = Responder(settings, policy(runs_a_day=2, requests=3))
    ask = pack(GroupsQuestion(columns=COLUMNS))
    for _ in range(3):
        responder.handle("audit-1", ask)
    with pytest.raises(MessageError, match=r"limits\.requests"):
        responder.handle("audit-1", ask)
    responder.handle("audit-2", ask)
    with pytest.raises(MessageError, match=r"limits\.runs_a_day"):
        responder.handle("audit-3", ask)


def test_who_names_too_many_groups_is_left_out_and_nobody_else(tmp_path):
    frame = predictions()
    strange = (frame["silo"] == "west").to_numpy()
    frame.loc[strange, "race"] = [f"r{i % 40}" for i in range(strange.sum())]
    frame.loc[strange, "sex"] = [f"s{i % 40}" for i in range(strange.sum())]
    found = gather(Silos(write_silos(tmp_path, frame), policy(min_rows=1)))
    assert list(found.left_out) == ["west"]
    assert "combinations of groups, at most 1,024 are counted" in found.left_out["west"]
    assert_same(found.counts, pooled(frame[~strange]))


def test_more_groups_than_can_be_counted_end_the_audit_if_all_have_them(tmp_path):
    frame = predictions(rows=3000)
    frame["race"] = [f"r{i % 40}" for i in range(len(frame))]
    frame["sex"] = [f"s{i // 40 % 40}" for i in range(len(frame))]
    silos = Silos(write_silos(tmp_path, frame), policy(min_rows=1))
    with pytest.raises(FederationError, match="combinations of groups"):
        gather(silos, minimum=1)


def test_an_audit_has_the_same_name_only_for_the_same_terms():
    names = {
        audit_name(TERMS),
        audit_name(AuditTerms(subject=COLUMNS)),
        audit_name(AuditTerms(subject=COLUMNS.model_copy(update={"label": None}))),
        audit_name(AuditTerms(subject=COLUMNS, grid=ScoreGrid(0, 2))),
    }
    assert len(names) == 3
    assert all(re.fullmatch(r"audit-[0-9a-f]{16}", name) for name in names)


# ------------------------------------------------------------------ a model that is sent


QUICK = {"rounds": 4, "hidden": (4,), "batch_size": 20, "lr": 0.05, "weight_decay": 0.1}
KINDS = {
    "single": {"strategy": "fedavg"},
    "ensemble": {"strategy": "indfair"},
    "thresholds": {"strategy": "fedavg-threshold", "tolerance": 0.0, "notion": "eo"},
    "personal": {"strategy": "ditto"},
}
OPEN = {"label": "hired", "sensitive": ("sex", "age"), "models": True}


def drawn(output, last, candidates, constraints):
    """Serve the last weights, or weights near them, by chance."""
    (weights,) = last.members
    members = np.stack([weights, weights * np.float32(0.5) - np.float32(0.1)])
    return Served(kind="mixture", members=members, weights=np.array([0.3, 0.7]), names=("a", "b"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for kind, how in KINDS.items():
        mfairfl.train(fed.people_table(), out=folder / kind, **QUICK, **how)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop, "choose", drawn)
        mfairfl.train(fed.people_table(), out=folder / "mixture", **QUICK)
    return folder


def people(seed=11):
    """People whom no model has seen, with gaps and jobs that nobody had."""
    frame = fed.people(seed, sites=dict.fromkeys(SILOS, 300)).rename(columns={"site": "silo"})
    frame.loc[::17, "years"] = np.nan
    frame.loc[::23, "job"] = "astronaut"
    frame.loc[::13, "hired"] = ""
    return frame


@pytest.mark.parametrize("kind", ["single", "ensemble", "mixture", "thresholds"])
def test_a_sent_model_decides_as_predict_does_on_each_file(runs, tmp_path, kind):
    frame = people()
    settings = write_silos(tmp_path, frame, OPEN)
    sent = model_to_send(runs / kind)
    assert sent.served.kind == (kind if kind != "thresholds" else "single")
    found = gather(Silos(settings, policy(min_rows=1)), AuditTerms(subject=sent))
    assert found.left_out == {}
    model = mfairfl.load(runs / kind)
    expected = None
    for name in SILOS:
        made = model.predict_frame(str(settings[name].csv), labels=False)
        own = frame[frame["silo"] == name]
        labels = own["hired"].map({"yes": 1, "no": 0, "": None}).astype(object)
        part = AuditCounts.from_rows(
            labels.where(labels.notna(), None).to_numpy(),
            made["favourable"],
            sensitive_features=own[["sex", "age"]],
            clients=[name] * len(own),
            scores=made["score"],
            attributes=model.task.attributes,
        )
        expected = part if expected is None else expected + part
    assert_same(found.counts, expected)
    assert 0 < found.counts.decided[..., 1].sum() < found.counts.decided.sum()
    assert found.counts.rows[:, :, UNKNOWN].sum() > 0


def test_groups_that_the_model_does_not_know_are_not_known(runs, tmp_path):
    frame = people()
    frame.loc[::5, "sex"] = "X"
    frame.loc[1::5, "sex"] = ""
    settings = write_silos(tmp_path, frame, OPEN)
    sent = model_to_send(runs / "single", ["sex"])
    found = gather(Silos(settings, policy(min_rows=1)), AuditTerms(subject=sent))
    (sex,) = found.counts.attributes
    assert (sex.name, sex.groups) == ("sex", ("F", "M", "?"))
    unknown = found.counts.decided[:, 2].sum(axis=(1, 2))
    assert unknown.tolist() == [
        int(((part["sex"] == "X") | (part["sex"] == "")).sum())
        for _, part in frame.groupby("silo")
    ]


def test_no_model_is_applied_without_the_silo_s_word(runs, tmp_path):
    settings = write_silos(tmp_path, people(), OPEN | {"models": False})
    terms = AuditTerms(subject=model_to_send(runs / "single"))
    with pytest.raises(FederationError, match="it applies no model that it is sent"):
        gather(Silos(settings, policy()), terms)
    settings = write_silos(tmp_path, people(), OPEN | {"sensitive": ("sex",)})
    with pytest.raises(FederationError, match="asks for sensitive = 'age'"):
        gather(Silos(settings, policy()), terms)
    settings = write_silos(tmp_path, people(), OPEN | {"label": "promoted"})
    with pytest.raises(FederationError, match="asks for label = 'hired'"):
        gather(Silos(settings, policy()), terms)


AGREED = """
[task]
label = "hired"
favourable = "yes"
sensitive = ["sex", "age"]

[model]
hidden = [4]
"""


@pytest.mark.parametrize(
    ("kind", "section", "refused"),
    [
        ("single", "", None),
        ("single", "\n[output]\nrule = 'thresholds'\nby = 'group'\n", None),
        ("thresholds", "\n[output]\nrule = 'thresholds'\nby = 'group'\n", None),
        ("thresholds", "", r"output\.rule = 'thresholds'; agreed to: 'select' \(run\.toml\)"),
    ],
)
def test_a_model_is_applied_as_agreed_in_the_silo_s_run_toml(
    runs, tmp_path, kind, section, refused
):
    (tmp_path / "run.toml").write_text(AGREED + section)
    settings = {
        name: silo.model_copy(update={"task": tmp_path / "run.toml"})
        for name, silo in write_silos(tmp_path, people(), OPEN).items()
    }
    terms = AuditTerms(subject=model_to_send(runs / kind))
    if refused is None:
        assert gather(Silos(settings, policy()), terms).counts.decided.sum() > 0
        (tmp_path / "run.toml").write_text(AGREED.replace("[4]", "[8]") + section)
        refused = r"model\.hidden = \(4,\); agreed to: \(8,\)"
    with pytest.raises(FederationError, match=refused):
        gather(Silos(settings, policy()), terms)


@pytest.mark.parametrize(
    ("kind", "limits", "key"),
    [
        ("single", {"weights": 10}, r"limits\.weights"),
        ("ensemble", {"models": 2}, r"disclosure\.models"),
    ],
)
def test_a_model_beyond_the_silo_s_limits_is_refused(runs, tmp_path, kind, limits, key):
    settings = write_silos(tmp_path, people(), OPEN)
    terms = AuditTerms(subject=model_to_send(runs / kind))
    with pytest.raises(FederationError, match=rf"{key} of its policy\.toml"):
        gather(Silos(settings, policy(**limits)), terms)


def test_models_of_each_client_s_own_are_not_sent(runs):
    with pytest.raises(RunDirectoryError, match="each client has a model of its own") as caught:
        model_to_send(runs / "personal")
    one_line(caught)


def test_an_altered_model_is_refused_in_one_line(runs, tmp_path):
    settings = write_silos(tmp_path, people(), OPEN)
    sent = model_to_send(runs / "single")
    short = sent.model_copy(update={"members": sent.members[:, :-1]})
    with pytest.raises(FederationError, match=r"a model of .* weights; it has"):
        gather(Silos(settings, policy()), AuditTerms(subject=short))
