"""Play many runs in which one answer of one client was mutated; count what must not happen.

    make fuzz COUNT=100000

Every case replays the valid answers of a short run but for one, which is mutated: bytes, texts,
structure, types, shapes, names, numbers. Counted are cases that end the run, that take more than
two seconds of processor time, that leave a model which is not finite or more than ten times as
long as the honest run's, and memory beyond that of the same case with a valid answer. Memory is
traced in one case of a hundred (it makes a case slower), and limited to twice the largest answer
that is read.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import random
import resource
import sys
import tempfile
import time
import tracemalloc
import warnings
from collections import Counter
from pathlib import Path

from fuzzing import SECONDS, Case, Outcome, Stage, all_stages, judged, unchanged
from mfairfl.text import aligned

MEMORY_EVERY = 100
SHARES = {"enrolment": 3, "names of nodes": 1}
"""How often a stage is played, where not twice as often as the least."""


def main() -> int:
    """Play the cases, print the counts, and fail if one of them is not 0."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=100_000, help="cases")
    parser.add_argument("--seed", type=int, default=0, help="the first case's number")
    given = parser.parse_args()
    for name in ("mfairfl", "flwr"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore", RuntimeWarning)  # numbers overflow before they are refused
    with tempfile.TemporaryDirectory() as folder:
        stages = all_stages(Path(folder))
        return play(stages, given.count, given.seed)


def play(stages: dict[str, Stage], count: int, first: int) -> int:
    """Play `count` cases in turn over the stages; return the exit code."""
    turns = itertools.cycle(name for name in stages for _ in range(SHARES.get(name, 2)))
    usual = {name: traced(stage.case(numbered(0), unchanged)) for name, stage in stages.items()}
    outcomes: list[tuple[str, int, Outcome]] = []
    growth, before, began = 0.0, high_water(), time.process_time()
    for seed in range(first, first + count):
        name = next(turns)
        stage = stages[name]
        outcomes.append((name, seed, judged(stage, seed)))
        if seed % MEMORY_EVERY == 0:
            more = traced(stage.case(numbered(seed))) - usual[name]
            growth = max(growth, more / stage.largest)
    seconds = time.process_time() - began
    show(outcomes)
    slowest = max(outcome.seconds for _, _, outcome in outcomes)
    problems = sum(bool(outcome.problem) for _, _, outcome in outcomes)
    print(f"\n{count:,} cases, {problems:,} problems")
    print(f"{count / seconds:.0f} cases a second of processor time")
    print(f"slowest case: {slowest:.2f} s (limit {SECONDS:g})")
    print(f"largest growth of memory: {growth:.2f} times the largest answer read (limit 2)")
    print(f"resident memory: {before} MB before, at most {high_water()} MB")
    return int(problems > 0 or growth > 2)


def show(outcomes: list[tuple[str, int, Outcome]]) -> None:
    """Print the counts by stage and by kind, and the first case of every kind of problem."""
    for title, keys in (
        ("stage", [n for n, _, _ in outcomes]),
        ("answer", [o.kind for *_, o in outcomes]),
    ):
        cases, wrong = Counter(keys), Counter[tuple[str, str]]()
        for key, (_, _, outcome) in zip(keys, outcomes, strict=True):
            wrong[key, problem_of(outcome)] += 1
        rows = [[title, "cases", *PROBLEMS]]
        for key in [*cases, "all"]:
            counts = [
                sum(n for (k, p), n in wrong.items() if p == what and key in (k, "all"))
                for what in PROBLEMS
            ]
            total = len(outcomes) if key == "all" else cases[key]
            rows.append([key, f"{total:,}", *(f"{n:,}" for n in counts)])
        print("\n".join(aligned(rows, right=range(1, 9))) + "\n")
    seen = set()
    for name, seed, outcome in outcomes:
        key = name, outcome.kind, problem_of(outcome)
        if outcome.problem and key not in seen:
            seen.add(key)
            print(f"case {seed} ({name}, {outcome.kind}): {outcome.problem[:200]}")


PROBLEMS = ("ended", "hung or slow", "not finite", "|w| > 10 ×", "other")


def problem_of(outcome: Outcome) -> str:
    """Return the column that a problem is counted in; empty without one."""
    said = outcome.problem
    if not said:
        return ""
    for begins, what in zip(
        ("ends", ("hangs", "takes"), "the model", "|w|"), PROBLEMS, strict=False
    ):
        if said.startswith(begins):
            return what
    return "other"


def traced(case: Case) -> int:
    """Return the bytes that a case allocates at once; the message itself is there before."""
    tracemalloc.start()
    try:
        case.run()
    except Exception as error:  # counted where the case is judged
        logging.getLogger("fuzz").debug("%s", error)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def numbered(seed: int) -> random.Random:
    """Return what decides the case of this number."""
    return random.Random(seed)  # noqa: S311 - nothing secret


def high_water() -> int:
    """Return the most memory this process ever had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    sys.exit(main())
