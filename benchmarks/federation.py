"""What a federation over Flower costs: bytes, an exchange, many clients, a real deployment.

Every part prints a block of Markdown between markers. The page docs/federation-cost.md holds the
same blocks: `--page` copies them there from benchmarks/federation.txt.

bytes       What every method sends in a round, counted on the objects Flower makes of a message
            (arrays, text, its own envelopes; HTTP and TLS are not counted).
exchange    The same run in the embedded engine and over a Grid in this process: real server,
            client app, checks, and Flower's bytes in between. Both must end in the same weights.
clients     What the server alone pays for 5, 50 and 500 clients. They are stubs with random
            updates in a process of their own; everything the server does with them is real.
deployment  `mfairfl deploy local`, from its journal, beside `mfairfl train`.

exchange and clients count seconds of the processor, so that a busy machine disturbs them little;
best of several alternating repetitions. deployment is a clock on the wall. Needs Linux.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial, wraps
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import flwr
import numpy as np
import torch
from flwr.app import Context, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from mfairfl.coordinator import transport
from mfairfl.coordinator.enrolment import EnrolmentTerms, enrol
from mfairfl.data import Attribute, Federation
from mfairfl.deployment import silo_app
from mfairfl.deployment.local import write_deployment
from mfairfl.deployment.settings import load_federation
from mfairfl.engine import embedded
from mfairfl.engine.checkpoint import Checkpoints
from mfairfl.engine.clients import LocalClients
from mfairfl.engine.loop import first_state
from mfairfl.engine.state import Answer, RoundRecord, RunState, Score, Setup, Train
from mfairfl.fairness.cells import Statistics
from mfairfl.fairness.scores import RowScores, ScoreSums
from mfairfl.files import write_atomically
from mfairfl.flower import grid
from mfairfl.flower.records import from_records, to_records
from mfairfl.models import MLP
from mfairfl.runs.config import Config, make_config
from mfairfl.runs.execute import federation_of, model_of, setup_for, setup_of, table_of
from mfairfl.runs.history import History
from mfairfl.runs.record import RunRecord
from mfairfl.silo import responder
from mfairfl.strategies import available, create
from mfairfl.strategies.base import Summary
from mfairfl.training.execution import steady_arithmetic
from mfairfl.training.plan import Report
from mfairfl.wire.enrolment_messages import ModelTerms
from mfairfl.wire.packing import pack
from mfairfl.wire.run_messages import Shape, answer_message, unpack_ask

HERE = Path(__file__).resolve()
KEPT = HERE.with_suffix(".txt")
PAGE = HERE.parents[1] / "docs" / "federation-cost.md"
RUN = "cost"
CLIENTS = 5
INPUTS = 91  # encoded features of Adult
WORK, DISK, SETTINGS, PACK, CHECK, OBJECTS = (
    "training and measuring",
    "rows read from disk, for every message",
    "silo.toml read, for every message",
    "messages packed",
    "messages checked and unpacked",
    "Flower's objects to bytes and back",
)
REST = "round loop, strategy, the rest"
RECORD = "history and checkpoint"
CLIENT, THEIRS = "the client's end", "the client's end of Flower's objects"


# ------------------------------------------------------------------ clock and Grid


class Clock:
    """Adds up processor seconds under the innermost name."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self._open, self._last = [REST], time.process_time()

    @contextlib.contextmanager
    def at(self, name: str) -> Iterator[None]:
        """Put what happens in the block under this name."""
        self._turn()
        self._open.append(name)
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def _turn(self) -> None:
        now = time.process_time()
        self.spent[self._open[-1]] += now - self._last
        self._last = now

    @contextlib.contextmanager
    def watching(self, places: Iterable[tuple[object, str, str]]) -> Iterator[None]:
        """Start afresh, and put calls of these functions (owner, attribute) under their names."""
        with contextlib.ExitStack() as stack:
            for owner, attribute, name in places:
                timed = self._timed(getattr(owner, attribute), name)
                stack.enter_context(patch.object(owner, attribute, timed))
            self.spent.clear()
            self._last = time.process_time()
            with self.at(REST):
                yield

    def _timed(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.at(name):
                return function(*args, **kwargs)

        return timed


SERVER = (
    (transport, "pack_ask", PACK),
    (grid.GridTransport, "_message", PACK),
    (transport, "unpack_answer", CHECK),
    (grid, "from_records", CHECK),
    (History, "on_round", RECORD),
    (Checkpoints, "on_round", RECORD),
)
EVERYWHERE = (
    *SERVER,
    (LocalClients, "answer", WORK),
    (responder.Responder, "_open", DISK),
    (silo_app, "load_silo", SETTINGS),
    (responder, "pack", PACK),
    (silo_app, "to_records", PACK),
    (responder, "unpack_ask", CHECK),
    (silo_app, "from_records", CHECK),
)


@dataclass(slots=True)
class Count:
    """Bytes and messages under (phase, direction, kind); told of the phases by the loop."""

    phase: str = "enrolment"
    sizes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)

    def add(self, direction: str, message: Message, size: int) -> None:
        """Count a message."""
        kind = from_records(message.content)[1].request.kind
        self.sizes[self.phase, direction, kind] += size
        self.messages[self.phase] += direction == "down"

    def on_start(self, setup: Setup, state: RunState) -> None:
        """Before the first measurement."""
        del setup, state
        self.phase = "start"

    def on_round(self, setup: Setup, state: RunState, record: RoundRecord) -> None:
        """After the first measurement (round 0), and after each of four rounds.

        The second and third are counted: the first has no control variate to send yet, and from
        the third on methods that choose among rounds measure two models.
        """
        del setup, state
        self.phase = ("first round", "rounds", "rounds", "last round", "end")[record.round]


