"""Runs over processes: same bits for any number of them, and no worker outlives its parent."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from mfairfl.errors import MfairflError
from mfairfl.runs.config import make_config
from mfairfl.runs.record import read_record
from mfairfl.runs.workers import run_many
from one_process import in_one_process

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def csv(tmp_path_factory):
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "people.csv"
    rows = ["x,z,sex,label"]
    for i in range(400):
        x, z = rng.normal(size=2)
        rows.append(f"{x:.4f},{z:.4f},{'fm'[i % 2]},{int(x + 0.3 * (i % 2) + z / 2 > 0)}")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def config(csv, seed, rounds=3, epochs=2):
    return make_config(
        {
            "seed": seed,
            "data": {"csv": str(csv)},
            "task": {"label": "label", "favourable": 1, "sensitive": ["sex"]},
            "clients": {"scheme": "iid", "count": 3},
            "model": {"hidden": [4]},
            "training": {"rounds": rounds, "local_epochs": epochs, "batch_size": 32},
        }
    )


def model_bytes(folder):
    return (Path(folder) / "model.safetensors").read_bytes()


def test_any_number_of_processes_gives_the_same_bits(csv, tmp_path):
    seen = []
    runs = [[(config(csv, seed), tmp_path / f"{n}-{seed}") for seed in range(3)] for n in (1, 2)]
    with in_one_process():
        one = run_many(runs[0])
    two = run_many(runs[1], processes=2, progress=lambda *news: seen.append(news))
    assert [r.seed for r in one] == [r.seed for r in two] == [0, 1, 2]
    assert [model_bytes(out) for _, out in runs[0]] == [model_bytes(out) for _, out in runs[1]]
    told = {(Path(out).name, done) for out, done, _ in seen}
    assert told >= {("2-0", 3), ("2-1", 3), ("2-2", 3)}


def test_a_worker_s_error_reaches_the_parent_in_one_line(csv, tmp_path):
    missing = config(csv.with_name("nobody.csv"), 0)
    with pytest.raises(MfairflError, match=r"nobody\.csv") as caught:
        run_many([(missing, tmp_path / "a"), (config(csv, 1), tmp_path / "b")], processes=2)
    assert "\n" not in str(caught.value)


def test_nothing_to_do():
    assert run_many([]) == []


def children_of(pid):
    command = ["ps", "-o", "pid=", "--ppid", str(pid)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until(condition, seconds=180):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail("waited in vain")
        time.sleep(0.02)


SCRIPT = textwrap.dedent(
    """
    import json, signal, sys
    from mfairfl.runs.config import make_config
    from mfairfl.runs.workers import run_many
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    settings, outs, processes = json.loads(sys.argv[1])
    run_many([(make_config(s), o) for s, o in zip(settings, outs)], processes=processes)
    """
)


def launch(settings, outs, processes):
    command = [sys.executable, "-c", SCRIPT, json.dumps([settings, outs, processes])]
    return subprocess.Popen(
        command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL
    )


def test_ctrl_c_ends_the_whole_list_and_not_only_the_wait_for_it(csv, tmp_path):
    settings = [config(csv, seed, rounds=9999).model_dump(mode="json") for seed in range(12)]
    outs = [str(tmp_path / str(seed)) for seed in range(12)]
    parent = launch(settings, outs, 1)
    try:
        wait_until(lambda: any(tmp_path.glob("*/checkpoint/round-*")))
        (worker,) = children_of(parent.pid)
        parent.send_signal(signal.SIGINT)
        parent.wait(60)
    finally:
        parent.kill()
        parent.wait()
    assert parent.returncode in (1, -signal.SIGINT)
    wait_until(lambda: not alive(worker))
    records = [read_record(path) for path in tmp_path.glob("*/run.json")]
    assert {record.status for record in records} == {"running"}
    assert len(records) < len(settings)  # parts that were not begun are not begun


def test_workers_end_when_their_parent_is_killed_and_the_runs_go_on(csv, tmp_path):
    settings = [config(csv, seed, rounds=150).model_dump(mode="json") for seed in range(2)]
    outs = [str(tmp_path / f"run-{seed}") for seed in range(2)]
    parent = launch(settings, outs, 2)
    try:
        wait_until(lambda: all(any(Path(o).glob("checkpoint/round-*")) for o in outs))
        workers = children_of(parent.pid)
        assert len(workers) == 2
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: not any(alive(pid) for pid in workers))
    assert not any((Path(o) / "model.safetensors").exists() for o in outs)

    straight = [str(tmp_path / f"straight-{seed}") for seed in range(2)]
    with in_one_process():
        resumed = run_many([(make_config(s), o) for s, o in zip(settings, outs, strict=True)])
        run_many([(make_config(s), o) for s, o in zip(settings, straight, strict=True)])
    assert [record.rounds for record in resumed] == [150, 150]
    assert [model_bytes(o) for o in outs] == [model_bytes(o) for o in straight]
