"""Milliseconds a round beside other libraries for federated learning, on the same work.

Each library is installed into an environment of its own under `.cache/peers` (kept for the next
time) and run as a process of its own; all do blocks of rounds in turn, on one thread each. The
first rounds warm up. The scripts in `peer_runs/` say how each library is used; in short: the same
rows, the same network, batch size and participants, one local epoch, an average weighted by size.
Ours measures fairness as often as by default; the others measure nothing.

A library that cannot be installed or run is a line that says why. `best` is the mean over a block
with each of its rounds at its best in all blocks (so that rounds that measure count as often as
they come, and a busy machine counts less), `median` that of the blocks' means. `cpu` is the best
of the processor time, which a busy machine disturbs least; flwr, which works in several processes,
has none. Ratios compare the best. Only ratios of one run are meant to be compared.

Packages come from wherever pip is set up to find them. PyTorch is pinned; where pip finds only a
build for GPUs, every environment takes gigabytes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import IO, Any

from peer_runs.shapes import SHAPES, Shape, write_rows

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent / ".cache" / "peers"
TORCH = "torch==2.13.0"
FREE_GIGABYTES = 5
INSTALL_SECONDS = 1800
STOP_SECONDS = 20
# A block of ours covers every cadence of measuring that divides it, so that none is left out.
OUR_ROUNDS = 20
BLOCK_SECONDS = 4.0  # others do fewer rounds a block where they would take longer


@dataclass(frozen=True, slots=True)
class Peer:
    """A module of `peer_runs`; with `requirements` it runs in an environment that has them.

    `rounds` are those of a block, where they do not follow from `--rounds` and the time.
    """

    module: str
    title: str
    requirements: tuple[str, ...] = ()
    rounds: int | None = None

    @property
    def home(self) -> Path:
        """Where its environment is; the first requirement names it."""
        return CACHE / re.split(r"\W", "".join(self.requirements[:1]))[0]

    @property
    def python(self) -> Path:
        """The interpreter that runs it."""
        return self.home / "bin" / "python" if self.requirements else Path(sys.executable)


PEERS = (
    Peer("ours", "mfairfl", rounds=OUR_ROUNDS),
    Peer("ours_written", "mfairfl, run directory", rounds=OUR_ROUNDS),
    Peer("products", "bare products"),
    Peer("torch_loop", "PyTorch loop"),
    Peer("pfl", "pfl", ("pfl==0.6.0", TORCH)),
    Peer("fluke", "fluke", ("fluke-fl==0.8.1", TORCH)),
    Peer("fedlab", "FedLab", ("fedlab==1.3.0", TORCH)),
    Peer("fedlab_sgd", "FedLab, its own SGD", ("fedlab==1.3.0", TORCH)),
    Peer("flwr", "flwr + Ray", ("flwr[simulation]==1.41.0", TORCH)),
)

QUIET = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "FLWR_HOME": str(CACHE / "flwr-home"),
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "WANDB_MODE": "disabled",
}


Times = tuple[float, float | None]
"""Seconds and processor seconds of a round."""


class PeerError(Exception):
    """Why a library has no figures, in one line."""


def install(peer: Peer) -> None:
    """Make a library's environment, unless it is there."""
    done, wanted = peer.home / "installed.txt", "\n".join(peer.requirements)
    if not wanted or (done.is_file() and done.read_text() == wanted):
        return
    say(f"installing {', '.join(peer.requirements)}")
    if shutil.disk_usage(CACHE).free < FREE_GIGABYTES * 1e9:
        raise PeerError(f"not installed: less than {FREE_GIGABYTES} GB of disk are free")
    began = time.monotonic()
    quiet = ("--disable-pip-version-check", "--no-input", "--quiet", "--retries", "1")
    commands: list[list[str | Path]] = [
        [sys.executable, "-m", "venv", "--clear", peer.home],
        [peer.python, "-m", "pip", "install", *quiet, *peer.requirements],
    ]
    for command in commands:
        left = INSTALL_SECONDS - (time.monotonic() - began)
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=left)
        except subprocess.CalledProcessError as error:
            said = last_line(error.stderr, error.stdout)
            raise PeerError(f"could not be installed: {said}") from error
        except subprocess.TimeoutExpired as error:
            raise PeerError(f"could not be installed in {INSTALL_SECONDS} s") from error
    done.write_text(wanted)


def last_line(*texts: str) -> str:
    """Return the last line that says something, without addresses and paths."""
    lines = [line.strip() for text in texts for line in reversed(text.splitlines())]
    line = next((line for line in lines if line), "it said nothing")
    return re.sub(r"\w+://\S+|(?<!\w)(/[\w.+-]+){2,}", "…", line)[:200]


