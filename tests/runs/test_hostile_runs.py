"""Run directories that somebody damaged or forged: they load and decide, or one line says why.

A forger who changes a file also writes its new SHA-256 to run.json, so every edit here does.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save

import federations as fed
import mfairfl
from answers import one_line
from mfairfl.cli import main
from mfairfl.errors import MfairflError
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.record import RunRecord

PEOPLE = fed.people()
QUICK = {"rounds": 2, "hidden": (4,), "batch_size": 20, "local_epochs": 1}
KINDS = {
    "single": {"strategy": "fedavg"},
    "ensemble": {"strategy": "indfair"},
    "personal": {"strategy": "ditto"},
    "thresholds": {"strategy": "fedavg-threshold", "notion": "eo", "tolerance": 0.0},
}
MUTATIONS = 40  # of each file of each kind


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    for kind, how in KINDS.items():
        mfairfl.train(fed.people_table(), out=folder / kind, **QUICK, **how)
        shutil.rmtree(folder / kind / "checkpoint")
    return folder


@pytest.fixture
def run(runs, tmp_path):
    """A copy to be changed, of whichever kind is asked for."""
    return lambda kind="single": Path(shutil.copytree(runs / kind, tmp_path / kind))


def sign(run):
    """Write the hashes of the files as they are now."""
    record = json.loads((run / "run.json").read_text())
    for name in ("model.safetensors", "encoder.json", "scores.safetensors"):
        record["files"][name] = hashlib.sha256((run / name).read_bytes()).hexdigest()
    (run / "run.json").write_text(json.dumps(record))


def use(run):
    """Load a run and decide; the numbers are finite."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = mfairfl.load(run)
        RunDirectory(run).read_scores(RunRecord.read(run))
        proba = model.predict_proba(PEOPLE)
        assert np.isfinite(proba).all()
        assert set(model.predict(PEOPLE).tolist()) <= {0, 1}


# ------------------------------------------------------------------ edits


def edit_json(name, *path, value):
    def edit(run):
        document = json.loads((run / name).read_text())
        at = document
        for key in path[:-1]:
            at = at[key]
        if value is REMOVED:
            del at[path[-1]]
        else:
            at[path[-1]] = value
        (run / name).write_text(json.dumps(document))
        if name != "run.json":
            sign(run)

    return edit


REMOVED = object()


def record(*path, value):
    return edit_json("run.json", *path, value=value)


def encoder(*path, value):
    return edit_json("encoder.json", *path, value=value)


def model(change):
    """Change the arrays and the header of model.safetensors."""

    def edit(run):
        path = run / "model.safetensors"
        with safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in ("members", "weights")}
            header = json.loads(file.metadata()["served"])
        change(arrays, header)
        path.write_bytes(save(arrays, metadata={"served": json.dumps(header)}))
        sign(run)

    return edit


def arrays(**changes):
    def change(held, _):
        for name, make in changes.items():
            held[name] = make(held)

    return model(change)


def header(**changes):
    return model(lambda _, said: said.update(changes))


def raw(name, data):
    def edit(run):
        (run / name).write_bytes(data)
        sign(run)

    return edit


def in_place_of(name, make):
    def edit(run):
        (run / name).unlink()
        make(run / name)

    return edit


