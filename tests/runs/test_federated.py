"""A run over silos ends in the run directory that the embedded engine would have made."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

import federations as fed
import mfairfl
from mfairfl.data import table_from_frame
from mfairfl.engine.state import Refusal
from mfairfl.errors import ConfigError, FederationError, MfairflError, RunDirectoryError
from mfairfl.runs.config import make_config
from mfairfl.runs.silo_runs import FederatedRequest, run_federated, run_name
from mfairfl.silo.responder import Responder
from mfairfl.silo.silo_file import SiloSettings

TASK = {"label": "hired", "favourable": "yes", "sensitive": ["sex"]}
FILES = ("encoder.json", "rounds.csv", "clients.csv", "model.safetensors", "scores.safetensors")
SETTINGS = {
    "seed": 2,
    "model": {"hidden": [4]},
    "training": {"rounds": 4, "local_epochs": 2, "batch_size": 16, "lr": 0.02},
    "fairness": {"notion": "dp"},
}


class Office:
    """New processes for every message; `closes` ends the world before an exchange."""

    def __init__(self, silos, run, closes=None):
        self.silos, self.run, self.left = silos, run, closes

    def exchange(self, asks):
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                return {}
        found = {}
        for name, packet in asks.items():
            try:
                found[name] = Responder(self.silos[name], fed.policy()).handle(self.run, packet)
            except MfairflError as error:
                found[name] = Refusal(str(error))
        return found


def silos_in(folder):
    frame, found = fed.people(), {}
    for site in fed.SITES:
        path = folder / f"{site}.csv"
        frame[frame["site"] == site].drop(columns="site").to_csv(path, index=False)
        state = folder / "state" / site
        found[site] = SiloSettings(name=site, csv=path, state=state)
    return found


@pytest.fixture
def silos(tmp_path):
    return silos_in(tmp_path)


def config(strategy):
    return make_config(SETTINGS | {"task": TASK, "strategy": {"name": strategy}})


def wanted(strategy, out):
    return FederatedRequest(config=config(strategy), clients=tuple(fed.SITES), minimum=2, out=out)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["mfairfl", "fedavg-threshold", "ditto"])
def test_numbers_and_weights_are_those_of_the_embedded_engine(strategy, silos, tmp_path):
    asked = wanted(strategy, tmp_path / "silos")
    record = run_federated(asked, Office(silos, run_name(asked.config)))
    task = mfairfl.data.Task.model_validate(TASK | {"client": "site"})
    table = table_from_frame(fed.people(), task, name="people")
    here = mfairfl.train(
        table, config=SETTINGS | {"strategy": {"name": strategy}}, out=tmp_path / "here"
    )
    assert record.metrics == here.record.metrics
    assert (tmp_path / "silos" / "encoder.json").read_bytes() == (
        tmp_path / "here" / "encoder.json"
    ).read_bytes()
    scores = [(tmp_path / one / "scores.safetensors").read_bytes() for one in ("silos", "here")]
    assert scores[0] == scores[1]
    if strategy == "ditto":
        assert "own disk" in record.served.note
        return
    ours, theirs = (load_file(tmp_path / one / "model.safetensors") for one in ("silos", "here"))
    assert np.array_equal(ours["members"], theirs["members"])
    assert mfairfl.load(tmp_path / "silos").predict(fed.people()).tolist() == (
        mfairfl.load(tmp_path / "here").predict(fed.people()).tolist()
    )
    for name in ("rounds.csv", "clients.csv"):
        ours, theirs = ((tmp_path / one / name).read_bytes() for one in ("silos", "here"))
        assert ours == theirs


BOTH = TASK | {"sensitive": ["sex", "age"]}
LACKING = {"east": ["age"], "south": ["sex", "age"], "west": ["sex"]}


def lacking(silos):
    """Take columns out of the silos' files; return the files' rows one after the other."""
    found = []
    for site, silo in silos.items():
        own = pd.read_csv(silo.csv).drop(columns=LACKING.get(site, []))
        own.to_csv(silo.csv, index=False)
        found.append(own.assign(site=site))
    return pd.concat(found, ignore_index=True)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["mfairfl", "fedfb", "fairfed", "fedavg-threshold"])
def test_silos_that_lack_an_attribute_train_as_the_rows_together_would(strategy, silos, tmp_path):
    rows, named = lacking(silos), {"strategy": {"name": strategy}}
    settings = make_config(SETTINGS | {"task": BOTH} | named)
    asked = FederatedRequest(
        config=settings, clients=tuple(fed.SITES), minimum=4, out=tmp_path / "silos"
    )
    record = run_federated(asked, Office(silos, run_name(settings)))
    groups = {"sex": ["F", "M", "?"], "age": ["old", "young", "?"]}
    sensitive = [{"column": column, "groups": named} for column, named in groups.items()]
    task = mfairfl.data.Task.model_validate(BOTH | {"sensitive": sensitive, "client": "site"})
    table = table_from_frame(rows, task, name="people")
    here = mfairfl.train(table, config=SETTINGS | named, out=tmp_path / "here")
    assert record.metrics == here.record.metrics
    assert record.intervals == here.record.intervals
    for name in FILES:
        ours, theirs = ((tmp_path / one / name).read_bytes() for one in ("silos", "here"))
        assert ours == theirs
    assert list(record.metrics["test"].by_group["sex"]) == ["F", "M"]
    assert record.metrics["test"]["demographic_parity_violation"] is not None
    notes = [note for note in record.federation.notes if "not recorded" in note]
    assert [note.split(":")[0] for note in notes] == [
        "sex is not recorded at south (40 of 40 rows), west (60 of 60 rows)",
        "age is not recorded at east (90 of 90 rows), south (40 of 40 rows)",
    ]
    assert json.loads((tmp_path / "silos" / "enrolment.json").read_text())["notes"] == notes
    # A silo can ask about its own file, which lacks the column still.
    answered = mfairfl.load(tmp_path / "silos").predict(silos["south"].csv)
    expected = here.predictor.predict(rows[rows["site"] == "south"])
    assert answered.tolist() == expected.tolist()


@pytest.mark.parametrize("strategy", ["mfairfl", "fpfl", "fedfb", "fairfed", "fedavg-threshold"])
def test_an_attribute_recorded_of_one_group_constrains_nothing(strategy, tmp_path):
    """Only north records sex, and employs men alone: nobody to compare them with."""
    rows = fed.people()
    rows.loc[rows["site"] != "north", "sex"] = None
    sensitive = [{"column": "sex", "groups": ["M", "?"]}, "age"]
    task = mfairfl.data.Task.model_validate(BOTH | {"sensitive": sensitive, "client": "site"})
    table = table_from_frame(rows, task, name="people")
    fairness = {"both": ["sex", "age"], "age": ["age"]}
    for name, chosen in fairness.items():
        settings = {
            "strategy": {"name": strategy},
            "fairness": {"notion": "dp", "sensitive": chosen},
        }
        mfairfl.train(table, config=SETTINGS | settings, out=tmp_path / name)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in fairness)
    assert np.array_equal(one["members"], other["members"])


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """Return the folder and the record of a run that nothing stops."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    asked = wanted("scaffold", folder / "whole")
    return asked.out, run_federated(asked, Office(silos_in(folder), run_name(asked.config)))


