"""Three silos with a CSV file each, over TLS; then the same in one process, and the difference."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import tomli_w
from safetensors.numpy import load_file

import mfairfl
from mfairfl.cli import main as mfairfl_cli
from mfairfl.data import load_dataset, partition
from mfairfl.runs.record import RunRecord

FOLDER = Path("runs/deploy-demo")
ROUNDS = "3"


def write_files() -> dict[str, Path]:
    """Write Adult as three organisations might hold it: unlike in their shares of women."""
    table = load_dataset("adult")
    federation = partition(table, "dirichlet", clients=3, on="group", concentration=1.0, seed=0)
    values = np.array([table.task.unfavourable, table.task.favourable])
    rows_with_labels = table.X.assign(**{table.task.label: values[table.y]})
    files = {}
    for name, client in zip(("north", "south", "west"), federation.clients, strict=True):
        rows = np.sort(np.concatenate([client.train.rows, client.test.rows]))
        files[name] = FOLDER / f"{name}.csv"
        rows_with_labels.iloc[rows].to_csv(files[name], index=False)
    task = {"label": table.task.label, "favourable": table.task.favourable, "sensitive": ["sex"]}
    (FOLDER / "people.toml").write_text(tomli_w.dumps({"task": task}), encoding="utf-8")
    frames = [pd.read_csv(path).assign(silo=name) for name, path in files.items()]
    pd.concat(frames).to_csv(FOLDER / "joined.csv", index=False)
    joined = {"data": {"csv": "joined.csv"}, "task": task | {"client": "silo"}}
    (FOLDER / "joined.toml").write_text(tomli_w.dumps(joined), encoding="utf-8")
    return files


def run(*words: str) -> None:
    print(f"$ mfairfl {' '.join(words)}", flush=True)
    if (code := mfairfl_cli(list(words))) != 0:
        sys.exit(code)


def main() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    files = write_files()
    silos = [word for name, path in files.items() for word in ("--silo", f"{name}={path}")]
    over, here = FOLDER / "over-flower", FOLDER / "embedded"
    settings = ("--rounds", ROUNDS, "--robust", "auto")
    run("deploy", "local", f"{FOLDER}/people.toml", *silos, *settings, "--out", str(over))
    run("train", f"{FOLDER}/joined.toml", *settings, "--out", str(here))
    ours, theirs = (load_file(folder / "model.safetensors")["members"] for folder in (over, here))
    gap = float(np.abs(ours - theirs).max())
    same_metrics = RunRecord.read(over).metrics == RunRecord.read(here).metrics
    files_of = ((folder / "model.safetensors").read_bytes() for folder in (over, here))
    same_bytes = len(set(files_of)) == 1
    print(
        f"\nlargest difference between the weights over Flower and embedded: {gap:g}"
        f"\nthe same bytes: {same_bytes}; the same metrics: {same_metrics}"
        f"\nmfairfl {mfairfl.__version__}; everything is in {FOLDER}"
    )
    if not (same_bytes and same_metrics):
        sys.exit("error: the two runs differ")


if __name__ == "__main__":
    main()
