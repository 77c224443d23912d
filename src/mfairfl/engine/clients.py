"""Clients whose rows are in this process: one implementation of measure, score and train.

The embedded engine answers with it for all clients of many runs at once, a silo for itself alone.
What a run computes does not depend on which others share the process.

Slots are what a client keeps between rounds under a name (a personal model, a control variate,
local multipliers). They never leave it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from mfairfl.data import SPLITS, Attribute, Client, Inputs, Split
from mfairfl.engine.checkpoint import read_sealed, write_sealed
from mfairfl.engine.output import Served
from mfairfl.engine.state import Answer, Ask, Measure, Measures, Score, Train
from mfairfl.errors import ConfigError, DataError
from mfairfl.failpoints import failpoint
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.scores import ScoreSums
from mfairfl.files import make_private_folder
from mfairfl.models import Model
from mfairfl.randomness import stream
from mfairfl.training.batches import RowStore
from mfairfl.training.controller import Multipliers
from mfairfl.training.execution import ThreadExecutor, steady_arithmetic
from mfairfl.training.measure import Probe, logits, measure, score_sums
from mfairfl.training.plan import GLOBAL, Job, Report
from mfairfl.training.trainer import Work, run_works

_KEEP = 2  # a server is never more than one completed round behind its clients

SlotValues = dict[str, np.ndarray]
"""What a client keeps, by slot."""


@dataclass(frozen=True, slots=True)
class MemorySlots:
    """Slots in a dictionary that is stored elsewhere: in the embedded engine's run state."""

    by_client: dict[str, SlotValues]

    def read(self, client: str, before: int | None = None) -> SlotValues:
        """Return what a client holds now: an earlier round is never taken up here."""
        del before
        return dict(self.by_client.get(client, {}))

    def keep(self, round_: int, client: str, slots: SlotValues) -> None:
        """Store what a client holds."""
        del round_
        self.by_client[client] = slots


class DiskSlots:
    """One client's slots on its own disk, one file per round.

    A server that was killed and takes up an earlier round again finds the client as it was then,
    so the run ends the same. The files are hashed, and a damaged one is refused: going on from an
    older one would end in other numbers.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        make_private_folder(folder)
        remedy = f"restore it, or delete {folder}: the client then starts afresh"
        self._rounds: dict[int, SlotValues] = {
            int(path.stem.removeprefix("round-")): read_sealed(path, remedy=remedy)[0]
            for path in folder.glob("round-*")
        }

    def read(self, client: str, before: int | None = None) -> SlotValues:
        """Return what is held now, or was held when the round `before` (from 0) began."""
        del client
        rounds = [number for number in self._rounds if before is None or number < before]
        return dict(self._rounds[max(rounds)]) if rounds else {}

    def keep(self, round_: int, client: str, slots: SlotValues) -> None:
        """Store what is held after this round; what a later round left behind is forgotten."""
        del client
        failpoint("slots.unsaved", round_ + 1)
        later = [number for number in self._rounds if number > round_]
        self._rounds[round_] = dict(slots)
        if slots:
            write_sealed(self._path(round_), slots)
        for number in [*later, *sorted(set(self._rounds) - set(later))[:-_KEEP]]:
            del self._rounds[number]
            self._path(number).unlink(missing_ok=True)
        failpoint("slots.saved", round_ + 1)

    def _path(self, round_: int) -> Path:
        return self._folder / f"round-{round_:06d}.safetensors"


Slots = MemorySlots | DiskSlots
"""What the clients of a run keep between rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRows:
    """One run's clients: where their rows are in the store, and what they keep.

    Parameters
    ----------
    rows : mapping of split to mapping of client to range
        Row numbers of each shard.
    trainers : mapping of str to range
        The rows that each trainer trains on: its client's train rows, or those of all clients.
    attributes : tuple of Attribute
        The task's sensitive attributes.
    seed : int
        With round and name it orders the rows.
    """

    rows: Mapping[Split, Mapping[str, range]]
    trainers: Mapping[str, range]
    attributes: tuple[Attribute, ...]
    seed: int
    slots: Slots


