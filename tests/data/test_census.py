"""Invented person records of two states, from a local server and from files.

Oracles: a naive loop over the invented people, and counts that are set by hand.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

from answers import one_line
from census_records import CODES, archive_of, csv_bytes, edition, in_task, people, zip_bytes
from mfairfl.data import catalog, partition
from mfairfl.data.catalog import DATASETS, describe, load_dataset, verify
from mfairfl.data.census import STATES
from mfairfl.errors import DataError
from mfairfl.plugins import Registry


class Bureau:
    """A local address with archives by path, which counts the questions."""

    def __init__(self):
        self.archives = {
            f"/2018/1-Year/csv_p{state.lower()}.zip": archive_of(state) for state in ("WY", "VT")
        }
        self.asked, self.promise_more = [], False
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked.append(self.path)
                body = outer.archives.get(self.path)
                self.send_response(404 if body is None else 200)
                length = len(body or b"") + 1000 * outer.promise_more
                self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, *args):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.root = f"http://127.0.0.1:{self.http.server_port}"

    def put(self, state, content, year=2018):
        self.archives[f"/{year}/1-Year/csv_p{state.lower()}.zip"] = content


@pytest.fixture
def bureau(monkeypatch):
    made = Bureau()
    thread = threading.Thread(target=made.http.serve_forever, args=(0.01,))
    thread.start()
    rows = sum(len(in_task(people(state))) for state in ("VT", "WY"))
    use(
        monkeypatch,
        address=made.root + "/{year}/1-Year/csv_p{state}.zip",
        options={"year": 2018, "states": ("VT", "WY")},
        rows=rows,
    )
    yield made
    made.http.shutdown()
    thread.join()
    made.http.server_close()


def use(monkeypatch, **changes):
    """Let the data set expect archives with few people."""
    changed = DATASETS.get("acs-income").model_copy(update={"people": (10, 1_000), **changes})
    known = {name: DATASETS.get(name) for name in DATASETS.names()} | {"acs-income": changed}
    registry = Registry("data set", "mfairfl.datasets", known, lambda thing: thing)
    monkeypatch.setattr(catalog, "DATASETS", registry)


def load(home, **options):
    return load_dataset("acs-income", data_home=home, **options)


def by_group(table, column=0):
    groups, codes = table.attributes[column].groups, table.groups[:, column]
    return {
        g: (int((codes == i).sum()), int(table.y[codes == i].sum())) for i, g in enumerate(groups)
    }


def test_the_entry_speaks_of_every_state():
    assert len(STATES) == 52
    assert (STATES["AL"], STATES["IN"], STATES["SD"], STATES["PR"]) == (1, 18, 46, 72)
    options = DATASETS.get("acs-income").options
    # As folktables: fifty states and Puerto Rico, in the order of their numbers.
    assert options["states"] == tuple(s for s in STATES if s != "DC")
    assert options["year"] == 2018
    assert "{year}/1-Year/csv_p{state}.zip" in DATASETS.get("acs-income").address


def test_rows_are_those_of_the_rule_person_by_person(bureau, tmp_path):
    table = load(tmp_path, sensitive=("sex", "race", "race2"))
    kept = {state: in_task(people(state)) for state in ("VT", "WY")}
    records = kept["VT"] + kept["WY"]
    assert 100 < len(records) < 200
    assert table.y.tolist() == [int(one["PINCP"] > 50_000) for one in records]
    assert table.clients.tolist() == ["VT"] * len(kept["VT"]) + ["WY"] * len(kept["WY"])
    for column in CODES:
        assert table.X[column].tolist() == [str(one[column]) for one in records]
    for column in ("AGEP", "WKHP"):
        assert table.X[column].tolist() == [one[column] for one in records]
    assert set(table.X) == {"AGEP", "WKHP", *CODES}
    women = [one for one in records if one["SEX"] == 2]
    assert by_group(table)["Female"] == (
        len(women),
        sum(one["PINCP"] > 50_000 for one in women),
    )
    races = Counter(one["RAC1P"] for one in records)
    found = by_group(table, 1)
    assert (found["White"][0], found["Alaska Native"][0]) == (races[1], races[4])
    assert (found["Asian"][0], found["Two or more"][0]) == (races[6], races[9])
    assert len(found) == 9
    assert by_group(table, 2)["other"][0] == len(records) - races[1]


def test_archives_are_fetched_once_and_only_the_table_stays(bureau, tmp_path):
    first, second = load(tmp_path), load(tmp_path)
    assert len(bureau.asked) == 2
    assert first.X.equals(second.X)
    assert first.sha256 == second.sha256
    assert first.notes[0].startswith("American Community Survey 2018, one-year person records")
    assert "2 states (VT, WY)" in first.notes[0]
    folder = tmp_path / "acs-income" / "2018"
    names = {"VT.json", "VT.parquet", "WY.json", "WY.parquet", ".VT.lock", ".WY.lock"}
    assert {path.name for path in folder.iterdir()} == names
    about = json.loads((folder / "WY.json").read_text())
    raw = archive_of("WY")
    assert about["source"] == f"{bureau.root}/2018/1-Year/csv_pwy.zip"
    assert about["archive_sha256"] == hashlib.sha256(raw).hexdigest()
    assert (about["archive_bytes"], about["people"]) == (len(raw), 120)
    assert about["rows"] == len(in_task(people("WY")))
    table = (folder / "WY.parquet").read_bytes()
    assert about["table_sha256"] == hashlib.sha256(table).hexdigest()
    assert "SERIALNO" not in pd.read_parquet(folder / "WY.parquet")


def test_states_are_a_set_in_any_spelling(bureau, tmp_path):
    one = load(tmp_path, states=["WY"])
    assert set(one.clients) == {"WY"}
    assert load(tmp_path, states="wy").sha256 == one.sha256
    both = load(tmp_path, states="WY, VT")
    assert both.sha256 == load(tmp_path, states=("VT", "WY")).sha256 != one.sha256
    assert bureau.asked == [f"/2018/1-Year/csv_p{s}.zip" for s in ("wy", "vt")]


def test_from_2019_on_the_relationship_has_another_name(bureau, tmp_path):
    bureau.put("WY", archive_of("WY", year=2019), year=2019)
    table = load(tmp_path, year=2019, states=["WY"])
    assert "RELSHIPP" in table.task.categorical
    assert "RELP" not in table.X
    assert set(table.X["RELSHIPP"].astype(int)) <= set(range(20, 39))
    assert table.sha256 != load(tmp_path, states=["WY"]).sha256


def test_older_and_newer_names_are_understood(bureau, tmp_path):
    records = people("WY")
    bureau.put("WY", zip_bytes({"ss16pwy.csv": csv_bytes(records)}), year=2016)
    old = load(tmp_path, year=2016, states=["WY"])
    renamed = [{("STATE" if k == "ST" else k): v for k, v in one.items()} for one in records]
    bureau.put("WY", zip_bytes({"psam_p56.csv": csv_bytes(renamed)}), year=2023)
    new = load(tmp_path, year=2023, states=["WY"])
    assert old.X.equals(new.X)
    assert set(new.clients) == {"WY"}


def test_groups_that_nobody_is_in_are_left_out(bureau, tmp_path):
    records = [one | {"RAC1P": 6 if one["RAC1P"] == 4 else one["RAC1P"]} for one in people("WY")]
    bureau.put("WY", zip_bytes({"psam_p56.csv": csv_bytes(records)}))
    table = load(tmp_path, states=["WY"], sensitive=["race"])
    assert "Alaska Native" not in table.attributes[0].groups
    assert table.attributes[0].size == 8
    assert min(n for n, _ in by_group(table).values()) > 0


def test_another_number_of_rows_than_published_is_noted(bureau, tmp_path, monkeypatch):
    assert not any("published" in note for note in load(tmp_path).notes)
    entry = catalog.DATASETS.get("acs-income")
    use(monkeypatch, address=entry.address, options=entry.options, rows=7)
    rows = sum(len(in_task(people(state))) for state in ("VT", "WY"))
    assert f"{rows} rows, where 7 were published" in load(tmp_path).notes
    assert not any("published" in note for note in load(tmp_path, states=["WY"]).notes)


def test_two_loaders_at_once_fetch_once(bureau, tmp_path):
    with ThreadPoolExecutor(2) as pool:
        tables = list(pool.map(lambda _: load(tmp_path, states=["WY"]), range(2)))
    assert len(bureau.asked) == 1
    assert tables[0].X.equals(tables[1].X)


def refused(tmp_path, **options):
    """Return the error of a load, which must be one line and leave no table behind."""
    with pytest.raises(DataError) as caught:
        load(tmp_path, **options)
    assert not list(tmp_path.rglob("WY.*"))
    return one_line(caught)


def test_no_such_file_names_year_and_states(bureau, tmp_path):
    message = refused(tmp_path, year=2021, states=["WY"])
    assert f"{bureau.root}/2021/1-Year/csv_pwy.zip" in message
    assert "404" in message
    assert "check year and states" in message
    assert "check year and states" in refused(tmp_path, states=["WY", "DC"], year=2022)


def test_states_and_years_are_checked_before_anything_is_fetched(bureau, tmp_path):
    assert "unknown state 'WX': did you mean 'WY'" in refused(tmp_path, states=["WX"])
    assert "give a year from 2014" in refused(tmp_path, year=2013)
    assert "give a whole number, such as 2018" in refused(tmp_path, year="2018")
    assert "give names, such as VT, WY" in refused(tmp_path, states=[])
    assert "give names, such as VT, WY" in refused(tmp_path, states=56)
    assert bureau.asked == []


def test_a_server_that_hangs_up_is_said_with_the_remedy(bureau, tmp_path):
    bureau.promise_more = True
    message = refused(tmp_path, states=["WY"])
    size = len(archive_of("WY"))
    assert f"{size} bytes read, 1000 more expected" in message
    assert "give their folder as path=" in message


def without(column):
    records = [{k: v for k, v in one.items() if k != column} for one in people("WY")]
    return zip_bytes({"psam_p56.csv": csv_bytes(records)})


def with_value(column, value):
    records = people("WY")
    last = next(one for one in reversed(records) if one in in_task(records))
    last[column] = value
    return zip_bytes({"psam_p56.csv": csv_bytes(records)})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (archive_of("WY")[:-200], "is not a whole zip archive"),
        (b"<html>please come back later</html>", "is not a whole zip archive"),
        (zip_bytes({"psam_h56.csv": b"RT,ST\nH,56\n"}), "holds psam_h56.csv: expected person"),
        (zip_bytes({"psam_p56.csv": b""}), "is not readable as a table"),
        (without("OCCP"), "unknown column 'OCCP'"),
        (without("PWGTP"), "unknown column 'PWGTP'"),
        (without("RELP"), "unknown column 'RELP'"),
        (without("ST"), "unknown column 'STATE'"),
        (archive_of("VT"), "holds records of VT: expected WY"),
        (archive_of("WY", count=9), "holds 9 records: expected 10 to 1,000"),
        (archive_of("WY", count=1_001), "holds 1,001 records: expected 10 to 1,000"),
        (with_value("SEX", 3), "column SEX holds 3 in 1 rows: expected codes from 1 to 2"),
        (with_value("RAC1P", 0), "column RAC1P holds 0 in 1 rows"),
        (with_value("MAR", 1.5), "column MAR holds 1.5 in 1 rows"),
        (with_value("OCCP", "none"), "column OCCP holds 'none': expected whole numbers"),
        (with_value("ST", 99), "unknown state '99'"),
        (with_value("PINCP", "a lot"), "PINCP holds"),
    ],
)
def test_another_content_is_refused_in_one_line(bureau, tmp_path, content, words):
    bureau.put("WY", content)
    message = refused(tmp_path, states=["WY"])
    assert words in message
    assert "csv_pwy.zip" in message


def test_a_damaged_member_is_refused(bureau, tmp_path):
    content = bytearray(archive_of("WY"))
    content[200] ^= 0xFF  # within the compressed records
    bureau.put("WY", bytes(content))
    assert "is not a whole zip archive" in refused(tmp_path, states=["WY"])


def test_more_bytes_than_an_archive_can_have_are_refused(bureau, tmp_path, monkeypatch):
    entry = catalog.DATASETS.get("acs-income")
    use(monkeypatch, address=entry.address, options=entry.options, largest=1_000)
    assert "is larger than 1,000 bytes" in refused(tmp_path, states=["WY"])


def test_offline_takes_what_is_kept_and_opens_no_connection(bureau, tmp_path, monkeypatch):
    load(tmp_path, states=["WY"])

    def refuse(*args, **kwargs):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    assert len(load(tmp_path, states=["WY"], offline=True)) == len(in_task(people("WY")))
    with pytest.raises(DataError, match=r"VT 2018 was never fetched.*give path=") as caught:
        load(tmp_path, offline=True)
    one_line(caught)


def test_verify_finds_a_kept_table_that_changed(bureau, tmp_path):
    assert [check.found for check in verify("acs-income", data_home=tmp_path)] == [None]
    load(tmp_path)
    assert [check.ok for check in verify("acs-income", data_home=tmp_path)] == [True, True]
    assert sum("acs-income" in check.file for check in verify(data_home=tmp_path)) == 2
    path = tmp_path / "acs-income" / "2018" / "WY.parquet"
    other = pd.read_parquet(path).assign(SEX=np.int16(1))
    other.to_parquet(path, index=False)
    assert [check.ok for check in verify("acs-income", data_home=tmp_path)] == [True, False]
    with pytest.raises(DataError, match=r"has sha256 .*: delete .*WY\.json") as caught:
        load(tmp_path)
    assert str(path) in one_line(caught)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("WY.json", lambda path: path.write_text("{"), "is damaged"),
        ("WY.json", lambda path: path.write_text("[1]"), "is damaged"),
        ("WY.json", lambda path: path.write_text('{"reduction": 1}'), "is damaged"),
        ("WY.parquet", lambda path: path.unlink(), "is missing beside WY.json"),
    ],
)
def test_a_damaged_cache_is_named_with_the_remedy(bureau, tmp_path, name, change, words):
    load(tmp_path, states=["WY"])
    change(tmp_path / "acs-income" / "2018" / name)
    with pytest.raises(DataError, match=words) as caught:
        load(tmp_path, states=["WY"])
    assert "load the data set again" in one_line(caught)


def test_a_table_of_another_reduction_is_fetched_again(bureau, tmp_path):
    load(tmp_path, states=["WY"])
    path = tmp_path / "acs-income" / "2018" / "WY.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"reduction": 0}))
    load(tmp_path, states=["WY"])
    assert len(bureau.asked) == 2


def test_describe_counts_the_rows(bureau, tmp_path):
    facts = describe("acs-income", data_home=tmp_path)
    records = in_task(people("VT")) + in_task(people("WY"))
    assert facts["rows"] == len(records)
    assert facts["favourable"]["rows"] == sum(one["PINCP"] > 50_000 for one in records)
    assert facts["attributes"]["sex"]["Male"]["rows"] == sum(one["SEX"] == 1 for one in records)
    assert "public domain" in facts["licence"]
    json.dumps(facts)
    one = describe("acs-income", data_home=tmp_path, states=["WY"])
    assert one["rows"] == len(in_task(people("WY")))


def test_a_folder_of_archives_is_the_fetched_table(bureau, tmp_path):
    fetched = load(tmp_path / "home")
    folder = tmp_path / "mine"
    folder.mkdir()
    for state in ("WY", "VT"):
        (folder / f"csv_p{state.lower()}.zip").write_bytes(archive_of(state))
    local = load_dataset("acs-income", folder)
    assert local.X.equals(fetched.X)
    assert (local.clients == fetched.clients).all()
    assert (local.sha256, local.task) == (fetched.sha256, fetched.task)
    assert len(bureau.asked) == 2
    assert local.notes[0].startswith("read from mine, a folder of 2 files, sha256 ")
    assert "not checked against the Census Bureau's files" in local.notes[0]
    chosen = load_dataset("acs-income", folder, states=["WY"])
    assert set(chosen.clients) == {"WY"}
    with pytest.raises(DataError, match=r"holds none of csv_pdc\.zip, psam_p11\.csv") as caught:
        load_dataset("acs-income", folder, states=["WY", "DC"])
    one_line(caught)


def test_a_folder_of_unpacked_files_and_of_kept_tables(bureau, tmp_path):
    fetched = load(tmp_path / "home")
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "psam_p56.csv").write_bytes(csv_bytes(people("WY")))
    (folder / "ss18pvt.csv").write_bytes(csv_bytes(people("VT")))
    assert load_dataset("acs-income", folder).X.equals(fetched.X)
    kept = load_dataset("acs-income", tmp_path / "home" / "acs-income" / "2018")
    assert kept.X.equals(fetched.X)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="holds none of csv_pal"):
        load_dataset("acs-income", empty)
    with pytest.raises(DataError, match="no such file"):
        load_dataset("acs-income", tmp_path / "nowhere")


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet", ".zip"])
def test_a_file_of_raw_records(tmp_path, suffix, monkeypatch):
    use(monkeypatch)
    records = people("WY") + people("VT")
    path = tmp_path / f"psam_pus{suffix}"
    if suffix == ".zip":
        path.write_bytes(zip_bytes({"psam_pusa.csv": csv_bytes(records)}))
    elif suffix == ".parquet":
        numbers = {"WKHP": float, "PINCP": float}
        pd.DataFrame(records).replace("", None).astype(numbers).to_parquet(path)
    else:
        pd.DataFrame(records).to_csv(path, index=False)
    table = load_dataset("acs-income", path)
    kept = in_task(records)
    assert table.y.tolist() == [int(one["PINCP"] > 50_000) for one in kept]
    assert table.X["OCCP"].tolist() == [str(one["OCCP"]) for one in kept]
    assert table.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert f"{len(kept)} of 240 people are in the task" in table.notes
    assert f"{len(kept)} rows of 2 states" in table.notes


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_reduced_table_keeps_its_own_codes(tmp_path, suffix):
    frame = edition()
    path = tmp_path / f"edition{suffix}"
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
    table = load_dataset("acs-income", path, sensitive=("sex", "race", "race2"))
    assert table.y.tolist() == (frame["PINCP"] == ">50K").astype(int).tolist()
    assert table.clients.tolist() == frame["STATE"].tolist()
    # What the file's race codes mean is not known: the Bureau's names would be wrong.
    assert [a.groups for a in table.attributes] == [
        ("Female", "Male"),
        ("1", "2", "3", "4", "5"),
        ("other", "1"),
    ]
    sum_ = hashlib.sha256(path.read_bytes()).hexdigest()
    assert table.sha256 == sum_
    assert table.notes[0] == (
        f"read from {path.name}, a local file, sha256 {sum_}; not checked against the Census "
        "Bureau's files; a modified edition, not in the Bureau's coding: MAR holds 1, 2; RAC1P "
        "holds 1, 2, 3, 4, 5"
    )
    assert not any(str(tmp_path) in note for note in table.notes)


def test_a_reduced_table_in_the_bureaus_coding_has_its_names(tmp_path):
    frame = edition().assign(
        RAC1P=[one["RAC1P"] for one in in_task(people("WY") + people("VT"))],
        PINCP=lambda rows: rows["PINCP"] == ">50K",  # a truth value, as folktables gives it
        STATE=lambda rows: rows["STATE"].map({"WY": "56", "VT": "50"}),
    )
    path = tmp_path / "folktables.parquet"
    frame.to_parquet(path)
    table = load_dataset("acs-income", path, sensitive=["race"])
    assert "White" in table.attributes[0].groups
    assert set(table.clients) == {"WY", "VT"}
    assert table.y.tolist() == frame["PINCP"].astype(int).tolist()
    assert table.notes[0].endswith(
        "a modified edition, not in the Bureau's coding: MAR holds 1, 2"
    )


def test_states_choose_among_the_rows_of_a_file(tmp_path):
    path = tmp_path / "edition.parquet"
    edition().to_parquet(path)
    table = load_dataset("acs-income", path, states=["VT"])
    assert set(table.clients) == {"VT"}
    assert len(table) == len(in_task(people("VT")))
    with pytest.raises(DataError, match=r"edition\.parquet: unknown state 'UT'") as caught:
        load_dataset("acs-income", path, states=["UT"])
    one_line(caught)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda frame: frame.drop(columns="RELP"), "unknown column 'RELP'"),
        (lambda frame: frame.assign(PINCP="rich"), "PINCP holds 'rich': expected incomes"),
        (lambda frame: frame.assign(STATE="XX"), "column STATE: unknown state 'XX'"),
        (lambda frame: frame.assign(AGEP=16), "column AGEP holds 16"),
        (lambda frame: frame.assign(RELP=30), "column RELP holds 30"),
    ],
)
def test_a_strange_table_is_refused(tmp_path, change, words):
    path = tmp_path / "strange.parquet"
    change(edition()).to_parquet(path)
    with pytest.raises(DataError, match=r"strange\.parquet") as caught:
        load_dataset("acs-income", path)
    assert words in one_line(caught)


def test_a_file_that_is_no_table_is_refused(tmp_path):
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"not a table")
    with pytest.raises(DataError, match=r"rows\.parquet is not a readable Parquet") as caught:
        load_dataset("acs-income", path)
    one_line(caught)


def test_clients_are_the_states(tmp_path):
    path = tmp_path / "edition.parquet"
    edition().to_parquet(path)
    federation = partition(load_dataset("acs-income", path))
    assert [client.name for client in federation.clients] == ["VT", "WY"]
    assert federation.scheme == "column"
    counts = Counter(edition()["STATE"])
    assert {client.name: len(client) for client in federation.clients} == counts


@pytest.mark.network
def test_the_real_archive_of_a_small_state(tmp_path):
    table = load_dataset("acs-income", data_home=tmp_path, states=["WY"], sensitive=["race"])
    assert len(table) == 3_064  # as folktables counts it
    assert set(table.clients) == {"WY"}
    assert "White" in table.attributes[0].groups