@dataclass(slots=True)
class Runner:
    """A process that does rounds when it is asked to, and what is known of it."""

    peer: Peer
    process: subprocess.Popen[bytes] | None = None
    errors: IO[bytes] | None = None
    rounds: int = 1
    versions: dict[str, str] = field(default_factory=dict)
    blocks: list[list[Times]] = field(default_factory=list)
    failure: str | None = None

    def start(self, settings: dict[str, Any]) -> None:
        """Start the process; it says its versions when it is ready."""
        own = os.environ.get("PYTHONPATH") if not self.peer.requirements else None
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        self.process = subprocess.Popen(
            [self.peer.python, "-m", "peer_runs", self.peer.module, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={
                **os.environ,
                **QUIET,
                "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), own])),
            },
            cwd=CACHE,
            start_new_session=True,  # Ctrl-C is for us; we end the others
        )

    @property
    def best(self) -> float:
        """Seconds a round."""
        return best([[seconds for seconds, _ in block] for block in self.blocks])

    @property
    def usual(self) -> float:
        """Seconds a round: the median of the blocks' means."""
        return median(fmean(seconds for seconds, _ in block) for block in self.blocks)

    @property
    def cpu(self) -> float | None:
        """Processor seconds a round, where one process does all of it."""
        spent = [[cpu for _, cpu in block if cpu is not None] for block in self.blocks]
        return best(spent) if all(spent) else None

    def block(self, seconds: float) -> list[Times]:
        """Do the rounds of a block and return their times."""
        assert self.process is not None
        assert self.process.stdin is not None
        deadline = time.monotonic() + seconds
        times: list[Times] = []
        for _ in range(self.rounds):
            with suppress(BrokenPipeError):  # it has ended: its last words are read instead
                self.process.stdin.write(b"\n")
                self.process.stdin.flush()
            times.append(tuple(self.answer(deadline)))
        return times

    def answer(self, deadline: float) -> Any:
        """Return the next line of the process, as JSON."""
        assert self.process is not None
        assert self.process.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise PeerError("stopped: no answer in time")
            piece = os.read(self.process.stdout.fileno(), 4096)
            if not piece:
                raise PeerError(self.last_words())
            line += piece
        return json.loads(line)

    def last_words(self) -> str:
        """Return how a process ended that should not have."""
        assert self.process is not None
        assert self.errors is not None
        code = ended(self.process, time.monotonic() + STOP_SECONDS)
        self.errors.seek(0)
        said = last_line(self.errors.read().decode(errors="replace"))
        return f"stopped with code {code}: {said}"

    def close(self) -> None:
        """End the process and what it started by force, and let go of its files."""
        if self.process is None or self.process.returncode is not None:
            return
        with suppress(ProcessLookupError):  # nothing is left of it
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for file in (self.process.stdout, self.errors):
            assert file is not None
            file.close()


def best(blocks: Sequence[Sequence[float]]) -> float:
    """Return the mean over a block, each of its rounds at its best in all blocks."""
    return fmean(map(min, zip(*blocks, strict=True)))


def ended(process: subprocess.Popen[bytes], deadline: float) -> int | None:
    """Wait for a process and return its code, or None if it goes on.

    It is not let go of: as long as its number is taken, ending its group cannot hit another.
    """
    while process.returncode is None:
        found = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is not None:
            return found.si_status
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.05)
    return process.returncode