DEEP = 100_000
NESTED = b"[" * DEEP + b"]" * DEEP
FAR = {"edges": [-1.7e308, 1.7e308]}
HOSTILE = {
    "encoder nested": raw("encoder.json", NESTED),
    "record nested": in_place_of("run.json", lambda p: p.write_bytes(NESTED)),
    "record nested in a key": in_place_of(
        "run.json", lambda p: p.write_bytes(b'{"a":' * DEEP + b"1" + b"}" * DEEP)
    ),
    "record is a list": in_place_of("run.json", lambda p: p.write_bytes(b"[]")),
    "record is not text": in_place_of("run.json", lambda p: p.write_bytes(b"\xff\xfe\x00")),
    "record is a folder": in_place_of("run.json", Path.mkdir),
    "record is a pipe": in_place_of("run.json", os.mkfifo),
    "record links to itself": in_place_of("run.json", lambda p: p.symlink_to(p)),
    "record links to zeros": in_place_of("run.json", lambda p: p.symlink_to("/dev/zero")),
    "record links to nothing": in_place_of("run.json", lambda p: p.symlink_to("nowhere")),
    "model is a folder": in_place_of("model.safetensors", Path.mkdir),
    "model is a pipe": in_place_of("model.safetensors", os.mkfifo),
    "model links to zeros": in_place_of("model.safetensors", lambda p: p.symlink_to("/dev/zero")),
    "encoder is a folder": in_place_of("encoder.json", Path.mkdir),
    "encoder is missing": in_place_of("encoder.json", lambda p: None),
    "version of another type": record("schema_version", value=[{}]),
    "no files": record("files", value=REMOVED),
    "files of another type": record("files", value=[1]),
    "task of another type": record("task", value=[]),
    "task without features": record("task", "numeric", value=None),
    "task with a feature twice": record("task", "categorical", value=["job", "job"]),
    "task with other columns": record("task", "numeric", value=["skill"]),
    "task with a huge number": record("task", "sensitive", 0, "bins", value=[{"min": 10**400}]),
    "key of two lines": record("task", "a\nb\x1b[2J", value=1),
    "key without end": record("x" * 1_000_000, value=1),
    "model of another type": record("model", value="mlp"),
    "model with a huge layer": record("model", "hidden", value=[10**30]),
    "model with many layers": record("model", "hidden", value=[4] * 100_000),
    "model with other layers": record("model", "hidden", value=[5]),
    "model with a huge input": record("model", "inputs", value=10**400),
    "model with other inputs": record("model", "inputs", value=1),
    "module that nobody names": record("model", value={"kind": "module", "inputs": 12}),
    "infinite metric": record("metrics", "test", "accuracy", value=float("inf")),
    "tally of text": record("tallies", "test", "counts", value="many"),
    "tally that is ragged": record("tallies", "test", "counts", value=[[1], [1, 2]]),
    "tally of huge numbers": record("tallies", "test", "counts", value=[[[[10**40] * 2] * 2]]),
    "no model": raw("model.safetensors", b""),
    "model cut short": raw("model.safetensors", b"\x10\0\0\0\0\0\0\0{}"),
    "model with a huge header": raw("model.safetensors", b"\xff" * 8 + b"{}"),
    "model of pickled code": raw("model.safetensors", b"\x80\x04cos\nsystem\n"),
    "model without a header": raw(
        "model.safetensors", save({"members": np.ones((1, 57), "f4"), "weights": np.ones(1)})
    ),
    "members under another name": model(lambda a, _: a.update(others=a.pop("members"))),
    "one array more": arrays(more=lambda a: np.ones(3)),
    "members of doubles": arrays(members=lambda a: a["members"].astype("f8")),
    "members of whole numbers": arrays(members=lambda a: a["members"].astype("i4")),
    "members in a row": arrays(members=lambda a: a["members"][0]),
    "three weights": arrays(members=lambda a: a["members"][:, :3]),
    "no members": arrays(members=lambda a: a["members"][:0], weights=lambda a: np.ones(0)),
    "two members of one": arrays(members=lambda a: np.tile(a["members"], (2, 1))),
    "two of a single": arrays(
        members=lambda a: np.tile(a["members"], (2, 1)), weights=lambda a: np.ones(2) / 2
    ),
    "members that are no numbers": arrays(members=lambda a: a["members"] * np.float32("nan")),
    "infinite members": arrays(members=lambda a: np.full_like(a["members"], np.inf)),
    "weights that are no numbers": arrays(weights=lambda a: a["weights"] * np.nan),
    "huge members": arrays(
        members=lambda a: np.where(a["members"] > 0, 1, -1).astype("f4") * np.float32(3e38)
    ),
    "kind nobody knows": header(kind="forest"),
    "kind of another type": header(kind=["single"]),
    "personal of nobody": header(kind="personal"),
    "names of another type": header(names=3),
    "no names": header(names=[]),
    "thresholds of another type": header(thresholds=[1]),
    "thresholds without values": header(thresholds={}),
    "thresholds of other groups": header(
        thresholds={"values": [[0.0]] * 9, "probabilities": [[1.0]] * 9}
    ),
    "thresholds of text": header(thresholds={"values": [["x"]], "probabilities": [[1.0]]}),
    "header nested": model(lambda _, said: said.update(names=deep(90))),
    "encoder of another type": raw("encoder.json", b"[]"),
    "no encoder": raw("encoder.json", b""),
    "encoder of other columns": encoder("numeric", 0, "name", value="../../etc/passwd"),
    "encoder with a column less": encoder("numeric", 0, value=REMOVED),
    "encoder with a level more": encoder("categorical", 0, "levels", value=list("abcdefgh")),
    "encoder with a column twice": encoder("numeric", 1, "name", value="skill"),
    "scale 0": encoder("numeric", 0, "scale", value=0),
    "scale that is no number": encoder("numeric", 0, "scale", value=float("nan")),
    "scale next to nothing": encoder("numeric", 0, "scale", value=5e-324),
    "huge mean": encoder("numeric", 0, "mean", value=1.7e308),
    "edges far apart": encoder(
        "numeric", 0, value={"name": "skill", "mean": 0, "scale": 1, "indicator": False, **FAR}
    ),
}


def deep(levels):
    return [deep(levels - 1)] if levels else []


@pytest.mark.parametrize("edit", HOSTILE)
def test_a_hostile_run_is_refused_in_one_line(run, edit):
    copy = run()
    use(copy)
    HOSTILE[edit](copy)
    with pytest.raises(MfairflError) as caught:
        use(copy)
    message = one_line(caught)
    assert len(message) < 1000
    assert message.isprintable()
    at_rows = {"huge members", "scale next to nothing", "huge mean"}  # seen with the first rows
    assert str(copy) in message or edit in at_rows


