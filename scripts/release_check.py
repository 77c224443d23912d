"""Run targets of the Makefile one after another, whatever becomes of each, and sum them up.

`make release-check` runs all that is asked of a release but `make test-pythons`, which downloads
gigabytes; `make reliability` runs the part about faults. The summary is written anew after every
target, so that a stop loses nothing. A target has passed if it ends with code 0 and its output
holds the figures that are its evidence.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import time
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

LOGS = Path("runs/release-check")
PYTEST = (r"^=*\s*((?:\d+ \w+, )*\d+ passed(?:, \d+ \w+)*)",)
FIGURES = {
    "gate-attacks": (
        r"growth \d+ MB at most",
        r"requests closed after [\d.]+ s",
        r"heartbeats meanwhile: \d+, \d+ failed",
    ),
    "durability": (
        r"\d+ damaged checkpoints: \d+ loaded silently",
        r"\d+ of \d+ bit-identical",
        r"disks: not tried",
    ),
    "failpoints": (r"\d+ of \d+ bit-identical", r"one run killed \d+ times: [\w-]+"),
    "deploy-demo": (r"the same bytes: \w+; the same metrics: \w+",),
    "fuzz": (r"[\d,]+ cases, [\d,]+ problems",),
    "deploy-faults": (r"\d+ faults end as documented.*",),
    "deploy-kills": (r"\d+ of \d+ end in .*",),
    "test-wheel": PYTEST,
    "test-lowest": PYTEST,
}
"""The targets, quick ones first, and what in their output is kept in the summary."""


@dataclass(frozen=True)
class Result:
    """What became of a target."""

    target: str
    passed: bool
    minutes: float
    figures: str

    def line(self) -> str:
        """Return its line of the summary."""
        outcome = "passed" if self.passed else "FAILED"
        where = LOGS / f"{self.target}.txt"
        return f"{self.target:13} {outcome} {self.minutes:5.1f} min  {self.figures}  ({where})"


def key_figures(target: str, output: str) -> str:
    """Return the figures of a target's output, in the order of its patterns."""
    times = Counter[str]()
    for pattern in FIGURES[target]:
        times.update(re.findall(pattern, output, flags=re.MULTILINE))
    return "; ".join(f"{n} × {figure}" if n > 1 else figure for figure, n in times.items())


def run_target(target: str, make: list[str]) -> Result:
    """Run one target; its whole output is kept in a file."""
    log, began = LOGS / f"{target}.txt", time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as file:
        code = subprocess.run(
            [*make, target], stdout=file, stderr=subprocess.STDOUT, check=False
        ).returncode
    figures = key_figures(target, log.read_text(encoding="utf-8", errors="replace"))
    problem = f"exit code {code}" if code else "" if figures else "no figures in its output"
    parts = "; ".join(filter(None, (problem, figures)))
    return Result(target, not problem, (time.monotonic() - began) / 60, parts)


def heading() -> str:
    """Say what is checked, and where."""
    version = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"][
        "version"
    ]
    changed = _git("status", "--porcelain", "--untracked-files=no")
    commit = _git("rev-parse", "--short=12", "HEAD") + " with changes" * bool(changed)
    return (
        f"mfairfl {version}, commit {commit}, {time.strftime('%Y-%m-%d')}; "
        f"Python {platform.python_version()}, {platform.system()}, {os.cpu_count()} processors"
    )


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def summary(title: str, results: list[Result], remaining: list[str]) -> str:
    """Return the whole summary."""
    passed = sum(result.passed for result in results)
    total = sum(result.minutes for result in results)
    lines = [title, "", *(result.line() for result in results)]
    lines += [f"{target:13} not run" for target in remaining]
    of_all = len(results) + len(remaining)
    return "\n".join([*lines, "", f"{passed} of {of_all} passed in {total:.0f} minutes"]) + "\n"


def check(targets: list[str], out: Path, make: list[str]) -> bool:
    """Run the targets and write the summary; say whether all passed."""
    title, results = heading(), list[Result]()
    for at, target in enumerate(targets):
        remaining = targets[at + 1 :]
        out.write_text(summary(title, results, targets[at:]), encoding="utf-8")
        after = f"; then {', '.join(remaining)}" if remaining else ""
        print(f"[{at + 1}/{len(targets)}] {target}{after}", flush=True)
        results.append(run_target(target, make))
        print(results[-1].line(), flush=True)
    text = summary(title, results, [])
    out.write_text(text, encoding="utf-8")
    print(f"\n{text}\n{out} is written")
    return all(result.passed for result in results)


def main(words: list[str] | None = None) -> int:
    """Run the targets that are named, by default all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(FIGURES))
    parser.add_argument("--out", type=Path, default=Path("results/release-check.txt"))
    parser.add_argument("--make", default="make", help="the program (default: make)")
    given = parser.parse_args(words)
    if unknown := set(given.targets) - set(FIGURES):
        parser.error(f"unknown target {', '.join(sorted(unknown))}; known: {', '.join(FIGURES)}")
    passed = check(given.targets or list(FIGURES), given.out, [given.make])
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