def stop(runners: Sequence[Runner]) -> None:
    """End processes: first by asking, then by force."""
    processes = [runner.process for runner in runners if runner.process is not None]
    for process in processes:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already
            process.stdin.close()
    deadline = time.monotonic() + STOP_SECONDS
    for process in processes:
        ended(process, deadline)
    for runner in runners:
        runner.close()


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured."""

    rounds: int
    blocks: int
    timeout: float


def installed(peers: Sequence[Peer]) -> dict[str, str]:
    """Install what is missing; return why some could not be."""
    CACHE.mkdir(parents=True, exist_ok=True)
    missing = {}
    for peer in peers:
        try:
            install(peer)
        except PeerError as error:
            missing[peer.module] = str(error)
            say(f"{peer.title}: {error}")
    return missing


def compare(
    key: str, peers: Sequence[Peer], missing: dict[str, str], options: Options
) -> list[Runner]:
    """Let libraries do blocks of the same work in turn, each after two rounds to warm up."""
    shape, file = SHAPES[key], CACHE / "rows" / f"{key}.npz"
    write_rows(shape, file)
    settings = {
        "shape": key,
        "rows": str(file),
        "hidden": shape.hidden,
        "batch": shape.batch,
        "drawn": shape.drawn,
        "rounds": (options.blocks + 2) * max(OUR_ROUNDS, options.rounds),
    }
    runners = [Runner(peer, failure=missing.get(peer.module)) for peer in peers]
    try:
        for runner in runners:
            attempt(runner, begin, settings, options)
        for block in range(options.blocks):
            say(f"{shape.title}: block {block + 1} of {options.blocks}")
            # Back and forth: nobody always runs after the same neighbour.
            for runner in runners if block % 2 == 0 else reversed(runners):
                attempt(runner, measure, options)
    finally:
        stop(runners)
    return runners


def attempt(runner: Runner, step: Callable[..., None], *arguments: object) -> None:
    """Take a step with a library that has not failed yet; if it fails now, that is its result."""
    if runner.failure is not None:
        return
    try:
        step(runner, *arguments)
    except PeerError as error:
        runner.failure = str(error)
        say(f"{runner.peer.title}: {error}")
        stop([runner])


def begin(runner: Runner, settings: dict[str, Any], options: Options) -> None:
    """Start a library, warm it up, and settle how many rounds a block of it has."""
    runner.start(settings)
    runner.versions = runner.answer(time.monotonic() + options.timeout)
    runner.block(options.timeout)
    ((seconds, _),) = runner.block(options.timeout)
    few = max(1, min(options.rounds, int(BLOCK_SECONDS / seconds)))
    runner.rounds = runner.peer.rounds or few


def measure(runner: Runner, options: Options) -> None:
    runner.blocks.append(runner.block(options.timeout))


def table(shape: Shape, runners: Sequence[Runner]) -> list[str]:
    """Return the lines of one shape."""
    ours = next((r for r in runners if r.peer.module == "ours" and r.failure is None), None)
    wall, spent = (ours.best, ours.cpu) if ours else (None, None)
    columns = f"{'best ms':>9}{'median ms':>11}{'/ ours':>9}{'cpu ms':>11}{'/ ours':>9}"
    lines = [shape.title, f"{'':24}{columns}  rounds"]
    for runner in runners:
        name = f"  {runner.peer.title:22}"
        if runner.failure is not None:
            lines.append(f"{name}{runner.failure}")
            continue
        cpu = "-" if runner.cpu is None else f"{1e3 * runner.cpu:,.1f}"
        numbers = f"{1e3 * runner.best:9,.1f}{1e3 * runner.usual:11,.1f}"
        numbers += f"{ratio(runner.best, wall):>9}{cpu:>11}{ratio(runner.cpu, spent):>9}"
        lines.append(f"{name}{numbers}  {len(runner.blocks)} × {runner.rounds}")
    return lines


def ratio(value: float | None, to: float | None) -> str:
    return "-" if value is None or to is None else f"{value / to:.3g}"


def header(options: Options) -> list[str]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = f"load {os.getloadavg()[0]:.1f} at the start (0 is a quiet machine)"
    return [
        "Milliseconds a round of federated averaging, one local epoch, on the same rows",
        f"{cores} cores ({platform.machine()}), Python {platform.python_version()}, one thread "
        f"each; flwr + Ray uses two workers of one thread; {load}",
        f"{options.blocks} blocks in turn after a warm-up; best: each round of a block at its "
        "best in all blocks; median: of the blocks' means; cpu: best processor time",
        "mfairfl measures fairness as often as by default, the others nothing; see peer_runs/",
    ]


def versions(runners: Sequence[Runner]) -> str:
    found = {name: version for runner in runners for name, version in runner.versions.items()}
    return "Versions: " + ", ".join(f"{name} {version}" for name, version in found.items())


def say(text: str) -> None:
    """Tell whoever waits what is going on."""
    print(text, file=sys.stderr, flush=True)


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"give a whole number from 1, not '{text}'")
    return int(text)


def names(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Return a reader of comma-separated names."""

    def read(text: str) -> list[str]:
        for name in text.split(","):
            if name not in known:
                raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(known)}")
        return text.split(",")

    return read


def main() -> int:
    modules = [peer.module for peer in PEERS]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=names(modules), default=modules, help="names, with commas")
    parser.add_argument("--shapes", type=names([*SHAPES]), default=[*SHAPES], help="the same")
    parser.add_argument(
        "--rounds", type=positive, default=5, help="of a block, at most (not ours)"
    )
    parser.add_argument("--blocks", type=positive, default=5)
    parser.add_argument("--timeout", type=float, default=300, help="seconds for a block")
    parser.add_argument("--out", type=Path, help="file for the result, written at the end")
    given = parser.parse_args()
    options = Options(rounds=given.rounds, blocks=given.blocks, timeout=given.timeout)
    peers = [peer for peer in PEERS if peer.module in given.only]
    text, everybody, code = header(options), list[Runner](), 0
    try:
        missing = installed(peers)
        for key in given.shapes:
            runners = compare(key, peers, missing, options)
            text += ["", *table(SHAPES[key], runners)]
            everybody += runners
    except KeyboardInterrupt:
        say("interrupted: what is complete follows, and no file is written")
        code = 130
    text += ["", versions(everybody)]
    print("\n".join(text))
    if given.out is not None and code == 0:
        given.out.write_text("\n".join(text) + "\n", encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
