"""Files of a federation under masks: who is given which keys, and what is refused beforehand."""

from __future__ import annotations

import consortium
import pytest
import tomli_w

import federations as fed
import mfairfl
from answers import one_line
from mfairfl.checks.deployment import examine_silo
from mfairfl.data import Task, table_from_frame
from mfairfl.deployment.local import write_deployment
from mfairfl.deployment.settings import load_federation
from mfairfl.errors import ConfigError
from mfairfl.remote.masking import load_members, load_signer
from mfairfl.remote.silo_file import load_silo
from mfairfl.runs.config import make_config
from mfairfl.runs.record import RunRecord

TASK = {"label": "hired", "favourable": "yes", "sensitive": ["sex"]}


def written(folder, sites=tuple(fed.SITES), **more):
    """Write a masked federation over one file for each site; return its federation.toml."""
    frame, files = fed.people(), {}
    for site in sites:
        files[site] = folder / f"{site}.csv"
        frame[frame["site"] == site].drop(columns="site").to_csv(files[site], index=False)
    config = make_config({"masked": True, "task": TASK} | more)
    return write_deployment(config, folder / "out", silos=files, deadline=60)


def test_every_silo_is_given_all_members_public_keys(tmp_path):
    file = written(tmp_path)
    for site in fed.SITES:
        silo = load_silo(file.parent / "silos" / site / "silo.toml")
        members = load_members(silo.members)
        assert sorted(members) == sorted(fed.SITES)
        own = load_signer(silo.key).public_key().public_numbers()
        assert members[site].public_numbers() == own
    config = load_federation(file).config()
    assert (config.masked, config.robust) == (True, "none")  # no rule works under masks


def test_plain_silos_are_given_none(tmp_path):
    file = written(tmp_path, masked=False)
    assert load_silo(file.parent / "silos" / "east" / "silo.toml").members is None
    assert not (file.parent / "members").exists()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"sites": ("east", "west")}, "masked = true: 2 clients; sums are over at least 3"),
        ({"robust": "auto"}, "masked = true: robust = 'auto' compares"),
        ({"strategy": {"name": "fedfb"}}, "reads single clients' rates by group"),
    ],
)
def test_what_masks_exclude_is_refused_before_anything_starts(given, reason, tmp_path):
    file = written(tmp_path, **given)
    with pytest.raises(ConfigError) as caught:
        load_federation(file).config()
    assert one_line(caught).startswith(f"{file.parent / 'run.toml'}: masked = true: ")
    assert reason in one_line(caught)


def test_the_doctor_says_over_whom_sums_are_told(tmp_path):
    file = written(tmp_path).parent / "silos" / "east" / "silo.toml"
    lines = (str(one) for one in examine_silo(file))
    assert (
        "ok    members: sums are told under masks only, over at least 3 of east, north, "
        in next(line for line in lines if "members" in line)
    )
    (file.parents[2] / "members" / "east.pub").unlink()
    with pytest.raises(ConfigError) as caught:
        list(examine_silo(file))
    assert one_line(caught).endswith("no east.pub; put this silo's own key there too")


def test_a_real_deployment_under_masks_ends_in_the_embedded_engine_s_model(tmp_path):
    plain = consortium.settings() | {"robust": "none"}
    files = consortium.write_files(tmp_path)
    run = tmp_path / "run.toml"
    run.write_text(tomli_w.dumps(plain | {"task": consortium.TASK, "masked": True}))
    silos = [word for site, file in files.items() for word in ("--silo", f"{site}={file}")]
    words = ["deploy", "local", str(run), *silos, "--out", str(tmp_path / "silos")]
    done = consortium.mfairfl_cli(*words)
    assert done.returncode == 0, done.stderr
    assert "round 3/3" in done.stderr
    task = Task.model_validate(consortium.TASK | {"client": "site"})
    table = table_from_frame(consortium.rows(), task, name="people")
    mfairfl.train(table, config=plain, out=tmp_path / "here")
    names = ("model.safetensors", "encoder.json")
    ours, theirs = (consortium.digests(tmp_path / one, names) for one in ("silos", "here"))
    assert ours == theirs
    assert consortium.mine(tmp_path) == []
    record = RunRecord.read(tmp_path / "silos")
    assert record.tallies["test"].clients == ("all silos",)
    assert record.client_tallies["test"].clients == consortium.SITES
