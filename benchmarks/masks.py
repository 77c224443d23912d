"""What masks cost: one masked measurement beside one without masks, at 5, 50 and 500 silos.

Every silo measures the default model (108 inputs, hidden layers of 64 and 64) on 1,000 train rows
and two cells. Seconds are of the processor: what one silo does from the question to its answer
(the median of all), what the server does to write questions and to pool answers, and, for keys,
what one silo and the server do for 64 exchanges, divided by 64. The clock on the wall adds waiting
for the disk, on which a masked silo notes what it tells. Bytes are those of text and arrays. The
sum of all masked answers must equal that of the plain ones in every count.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from mfairfl.data import Attribute, Client
from mfairfl.data.federation import Shard
from mfairfl.data.inputs import Inputs
from mfairfl.deployment.credentials import make_key
from mfairfl.engine.clients import MemorySlots, SoleClient
from mfairfl.engine.state import Measure
from mfairfl.fairness.cells import Statistics
from mfairfl.models import MLP
from mfairfl.remote.codec import Packet, Shape, make_packet, pack_answer, pack_ask, unpack_answer
from mfairfl.remote.mask_keys import KeyStock
from mfairfl.remote.masked_answers import MaskedSilo
from mfairfl.remote.masked_forms import open_measures, read_measures
from mfairfl.remote.masked_messages import MOST_OFFERS, read_offers, with_roster
from mfairfl.remote.masking import opened
from mfairfl.remote.silo_file import SiloSettings

SILOS, ROWS, INPUTS = (5, 50, 500), 1000, 108
SEX = (Attribute("sex", ("F", "M")),)
MODEL = MLP(inputs=INPUTS, hidden=(64, 64))
SHAPE = Shape(MODEL.size, 2)
T = TypeVar("T")


class Cost(NamedTuple):
    """Seconds at one silo, on the wall too, and at the server; bytes to one silo and from it."""

    silo: float
    clock: float
    server: float
    down: int
    up: int


def timed(do: Callable[[], T]) -> tuple[float, float, T]:
    start, clock = time.process_time(), time.perf_counter()
    found = do()
    return time.process_time() - start, time.perf_counter() - clock, found


def medians(answers: dict[str, tuple[float, float, T]]) -> tuple[float, float]:
    used, waited, _ = zip(*answers.values(), strict=True)
    return statistics.median(used), statistics.median(waited)


def size(packet: Packet) -> int:
    return len(packet.text.encode()) + sum(array.nbytes for array in packet.arrays.values())


def client(name: str, seed: int) -> SoleClient:
    """Return a silo's rows, all of them to train on."""
    rng = np.random.default_rng(seed)

    def shard(rows: int) -> Shard:
        inputs = Inputs.of(rng.normal(size=(rows, INPUTS)).astype(np.float32))
        y, cells = rng.integers(0, 2, rows).astype(np.int8), rng.integers(0, 2, rows)
        return Shard(inputs, y, cells.astype(np.int32), rows=np.arange(rows))

    own = Client(name, shard(ROWS), shard(0), shard(0))
    return SoleClient(own, MODEL, SEX, 0, MemorySlots({}))


class Consortium:
    """Silos with keys on disk, and what each of them answers."""

    def __init__(self, count: int, folder: Path) -> None:
        self.names = [f"silo-{i:03}" for i in range(count)]
        self.ask = Measure((MODEL.init(np.random.default_rng(0)),), ("train",))
        (folder / "members").mkdir()
        self._silos: dict[str, SiloSettings] = {}
        for name in self.names:
            make_key(folder / name).rename(folder / "members" / f"{name}.pub")
            self._silos[name] = SiloSettings(
                name=name,
                csv=folder / "none.csv",
                state=folder / "state" / name,
                key=folder / name,
            )
        self._members = folder / "members"
        self.clients = {name: client(name, i) for i, name in enumerate(self.names)}

    def plain(self, name: str) -> Packet:
        """Return a silo's answer without masks."""
        return pack_answer(self.clients[name].answer(self.ask))

    def exchange(self, asks: dict[str, Packet]) -> dict[str, Packet]:
        """Carry messages to silos under masks, as a transport does."""
        return {name: self._masked(name, packet) for name, packet in asks.items()}

    def _masked(self, name: str, packet: Packet) -> Packet:
        settings, header = self._silos[name], json.loads(packet.text)
        silo = MaskedSilo(
            settings, self._members, "run", lambda *_: self.plain(name), lambda: ROWS
        )
        return silo.answer(header["kind"], header, packet)