@pytest.mark.parametrize(
    "edit",
    [
        record("files", "../../secret", value="0" * 64),  # never opened
        header(names=["../../round 2"]),  # a text, no path
    ],
)
def test_what_is_odd_but_harmless_is_used(run, edit):
    copy = run()
    edit(copy)
    use(copy)


@pytest.mark.parametrize("edit", ["record nested", "infinite members", "encoder is a folder"])
def test_predict_ends_with_one_line(run, tmp_path, capsys, edit):
    copy, rows = run(), tmp_path / "rows.csv"
    HOSTILE[edit](copy)
    PEOPLE.to_csv(rows, index=False)
    assert main(["predict", str(copy), "--csv", str(rows), "--out", str(tmp_path / "p.csv")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(copy) in line
    assert not (tmp_path / "p.csv").exists()


OF_OTHER_KINDS = {
    ("ensemble", "shares below 0"): arrays(weights=lambda a: np.array([2.0, -1, 0, 0])),
    ("ensemble", "shares of 0"): arrays(weights=lambda a: a["weights"] * 0),
    ("ensemble", "huge shares"): arrays(weights=lambda a: a["weights"] * 1e300),
    ("ensemble", "a mixture of half"): arrays(weights=lambda a: a["weights"] / 2),
    ("personal", "one owner twice"): header(clients=["east", "east", "south", "west"]),
    ("personal", "an owner less"): header(clients=["east", "north", "south"]),
    ("personal", "owners of another type"): header(clients=[1, 2, 3, 4]),
    ("thresholds", "of an ensemble"): header(kind="ensemble"),
    ("thresholds", "that sum to 2"): model(
        lambda _, said: said["thresholds"].update(
            probabilities=[[2 * p for p in row] for row in said["thresholds"]["probabilities"]]
        )
    ),
}


@pytest.mark.parametrize("case", OF_OTHER_KINDS, ids=": ".join)
def test_other_kinds_of_models_are_checked_as_well(run, case):
    copy = run(case[0])
    use(copy)
    OF_OTHER_KINDS[case](copy)
    with pytest.raises(MfairflError) as caught:
        use(copy)
    assert f"{copy / 'model.safetensors'}: " in one_line(caught)


# ------------------------------------------------------------------ mutations

ODD = [None, True, -1, 0, 1, 2, 1e308, -1e308, 5e-324, 10**400, "", "x", "\n", "../x", [], {}]
ODD += [[[]], {"a": {}}, float("nan"), float("inf"), "a" * 10_000, [0] * 1000]


def mutate_json(document, rng):
    """Change one place of a document: another value, none, or one more."""
    places = []
    waiting = [document]
    while waiting:
        at = waiting.pop()
        keys = list(at) if isinstance(at, dict) else range(len(at))
        for key in keys:
            places.append((at, key))
            if isinstance(at[key], dict | list):
                waiting.append(at[key])
    at, key = rng.choice(places)
    what = rng.randrange(4)
    if what == 0:
        del at[key]
    elif what == 1 and isinstance(at, dict):
        at[f"{key}s"] = at[key]
    elif what == 2 and isinstance(at, list):
        at.insert(key, at[key])
    else:
        at[key] = rng.choice(ODD)


def mutate_bytes(data, rng):
    at = rng.randrange(len(data))
    what = rng.randrange(3)
    if what == 0:
        return data[:at]
    if what == 1:
        return data[:at] + bytes(rng.randrange(256) for _ in range(rng.randrange(9))) + data[at:]
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def refusal(run):
    """Return why a run is refused; nothing if it still decides."""
    try:
        use(run)
    except MfairflError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", ["single", "thresholds", "personal"])
@pytest.mark.parametrize("name", ["run.json", "encoder.json"])
def test_mutated_json_loads_or_is_refused(run, kind, name):
    copy, rng = run(kind), random.Random(f"{kind} {name}")
    whole = {path: path.read_bytes() for path in copy.iterdir() if path.is_file()}
    found = []
    for _ in range(MUTATIONS):
        for path, data in whole.items():
            path.write_bytes(data)
        document = json.loads(whole[copy / name])
        mutate_json(document, rng)
        (copy / name).write_text(json.dumps(document))
        if name != "run.json":
            sign(copy)
        found.append(refusal(copy))
    assert any(found)
    assert not any("\n" in message for message in found)


@pytest.mark.parametrize("kind", ["single", "thresholds", "ensemble"])
@pytest.mark.parametrize(
    "name", ["run.json", "encoder.json", "model.safetensors", "scores.safetensors"]
)
def test_mutated_bytes_load_or_are_refused(run, kind, name):
    copy, rng = run(kind), random.Random(f"{kind} {name}")
    whole = {path: path.read_bytes() for path in copy.iterdir() if path.is_file()}
    found = []
    for _ in range(MUTATIONS):
        for path, data in whole.items():
            path.write_bytes(data)
        (copy / name).write_bytes(mutate_bytes(whole[copy / name], rng))
        if name != "run.json":
            sign(copy)
        found.append(refusal(copy))
    assert any(found)
    assert not any("\n" in message for message in found)
