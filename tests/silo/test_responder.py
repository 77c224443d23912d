"""What a silo answers, and what it refuses."""

from __future__ import annotations

import itertools
import json
import re
import sys
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest

import federations as fed
from answers import one_line
from mfairfl.coordinator.enrolment import EnrolmentTerms, enrol
from mfairfl.data import Task
from mfairfl.engine.checkpoint import read_sealed, write_sealed
from mfairfl.errors import CheckpointError, ConfigError, MessageError, MfairflError
from mfairfl.silo.policy import Limits, Usage
from mfairfl.silo.responder import Responder
from mfairfl.silo.silo_file import load_silo
from mfairfl.wire.enrolment_messages import ModelTerms
from mfairfl.wire.packing import make_packet

TASK = Task(label="hired", favourable="yes", sensitive=("sex",))
SPLIT = {"seed": 3, "test": 0.2, "validation": 0.0}


def test_a_client_that_was_not_enrolled_says_so(settings):
    responder = Responder(settings["east"])
    with pytest.raises(MessageError, match="'east' knows no run 'run-1'; it must be enrolled"):
        responder.handle("run-1", make_packet("score", {"splits": ["train"]}))


@pytest.mark.parametrize("run", ["../up", "", "a/b", ".hidden", "x" * 200])
def test_the_name_of_a_run_is_not_a_path(settings, run):
    with pytest.raises(MessageError, match="is not a valid name of a run"):
        Responder(settings["east"]).handle(run, make_packet("profile", {}))


@pytest.mark.parametrize(
    ("packet", "message"),
    [
        (make_packet("profile", {}), "a 'profile' message: task: Field required"),
        (make_packet("profile", {"task": {"label": 1}}), "a 'profile' message"),
        (make_packet("sums", {"task": TASK.model_dump(mode="json"), **SPLIT}), "does not fit"),
    ],
)
def test_an_incomplete_message_is_refused(settings, packet, message):
    with pytest.raises(MfairflError, match=message):
        Responder(settings["east"]).handle("run-1", packet)


def test_a_run_enrolled_with_another_version_is_refused_in_one_line(settings):
    responder, _ = enrolled(settings["east"])
    path = settings["east"].state / "run-1" / "rows.safetensors"
    arrays, header = read_sealed(path, remedy="")
    # Version 0.5 kept dense rows, and the number of features instead of a layout.
    dense = {key: value for key, value in header.items() if key != "layout"}
    earlier = dense | {"features": header["layout"][2]}
    for other in (earlier, header | {"hidden": header.pop("model")}):
        write_sealed(path, arrays, other)
        with pytest.raises(MessageError, match="run 'run-1' with another version"):
            Responder(settings["east"]).handle(
                "run-1", make_packet("score", {"splits": ["train"]})
            )
    assert responder.handle("run-2", make_packet("profile", {"task": TASK.model_dump()}))


@pytest.mark.slow
def test_no_single_byte_of_the_stored_rows_can_change_unnoticed(settings):
    enrolled(settings["east"])
    folder = settings["east"].state / "run-1"
    path = folder / "rows.safetensors"
    whole, score = path.read_bytes(), make_packet("score", {"splits": ["train"]})
    assert [p.stat().st_mode & 0o777 for p in (folder.parent, folder, path)] == [
        0o700,
        0o700,
        0o600,
    ]
    rng = np.random.default_rng(0)
    places = [*range(64), *range(len(whole) - 64, len(whole)), *rng.integers(len(whole), size=200)]
    damaged = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in places]
    for data in [*damaged, *(whole[:at] for at in places), b""]:
        path.write_bytes(data)
        with pytest.raises(CheckpointError) as caught:
            Responder(settings["east"]).handle("run-1", score)
        assert one_line(caught) == (
            f"{path}: its SHA-256 does not match: the file is damaged; delete {folder}, and start "
            "a new run to enrol again"
        )


