"""Memory of `init`, `doctor` and `train` on a million rows of ACSIncome, above an idle process.

Takes a reduced table of the ACSIncome task (Parquet or CSV; see `mfairfl data describe
acs-income`), once as a file of one's own and once as the data set `acs-income` with a path. Every
command is a process of its own; its peak is that of the kernel (`ru_maxrss`). What is printed is
the peak above that of a process that has only imported mfairfl and PyTorch, in bytes and as a
multiple of the encoded rows (rows × columns × 4 bytes). Aim: at most 3 ×. Needs Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

import tomli_w

# This process stays small: a child's peak begins with the size of the process that started it.

AIM = 3.0
CODES = ("COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "SEX", "RAC1P")
ROLES = ("--label", "PINCP", "--favourable", ">50K", "--sensitive", "SEX", "--client", "STATE")
BUDGET = ("--rounds", "1", "--local-epochs", "1")


class Stage(NamedTuple):
    """A command, and its peak in bytes."""

    name: str
    peak: int


def peak(name: str, *command: str | Path) -> Stage:
    """Run a command of this interpreter to its end."""
    log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
    child = subprocess.Popen([sys.executable, *map(str, command)], stdout=log, stderr=log)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        log.seek(0)
        sys.exit(f"{name}: {log.read().decode().strip()}")
    return Stage(name, used.ru_maxrss * 1024)


def declare_codes(toml: Path) -> None:
    """Say in a file made by `init` what numbers cannot say: which of them are codes."""
    values = tomllib.loads(toml.read_text(encoding="utf-8"))
    values["task"] |= {"numeric": ["AGEP", "WKHP"], "categorical": list(CODES), "ignore": []}
    toml.write_text(tomli_w.dumps(values), encoding="utf-8")


def measure(file: Path, folder: Path) -> tuple[Stage, list[Stage]]:
    """Return the idle process, and the commands in their order."""
    own, mfairfl = folder / "own.toml", ("-m", "mfairfl")
    idle = peak("idle", "-c", "import mfairfl.cli, torch")
    stages = [peak("init", *mfairfl, "init", "--csv", file, *ROLES, "--out", own)]
    declare_codes(own)
    stages.append(peak("doctor", *mfairfl, "doctor", own))
    for method in ("mfairfl", "cenfair"):
        out = ("--strategy", method, "--out", folder / method)
        stages.append(peak(f"train, {method}", *mfairfl, "train", own, *BUDGET, *out))
    source = ("--data", "acs-income", "--set", f"data.path={file}", "--out", folder / "named")
    stages.append(peak("train --data acs-income", *mfairfl, "train", *source, *BUDGET))
    return idle, stages


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="a reduced table of ACSIncome")
    parser.add_argument("--year", default="2018", help="the survey's year, for the heading")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        idle, stages = measure(given.file.resolve(), folder)
        facts = json.loads((folder / "named" / "run.json").read_text())["federation"]
    rows = sum(one["rows"] for one in facts["clients"])
    encoded = rows * facts["features"] * 4
    modified = any("modified edition" in note for note in facts["notes"])
    edition = ", modified edition" * modified
    print(f"ACS {given.year}, {len(facts['clients'])} clients{edition}, sha256 {facts['sha256']}")
    print(
        f"{rows:,} rows × {facts['features']} encoded columns × 4 bytes = {encoded / 1e9:.2f} GB; "
        f"idle process {idle.peak / 1e9:.2f} GB"
    )
    print(f"{'command':<24}  {'above idle':>10}  × encoded rows (aim: at most {AIM:g})")
    for stage in stages:
        above = stage.peak - idle.peak
        print(f"{stage.name:<24}  {above / 1e9:>7.2f} GB  {above / encoded:.2f}")


if __name__ == "__main__":
    main()