class LocalClients:
    """Answers the requests of runs that share a model shape and a store of rows.

    Parameters
    ----------
    executor : ThreadExecutor, optional
        Threads that share the work; by default it is done in the caller's.
    """

    def __init__(
        self,
        model: Model,
        store: RowStore,
        runs: Sequence[RunRows],
        executor: ThreadExecutor | None = None,
    ) -> None:
        self._model, self._store, self._runs = model, store, runs
        self._executor = executor or ThreadExecutor()

    def answer(self, asks: Mapping[int, Ask]) -> Mapping[int, Mapping[str, Answer]]:
        """Return the clients' answers to requests by run: measurements first.

        Training waits until every run can train.
        """
        measuring = {i: ask for i, ask in asks.items() if isinstance(ask, Measure)}
        if measuring:
            return self._measure(measuring)
        scoring = {i: ask for i, ask in asks.items() if isinstance(ask, Score)}
        if scoring:
            return {i: self._score(self._runs[i], ask) for i, ask in scoring.items()}
        return self._train({i: ask for i, ask in asks.items() if isinstance(ask, Train)})

    def _measure(self, asks: Mapping[int, Measure]) -> Mapping[int, Mapping[str, Answer]]:
        places: list[tuple[int, int, Split, list[str]]] = []
        probes: list[Probe] = []
        for i, ask in asks.items():
            run = self._runs[i]
            for (m, weights), split in product(enumerate(ask.weights), ask.splits):
                clients = ask.asked(run.rows[split])
                places.append((i, m, split, clients))
                probes += [_probe(run, ask, weights, split, client) for client in clients]
        count = partial(measure, model=self._model, store=self._store)
        measured = iter(self._executor.run(count, probes, _sizes(probes)))
        answers: dict[int, dict[str, Measures]] = {i: {} for i in asks}
        for i, m, split, clients in places:
            for client in clients:
                if client not in answers[i]:
                    answers[i][client] = tuple({} for _ in asks[i].weights)
                answers[i][client][m][split] = next(measured)
        return answers

    def _score(self, run: RunRows, ask: Score) -> Mapping[str, Answer]:
        places = [(split, client) for split in ask.splits for client in run.rows[split]]
        probes = [_probe(run, ask, ask.weights, *place) for place in places]
        count = partial(score_sums, model=self._model, store=self._store, drawn=ask.drawn)
        scored = self._executor.run(count, probes, _sizes(probes))
        answers: dict[str, dict[Split, ScoreSums]] = {}
        for (split, client), sums in zip(places, scored, strict=True):
            answers.setdefault(client, {})[split] = sums
        return answers

    def _train(self, asks: Mapping[int, Train]) -> Mapping[int, Mapping[str, Answer]]:
        jobs = [(i, job) for i, ask in asks.items() for job in ask.jobs]
        slots = {
            (i, job.client): self._runs[i].slots.read(job.client, before=asks[i].round)
            for i, job in jobs
        }
        works = [_work(self._runs[i], asks[i], job, slots[i, job.client]) for i, job in jobs]
        updates = self._executor.run(
            partial(run_works, model=self._model, store=self._store),
            works,
            [work.plan.epochs * len(work.rows) for work in works],
        )
        answers: dict[int, dict[str, list[Report]]] = {i: {} for i in asks}
        for (i, job), work, update in zip(jobs, works, updates, strict=True):
            report = _report(job, work, update, slots[i, job.client])
            answers[i].setdefault(job.client, []).extend([report] if job.send else [])
        for (i, client), after in slots.items():
            self._runs[i].slots.keep(asks[i].round, client, after)
        return answers


def _probe(
    run: RunRows, ask: Measure | Score, weights: np.ndarray, split: Split, client: str
) -> Probe:
    """Ask about the model that a client holds in the slot of the request, if any, or `weights`."""
    model = weights if ask.slot is None else run.slots.read(client).get(ask.slot, weights)
    thresholds = ask.thresholds if isinstance(ask, Measure) else None
    thresholds = None if thresholds is None else thresholds.of(client)
    return Probe(model, run.rows[split][client], ask.shares, thresholds)


def _sizes(probes: Sequence[Probe]) -> list[float]:
    return [probe.weights.size * len(probe.rows) for probe in probes]