def test_a_silos_file_may_be_of_any_format(settings, tmp_path):
    task = Task(label="column-6", favourable="yes", sensitive=("column-5",))
    rows = pd.read_csv(settings["east"].csv)
    assert list(rows.columns)[4:6] == ["age", "hired"]
    answers = []
    rows.to_excel(tmp_path / "east.xlsx", header=False, index=False, sheet_name="people")
    rows.to_csv(tmp_path / "east.txt", header=False, index=False, sep="~")
    for lines in ('csv = "east.xlsx"\nsheet = "people"', 'csv = "east.txt"\ndelimiter = "~"'):
        file = tmp_path / "silo.toml"
        file.write_text(f'name = "east"\nstate = "state"\nheader = false\n{lines}\n')
        packet = make_packet("profile", {"task": task.model_dump(mode="json")})
        answers.append(Responder(load_silo(file), fed.policy()).handle("run-1", packet))
    assert answers[0] == answers[1]
    _, header = answers[0].request
    assert [c["name"] for c in header["profile"]["columns"]] == [
        f"column-{i}" for i in range(1, 7)
    ]


# ------------------------------------------------------------------ extensions


@pytest.fixture
def outside(write_module):
    """A module that nobody has imported."""
    name = write_module("raise RuntimeError('imported')\n")
    yield f"{name}:Thing"
    assert name not in sys.modules


def enrolled(settings, model=None, **limits):
    """Enrol one silo; return its responder, and what was agreed."""
    responder = Responder(settings, fed.policy(**limits))

    class Only:
        def exchange(self, asks):
            return {name: responder.handle("run-1", ask) for name, ask in asks.items()}

    terms = EnrolmentTerms(task=TASK, seed=3, model=model or ModelTerms())
    return responder, enrol(Only(), [settings.name], terms)


def train_message(client, notions, size):
    goal = {"notions": notions, "attributes": ["sex"]}
    controller = {"goal": goal, "multipliers": [0.0, 0.0], "step": [0.1, 0.1]}
    plan = {"epochs": 1, "batch_size": 16, "controller": controller}
    jobs = [{"client": client, "plan": plan}]
    arrays = {"server": np.zeros(size, np.float32)}
    return make_packet("train", {"round": 0, "jobs": jobs}, arrays)


def test_a_notion_that_is_neither_built_in_nor_listed_is_refused(settings, outside):
    responder, found = enrolled(settings["east"])
    size = len(found.encoder.feature_names) + 1
    for good in ("dp", "demographic_parity"):
        answer = responder.handle("run-1", train_message("east", [good], size))
        assert json.loads(answer.text)["kind"] == "reports"
    for name in (outside, "parity_of_a_plugin"):
        with pytest.raises(MessageError) as caught:
            responder.handle("run-1", train_message("east", ["dp", name], size))
        assert str(caught.value) == (
            f"the coordinator asks for notion '{name}', which is not built in and not listed in "
            "extensions of silo.toml"
        )


def test_a_model_that_is_neither_built_in_nor_listed_is_refused(settings, outside):
    with pytest.raises(MessageError) as caught:
        enrolled(settings["east"], ModelTerms(kind=outside))
    assert str(caught.value) == (
        f"the coordinator asks for model '{outside}', which is not built in and not listed in "
        "extensions of silo.toml"
    )


def test_a_model_with_unknown_settings_is_refused(settings):
    responder, found = enrolled(settings["east"])
    header = {
        "task": found.task.model_dump(mode="json"),
        "seed": 3,
        "test": 0.2,
        "validation": 0.0,
        "encoder": found.encoder.model_dump(),
        "model": {"kind": "mlp", "hidden": [4], "factory": "x:y"},
    }
    with pytest.raises(MessageError, match=r"an? 'encode' message: model\.factory"):
        responder.handle("run-1", make_packet("encode", header))


@pytest.mark.parametrize("listed", ["x:", ":y", "x y:z", "x;y:z", "../x:y"])
def test_extensions_are_names_or_import_strings(tmp_path, listed):
    path = tmp_path / "silo.toml"
    path.write_text(f'name = "a"\ncsv = "a.csv"\nstate = "s"\nextensions = ["{listed}"]\n')
    with pytest.raises(ConfigError, match=r"silo\.toml: extensions\.0: "):
        load_silo(path)


# ------------------------------------------------------------------ limits


