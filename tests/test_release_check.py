"""The summary of what is asked of a release, with a stand-in for `make`."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OUTPUTS = {
    "gate-attacks": (
        "growth 78 MB at most (aim 100), gate +10 MB at the end\n"
        "half-open requests closed after 8.6 s (aim 15)\n"
        "a silo's heartbeats meanwhile: 43, 0 failed, the slowest took 0.38 s\n",
        "growth 78 MB at most; requests closed after 8.6 s; heartbeats meanwhile: 43, 0 failed",
    ),
    "durability": (
        "1000 damaged checkpoints: 0 loaded silently (745 older one used, 255 refused)\n"
        "    taken up from them: 18 of 18 bit-identical\n"
        "24 full disks (0 to 92 kB left): 24 of 24 bit-identical after space was freed\n",
        "1000 damaged checkpoints: 0 loaded silently; 18 of 18 bit-identical; "
        "24 of 24 bit-identical",
    ),
    "failpoints": (
        "mfairfl, 12 failpoints × 10 rounds: 119 of 120 bit-identical (81 s)\n"
        "mfairfl, one run killed 191 times: bit-identical\n",
        "119 of 120 bit-identical; one run killed 191 times: bit-identical",
    ),
    "deploy-demo": (
        "the same bytes: True; the same metrics: True\n",
        "the same bytes: True; the same metrics: True",
    ),
    "fuzz": (
        "100,000 cases, 0 problems\n134 cases a second of processor time\n",
        "100,000 cases, 0 problems",
    ),
    "deploy-faults": (
        "at the end: 9 faults end as documented; no process left behind\n",
        "9 faults end as documented; no process left behind",
    ),
    "deploy-kills": (
        "9 of 10 end in the embedded engine's bytes; 10 of 10 leave no process behind\n",
        "9 of 10 end in the embedded engine's bytes; 10 of 10 leave no process behind",
    ),
    "test-wheel": (
        "....\n7200 passed, 12 skipped in 801.10s (0:13:21)\n",
        "7200 passed, 12 skipped",
    ),
    "test-lowest": (
        "==== 2 failed, 7198 passed, 1 warning in 801.10s (0:13:21) ====\n",
        "2 failed, 7198 passed, 1 warning",
    ),
}


@pytest.fixture(scope="module")
def release_check():
    path = ROOT / "scripts" / "release_check.py"
    spec = importlib.util.spec_from_file_location("release_check", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["release_check"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["release_check"]


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with a version, and a `make` that says what files hold and fails on demand."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "9.8.7"\n')
    (tmp_path / "results").mkdir()
    for target, (output, _) in OUTPUTS.items():
        (tmp_path / f"{target}.says").write_text(output)
    make = tmp_path / "stand-in"
    make.write_text(
        '#!/bin/sh\necho "$1" >> ran\ncat "$1.says"\necho trouble >&2\ntest ! -e "$1.fails"\n'
    )
    make.chmod(0o755)
    named = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "pyproject.toml"), (*named, "commit", "-qm", "first")):
        subprocess.run(["git", *words], check=True)
    return tmp_path


def lines(repository):
    text = (repository / "results" / "release-check.txt").read_text()
    return {line.split()[0]: line for line in text.splitlines() if line}


@pytest.mark.parametrize("target", OUTPUTS)
def test_the_figures_of_an_output_are_found(release_check, target):
    output, figures = OUTPUTS[target]
    assert release_check.key_figures(target, output) == figures


def test_every_target_is_one_of_the_makefile(release_check):
    makefile = (ROOT / "Makefile").read_text()
    known = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    assert set(release_check.FIGURES) == set(OUTPUTS) <= known


def test_what_is_kept_with_tee_fails_when_the_program_does(tmp_path):
    makefile = (ROOT / "Makefile").read_text()
    (shell,) = re.findall(r"^SHELL := .*$", makefile, flags=re.MULTILINE)
    (tmp_path / "Makefile").write_text(f"{shell}\nkept:\n\tfalse | tee output\n")
    done = subprocess.run(["make", "kept"], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 2
    hidden = re.findall(r"^\t.*benchmarks/\w+\.txt; .*$", makefile, flags=re.MULTILINE)
    assert hidden == []  # `; cat` would hide it as well


def test_a_failure_does_not_stop_the_others_and_decides_the_exit_code(
    release_check, repository, capsys
):
    (repository / "durability.fails").touch()
    (repository / "fuzz.says").write_text("nothing\n")  # it ends well, without its evidence
    assert release_check.main(["--make", "./stand-in"]) == 1
    assert (repository / "ran").read_text().split() == list(OUTPUTS)
    said = lines(repository)
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout[:12]
    assert said["mfairfl"].startswith(f"mfairfl 9.8.7, commit {commit}, ")
    assert "durability    FAILED" in said["durability"]
    assert "exit code 1; 1000 damaged checkpoints: 0 loaded silently" in said["durability"]
    assert "fuzz          FAILED" in said["fuzz"]
    assert "no figures in its output" in said["fuzz"]
    assert re.fullmatch(
        r"test-wheel    passed   0\.\d min  7200 passed, 12 skipped  "
        r"\(runs/release-check/test-wheel\.txt\)",
        said["test-wheel"],
    )
    assert said["7"] == "7 of 9 passed in 0 minutes"
    kept = (repository / "runs" / "release-check" / "test-wheel.txt").read_text()
    assert kept == OUTPUTS["test-wheel"][0] + "trouble\n"
    progress = capsys.readouterr().out
    assert "[8/9] test-wheel; then test-lowest" in progress


def test_named_targets_alone_and_an_unknown_one(release_check, repository, capsys):
    out = repository / "some.txt"
    assert release_check.main(["fuzz", "--out", str(out), "--make", "./stand-in"]) == 0
    assert "1 of 1 passed" in out.read_text()
    with pytest.raises(SystemExit):
        release_check.main(["fuz"])
    assert "unknown target fuz; known: gate-attacks" in capsys.readouterr().err


def test_a_stop_loses_nothing(release_check, repository, monkeypatch):
    real = release_check.run_target

    def run_target(target, make):
        if target == "failpoints":
            raise KeyboardInterrupt
        return real(target, make)

    monkeypatch.setattr(release_check, "run_target", run_target)
    with pytest.raises(KeyboardInterrupt):
        release_check.main(["--make", "./stand-in"])
    said = lines(repository)
    assert "passed" in said["durability"]
    assert said["failpoints"] == "failpoints    not run"
    assert said["2"] == "2 of 9 passed in 0 minutes"