class Loopback(Grid):
    """A Grid in this process whose messages travel as Flower's bytes.

    `handle(message)` answers as a client; its time, and its side of the bytes, is the clients'.
    """

    def __init__(
        self, names: Sequence[str], handle: Callable[[Message], Message], clock: Clock
    ) -> None:
        # Message() asks for them; a deployed process has them set.
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
        self.names, self._handle, self._clock = dict(enumerate(names, start=2)), handle, clock
        self.count: Count | None = None
        self._replies: list[Message] = []

    def transport(self) -> grid.GridTransport:
        """Return the server's end; nodes are known by keys, as in a deployment."""
        members = {name.encode(): name for name in self.names.values()}
        return grid.GridTransport(self, RUN, deadline=600, members=members, signals=self)

    def announce_messages(self) -> None:
        """Nothing: every answer is there as soon as it is asked for."""

    def visit(self, key: bytes) -> bytes:
        """Return a mark that always differs."""
        del key
        return os.urandom(8)

    def get_nodes(self) -> list[NodeInfo]:
        """Everybody is online."""
        return [NodeInfo(node_id=n, public_key=name.encode()) for n, name in self.names.items()]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Let each client answer, one after the other."""
        self._replies = [self._carry(message) for message in messages]
        return [reply.metadata.reply_to_message_id for reply in self._replies]

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the answers."""
        del message_ids
        return self._replies

    def _carry(self, message: Message) -> Message:
        there = self._bytes("down", message, OBJECTS)
        with self._clock.at(CLIENT):
            reply = self._handle(self._message(there, THEIRS))
            back = self._bytes("up", reply, THEIRS)
        return self._message(back, OBJECTS)

    def _bytes(self, way: str, message: Message, name: str) -> dict[str, bytes]:
        """Return the message's objects; the last is the message itself."""
        with self._clock.at(name), no_object_id_recompute():
            objects = get_all_nested_objects(message)
            contents = {key: each.deflate() for key, each in objects.items()}
            message.metadata.__dict__["_message_id"] = message.object_id
        if self.count is not None:
            self.count.add(way, message, sum(map(len, contents.values())))
        return contents

    def _message(self, contents: dict[str, bytes], name: str) -> Message:
        with self._clock.at(name):
            key = list(contents)[-1]
            found = inflate_object_from_contents(key, contents)
            assert isinstance(found, Message)
            found.metadata.__dict__["_message_id"] = key
            return found

    def _unused(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    set_run = create_message = get_node_ids = send_and_receive = _unused
    run = property(_unused)


# ------------------------------------------------------------------ Adult over a Grid


def configure(name: str, rounds: int, epochs: int, **clients: Any) -> Config:
    return make_config(
        {
            "seed": 5,
            "data": {"name": "adult"},
            "clients": {"scheme": "high", "count": CLIENTS, **clients},
            "training": {"rounds": rounds, "local_epochs": epochs, "evaluate_every": 1},
            "strategy": {"name": name},
        }
    )


class Adult:
    """Five silos with a file of Adult's rows each, and the same rows in one federation."""

    def __init__(self, folder: Path) -> None:
        config = configure("fedavg", 1, 1)
        self.federation: Federation = federation_of(config, table_of(config))
        self._folder = write_deployment(config, folder, silos=None, deadline=600).parent
        settings = load_federation(self._folder / "federation.toml")
        self._files = {n: self._folder / "silos" / n / "silo.toml" for n in settings.silos}
        self.clock = Clock()
        self.grid = Loopback(sorted(self._files), self._answer, self.clock)
        self.enrolment = self.grid.count = Count()
        self._transport, task = self.grid.transport(), settings.config().task
        assert task is not None
        model = ModelTerms(hidden=config.model.hidden)
        terms = EnrolmentTerms(task=task, seed=config.seed, model=model, encoder=config.encoder)
        self._enrolled = enrol(self._transport, sorted(self._files), terms, minimum=CLIENTS)
        self.grid.count = None

    def _answer(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        context = Context(
            run_id=1,
            node_id=node,
            node_config={"silo": str(self._files[self.grid.names[node]])},
            state=RecordDict(),
            run_config={},
        )
        reply = silo_app.app(message, context)
        if reply.has_error():
            raise RuntimeError(reply.error.reason)
        return reply

    def over_grid(self, config: Config, *callbacks: Any) -> np.ndarray:
        """Run over the Grid; return the last weights."""
        for file in self._files.values():  # what the last run kept
            shutil.rmtree(file.parent / "state" / RUN / "slots", ignore_errors=True)
        counts, attributes = self._enrolled.counts, self._enrolled.attributes
        goal = config.goal(tuple(a.name for a in attributes))
        model = MLP(len(self._enrolled.encoder.feature_names), config.model.hidden)
        setup = setup_for(
            config,
            size=model.size,
            summary=Summary(counts=counts["train"], attributes=attributes, goal=goal),
            splits=("train", "test"),
        )
        state = first_state(setup, model)
        transport.drive(setup, state, self._transport, minimum=CLIENTS, callbacks=callbacks)
        return state.weights

    def here(self, config: Config) -> np.ndarray:
        """Run the same in the embedded engine."""
        model = model_of(config, self.federation.pool.inputs.width)
        setup = setup_of(config, self.federation, model)
        state = first_state(setup, model)
        member = embedded.Member(setup=setup, model=model, federation=self.federation, state=state)
        with steady_arithmetic():
            embedded.run_all([member])
        return state.weights


@contextlib.contextmanager
def adult() -> Iterator[Adult]:
    with tempfile.TemporaryDirectory() as folder:
        yield Adult(Path(folder) / "run")


# ------------------------------------------------------------------ parts


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


KINDS = {"train": "reports", "measure": "measured"}
ONCE = {
    ("enrolment", "profile", "profile"): "enrolment: the file described",
    ("enrolment", "sums", "sums"): "enrolment: sums for the encoder",
    ("enrolment", "cuts", "histograms"): "enrolment: rows between cuts, for bins",
    ("enrolment", "encode", "counts"): "enrolment: the encoder, and counts",
    ("start", "measure", "measured"): "first measurement",
    ("end", "measure", "measured"): "last measurement",
    ("end", "score", "scores"): "scores of the served model, both splits",
}


def bytes_part(repeats: int) -> str:
    del repeats
    counted, bare = 2, 2 * MLP(INPUTS).size * 4
    rows = []
    with adult() as silos:
        once = silos.enrolment.sizes
        for name in (n for n in available() if create(n).card.trains_on == "clients"):
            count = silos.grid.count = Count()
            silos.over_grid(configure(name, 4, 1), count)
            if name == "fedavg":
                once = once + count.sizes
            found = {key: n / counted / CLIENTS for key, n in count.sizes.items()}
            down = [found.get(("rounds", "down", kind), 0) for kind in KINDS]
            up = [found.get(("rounds", "up", kind), 0) for kind in KINDS.values()]
            total = sum(down) + sum(up)
            asks = count.messages["rounds"] / counted / CLIENTS
            shown = [f"{n:,.0f}" for n in (*down, *up, total)]
            rows.append([name, f"{asks:g}", *shown, f"{total / bare:.2f}"])
    head = ["method", "messages", "train ↓", "measure ↓", "updates ↑", "sums ↑", "all", "ratio"]
    more = [
        [
            title,
            *(f"{once[phase, *of] / CLIENTS:,.0f}" for of in (("down", ask), ("up", answer))),
        ]
        for (phase, ask, answer), title in ONCE.items()
        if once[phase, "down", ask]  # cuts are asked for only if numbers have bins
    ]
    return (
        f"The bare weights, once to the client and once back, are {bare:,} bytes.\n\n"
        f"{table(head, rows)}\n\n{table(['once in a run', '↓', '↑'], more)}"
    )


def exchange_part(repeats: int) -> str:
    rounds, methods = 4, ("fedavg", "mfairfl")
    found: dict[tuple[str, str], dict[str, float]] = {}
    with adult() as silos:
        for _ in range(repeats):
            for name in methods:
                config, ends = configure(name, rounds, 5), []
                for way, run in (("embedded", silos.here), ("Grid", silos.over_grid)):
                    with silos.clock.watching(EVERYWHERE):
                        ends.append(run(config))
                    spent = dict(silos.clock.spent)
                    before = found.setdefault((name, way), spent)
                    found[name, way] = min(before, spent, key=lambda s: sum(s.values()))
                if not np.array_equal(ends[0], ends[1]):
                    raise RuntimeError(f"{name}: the Grid's weights are not the embedded engine's")
    columns = [(name, way) for name in methods for way in ("embedded", "Grid")]
    head = ["milliseconds a round", *(f"{name}, {way}" for name, way in columns)]
    whole = {key: sum(found[key].values()) for key in columns}
    for spent in found.values():
        spent[REST] += spent.pop(CLIENT, 0)
        spent[OBJECTS] = spent.get(OBJECTS, 0) + spent.pop(THEIRS, 0)
    names = (WORK, DISK, SETTINGS, PACK, CHECK, OBJECTS, REST)
    rows = [[n, *(_ms(found[key].get(n, 0) / rounds) for key in columns)] for n in names]
    rows.append(["all", *(_ms(whole[key] / rounds) for key in columns)])
    ratios = " and ".join(
        f"{whole[name, 'Grid'] / whole[name, 'embedded']:.2f} ({name})" for name in methods
    )
    more = " and ".join(
        f"{100 * (1 - found[name, 'Grid'][WORK] / whole[name, 'Grid']):.1f} % ({name})"
        for name in methods
    )
    return (
        f"{table(head, rows)}\n\nGrid over embedded: {ratios}. Of the time over the Grid, "
        f"{more} is neither training nor measuring."
    )


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.1f}"


SHARES = (PACK, CHECK, OBJECTS, REST, RECORD)


def clients_part(repeats: int) -> str:
    rows = []
    for clients in (5, 50, 500):
        found: dict[str, list[dict[str, float]]] = defaultdict(list)
        for _ in range(repeats):
            for method in ("fedavg", "mfairfl"):
                found[method].append(_fresh(method, clients))
        for method, runs in found.items():
            best = min(runs, key=lambda run: sum(run[n] for n in SHARES))
            seconds, peak = sum(best[n] for n in SHARES), median(run["peak"] for run in runs)
            rows.append(
                [
                    f"{clients}, {method}",
                    *(_ms(best[n]) for n in SHARES),
                    _ms(seconds),
                    _ms(seconds / clients),
                    f"{peak / 2**20:,.1f}",
                    f"{peak / (clients * MLP(INPUTS).size * 4):.1f}",
                    f"{best['written'] / 2**20:,.2f}",
                ]
            )
    head = ["ms a round of the server", "packing", "checking", "Flower's objects"]
    head += ["loop and strategy", "history, checkpoint", "all", "for a client"]
    return table([*head, "peak MB", "peak / updates", "MB written a round"], rows)


def _fresh(name: str, clients: int) -> dict[str, float]:
    command = [sys.executable, str(HERE), "--server", name, str(clients)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def server(name: str, clients: int) -> dict[str, float]:
    """Run the server with stubs; return its seconds a round and the memory it came to need."""
    rounds = 4
    with tempfile.TemporaryDirectory() as folder:
        _rounds(name, 3, 1, Clock(), Path(folder) / "first")  # loads what is loaded once
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # free memory that is still held would hide what is used
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # forget earlier peaks
        before, clock = _status("VmRSS"), Clock()
        _rounds(name, clients, rounds, clock, Path(folder) / "run")
        peak = _status("VmHWM") - before
        written = sum(file.stat().st_size for file in Path(folder, "run").glob("*.csv"))
    spent = {key: clock.spent[key] / rounds for key in SHARES}
    return spent | {"peak": peak, "written": written / rounds}


def _status(key: str) -> int:
    # Not getrusage: a child starts with the peak of its parent there.
    text = Path("/proc/self/status").read_text(encoding="utf-8")
    found = re.search(rf"^{key}:\s+(\d+) kB", text, re.M)
    assert found is not None
    return 1024 * int(found[1])


def _rounds(name: str, clients: int, rounds: int, clock: Clock, folder: Path) -> None:
    config, rng = configure(name, rounds, 5), np.random.default_rng(0)
    names = [f"client-{k:03d}" for k in range(clients)]
    counts = {n: rng.integers(100, 1000, (2, 2)).astype(np.float64) for n in names}
    attributes = (Attribute("sex", ("Female", "Male")),)
    model = MLP(INPUTS, config.model.hidden)
    setup = setup_for(
        config,
        size=model.size,
        summary=Summary(counts=counts, attributes=attributes, goal=config.goal(("sex",))),
        enrolled={
            "train": counts,
            "test": counts,
            "validation": {n: 0 * counts[n] for n in names},
        },
    )
    loopback = Loopback(names, lambda message: message, clock)
    loopback._handle = partial(_stub, loopback.names, counts, setup.size, rng)
    state = first_state(setup, model)
    folder.mkdir()
    with clock.watching(SERVER):
        callbacks = (History(folder), Checkpoints(folder / "checkpoint", "cost"))
        transport.drive(setup, state, loopback.transport(), minimum=clients, callbacks=callbacks)
    assert state.round == rounds
    assert np.isfinite(state.weights).all()


def _stub(
    names: Mapping[int, str],
    counts: Mapping[str, np.ndarray],
    size: int,
    rng: np.random.Generator,
    message: Message,
) -> Message:
    """Answer with random sums or a random update of the right form."""
    name = names[message.metadata.dst_node_id]
    run, packet = from_records(message.content)
    ask = unpack_ask(packet, name, Shape(size, 2))
    answer: Answer
    if isinstance(ask, Train):
        answer = [
            Report(
                client=name,
                update=0.01 * rng.standard_normal(size, dtype=np.float32),
                steps=10,
                lr=job.plan.optimizer.lr,
            )
            for job in ask.jobs
        ]
    elif isinstance(ask, Score):
        rows = np.rint(counts[name]).astype(np.int64).reshape(-1)
        stratum = np.repeat(np.arange(rows.size), rows)
        scores = RowScores.from_logits(rng.standard_normal(len(stratum)))
        summed = ScoreSums.from_rows(scores, stratum // 2, stratum % 2, size=rows.size // 2)
        answer = dict.fromkeys(ask.splits, summed)
    else:
        n = counts[name]
        low, high = rng.uniform(0.2, 0.4, (2, *n.shape)), rng.uniform(0.3, 0.6, n.shape)
        sums = Statistics(counts=n, positives=low[0] * n, scores=low[1] * n, losses=high * n)
        answer = tuple(dict.fromkeys(ask.splits, sums) for _ in ask.weights)
    return Message(to_records(pack(answer_message(answer)), run), reply_to=message)


def deployment_part(repeats: int) -> str:
    del repeats
    words = "--data adult --clients 3 --strategy mfairfl --rounds 5 --local-epochs 1 --seed 5"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        before = os.getloadavg()[0]
        there = _timed_command("deploy local", words, folder / "silos")
        here = _timed_command("train", words, folder / "here")
        after = os.getloadavg()[0]
        text = (folder / "silos" / "journal.jsonl").read_text(encoding="utf-8")
        record = RunRecord.read(folder / "here")
        if _sha(folder / "silos") != _sha(folder / "here"):
            raise RuntimeError("the deployment's model is not the embedded engine's")
    lines = [json.loads(line) for line in text.splitlines()]
    at = {
        (line["event"], line.get("round", 0)): datetime.fromisoformat(line["time"]).timestamp()
        for line in lines
    }
    ends = [at["round", r] for r in range(6)]
    rounds = np.diff(ends)
    steps = {
        "start: certificates, servers, silos, handing over": at["waiting", 0] - there[0],
        "waiting for the silos": at["enrolling", 0] - at["waiting", 0],
        "enrolment, at least three exchanges": at["started", 0] - at["enrolling", 0],
        "first measurement, one exchange": at["round", 0] - at["started", 0],
        "a round, two exchanges (median of 5)": median(rounds),
        "slowest round": max(rounds),
        "last measurement and scores, two exchanges": at["finished", 0] - ends[-1],
        "end: all processes stopped": there[1] - at["finished", 0],
        "the whole command": there[1] - there[0],
        "processor time of all processes": there[2],
    }
    bare = {
        "a round, two exchanges (median of 5)": record.timing.train_seconds / 5,
        "the whole command": here[1] - here[0],
        "processor time of all processes": here[2],
    }
    rows = [
        [step, f"{s:.1f}", f"{bare[step]:.2f}" if step in bare else "", _ratio(s, bare.get(step))]
        for step, s in steps.items()
    ]
    return (
        f"`mfairfl deploy local {words}`; load average {before:.1f} before and {after:.1f} after, "
        f"{os.cpu_count()} cores.\n\n"
        f"{table(['seconds', 'deploy local', 'train', 'ratio'], rows)}\n\n"
        f"An exchange of a round takes {median(rounds) / 2:.1f} s."
    )


def _ratio(ours: float, bare: float | None) -> str:
    return "" if bare is None else f"{ours / bare:,.0f}"


def _timed_command(verb: str, words: str, out: Path) -> tuple[float, float, float]:
    """Run a command; return when it began, when it ended, and its seconds of processor time."""
    start, used = time.time(), _children_seconds()
    command = [sys.executable, "-m", "mfairfl", *verb.split(), *words.split()]
    subprocess.run([*command, "--out", str(out), "--json"], check=True, stdout=subprocess.DEVNULL)
    return start, time.time(), _children_seconds() - used


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _sha(folder: Path) -> str:
    return RunRecord.read(folder).files["model.safetensors"]


PARTS = {
    "bytes": bytes_part,
    "exchange": exchange_part,
    "clients": clients_part,
    "deployment": deployment_part,
}


# ------------------------------------------------------------------ page


def blocks(text: str) -> dict[str, str]:
    """Return what stands between markers, by name."""
    return dict(re.findall(r"<!-- (\w+) -->\n\n(.*?)\n\n<!-- /\1 -->", text, re.S))


def between(name: str, block: str) -> str:
    return f"<!-- {name} -->\n\n{block}\n\n<!-- /{name} -->"


def write_page() -> None:
    """Put the kept blocks into the page."""
    page, kept = PAGE.read_text(encoding="utf-8"), blocks(KEPT.read_text(encoding="utf-8"))
    for name, old in blocks(page).items():
        page = page.replace(between(name, old), between(name, kept[name]))
    write_atomically(PAGE, page.encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, action="append", help="only this one")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--page", action="store_true", help="copy the kept blocks to the page")
    parser.add_argument("--server", nargs=2, help=argparse.SUPPRESS)  # a fresh process
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.page:
        write_page()
        return
    if options.server:
        print(json.dumps(server(options.server[0], int(options.server[1]))))
        return
    versions = f"flwr {flwr.__version__}, torch {torch.__version__.split('+')[0]}"
    facts = f"{versions}, one thread, best of {options.repeats}, {os.cpu_count()} cores"
    load = f"load average {os.getloadavg()[0]:.1f} at the start."
    print(between("machine", f"{facts}, {load}"), flush=True)
    for name in options.part or PARTS:
        print("\n" + between(name, PARTS[name](options.repeats)), flush=True)


if __name__ == "__main__":
    main()