def train(responder, size, *, jobs=1, round_=0, job=None, more=None, **plan):
    """Ask east to train; 72 of its 90 rows are for training."""
    one = {"client": "east", "plan": {"epochs": 1, "batch_size": 16} | plan} | (job or {})
    header = {"round": round_, "jobs": [one] * jobs} | (more or {})
    arrays = {"server": np.zeros(size, np.float32)}
    return responder.handle("run-1", make_packet("train", header, arrays))


def measure(responder, size, models, members=1):
    shape = (members, size) if members > 1 else size
    arrays = {f"model/{i}": np.zeros(shape, np.float32) for i in range(models)}
    header = {"splits": ["train"], "slot": None, "thresholds": None}
    return responder.handle("run-1", make_packet("measure", header, arrays))


def size_of(found):
    return len(found.encoder.feature_names) + 1


def beyond(key, text):
    section = "limits" if key in Limits.model_fields else "disclosure"
    return pytest.raises(
        MessageError, match=re.escape(text) + rf".*\({section}\.{key} of its policy\.toml\)$"
    )


def test_what_once_kept_a_silo_busy_for_ever_is_refused_by_default(settings):
    """The cases that were measured against a silo without limits."""
    _, found = enrolled(settings["east"])
    responder, size = Responder(settings["east"]), size_of(found)  # no policy.toml
    with beyond("epochs", "1,000,000,000 epochs in a job: this silo allows 200"):
        train(responder, size, epochs=10**9)
    with beyond("epochs", "10,000 epochs in a job"):
        train(responder, size, epochs=10_000, batch_size=1)
    with beyond("jobs", "4,096 jobs in a request: this silo allows 4"):
        train(responder, size, jobs=4096)
    with pytest.raises(MessageError, match=r"optimizer\.lr = 1e\+30: adamw"):
        train(responder, size, optimizer={"lr": 1e30})
    assert train(responder, size).request.kind == "reports"


def test_a_job_just_within_a_limit_is_done_and_one_beyond_is_not(settings):
    # 72 train rows are 5 steps of 16 an epoch, and 72 steps of 1.
    responder, found = enrolled(settings["east"], epochs=20, steps=100, jobs=2, models=6)
    size = size_of(found)
    (report,) = train(responder, size, epochs=20).request.fields["reports"]
    assert report["steps"] == 100
    with beyond("epochs", "21 epochs in a job: this silo allows 20"):
        train(responder, size, epochs=21, batch_size=72)
    with beyond("steps", "144 steps in a job: this silo allows 100"):
        train(responder, size, epochs=2, batch_size=1)
    gradient = {"name": "gradient"}  # one pass, whatever the epochs
    assert train(responder, size, epochs=20, batch_size=1, optimizer=gradient)
    assert train(responder, size, jobs=2)
    with beyond("jobs", "3 jobs in a request: this silo allows 2"):
        train(responder, size, jobs=3)
    assert measure(responder, size, models=6)
    assert measure(responder, size, models=2, members=3)
    with beyond("models", "7 models in a request: this silo allows 6"):
        measure(responder, size, models=7)
    with beyond("models", "8 models in a request"):
        measure(responder, size, models=2, members=4)
    header = {"splits": ["train"], "slot": None, "drawn": True}
    with beyond("models", "7 models in a request"):
        model = {"model/0": np.zeros((7, size), np.float32)}
        responder.handle("run-1", make_packet("score", header, model))


