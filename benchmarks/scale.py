"""One run in several shapes: clients at rest, several workers, and the version before.

resting   A round of FedAvg with 50 clients of 20 rows drawn out of 500, 5,000 and 20,000, output
          rule `last`, between two full measurements, files written. It must not grow with the
          number of clients that rest.
measured  The same out of 200 and 4,000, with all clients measured every 10 rounds: the mean round,
          and what a full measurement and its files cost, in rounds between two of them. Aim: the
          mean round grows at most 8 times.
workers   One run with one and with two workers, 47 clients and 5; the models must be the same.
          Aims: 1.6 × and 1.3 ×.
adult     `mfairfl train --data adult --heterogeneity high`, from start to table, in processor
          time, beside another checkout of mfairfl (`--base DIR`). Aim: at most half of 0.5.0.

Times of workers and versions are the best of alternating repetitions. Workers are in wall-clock
seconds, for which the machine must be at rest, all else in processor seconds.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

import mfairfl
from mfairfl.data import Federation, Table, Task, table_from_frame

DRAWN, ROWS = 50, 20
CLIENTS = (500, 5_000, 20_000)
ROUNDS = 12
MEASURED = (200, 4_000)
EVERY, CYCLES = 10, 12  # rounds from one full measurement to the next, and how many of these
SECTIONS = ("resting", "measured", "workers", "adult")
AIMS = {47: 1.6, 5: 1.3}


# ------------------------------------------------------------------ clients at rest


class RoundTimes:
    """Notes the processor time of every round."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._last = 0.0

    def on_start(self, setup: object, state: object) -> None:
        """Start the clock."""
        del setup, state
        self._last = time.process_time()

    def on_round(self, setup: object, state: object, record: object) -> None:
        """Stop it: the files of the round before this one are part of the time."""
        del setup, state, record
        now = time.process_time()
        self.seconds.append(now - self._last)
        self._last = now


def people(clients: int) -> Table:
    """Draw clients of 20 rows and eight columns each."""
    rng, rows = np.random.default_rng(0), clients * ROWS
    frame = pd.DataFrame({f"x{i}": rng.normal(size=rows).round(3) for i in range(8)})
    frame["sex"] = np.tile(["f", "m"], rows // 2)
    frame["y"] = (frame["x0"] + rng.normal(size=rows) > 0).astype(int)
    frame["site"] = np.repeat([f"c{i:05d}" for i in range(clients)], ROWS)
    return table_from_frame(
        frame, Task(label="y", favourable=1, sensitive=("sex",), client="site")
    )


def seconds_of_rounds(clients: int, rounds: int, every: int) -> np.ndarray:
    """Return the processor time of each round, all clients measured before and after the last."""
    watch = RoundTimes()
    with tempfile.TemporaryDirectory() as folder:
        mfairfl.train(
            people(clients),
            strategy="fedavg",
            rounds=rounds,
            local_epochs=1,
            batch_size=32,
            out=Path(folder) / "run",
            callbacks=[watch],
            workers=1,
            **{"training.participation": DRAWN / clients, "training.evaluate_every": every},
        )
    return np.array(watch.seconds)


def resting() -> None:
    """Print what a round costs."""
    print(f"A round of {DRAWN} clients × {ROWS} rows, between two full measurements:")
    first = 0.0
    for clients in CLIENTS:
        # The first is a full measurement, and pays for what is laid out once; so does the last.
        seconds = float(np.median(seconds_of_rounds(clients, ROUNDS, ROUNDS)[3:-1]))
        first = first or seconds
        print(f"{clients:>7,} clients  {1e3 * seconds:7.1f} ms  {seconds / first:5.2f} ×")


def measured() -> None:
    """Print what full measurements add to that."""
    print(f"\nA round of {DRAWN} clients × {ROWS} rows, all measured every {EVERY} rounds:")
    first, rounds = 0.0, CYCLES * EVERY
    for clients in MEASURED:
        # Files are written after a round, so they are part of the next one's time.
        seconds = seconds_of_rounds(clients, rounds + 3, EVERY)[2 : rounds + 2]
        between, mean = float(np.median(seconds)), float(seconds.mean())
        full = EVERY * (mean - between)
        first = first or mean
        print(
            f"{clients:>7,} clients  {1e3 * mean:7.1f} ms  {mean / first:5.2f} ×  "
            f"between {1e3 * between:5.1f} ms  a full measurement {1e3 * full:6.1f} ms = "
            f"{full / between:4.1f} rounds"
        )


# ------------------------------------------------------------------ workers


def timed(federation: Federation, count: int) -> tuple[float, str]:
    """Return the wall-clock seconds of ten rounds, and the served model's hash."""
    done = mfairfl.train(federation, rounds=10, workers=count)
    digest = hashlib.sha256(done.predictor.served.members.tobytes()).hexdigest()
    return done.record.timing.train_seconds, digest


def workers(repeats: int) -> None:
    """Print how much two workers save."""
    adult = mfairfl.load_dataset("adult")
    cases: dict[int, Federation] = {
        47: mfairfl.partition(adult, "iid", clients=47, seed=0),
        5: mfairfl.partition(adult, "high", seed=0),
    }
    print("\nmFairFL on Adult, 10 rounds of the default, wall-clock seconds:")
    for clients, federation in cases.items():
        best, models = {1: np.inf, 2: np.inf}, set()
        for _ in range(repeats):
            for count, least in list(best.items()):
                seconds, digest = timed(federation, count)
                best[count] = min(least, seconds)
                models.add(digest)
        same = "same model" if len(models) == 1 else "OTHER MODELS"
        print(
            f"{clients:>3} clients  one worker {best[1]:6.2f}  two {best[2]:6.2f}  "
            f"{best[1] / best[2]:4.2f} × (aim {AIMS[clients]})  {same}"
        )


# ------------------------------------------------------------------ the version before


def processor_seconds(source: Path) -> float:
    """Run the default command of a checkout, and return what it and its threads used."""
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = ["train", "--data", "adult", "--heterogeneity", "high", "--out", f"{folder}/run"]
        # As a user would: no limits on threads from outside.
        free = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
        subprocess.run(
            [sys.executable, "-m", "mfairfl", *command],
            check=True,
            capture_output=True,
            env=free | {"PYTHONPATH": str(source / "src")},
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def adult(base: Path, repeats: int) -> None:
    """Print what the default run costs here and there."""
    here = Path(__file__).resolve().parent.parent
    best = {"now": np.inf, "before": np.inf}
    for _ in range(repeats):
        for name, source in (("before", base), ("now", here)):
            best[name] = min(best[name], processor_seconds(source))
    ratio = best["now"] / best["before"]
    print(
        "\nmfairfl train --data adult --heterogeneity high, processor seconds from start to end:"
    )
    print(f"before {best['before']:.2f}  now {best['now']:.2f}  {ratio:.2f} × (aim: at most 0.5)")


def main() -> None:
    """Print all sections, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--base", type=Path, help="a checkout of the version before")
    parser.add_argument("--only", nargs="+", choices=SECTIONS)
    given = parser.parse_args()
    wanted = given.only or SECTIONS
    load = os.getloadavg()[0]
    print(f"{len(os.sched_getaffinity(0))} processors, load average {load:.1f} at the start\n")
    if "resting" in wanted:
        resting()
    if "measured" in wanted:
        measured()
    if "workers" in wanted:
        workers(given.repeats)
    if "adult" in wanted and given.base is not None:
        adult(given.base, given.repeats)


if __name__ == "__main__":
    main()
