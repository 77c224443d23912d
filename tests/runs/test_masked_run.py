"""A run over silos under masks ends where the one without masks ends, and tells less."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file

import federations as fed
import mfairfl
from answers import csv_rows, one_line
from masked_silos import Office, masked_silos
from mfairfl.data import table_from_frame
from mfairfl.errors import ConfigError, FederationError, MfairflError
from mfairfl.fairness.metrics import CLIENT_NUMBERS
from mfairfl.remote.codec import read_header
from mfairfl.runs.config import make_config
from mfairfl.runs.federated import FederatedRequest, run_federated, run_name
from mfairfl.runs.record import RunRecord

TASK = {"label": "hired", "favourable": "yes", "sensitive": ["sex", "age"]}
SETTINGS = {
    "seed": 2,
    "model": {"hidden": [4]},
    "training": {"rounds": 4, "local_epochs": 2, "batch_size": 16, "lr": 0.02},
    "fairness": {"notion": "dp"},
}
LONG_ROUNDS = SETTINGS["training"] | {"local_epochs": 10}


def wanted(out, strategy="mfairfl", **more):
    settings = SETTINGS | {"task": TASK, "strategy": {"name": strategy}, "masked": True} | more
    return FederatedRequest(
        config=make_config(settings), clients=tuple(fed.SITES), minimum=2, out=out
    )


def masked_run(folder, silos=None, lost=lambda name, kind, number: False, lie=None, **more):
    """Carry out a run; return its record, and the transport with all that it carried."""
    asked = wanted(folder / "silos", **more)
    office = Office(silos or masked_silos(folder), run_name(asked.config), lost)
    office.lie = lie or office.lie
    return run_federated(asked, office), office


def embedded(out, strategy="mfairfl", **more):
    task = mfairfl.data.Task.model_validate(TASK | {"client": "site"})
    table = table_from_frame(fed.people(), task, name="people")
    settings = SETTINGS | {"strategy": {"name": strategy}} | more
    return mfairfl.train(table, config=settings, out=out).record


def members_of(folder):
    return [load_file(folder / one / "model.safetensors")["members"] for one in ("silos", "here")]


def both_files(folder, name):
    return [(folder / one / name) for one in ("silos", "here")]


@pytest.mark.parametrize("encoder", [{}, {"numeric": "bins", "bins": 6, "min_rows": 12}])
@pytest.mark.parametrize("strategy", ["mfairfl", "fedavg-threshold", "qffl"])
def test_the_same_encoder_model_and_counts_as_without_masks(strategy, encoder, tmp_path):
    record, _ = masked_run(tmp_path, strategy=strategy, encoder=encoder)
    here = embedded(tmp_path / "here", strategy, encoder=encoder)
    ours, theirs = (path.read_bytes() for path in both_files(tmp_path, "encoder.json"))
    assert ours == theirs
    assert np.array_equal(*members_of(tmp_path))
    for split in ("train", "test"):
        ours, theirs = record.tallies[split], here.tallies[split]
        assert ours.clients == ("all silos",)
        if strategy == "fedavg-threshold":  # expected counts are rounded at every silo
            np.testing.assert_allclose(ours.counts[0], theirs.counts.sum(axis=0), atol=1e-8)
        else:
            assert np.array_equal(ours.counts[0], theirs.counts.sum(axis=0))


def test_every_number_that_needs_no_cells_of_a_client_is_the_same(tmp_path):
    record, _ = masked_run(tmp_path)
    here = embedded(tmp_path / "here")
    for split in ("train", "test"):
        ours, theirs = record.metrics[split], here.metrics[split]
        assert ours.by_name == pytest.approx(theirs.by_name, rel=1e-7)
        assert ours.by_attribute == theirs.by_attribute
        for name, groups in ours.by_group.items():
            for group, numbers in groups.items():
                assert numbers == pytest.approx(theirs.by_group[name][group], rel=1e-7)
        limits, expected = record.intervals[split], here.intervals[split]
        for name in ("accuracy", "balanced_accuracy", "roc_auc", "worst_client_accuracy"):
            assert limits[name] == pytest.approx(expected[name], rel=1e-7)
        for name in ("client_accuracy_std", "client_accuracy_gap"):  # drawn with other numbers
            assert limits[name] == pytest.approx(expected[name], abs=0.02)
    assert RunRecord.read(tmp_path / "silos") == record


def test_what_masks_hide_of_single_clients_is_absent_and_never_0(tmp_path):
    record, _ = masked_run(tmp_path)
    here = embedded(tmp_path / "here")
    for client, numbers in record.metrics["test"].by_client.items():
        assert numbers == {k: here.metrics["test"].by_client[client][k] for k in ("n", "accuracy")}
        assert set(record.intervals["test"].by_client[client]) == {"accuracy"}
    assert not [k for k in record.metrics["test"].undefined if k.startswith("by_client")]
    assert {record.constant_classifier["test"][name] for name in CLIENT_NUMBERS} == {None}
    assert record.client_tallies["test"].clients == tuple(sorted(fed.SITES))
    assert here.client_tallies == {}
    assert all(client.favourable is None for client in record.federation.clients)


def test_the_files_of_the_rounds_are_those_of_the_run_that_sees_all(tmp_path):
    masked_run(tmp_path)
    embedded(tmp_path / "here")
    for name in ("rounds.csv", "clients.csv"):
        ours, theirs = (csv_rows(path) for path in both_files(tmp_path, name))
        for mine, other in zip(ours, theirs, strict=True):
            assert set(mine) == set(other)
            for key, value in mine.items():
                if key in ("log", "client", "set_aside"):
                    continue
                number, expected = (float(x) if x else np.nan for x in (value, other[key]))
                assert number == pytest.approx(expected, rel=1e-7, abs=1e-9, nan_ok=True), key


def test_multipliers_that_silos_move_are_followed(tmp_path):
    """In rounds of ten epochs; their sums are rounded to 2⁻³⁰."""
    _, office = masked_run(tmp_path, training=LONG_ROUNDS)
    embedded(tmp_path / "here", training=LONG_ROUNDS)
    np.testing.assert_allclose(*members_of(tmp_path), atol=1e-3)
    trained = [packet for kind, _, packet in office.seen if kind == "train"]
    for packet in trained:
        (report,) = read_header(packet)[1]["told"]["reports"]
        assert (report["multipliers"], report["gaps"]) == ([], [])
        assert packet.arrays["mask/words"].size > 0
    logs = [json.loads(row["log"]) for row in csv_rows(tmp_path / "silos" / "rounds.csv")[1:]]
    assert not any("multipliers lost" in log for log in logs)


# ------------------------------------------------------------------ what the server sees


def test_the_server_is_told_nothing_by_cell_level_or_interval(tmp_path):
    _, office = masked_run(tmp_path, encoder={"numeric": "bins", "bins": 6, "min_rows": 12})
    kinds = {kind for kind, _, _ in office.seen}
    assert kinds == {
        *("profile", "levels", "mask-keys", "sums", "cuts", "encode"),
        *("measure", "train", "score"),
    }
    for kind, _, packet in office.seen:
        arrays = set(packet.arrays) - {"mask/words"}
        _, header = read_header(packet)
        if kind == "profile":
            for column in header["profile"]["columns"]:
                assert set(column["levels"].values()) <= {0}
                assert column["missing"] in (0, 1, header["profile"]["rows"])
        elif kind == "measure":
            assert arrays == {"told"}
            assert packet.arrays["told"].shape[1] == 3  # rows, errors, loss
        elif kind == "cuts":
            assert all(name.startswith("values/") for name in arrays)
        elif kind == "encode":  # and which groups are withheld: here none
            hidden = {f"hidden/{part}" for part in ("train", "validation", "test")}
            assert arrays == {*hidden, "withheld"}
            assert not any(packet.arrays[name].any() for name in arrays)
            assert set(header["told"]) == {"rows", "floor", "policy"}
        elif kind in ("sums", "score"):
            assert not arrays
            assert set(header["told"]) <= {"sha256", "rows"}
        elif kind == "train":
            assert arrays == {"update/0"}


def test_no_masked_word_is_ever_sent_twice(tmp_path):
    _, office = masked_run(tmp_path)
    words = [p.arrays["mask/words"] for _, _, p in office.seen if "mask/words" in p.arrays]
    every = np.concatenate(words)
    assert len(every) > 1000
    assert len(np.unique(every)) == len(every)


def test_keys_are_fetched_for_many_exchanges_at_a_time(tmp_path):
    _, office = masked_run(tmp_path)
    assert office.asked["mask-keys"] == 2  # once to enrol, once for all rounds


# ------------------------------------------------------------------ drops


def test_a_drop_in_the_middle_loses_that_measurement_and_not_the_run(tmp_path):
    record, _ = masked_run(
        tmp_path, lost=lambda name, kind, number: (name, kind, number) == ("west", "measure", 3)
    )
    assert record.rounds == 4
    rows = csv_rows(tmp_path / "silos" / "rounds.csv")
    lost = json.loads(rows[2]["log"])["measurement lost"]
    assert lost == "west: no answer before the deadline"
    assert rows[2]["train_accuracy"] == rows[2]["train_violation"] == ""
    assert all(row["train_violation"] for i, row in enumerate(rows) if i != 2)
    told = {row["client"]: row for row in csv_rows(tmp_path / "silos" / "clients.csv")[8:12]}
    assert told["west"]["set_aside"] == "no answer before the deadline"
    assert told["west"]["train_loss"] == ""
    assert told["east"]["train_loss"] != ""
    assert "2" not in [name.split()[-1] for name in record.served.names]


def test_a_drop_before_the_first_round_does_not_end_the_run(tmp_path):
    record, _ = masked_run(
        tmp_path, lost=lambda name, kind, number: (name, kind, number) == ("west", "measure", 1)
    )
    assert record.rounds == 4


def test_a_drop_in_training_loses_the_multipliers_means(tmp_path):
    record, _ = masked_run(
        tmp_path,
        training=LONG_ROUNDS,
        lost=lambda name, kind, number: (name, kind, number) == ("west", "train", 2),
    )
    logs = [row["log"] for row in csv_rows(tmp_path / "silos" / "rounds.csv")]
    lost = [json.loads(log or "{}").get("multipliers lost") for log in logs]
    assert lost == [None, None, "west: no answer before the deadline", None, None]
    assert record.rounds == 4


def test_a_silo_that_gives_no_keys_leaves_what_the_others_tell(tmp_path):
    record, _ = masked_run(
        tmp_path,
        lost=lambda name, kind, number: (name, kind, number) == ("west", "mask-keys", 2),
    )
    row = csv_rows(tmp_path / "silos" / "rounds.csv")[0]
    assert row["train_accuracy"] == ""
    first = {
        r["client"]: r["train_loss"] for r in csv_rows(tmp_path / "silos" / "clients.csv")[:4]
    }
    assert all(first.values())  # it tells its loss; only the sums need keys
    assert record.rounds == 4


@pytest.mark.parametrize("kind", ["sums", "encode"])
def test_a_drop_while_enrolling_can_be_repeated_with_the_same_silos_only(kind, tmp_path):
    silos, first = masked_silos(tmp_path), {}

    def once(name, asked, number):
        return name == "west" and asked == kind and first.setdefault(kind, True) and number == 1

    with pytest.raises(FederationError) as caught:
        masked_run(tmp_path, silos, once)
    assert one_line(caught) == (
        "sums over all silos need every one of them (west: no answer before the deadline); when "
        "all are there, run the same command again"
    )
    rest = {name: one for name, one in silos.items() if name != "west"}
    asked = wanted(tmp_path / "silos")
    fewer = FederatedRequest(
        config=asked.config, clients=tuple(rest), minimum=2, out=tmp_path / "fewer"
    )
    with pytest.raises(FederationError, match=r"would tell 'west' apart|with other silos"):
        run_federated(fewer, Office(rest, run_name(asked.config)))
    record, _ = masked_run(tmp_path, silos)
    embedded(tmp_path / "here")
    assert np.array_equal(*members_of(tmp_path))
    assert record.rounds == 4


def test_a_server_that_is_killed_and_resumes_ends_in_the_same_bits(tmp_path):
    whole, _ = masked_run(tmp_path / "whole", masked_silos(tmp_path / "whole"))
    silos = masked_silos(tmp_path)
    for kind, number in (("train", 2), ("measure", 4), ("score", 1)):

        def gone(name, asked, count, kind=kind, number=number):
            return asked == kind and count >= number

        with pytest.raises(FederationError, match="0 of 4 clients answered"):
            masked_run(tmp_path, silos, gone)
    record, _ = masked_run(tmp_path, silos)
    ours, theirs = (
        load_file(folder / "silos" / "model.safetensors")["members"]
        for folder in (tmp_path, tmp_path / "whole")
    )
    assert np.array_equal(ours, theirs)
    assert record.metrics == whole.metrics


# ------------------------------------------------------------------ lies


def scrambled(answer, rng):
    """Other masked words: what a silo with a wrong key, or a liar, sends."""
    words = answer.arrays["mask/words"]
    wrong = rng.integers(-(2**63), 2**63, len(words))
    return replace(answer, arrays={**answer.arrays, "mask/words": wrong})


def liar(kind, number=1, change=scrambled):
    rng = np.random.default_rng(0)

    def lie(name, asked, count, answer):
        caught = (name, asked, count) == ("west", kind, number)
        return change(answer, rng) if caught else answer

    return lie


@pytest.mark.parametrize("kind", ["sums", "cuts", "encode", "score"])
def test_a_scrambled_sum_that_all_depends_on_ends_the_run_in_one_line(kind, tmp_path):
    bins = {"numeric": "bins", "bins": 6, "min_rows": 12}
    with pytest.raises(MfairflError) as caught:
        masked_run(tmp_path, lie=liar(kind), encoder=bins)
    assert one_line(caught)


@pytest.mark.parametrize("kind", ["measure", "train"])
def test_a_scrambled_sum_of_a_round_is_lost_and_nobody_else(kind, tmp_path):
    record, _ = masked_run(tmp_path, lie=liar(kind, 2), training=LONG_ROUNDS)
    assert record.rounds == 4
    logs = [json.loads(row["log"] or "{}") for row in csv_rows(tmp_path / "silos" / "rounds.csv")]
    if kind == "measure":
        assert "cannot" in logs[1]["measurement lost"] or "sum over" in logs[1]["measurement lost"]
    rows = csv_rows(tmp_path / "silos" / "clients.csv")
    assert {row["set_aside"] for row in rows} == {""}


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -1.0, 1e300])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_a_silo_tells_of_itself_is_checked(wrong, place, tmp_path):
    def change(answer, rng):
        told = answer.arrays["told"].copy()
        told[0, place] = wrong
        return replace(answer, arrays={**answer.arrays, "told": told})

    record, _ = masked_run(tmp_path, lie=liar("measure", 2, change))
    assert record.rounds == 4
    row = next(
        row
        for row in csv_rows(tmp_path / "silos" / "clients.csv")
        if (row["round"], row["client"]) == ("1", "west")
    )
    assert row["set_aside"].startswith("its measurement of train rows: its ")


@pytest.mark.parametrize(
    "change",
    [
        lambda answer, rng: replace(answer, arrays={}),
        lambda answer, rng: replace(answer, text="{"),
        lambda answer, rng: replace(answer, text=answer.text.replace("masked", "sums")),
        lambda answer, rng: replace(
            answer, arrays=answer.arrays | {"mask/words": answer.arrays["mask/words"][1:]}
        ),
        lambda answer, rng: replace(answer, arrays=answer.arrays | {"more": np.zeros(3)}),
        lambda answer, rng: replace(
            answer, arrays=answer.arrays | {"told": np.zeros((1, 3), np.float32)}
        ),
    ],
)
def test_a_malformed_answer_is_a_drop(change, tmp_path):
    record, _ = masked_run(tmp_path, lie=liar("measure", 2, change))
    assert record.rounds == 4
    row = csv_rows(tmp_path / "silos" / "rounds.csv")[1]
    assert json.loads(row["log"])["measurement lost"].startswith("west: ")


# ------------------------------------------------------------------ what is refused


def test_masks_of_rows_in_one_place_are_refused():
    task = mfairfl.data.Task.model_validate(TASK | {"client": "site"})
    table = table_from_frame(fed.people(), task, name="people")
    with pytest.raises(ConfigError) as caught:
        mfairfl.train(table, config=SETTINGS | {"masked": True})
    assert one_line(caught) == (
        "masked = true: rows in one place need no masks; leave it out, or let silos with files of "
        "their own take part (`mfairfl deploy`)"
    )


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"strategy": {"name": "fairfed"}}, "reads single clients' rates by group"),
        ({"robust": "auto"}, "robust = 'auto' compares what single clients measured"),
        ({"training": {"participation": 0.5}}, "use training.participation = 1"),
    ],
)
def test_runs_that_need_more_are_refused_before_anybody_is_asked(more, reason, tmp_path):
    settings = SETTINGS | {"task": TASK, "masked": True} | more
    asked = FederatedRequest(
        config=make_config(settings), clients=tuple(fed.SITES), minimum=2, out=tmp_path / "silos"
    )
    office = Office(masked_silos(tmp_path))
    with pytest.raises(ConfigError) as caught:
        run_federated(asked, office)
    assert reason in one_line(caught)
    assert office.asked == {}


def test_a_run_without_masks_is_refused_by_silos_that_ask_for_them(tmp_path):
    with pytest.raises(FederationError, match="set masked = true in the settings of the run"):
        masked_run(tmp_path, masked=False)


def test_a_run_with_masks_is_refused_by_silos_without_members_keys(tmp_path):
    silos = {
        name: one.model_copy(update={"members": None})
        for name, one in masked_silos(tmp_path).items()
    }
    with pytest.raises(FederationError, match=r"name their folder in its silo.toml \(members\)"):
        masked_run(tmp_path, silos)


def test_a_silo_that_stays_out_before_the_roster_is_fixed_does_not_stop_the_others(tmp_path):
    silos = masked_silos(tmp_path)
    silos["west"].csv.write_text("a,b\n1,2\n")
    record, _ = masked_run(tmp_path, silos)
    assert [one.name for one in record.federation.clients] == ["east", "north", "south"]
    silos["south"].csv.write_text("a,b\n1,2\n")
    asked = wanted(tmp_path / "two")
    with pytest.raises(FederationError, match="2 of 4 clients take part, at least 3 must"):
        run_federated(asked, Office(silos, run_name(asked.config)))