def test_a_request_that_takes_too_long_is_ended_and_leaves_nothing(settings, monkeypatch):
    clock = itertools.count()
    responder, found = enrolled(settings["east"], seconds=30)
    size, slots = size_of(found), settings["east"].state / "run-1" / "slots"
    # One second passes from step to step: 25 steps are done in time, 50 are not.
    monkeypatch.setattr("mfairfl.training.execution.time.monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(Usage, "turn", lambda _: nullcontext())  # it looks at the clock as well
    train(responder, size, epochs=5, job={"keep": "own"})
    kept = [path.name for path in slots.iterdir()]
    with beyond("seconds", "takes longer than the 30 seconds that this silo allows"):
        train(responder, size, epochs=10, round_=1, job={"keep": "own"})
    assert [path.name for path in slots.iterdir()] == kept == ["round-000000.safetensors"]


def test_requests_and_runs_are_counted_across_restarts(settings):
    east = settings["east"]
    _, found = enrolled(east, requests=6, runs_a_day=1)  # profile, sums, cuts, encode: four
    size = size_of(found)

    def again():
        return Responder(east, fed.policy(requests=6, runs_a_day=1))

    profile = make_packet("profile", {"task": TASK.model_dump(mode="json")})
    with beyond("runs_a_day", "2 runs within 24 hours: this silo allows 1"):
        again().handle("run-2", profile)
    again().handle("run-1", profile)  # it begins again, but not anew
    train(again(), size)
    with beyond("requests", "7 requests in a run: this silo allows 6"):
        train(again(), size)
    assert not (east.state / "run-2").exists()


def test_a_run_that_is_not_enrolled_leaves_no_trace(settings):
    responder = Responder(settings["east"])
    with pytest.raises(MessageError, match="it must be enrolled"):
        responder.handle("run-9", make_packet("score", {"splits": ["train"]}))
    assert not (settings["east"].state / "run-9").exists()


def test_a_model_of_too_many_weights_is_refused_before_rows_are_stored(settings):
    east = settings["east"]
    with beyond("weights", "weights of a model: this silo allows 10,000,000"):
        enrolled(east, ModelTerms(hidden=(10_000, 10_000)))
    assert not (east.state / "run-1" / "rows.safetensors").exists()
    _, found = enrolled(east, ModelTerms())
    enrolled(east, ModelTerms(), weights=size_of(found))
    with beyond("weights", f"{size_of(found)} weights of a model"):
        enrolled(east, ModelTerms(), weights=size_of(found) - 1)


def test_rows_and_slots_are_not_stored_beyond_the_disk_limit(settings):
    east = settings["east"]
    responder, found = enrolled(east, megabytes=1)
    size = size_of(found)
    assert train(responder, size, job={"keep": "own"})
    (east.state / "old-run").write_bytes(bytes(10**6))
    with beyond("megabytes", "2 megabytes in the state folder: this silo allows 1"):
        train(responder, size, job={"keep": "own"})
    with beyond("megabytes", "2 megabytes in the state folder"):
        enrolled(east, megabytes=1)
    assert train(responder, size)  # it keeps nothing


def test_no_message_loosens_a_limit(settings):
    responder, found = enrolled(settings["east"], epochs=2, min_rows=4)
    size = size_of(found)
    loose = {"limits": {"epochs": 99, "min_rows": 1}, "policy": {"limits": {"epochs": 99}}}
    loose |= {"epochs": 99, "min_rows": 1}
    with beyond("epochs", "3 epochs in a job: this silo allows 2"):
        train(responder, size, epochs=3)
    for key, value in loose.items():  # none is read, and none is ignored
        with pytest.raises(MessageError, match=f"a 'train' message: {key}: Extra inputs"):
            train(responder, size, epochs=3, more={key: value})
    path = settings["east"].csv
    path.write_text(path.read_text().replace("clerk", "astronaut", 3))
    task = {"task": TASK.model_dump(mode="json")}
    with pytest.raises(MessageError, match="a 'profile' message: limits: Extra inputs"):
        responder.handle("run-1", make_packet("profile", task | loose))
    answer = responder.handle("run-1", make_packet("profile", task))
    assert "clerk" in answer.text
    assert "astronaut" not in answer.text


def test_categories_in_fewer_than_ten_rows_are_not_named_without_a_policy(settings):
    path = settings["east"].csv
    path.write_text(path.read_text().replace("clerk", "astronaut", 9))
    packet = make_packet("profile", {"task": TASK.model_dump(mode="json")})
    assert "astronaut" not in Responder(settings["east"]).handle("run-1", packet).text
    nine = Responder(settings["east"], fed.policy(min_rows=9))
    assert "astronaut" in nine.handle("run-1", packet).text
    path.write_text(path.read_text().replace("clerk", "astronaut", 1))
    assert "astronaut" in Responder(settings["east"]).handle("run-1", packet).text
