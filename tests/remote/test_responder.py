"""What a silo answers, and what it refuses."""

from __future__ import annotations

import json
import sys

import numpy as np
import pandas as pd
import pytest

from answers import one_line
from mfairfl.data import Task
from mfairfl.engine.sealed import read_sealed, write_sealed
from mfairfl.errors import CheckpointError, ConfigError, MessageError, MfairflError
from mfairfl.remote.codec import make_packet, read_header
from mfairfl.remote.enrolment import EnrolmentTerms, ModelTerms, enrol
from mfairfl.remote.responder import Responder
from mfairfl.remote.silo_file import load_silo

TASK = Task(label="hired", favourable="yes", sensitive=("sex",))


def test_a_client_that_was_not_enrolled_says_so(settings):
    responder = Responder(settings["east"])
    with pytest.raises(MessageError, match="'east' knows no run 'run-1'; it must be enrolled"):
        responder.handle("run-1", make_packet("score", {"split": "train"}))


@pytest.mark.parametrize("run", ["../up", "", "a/b", ".hidden", "x" * 200])
def test_the_name_of_a_run_is_not_a_path(settings, run):
    with pytest.raises(MessageError, match="is not a valid name of a run"):
        Responder(settings["east"]).handle(run, make_packet("profile", {}))


@pytest.mark.parametrize(
    ("packet", "message"),
    [
        (make_packet("profile", {}), "lacks 'task'"),
        (make_packet("profile", {"task": {"label": 1}}), "a 'profile' message"),
        (make_packet("encode", {"task": json.loads(TASK.model_dump_json())}), "does not fit"),
    ],
)
def test_an_incomplete_message_is_refused(settings, packet, message):
    with pytest.raises(MfairflError, match=message):
        Responder(settings["east"]).handle("run-1", packet)


def test_a_run_enrolled_with_another_version_is_refused_in_one_line(settings):
    responder, _ = enrolled(settings["east"])
    path = settings["east"].state / "run-1" / "rows.safetensors"
    arrays, header = read_sealed(path, remedy="")
    write_sealed(path, arrays, header | {"hidden": header.pop("model")})
    with pytest.raises(MessageError, match="run 'run-1' with another version"):
        Responder(settings["east"]).handle("run-1", make_packet("score", {"split": "train"}))
    assert responder.handle("run-2", make_packet("profile", {"task": TASK.model_dump()}))


def test_no_single_byte_of_the_stored_rows_can_change_unnoticed(settings):
    enrolled(settings["east"])
    folder = settings["east"].state / "run-1"
    path = folder / "rows.safetensors"
    whole, score = path.read_bytes(), make_packet("score", {"split": "train"})
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
        silo = load_silo(file).model_copy(update={"min_count": 1})
        packet = make_packet("profile", {"task": task.model_dump(mode="json")})
        answers.append(Responder(silo).handle("run-1", packet))
    assert answers[0] == answers[1]
    _, header = read_header(answers[0])
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


def enrolled(settings, model=None):
    """Enrol one silo; return its responder, and what it said if it refused."""
    responder, said = Responder(settings), []

    class Only:
        def exchange(self, asks):
            try:
                return {name: responder.handle("run-1", ask) for name, ask in asks.items()}
            except MfairflError as error:
                said.append(str(error))
                raise

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
        "encoder": found.encoder.to_json(),
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