@pytest.mark.slow
@pytest.mark.parametrize("exchanges", [1, 4, 6, 9])
def test_a_server_that_is_started_again_goes_on(exchanges, uninterrupted, silos, tmp_path):
    whole, expected = uninterrupted
    stopped = wanted("scaffold", tmp_path / "stopped")
    run = run_name(stopped.config)
    with pytest.raises(FederationError, match="0 of 4 clients"):
        run_federated(stopped, Office(silos, run, closes=exchanges))
    record = run_federated(stopped, Office(silos, run))
    assert record.metrics == expected.metrics
    for name in FILES:
        assert (stopped.out / name).read_bytes() == (whole / name).read_bytes()


def test_a_finished_run_is_returned_and_nobody_is_asked(silos, tmp_path):
    asked = wanted("fedavg", tmp_path / "run")
    first = run_federated(asked, Office(silos, run_name(asked.config)))
    assert run_federated(asked, Office({}, "x", closes=0)) == first


def test_a_damaged_or_an_old_enrolment_is_refused_in_one_line(silos, tmp_path):
    asked = wanted("fedavg", tmp_path / "run")
    run_federated(asked, Office(silos, run_name(asked.config)))
    path = tmp_path / "run" / "enrolment.json"
    whole = json.loads(path.read_text())
    line = r"enrolment\.json: .*(restore it|not readable)"
    for text in (
        "{",
        "[]",
        "{}",
        json.dumps(whole | {"counts": 3}),
        json.dumps(whole | {"task": 3}),
        json.dumps(whole | {"whole": None}),  # as 0.7 wrote it
    ):
        path.write_text(text)
        with pytest.raises(RunDirectoryError, match=line) as caught:
            run_federated(asked, Office({}, "x", closes=0))
        assert "\n" not in str(caught.value)


def test_who_stays_out_is_in_the_record(silos, tmp_path):
    path = silos["west"].csv
    path.write_text(path.read_text().replace("skill", "skil", 1))
    asked = wanted("fedavg", tmp_path / "run")
    record = run_federated(asked, Office(silos, run_name(asked.config)))
    (warning,) = record.federation.warnings
    assert warning.startswith("west stays out: unknown column 'skill'")
    assert [c.name for c in record.federation.clients] == ["east", "north", "south"]


def test_without_a_task_nothing_can_be_agreed(tmp_path):
    asked = FederatedRequest(
        config=make_config({}), clients=("a",), minimum=1, out=tmp_path / "run"
    )
    with pytest.raises(ConfigError, match=r"\[task\]: clients with files of their own"):
        run_federated(asked, Office({}, "x"))
