"""benchmarks/peers.py: figures by hand; a library that hangs, breaks or is missing is a line."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

# Stands for every library: the name says what it does.
PRETENDED = """
import json, sys, time

def say(what):
    print(json.dumps(what), flush=True)

name = sys.argv[1]
say({name: "1.0"})
for count, _ in enumerate(sys.stdin, 1):
    if count > 2 and name == "hangs":
        time.sleep(600)
    if count > 2 and name == "breaks":
        sys.exit("no luck in /home/someone/file at https://packages.example/simple")
    say([0.5, None] if name == "half" else [0.25, 0.2])
"""


@pytest.fixture
def peers(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("peers")
    pretended = tmp_path / "peer_runs"
    pretended.mkdir()
    (pretended / "__main__.py").write_text(PRETENDED)
    monkeypatch.setattr(module, "HERE", tmp_path)
    monkeypatch.setattr(module, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(module, "STOP_SECONDS", 1)
    monkeypatch.setattr(module, "write_rows", lambda shape, file: 0)
    (tmp_path / "cache").mkdir()
    return module


def lines_of(peers, *names, timeout=60.0):
    chosen = [peers.Peer("ours", "ours", rounds=4), *(peers.Peer(name, name) for name in names)]
    options = peers.Options(rounds=3, blocks=2, timeout=timeout)
    runners = peers.compare("silos", chosen, {"absent": "could not be installed: why"}, options)
    assert all(r.process is None or r.process.poll() is not None for r in runners)
    return {r.peer.module: r for r in runners}, peers.table(peers.SHAPES["silos"], runners)


def test_every_library_does_its_blocks_and_is_compared_with_ours(peers):
    found, lines = lines_of(peers, "half")
    assert found["ours"].blocks == [[(0.25, 0.2)] * 4] * 2
    assert found["half"].blocks == [[(0.5, None)] * 3] * 2
    assert lines[2].split() == ["ours", "250.0", "250.0", "1", "200.0", "1", "2", "×", "4"]
    assert lines[3].split() == ["half", "500.0", "500.0", "2", "-", "-", "2", "×", "3"]


def test_a_library_that_breaks_is_a_line_without_addresses_and_the_others_go_on(peers):
    found, lines = lines_of(peers, "breaks", "absent", "half")
    assert lines[3].split(maxsplit=1)[1] == "stopped with code 1: no luck in … at …"
    assert lines[4].split(maxsplit=1)[1] == "could not be installed: why"
    assert len(found["half"].blocks) == 2


@pytest.mark.slow
def test_a_library_that_hangs_is_ended(peers):
    found, lines = lines_of(peers, "hangs", timeout=5.0)
    assert lines[3].split(maxsplit=1)[1] == "stopped: no answer in time"
    assert len(found["ours"].blocks) == 2


def test_best_takes_each_round_of_a_block_at_its_best(peers):
    times = [[(1.0, 0.5), (5.0, 2.0)], [(3.0, 0.25), (4.0, 3.0)], [(2.0, 1.0), (9.0, 2.5)]]
    runner = peers.Runner(peers.PEERS[0], blocks=times)
    assert runner.best == (1.0 + 4.0) / 2
    assert runner.cpu == (0.25 + 2.0) / 2
    assert runner.usual == 3.5  # of 3, 3.5 and 5.5


@pytest.mark.slow
def test_what_cannot_be_installed_says_why(peers):
    missing = peers.installed([peers.Peer("x", "x", ("not a requirement",))])
    assert missing["x"].startswith("could not be installed: ")
    assert not (peers.CACHE / "not" / "installed.txt").exists()


def test_the_plain_loop_averages_by_size(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    loop, works = (importlib.import_module(f"peer_runs.{n}") for n in ("torch_loop", "work"))
    rng = np.random.default_rng(0)
    X, y = rng.random((9, 4), dtype=np.float32), np.array([0, 1, 1] * 3, np.float32)
    np.savez(tmp_path / "rows.npz", X=X, y=y, ends=[3, 9])
    work = works.Work("silos", str(tmp_path / "rows.npz"), [4], batch=6, drawn=2, rounds=1)
    net = work.model(outputs=1)
    start = {name: value.clone() for name, value in net.state_dict().items()}
    together = loop.one_round(net, start, work.clients, work.batch)
    alone = [loop.one_round(net, start, [client], work.batch) for client in work.clients]
    for name, value in together.items():
        by_hand = (3 * alone[0][name].double() + 6 * alone[1][name].double()) / 9
        torch.testing.assert_close(value.double(), by_hand, rtol=0, atol=1e-6)
