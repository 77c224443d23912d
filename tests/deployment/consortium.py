"""A small consortium on this machine: three silos with a file each."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import federations as fed
import mfairfl
from mfairfl.data import Task, table_from_frame
from mfairfl.runs.config import make_config

SITES = ("east", "north", "west")
TASK = {"label": "hired", "favourable": "yes", "sensitive": ["sex"]}
SETTINGS = {
    "robust": "auto",  # what `deploy local` writes, so that the embedded run is the same
    "model": {"hidden": [4]},
    "training": {"rounds": 3, "local_epochs": 2, "batch_size": 16, "lr": 0.02},
}


def rows():
    frame = fed.people()
    return frame[frame["site"].isin(SITES)].reset_index(drop=True)


def write_files(folder):
    """Write each silo's rows; return the files by name."""
    found = {}
    for site, part in rows().groupby("site"):
        found[site] = folder / f"{site}.csv"
        part.drop(columns="site").to_csv(found[site], index=False)
    return found


def settings(seed=0, strategy="mfairfl", rounds=3):
    training = SETTINGS["training"] | {"rounds": rounds}
    return SETTINGS | {"seed": seed, "strategy": {"name": strategy}, "training": training}


def config(**changes):
    return make_config(settings(**changes) | {"task": TASK})


def embedded(out, **changes):
    """The same run in one process, on one table."""
    table = table_from_frame(rows(), Task.model_validate(TASK | {"client": "site"}), name="people")
    return mfairfl.train(table, config=settings(**changes), out=out)


def digests(
    folder,
    names=("model.safetensors", "scores.safetensors", "rounds.csv", "clients.csv", "encoder.json"),
):
    return {name: hashlib.sha256((Path(folder) / name).read_bytes()).hexdigest() for name in names}


def mine(folder):
    """Processes whose command line or environment names this folder, this one excepted."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            said = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue  # it has just ended
        if str(folder).encode() in said:
            found.append(int(entry.name))
    return found


def mfairfl_cli(*words, **options):
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from mfairfl.cli import main; sys.exit(main())",
            *words,
        ],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