def without_masks(group: Consortium) -> tuple[Cost, Statistics]:
    packing, _, questions = timed(lambda: {n: pack_ask(group.ask, n) for n in group.names})
    question = questions[group.names[0]]
    answers = {name: timed(lambda name=name: group.plain(name)) for name in group.names}
    replies = {name: reply for name, (*_, reply) in answers.items()}

    def read() -> Statistics:
        found = {n: unpack_answer(r, group.ask, n, SHAPE) for n, r in replies.items()}
        return Statistics.total([one[0]["train"] for one in found.values()])

    server, _, total = timed(read)
    up = size(next(iter(replies.values())))
    return Cost(*medians(answers), packing + server, size(question), up), total


def under_masks(group: Consortium) -> tuple[Cost, Cost, Statistics]:
    request = make_packet("mask-keys", {"first": 0})
    offers = {
        name: timed(lambda name=name: group.exchange({name: request})) for name in group.names
    }
    replies = {name: reply[name] for name, (*_, reply) in offers.items()}
    reading, _, _ = timed(lambda: [read_offers(name, reply) for name, reply in replies.items()])
    making, clock = medians(offers)
    per_key = Cost(
        making / MOST_OFFERS,
        clock / MOST_OFFERS,
        reading / MOST_OFFERS,
        size(request) // MOST_OFFERS,
        size(replies[group.names[0]]) // MOST_OFFERS,
    )
    stock = KeyStock(group, group.names)
    stock.fetch()
    asking, _, roster = timed(stock.roster)
    assert roster is not None
    packing, _, question = timed(lambda: with_roster(pack_ask(group.ask, ""), roster))
    answers = {
        name: timed(lambda name=name: group.exchange({name: question})[name])
        for name in group.names
    }

    def read() -> Statistics:
        parts = {
            name: read_measures(reply, group.ask, SHAPE, summed=True)
            for name, (*_, reply) in answers.items()
        }
        total = opened([one.words for one in parts.values()])
        whole = open_measures(group.ask, SHAPE, parts, total)[0]["train"].whole
        assert whole is not None
        return whole

    opening, _, total = timed(read)
    up = size(answers[group.names[0]][-1])
    cost = Cost(*medians(answers), asking + packing + opening, size(question), up)
    return cost, per_key, total


def main() -> None:
    print(f"one measurement of {MODEL.size:,} weights on {ROWS:,} rows; milliseconds, bytes")
    head = f"{'silos':>5}  {'':14}{'plain':>12}{'masked':>12}{'ratio':>8}{'a key':>12}"
    for count in SILOS:
        with tempfile.TemporaryDirectory() as folder:
            group = Consortium(count, Path(folder))
            plain, expected = without_masks(group)
            masked, key, found = under_masks(group)
        assert np.array_equal(found.counts, expected.counts)
        assert np.array_equal(found.positives, expected.positives)
        np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-6)
        print(f"\n{head}")
        for label, field, unit in (
            ("one silo, ms", "silo", 1e3),
            ("  on the wall", "clock", 1e3),
            ("server, ms", "server", 1e3),
            ("to one silo", "down", 1),
            ("from one silo", "up", 1),
        ):
            a, b, c = (getattr(one, field) * unit for one in (plain, masked, key))
            shown = f"{a:12,.2f}{b:12,.2f}" if unit > 1 else f"{a:12,}{b:12,}"
            extra = f"{c:12,.3f}" if unit > 1 else f"{c:12,}"
            print(f"{count:5}  {label:14}{shown}{b / a:8.1f}{extra}")


if __name__ == "__main__":
    main()
