"""What is laid out for a federation on this machine, and what is refused."""

from __future__ import annotations

import pandas as pd
import pytest
from consortium import config, write_files

from mfairfl.data import FileFormat, load_dataset
from mfairfl.deployment.local import run_local, write_audit_deployment, write_deployment
from mfairfl.deployment.settings import AuditRequest, load_federation
from mfairfl.errors import ConfigError
from mfairfl.files import load_toml
from mfairfl.runs.config import make_config
from mfairfl.silo.policy import OPEN, Policy, load_policy
from mfairfl.silo.refusals import require_columns_agreed
from mfairfl.silo.silo_file import load_silo
from records import make_record

ADULT = {"data": {"name": "adult"}, "clients": {"count": 2, "scheme": "iid"}, "seed": 3}


def test_split_files_hold_every_row_once_with_its_values(tmp_path):
    file = write_deployment(make_config(ADULT), tmp_path / "run", silos=None, deadline=9)
    settings = load_federation(file)
    silos = [load_silo(file.parent / "silos" / name / "silo.toml") for name in settings.silos]
    frames = [pd.read_csv(silo.csv, keep_default_na=False, dtype=str) for silo in silos]
    table = load_dataset("adult")
    assert sum(map(len, frames)) == len(table)
    joined = pd.concat(frames)
    assert sorted(joined["occupation"]) == sorted(table.X["occupation"])
    assert sorted(joined["age"].astype(float)) == sorted(table.X["age"])
    assert (joined[table.task.label] == table.task.favourable).sum() == table.y.sum()
    assert len({silo.port for silo in silos} | {settings.server.port}) == 3


def test_local_silos_release_all_categories_and_keep_their_policy(tmp_path):
    files, out = write_files(tmp_path), tmp_path / "run"
    file = write_deployment(config(), out, silos=files, deadline=9)
    north = file.parent / "silos" / "north" / "silo.toml"
    assert load_policy(north) == OPEN
    north.with_name("policy.toml").write_text("[limits]\nepochs = 7\n")
    write_deployment(config(), out, silos=files, deadline=9)
    assert load_policy(north).limits.epochs == 7


def test_a_folder_in_use_is_refused_before_anything_is_written(tmp_path):
    out = tmp_path / "run"
    files = write_files(tmp_path)
    write_deployment(config(), out, silos=files, deadline=9)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match="holds another federation"):
        write_deployment(config(seed=1), out, silos=files, deadline=9)
    with pytest.raises(ConfigError, match="holds another federation"):
        write_deployment(make_config(ADULT), out, silos=None, deadline=9)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    other = tmp_path / "other"
    other.mkdir()
    (other / "run.json").write_text("{}")
    with pytest.raises(ConfigError, match="is not empty and holds no federation"):
        run_local(config(), other, follower=None, say=None, silos=files)
    assert [path.name for path in other.iterdir()] == ["run.json"]


@pytest.mark.parametrize(
    ("stated", "steps"), [({}, 200), ({"rounds": 40}, 80), ({"rounds": 9}, 18)]
)
def test_silos_agree_to_as_many_steps_of_a_literal_preset(tmp_path, stated, steps):
    preset = {"strategy": {"name": "mfairfl-paper"}, "training": stated}
    made = make_config(ADULT | preset)
    file = write_deployment(made, tmp_path / "run", silos=None, deadline=9)
    agreed = load_toml(file.parent / "run.toml")
    assert make_config(agreed).server_rounds() == made.server_rounds() == steps


def test_file_format_reaches_the_silos(tmp_path):
    told = {"delimiter": ";", "header": False}
    plain = config().model_dump(exclude={"data"})
    made = make_config({**plain, "data": told})
    file = write_deployment(made, tmp_path / "run", silos=write_files(tmp_path), deadline=9)
    for name in load_federation(file).silos:
        silo = load_silo(file.parent / "silos" / name / "silo.toml")
        assert silo.format == FileFormat(delimiter=";", header=False)
    own = write_deployment(
        make_config({**ADULT, "data": {**ADULT["data"], **told}}),
        tmp_path / "dealt",
        silos=None,
        deadline=9,
    )
    for name in load_federation(own).silos:  # written here, as usual
        silo = load_silo(own.parent / "silos" / name / "silo.toml")
        assert silo.format == FileFormat()


def test_files_without_a_task_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"--silo needs a \[task\]"):
        write_deployment(
            make_config({}), tmp_path / "run", silos=write_files(tmp_path), deadline=9
        )


def test_a_finished_federation_answers_without_a_process(tmp_path, monkeypatch):
    files, out = write_files(tmp_path), tmp_path / "run"
    write_deployment(config(), out, silos=files, deadline=9)
    make_record().write(out)
    monkeypatch.setattr("mfairfl.deployment.local.watched_group", None)
    said = []
    record = run_local(config(), out, follower=None, say=said.append, silos=files)
    assert record == make_record()
    assert "already complete" in said[0]


def test_a_silo_here_agrees_to_the_audit_that_is_asked_for(tmp_path):
    files, out = write_files(tmp_path), tmp_path / "audit"
    request = AuditRequest(sensitive=("sex",), prediction="hired", selected="yes")
    columns = request.columns()
    file = write_audit_deployment(request, files, out, min_rows=3)
    settings = load_federation(file)
    assert (settings.run, settings.minimum) == (None, 3)
    silo = file.parent / "silos" / "north" / "silo.toml"
    own = load_silo(silo)
    assert (own.csv, own.task) == (files["north"], None)
    assert require_columns_agreed(own.audit, columns) == columns
    assert not own.audit.models
    assert load_policy(silo).disclosure.min_rows == 3
    write_audit_deployment(request, files, out)  # another floor, the same keys
    assert load_policy(silo).disclosure.min_rows == Policy().disclosure.min_rows
    assert load_policy(silo).disclosure.versions > 1000  # one owner, who may change a file


def test_a_run_over_silos_is_not_taken_for_an_audit(tmp_path):
    files, out = write_files(tmp_path), tmp_path / "run"
    write_deployment(config(), out, silos=files, deadline=9)
    request = AuditRequest(sensitive=("sex",), prediction="hired", selected="yes")
    with pytest.raises(ConfigError, match="holds a run over silos; choose another --out"):
        write_audit_deployment(request, files, out)