def _work(run: RunRows, ask: Train, job: Job, slots: SlotValues) -> Work:
    """Make a job concrete: fill in the server's weights, the client's slots and rows."""
    plan, server, rows = job.plan, ask.weights[job.client], run.trainers[job.client]
    start = server if job.start == GLOBAL else slots.get(job.start, server)
    linear = plan.linear
    if plan.linear_slot is not None:
        variate = slots.get(plan.linear_slot, np.zeros_like(start))
        linear = -variate if linear is None else linear - variate
    multipliers = None
    if plan.controller is not None:
        key = plan.controller.slot
        memory = None if key is None else slots.get(key)
        multipliers = Multipliers(plan.controller, run.attributes, memory)
    return Work(
        plan=plan,
        start=start,
        rows=rows,
        # Two jobs of one client in one round (Ditto) need streams of their own.
        rng=stream(run.seed, "batches", ask.round, job.client, job.keep or ""),
        centre=server,
        linear=linear,
        multipliers=multipliers,
    )


def _report(job: Job, work: Work, update: np.ndarray, slots: SlotValues) -> Report:
    """Store what the client keeps; return what it sends."""
    change = None
    if job.keep is not None:
        slots[job.keep] = work.start - update
    if job.keep_control is not None:
        change = _control_change(work, update)
        variate = slots.get(job.keep_control, np.zeros_like(change))
        slots[job.keep_control] = variate + change
    moved, multipliers, gaps = work.multipliers, np.empty(0), np.empty(0)
    if moved is not None and moved.setting.slot is None:
        multipliers, gaps = moved.values, moved.gaps
    elif moved is not None and moved.setting.slot:  # the server does not see what a client keeps
        slots[moved.setting.slot] = moved.memory
    return Report(
        client=job.client,
        update=update,
        steps=work.steps,
        lr=job.plan.optimizer.lr,
        multipliers=tuple(multipliers.tolist()),
        gaps=tuple(gaps.tolist()),
        control_change=change,
    )


def _control_change(work: Work, update: np.ndarray) -> np.ndarray:
    """Return c_k⁺ − c_k = (w_t − w_k)/(steps·lr) − c (`strategies/scaffold.py`)."""
    plan = work.plan
    if plan.optimizer.lr <= 0:
        raise ConfigError(
            "training.lr_final = 0: a control variate divides by the rate; give a rate > 0"
        )
    drift = update / np.float32(work.steps * plan.optimizer.lr)
    return np.asarray(drift if plan.linear is None else drift - plan.linear)


class SoleClient:
    """A client that answers for its own rows.

    Parameters
    ----------
    client : Client
        Its encoded rows.
    model : Model
        The shape every participant agreed on.
    attributes : tuple of Attribute
        The task's sensitive attributes.
    seed : int
        The run's; with round and name it orders the rows.
    slots : Slots
        What it keeps between rounds.
    """

    def __init__(
        self,
        client: Client,
        model: Model,
        attributes: tuple[Attribute, ...],
        seed: int,
        slots: Slots,
    ) -> None:
        shards = {split: client.shard(split) for split in SPLITS}
        arrays = [(shard.inputs, shard.y, shard.cells) for shard in shards.values()]
        store, ranges = RowStore.from_arrays(arrays, Cells(attributes).size)
        rows = {split: {client.name: at} for split, at in zip(shards, ranges, strict=True)}
        run = RunRows(
            rows=rows, trainers=rows["train"], attributes=attributes, seed=seed, slots=slots
        )
        self._name, self._clients = client.name, LocalClients(model, store, [run])

    def answer(self, ask: Ask) -> Answer:
        """Do what is asked."""
        with steady_arithmetic():
            return self._clients.answer({0: ask})[0][self._name]


def served_logits(
    served: Served, model: Model, inputs: Inputs, *, name: str = "the rows"
) -> np.ndarray:
    """Return the logits of a model's members on rows, (R, n); an ensemble answers as one.

    Used by the owner of a run's files, and by a silo that was sent the model.

    Parameters
    ----------
    inputs : Inputs
        The encoded rows.
    name : str
        What messages call them.
    """
    zeros = np.zeros(len(inputs), dtype=np.int64)  # neither labels nor cells matter here
    store, (rows,) = RowStore.from_arrays([(inputs, zeros, zeros)], cells=1)
    models = served.members[None] if served.kind == "ensemble" else served.members
    with steady_arithmetic():  # as in training: the same rows get the same decisions
        probes = [Probe(weights, rows, served.weights) for weights in models]
        z = np.stack([member.numpy() for member in logits(probes, model, store)])
    if np.isnan(z).any():
        row = int(np.isnan(z).any(axis=0).argmax())
        raise DataError(
            f"{name}, row {row}: the model's score is not a number: its weights are too "
            "large; training diverged, or the file was altered: train again"
        )
    return z
