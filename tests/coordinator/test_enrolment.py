"""From files that stay where they are to the embedded engine's bits."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import federations as fed
from enrolments import TASK, TERMS, Fresh
from mfairfl.coordinator.enrolment import enrol
from mfairfl.coordinator.transport import drive
from mfairfl.data import EncoderConfig, partition, table_from_frame
from mfairfl.engine.checkpoint import read_sealed
from mfairfl.engine.embedded import splits_of, summarize
from mfairfl.errors import FederationError
from mfairfl.fairness.constraints import Goal
from mfairfl.silo.silo_file import SiloSettings
from mfairfl.strategies.base import Summary
from mfairfl.wire.packing import Packet

STANDARD = EncoderConfig(numeric="standard", min_level_rows=1)
BINS = EncoderConfig(numeric="bins", bins=6, min_rows=12, indicators="bins", min_level_rows=90)


def embedded(encoder=STANDARD):
    task = TASK.model_copy(update={"client": "site"})
    table = table_from_frame(fed.people(), task, name="people")
    return partition(
        table, "column", seed=TERMS.seed, validation=TERMS.validation, encoder=encoder
    )


@pytest.mark.parametrize(
    ("name", "encoder"),
    [
        ("mfairfl", STANDARD),
        ("fedavg-threshold", STANDARD),
        ("scaffold", STANDARD),
        ("mfairfl", BINS),
    ],
)
def test_enrolled_files_train_to_the_embedded_engine_s_bits(settings, name, encoder):
    federation, goal = embedded(encoder), Goal(notions=("eo",), attributes=("sex", "age"))
    inputs = federation.pool.X.shape[1]
    splits = splits_of(federation)
    ours = fed.enrolled_setup(
        name, summarize(federation, goal), inputs, splits, TERMS, rule="select"
    )

    terms = replace(TERMS, encoder=encoder)
    enrolled = enrol(Fresh(settings), list(settings), terms, minimum=4)
    assert enrolled.encoder == federation.encoder
    assert enrolled.refused == {}
    summary = Summary(counts=enrolled.counts["train"], attributes=enrolled.attributes, goal=goal)
    inputs = len(enrolled.encoder.feature_names)
    setup = fed.enrolled_setup(name, summary, inputs, splits, TERMS, rule="select")
    state = fed.first(setup)
    found = drive(setup, state, Fresh(settings), minimum=4)
    fed.assert_equals_embedded(setup, state, found, fed.run(ours, federation))


def wide_settings(folder, frame):
    """Silos whose files have hundreds of towns and streets."""
    found = {}
    for site, rows in frame.groupby("site"):
        path = folder / f"{site}.csv"
        rows.drop(columns="site").to_csv(path, index=False)
        found[site] = SiloSettings(name=site, csv=path, state=folder / "state" / site)
    return found


def test_wide_files_train_to_the_embedded_engine_s_bits(tmp_path):
    """Both hold the rows as indices, for the encoder says so; nobody writes them out."""
    frame, goal = fed.wide_people(), Goal(notions=("dp",), attributes=("sex", "age"))
    silos, table = wide_settings(tmp_path, frame), fed.people_table(frame)
    federation = partition(table, "column", seed=3, validation=0.1, encoder=fed.WIDE)
    terms = replace(TERMS, encoder=fed.WIDE)
    enrolled = enrol(Fresh(silos), list(silos), terms, minimum=4)
    assert enrolled.encoder == federation.encoder
    assert enrolled.encoder.compact
    inputs, splits = federation.pool.inputs.width, splits_of(federation)
    setup = fed.enrolled_setup("mfairfl", summarize(federation, goal), inputs, splits, terms)
    state = fed.first(setup)
    found = drive(setup, state, Fresh(silos), minimum=4)
    fed.assert_equals_embedded(setup, state, found, fed.run(setup, federation))
    for one in silos.values():
        arrays, header = read_sealed(one.state / "run-1" / "rows.safetensors", remedy="")
        assert tuple(header["layout"]) == enrolled.encoder.layout
        assert arrays["train/codes"].dtype == np.int32
        client = next(c for c in federation.clients if c.name == one.name)
        assert np.array_equal(arrays["train/codes"], client.train.inputs.codes)
        assert np.array_equal(arrays["train/numbers"], client.train.inputs.numbers)


def test_levels_that_silos_keep_to_themselves_have_no_input(tmp_path):
    """With a floor some training rows hold a level that the encoder does not know."""
    frame, goal = fed.wide_people(), Goal(notions=("dp",), attributes=("sex", "age"))
    silos = wide_settings(tmp_path, pd.concat([frame, frame.iloc[:500]]))  # most are there twice
    every = EncoderConfig(bins=4, min_level_rows=1)
    transport = Fresh(silos, min_rows=2)
    enrolled = enrol(transport, list(silos), replace(TERMS, encoder=every), minimum=4)
    assert enrolled.encoder.compact
    assert not any(column.rare for column in enrolled.encoder.categorical)
    path = silos["west"].state / "run-1" / "rows.safetensors"
    assert (read_sealed(path, remedy="")[0]["train/codes"] == -1).any()
    summary = Summary(counts=enrolled.counts["train"], attributes=enrolled.attributes, goal=goal)
    inputs = len(enrolled.encoder.feature_names)
    setup = fed.enrolled_setup("fedavg", summary, inputs, ("train", "test"), TERMS)
    state = fed.first(setup)
    drive(setup, state, transport, minimum=4)
    assert np.isfinite(state.weights).all()


def test_bins_and_rare_levels_are_agreed_over_silos(settings):
    encoder = enrol(Fresh(settings), list(settings), replace(TERMS, encoder=BINS)).encoder
    assert encoder == embedded(BINS).encoder
    assert all(len(column.edges) > 5 for column in encoder.numeric)
    # 260 people have three jobs: not all three have 90 rows, at most two have.
    jobs = encoder.categorical[0]
    counts = fed.people()["job"].value_counts()
    assert set(jobs.rare) == set(counts[counts < 90].index)
    assert jobs.rare
    assert "job=(rare)" in encoder.feature_names


class Listening(Fresh):
    """Keeps every request and every answer."""

    def __init__(self, settings, min_rows=1):
        super().__init__(settings, min_rows)
        self.asked, self.said = [], []

    def exchange(self, asks):
        found = super().exchange(asks)
        self.asked += list(asks.values())
        self.said += [packet for packet in found.values() if isinstance(packet, Packet)]
        return found


def test_no_count_below_a_silo_s_floor_leaves_it(settings):
    transport = Listening(settings, min_rows=7)
    terms = replace(TERMS, encoder=BINS)
    encoder = enrol(transport, list(settings), terms, minimum=4).encoder
    skills = fed.people()["skill"]
    told = [p.arrays for p in transport.said if json.loads(p.text)["kind"] == "histograms"]
    assert told
    for arrays in told:
        for name, array in arrays.items():
            if name.startswith("counts/"):
                assert array.sum() > 0
                assert ((array == 0) | (array >= 7)).all()
            else:  # no value of these columns is in seven rows of one silo
                named = array[~np.isnan(array)]
                assert name == "values/1" or not np.isin(named, skills).any()
    assert all(column.edges for column in encoder.numeric)


def test_cuts_are_asked_for_only_if_numbers_have_bins(settings):
    kinds = {}
    for encoder in (STANDARD, BINS):
        transport = Listening(settings)
        enrol(transport, list(settings), replace(TERMS, encoder=encoder))
        asked = [json.loads(packet.text)["kind"] for packet in transport.asked]
        kinds[encoder.numeric] = [kind for kind, _ in itertools.groupby(asked)]
    assert kinds["standard"] == ["profile", "sums", "encode"]
    assert kinds["bins"] == ["profile", "sums", "cuts", "encode"]


def test_a_client_that_counts_wrongly_stays_out(settings):
    class Lying(Fresh):
        def exchange(self, asks):
            found = super().exchange(asks)
            reply = found.get("west")
            if isinstance(reply, Packet) and "counts/0" in reply.arrays:
                reply.arrays["counts/0"][3] += 1
            return found

    enrolled = enrol(Lying(settings), list(settings), replace(TERMS, encoder=BINS), minimum=3)
    assert list(enrolled.refused) == ["west"]
    assert "its counts of 'skill' are not those of" in enrolled.refused["west"]
    assert sorted(enrolled.counts["train"]) == ["east", "north", "south"]


def test_who_lacks_an_attribute_takes_part_and_a_note_says_so(settings):
    for site, columns in {"west": ["sex"], "east": ["sex", "age"]}.items():
        path = settings[site].csv
        pd.read_csv(path).drop(columns=columns).to_csv(path, index=False)
    enrolled = enrol(Fresh(settings), list(settings), TERMS, minimum=4)
    assert enrolled.refused == {}
    assert [a.groups for a in enrolled.attributes] == [("F", "M", "?"), ("old", "young", "?")]
    assert {"sex=?", "age=?"} < set(enrolled.encoder.feature_names)
    said = "{0} is not recorded at {1}: these rows are outside every comparison of {0}"
    assert enrolled.notes == (
        said.format("sex", "east (90 of 90 rows), west (60 of 60 rows)"),
        said.format("age", "east (90 of 90 rows)"),
    )
    # Cells: 3 · sex + age; 80 % of east's rows, less the validation ones, train in the last.
    for name, held in {"east": [8], "west": [6, 7], "north": [3, 4]}.items():
        rows = sum(enrolled.counts[part][name].sum(axis=1) for part in enrolled.counts)
        assert np.flatnonzero(rows).tolist() == held


def test_rows_left_out_and_values_filled_in_are_counted_by_client(settings):
    for site, lost in {"west": 3, "east": 5}.items():
        frame = pd.read_csv(settings[site].csv)
        frame.loc[: lost - 1, "hired"] = None  # counted with the first row
        frame.loc[frame.index[-2:], "skill"] = None
        frame.to_csv(settings[site].csv, index=False)
    enrolled = enrol(Fresh(settings), list(settings), TERMS, minimum=4)
    rows = {site: len(pd.read_csv(settings[site].csv)) for site in settings}
    used = sum(rows.values()) - 8
    assert enrolled.treatment == (
        ("dropped", f"east: 5 of {rows['east']} rows left out, values missing where none may be"),
        ("dropped", f"west: 3 of {rows['west']} rows left out, values missing where none may be"),
        (
            "filled",
            f"column 'skill': 4 of {used} values missing (east 2, west 2), filled with the mean "
            "and marked",
        ),
    )


def test_counts_are_those_of_the_rows(settings):
    enrolled, federation = enrol(Fresh(settings), list(settings), TERMS), embedded()
    for client in federation.clients:
        for part in ("train", "validation", "test"):
            shard = client.shard(part)
            strata = 2 * shard.cells.astype(int) + shard.y
            rows = np.bincount(strata, minlength=8).reshape(4, 2)
            assert enrolled.counts[part][client.name].tolist() == rows.tolist()


def test_a_file_with_a_wrong_column_stays_out_and_the_others_go_on(settings):
    path = settings["west"].csv
    path.write_text(path.read_text().replace("skill", "skil", 1))
    enrolled = enrol(Fresh(settings), list(settings), TERMS, minimum=2)
    assert sorted(enrolled.counts["train"]) == ["east", "north", "south"]
    assert "unknown column 'skill': did you mean 'skil'?" in enrolled.refused["west"]


def test_too_few_clients_are_named_with_their_reasons(settings):
    settings["west"].csv.unlink()
    with pytest.raises(
        FederationError, match=r"3 of 4 clients take part, at least 4 must \(west:"
    ):
        enrol(Fresh(settings), list(settings), TERMS, minimum=4)


def test_rare_categories_are_not_named_and_are_encoded_as_unknown(settings):
    path = settings["east"].csv
    path.write_text(path.read_text().replace("clerk", "astronaut", 2))
    transport = Listening(settings, min_rows=3)
    enrolled = enrol(transport, list(settings), TERMS)
    assert "east" in enrolled.counts["train"]
    assert not any("astronaut" in packet.text for packet in transport.said)
    assert "job=astronaut" not in enrolled.encoder.feature_names


def test_who_claims_more_rows_than_anybody_has_stays_out(settings):
    found = enrol(Fresh(settings), list(settings), replace(TERMS, most_rows=89))
    assert found.refused == {
        "east": "it claims 90 rows; most_rows in the coordinator's file allows 89"
    }


def test_who_weighs_more_than_all_others_together_is_named(settings):
    two = {name: settings[name] for name in ("east", "south")}
    (line,) = enrol(Fresh(two), list(two), TERMS).warnings
    assert line.startswith("east counts 63 of 91 train rows: it weighs more than all others")


def test_a_client_under_another_name_is_refused(settings):
    swapped = settings | {"east": settings["west"]}
    enrolled = enrol(Fresh(swapped), list(swapped), TERMS)
    assert enrolled.refused == {"east": "it describes itself as 'west'"}


def test_what_sums_show_of_a_client_s_columns_is_a_warning(settings):
    """A silo in other units, one with a constant, one with gaps: nobody sees a row."""
    frames = {name: pd.read_csv(silo.csv) for name, silo in settings.items()}
    frames["east"]["skill"] = 7
    frames["north"]["years"] *= 100
    frames["west"]["job"] = None
    for name, frame in frames.items():
        frame.to_csv(settings[name].csv, index=False)
    enrolled = enrol(Fresh(settings), list(settings), TERMS, minimum=4)
    east, north, west = (len(frames[name]) for name in ("east", "north", "west"))
    first, second, third = enrolled.warnings
    assert f"column 'skill' is always 7 at east ({east} rows) and varies elsewhere" in first
    assert "column 'years' is about" in second
    assert f"at north ({frames['north']['years'].mean():.4g}" in second
    assert third.startswith(f"column 'job' has no value at west ({west} of {west} rows)")
    assert north > 30


def test_sound_silos_have_no_warning(settings):
    assert enrol(Fresh(settings), list(settings), TERMS, minimum=4).warnings == ()


def test_texts_that_no_silo_can_name_are_a_warning(settings):
    for silo in settings.values():
        frame = pd.read_csv(silo.csv)
        frame.assign(note=[f"note {i}" for i in frame.index]).to_csv(silo.csv, index=False)
    enrolled = enrol(Fresh(settings, min_rows=3), list(settings), TERMS, minimum=4)
    rows = sum(fed.SITES.values())
    assert enrolled.warnings == (
        f"no value is frequent enough to be named in note ({rows} values): they name rows or are "
        "free text, list them in task.ignore",
    )
