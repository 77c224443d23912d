"""Kill a run at every failpoint of every round; count those that end in the same bytes.

Each kill has a run of its own, which is then finished by the same call: its model, encoder, both
histories, checkpoints and record (but for the time it took) must equal those of a run that nobody
disturbed, byte for byte, and no other file may be left. One more run is killed at all of these
places in succession, and also where it starts, takes up its files again and ends.

Every start is a fork of this process, which has everything loaded: no second is spent on imports.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Iterable
from pathlib import Path

import mfairfl
from mfairfl.data import table_from_frame
from mfairfl.failpoints import VARIABLE
from mfairfl.runs.record import RunRecord
from mfairfl.testing import TASK, people

ROUND = (
    *("round.planned", "round.trained", "round.combined", "round.advanced", "round.measured"),
    *("history.rounds", "history.clients", "checkpoint.begun"),
    *("file.written", "file.synced", "file.renamed", "checkpoint.committed"),
)
"""Where a round can be interrupted, in the order in which it passes these places."""

STRATEGIES = ("mfairfl", "scaffold")
"""One whose server keeps state between rounds, and one whose clients do as well."""

TABLE = table_from_frame(people(), TASK, name="people")


def train(out: Path, strategy: str, rounds: int) -> None:
    """Make the run, or take it up."""
    settings = {"hidden": (8,), "batch_size": 16, "local_epochs": 1, "output_rule": "mixture"}
    mfairfl.train(TABLE, strategy=strategy, rounds=rounds, out=out, **settings)


def start(out: Path, strategy: str, rounds: int, place: str = "") -> int:
    """Make the run in a fork of this process that dies at `place`; return its exit code."""
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 1
    try:
        os.environ[VARIABLE] = place
        train(out, strategy, rounds)
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)


def result(out: Path) -> dict[str, object]:
    """Return every file of a run; of the record all but the time."""
    files: dict[str, object] = {
        str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()
    }
    files["run.json"] = RunRecord.read(out).model_dump(mode="json", exclude={"timing"})
    return files


def in_round(name: str, round_: int) -> str:
    """Return what to set for a failpoint in a round."""
    return f"{name}@round-{round_:06d}.ckpt" if name.startswith("file.") else f"{name}@{round_}"


def in_file(name: str) -> list[str]:
    return [f"file.{step}@{name}" for step in ("written", "synced", "renamed")]


def whole_run(rounds: int) -> Iterable[str]:
    """Return every place of a run, in the order in which it passes them."""
    yield from (*in_file("run.json"), *in_file("encoder.json"))
    yield from (in_round(name, 0) for name in ROUND if not name.startswith("round."))
    for round_ in range(1, rounds + 1):
        # At both of the last two the round counts: it is not passed again.
        names = (*ROUND[:-2], ROUND[-2 + round_ % 2])
        yield from (in_round(name, round_) for name in names)
        yield from (*in_file("rounds.csv"), *in_file("clients.csv"))  # when it is taken up
    yield from ("run.trained", *in_file("model.safetensors"), *in_file("scores.safetensors"))
    yield from ("run.served", *in_file("run.json"))


def survives(out: Path, strategy: str, rounds: int, places: Iterable[str]) -> bool:
    """Kill a run at these places, one after the other, and finish it; say if it died each time."""
    died = [start(out, strategy, rounds, place) == -signal.SIGKILL for place in places]
    return all(died) and start(out, strategy, rounds) == 0


def sweep(folder: Path, strategy: str, rounds: int) -> bool:
    """Kill runs of a strategy everywhere, print what became of them, and say if all were equal."""
    began, same, kills = time.monotonic(), 0, len(ROUND) * rounds
    train(folder / "undisturbed", strategy, rounds)  # here, so that all is loaded before the forks
    expected = result(folder / "undisturbed")
    for place in (in_round(name, r) for name in ROUND for r in range(1, rounds + 1)):
        out = folder / place
        equal = survives(out, strategy, rounds, [place]) and result(out) == expected
        same += equal
        if not equal:
            print(f"{strategy} differs after {place}")
    print(
        f"{strategy}, {len(ROUND)} failpoints × {rounds} rounds: {same} of {kills} bit-identical "
        f"({time.monotonic() - began:.0f} s)",
        flush=True,
    )
    places, out = list(whole_run(rounds)), folder / "again and again"
    equal = survives(out, strategy, rounds, places) and result(out) == expected
    outcome = "bit-identical" if equal else "differs"
    print(f"{strategy}, one run killed {len(places)} times: {outcome}", flush=True)
    return equal and same == kills


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10, help="rounds of a run (default: 10)")
    parser.add_argument("--strategy", nargs="+", default=STRATEGIES, help="what is trained")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        equal = [sweep(Path(name) / one, one, args.rounds) for one in args.strategy]
    if not all(equal):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
