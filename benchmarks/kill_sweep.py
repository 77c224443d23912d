"""Kill a training process at random moments; count the resumed runs that end in the same bits.

Each trial trains the same small run into a folder of its own. Its process is killed (SIGKILL) one
to three times, soon after it starts or soon after a random round is committed; then the run is
taken up and finished here. The model, the encoder, both histories and the record (but for the
time it took) must equal those of an undisturbed run, byte for byte.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

import mfairfl
from mfairfl.runs.record import RunRecord

FILES = ("model.safetensors", "scores.safetensors", "encoder.json", "rounds.csv", "clients.csv")
CHILD = "import sys; from kill_sweep import train; train(sys.argv[1], *sys.argv[2:])"
STARTUP = 4.0
"""Seconds in which a process has surely begun to train."""


def write_people(path: Path, rows: int = 600) -> None:
    rng = np.random.default_rng(0)
    skill, male = rng.normal(size=rows), rng.random(rows) < 0.5
    people = {
        "skill": skill.round(3),
        "sex": np.where(male, "M", "F"),
        "site": rng.choice(list("abcd"), rows),
        "hired": (skill + 0.5 * male > rng.normal(size=rows)).astype(int),
    }
    pd.DataFrame(people).to_csv(path, index=False)


def train(out: str, csv: str, strategy: str, rounds: str) -> None:
    task = {"label": "hired", "favourable": 1, "sensitive": ["sex"], "client": "site"}
    mfairfl.train(
        csv=csv,
        config={"task": task},
        strategy=strategy,
        rounds=int(rounds),
        hidden=(8,),
        batch_size=16,
        output_rule="mixture",
        out=out,
    )


def kill_one(out: Path, settings: list[str], moments: random.Random) -> bool:
    """Start the run, kill it, and say whether it was still alive."""
    command = [sys.executable, "-c", CHILD, str(out), *settings]
    process = subprocess.Popen(command, cwd=Path(__file__).parent)
    round_ = moments.randint(-1, int(settings[-1]))
    if round_ < 0:
        time.sleep(moments.random() * STARTUP)
    else:
        mark = out / "checkpoint" / f"round-{round_:06d}.ckpt"
        while process.poll() is None and not mark.exists():
            time.sleep(0.0005)
        time.sleep(moments.random() * 0.05)
    process.kill()
    return process.wait() < 0


def result(out: Path) -> dict[str, object]:
    """Return what must be equal."""
    record = RunRecord.read(out).model_dump(mode="json", exclude={"timing"})
    return {"record": record} | {name: (out / name).read_bytes() for name in FILES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=80, help="processes to kill (default: 80)")
    parser.add_argument("--rounds", type=int, default=10, help="rounds of a run (default: 10)")
    parser.add_argument("--strategy", default="fedavg", help="strategy (default: fedavg)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments (default: 0)")
    args = parser.parse_args()
    moments = random.Random(args.seed)  # noqa: S311 - nothing secret
    kills = trials = same = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = [str(folder / "people.csv"), args.strategy, str(args.rounds)]
        write_people(folder / "people.csv")
        train(str(folder / "undisturbed"), *settings)
        expected = result(folder / "undisturbed")
        while kills < args.kills:
            out = folder / f"trial-{trials}"
            for _ in range(moments.randint(1, 3)):
                kills += kill_one(out, settings, moments)
            train(str(out), *settings)
            trials += 1
            same += result(out) == expected
    print(f"{same} of {trials} runs bit-identical after {kills} kills")
    if same < trials:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
