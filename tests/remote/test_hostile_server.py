"""Whatever a coordinator asks for, in whatever order: no combination of what it was told is about
fewer rows than the silo's floor.

The sets behind the answers are rebuilt from the file and from what was asked. They must lie in the
span of the sets that the silo has in its account, and that span is looked through by exact
arithmetic (`row_span`).
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from mfairfl.data import SPLITS, Encoder, Task
from mfairfl.data.encoder import CategoricalColumn
from mfairfl.data.frame import read_file
from mfairfl.errors import MfairflError
from mfairfl.remote.codec import Packet, make_packet, read_header
from mfairfl.remote.histograms import pack_cuts
from mfairfl.remote.policy import Disclosure, Policy
from mfairfl.remote.responder import Responder
from mfairfl.remote.silo_file import SiloSettings
from row_span import indicators, min_support_below, rank

disclosed = pytest.importorskip("mfairfl.remote.disclosed")

NAME, RUN = "silo", "run-1"
CITIES = {"p": "north", "q": "north", "r": "south", "s": "south"}
CATEGORICAL = ("a", "city", "country")


def small_table(rng: np.random.Generator) -> pd.DataFrame:
    """20 to 45 rows of few values; a city lies in one country."""
    rows = int(rng.integers(20, 46))
    city = rng.choice([*CITIES], rows, p=rng.dirichlet(np.full(4, 2.0)))
    return pd.DataFrame(
        {
            "a": rng.choice(["t", "u", "v"], rows, p=rng.dirichlet([3.0, 3.0, 1.0])),
            "city": city,
            "country": [CITIES[one] for one in city],
            "x": rng.integers(0, 8, rows),
            "y": rng.choice(["yes", "no"], rows),
        }
    )


# ------------------------------------------------------------------ what may be asked


@dataclass(frozen=True)
class Ask:
    """One message: its kind, which rows are read and how they are grouped."""

    kind: str
    group_by: str = "a"
    first: tuple[str, ...] = ("t",)
    dropped: tuple[tuple[str, str], ...] = ()
    roles: tuple[str, ...] = CATEGORICAL
    label: str = "y"
    seed: int = 0
    test: float = 0.2
    cuts: tuple[float, ...] = (3.5,)
    place: tuple[int, int] = (0, 0)

    @property
    def favourable(self) -> str:
        return {"y": "yes", "a": "t", "country": "north"}[self.label]

    def task(self) -> Task:
        rules = {c: {"missing": "drop", "missing_codes": [v]} for c, v in self.dropped}
        if self.group_by == "x":
            low, high = float(self.first[0]), float(self.first[0]) + 2.0
            bins: list[dict[str, Any]] = [{"name": "g", "min": low, "max": high}]
        else:
            bins = [{"name": "g", "values": list(self.first)}]
        groups = ("g", "rest")
        return Task.model_validate(
            {
                "label": self.label,
                "favourable": self.favourable,
                "unfavourable": f"not {self.favourable}",
                "others_unfavourable": True,
                "sensitive": [
                    {"column": self.group_by, "bins": bins, "rest": "rest", "groups": groups}
                ],
                "numeric": ("x",),
                "categorical": tuple(c for c in self.roles if c != self.label),
                "columns": rules,
            }
        )

    def read(self, frame: pd.DataFrame) -> np.ndarray:
        """Say which rows are read: those without a dropped value in a column that is used."""
        used = {self.label, self.group_by, *self.roles}
        kept = np.ones(len(frame), dtype=bool)
        for column, value in self.dropped:
            if column in used:
                kept &= frame[column].to_numpy() != value
        return kept

    def strata(self, frame: pd.DataFrame) -> np.ndarray:
        """Return 2 · cell + label of each row."""
        held = frame[self.group_by].to_numpy()
        if self.group_by == "x":
            low = float(self.first[0])
            inside = (held >= low) & (held <= low + 2.0)
        else:
            inside = np.isin(held, self.first)
        return 2 * (~inside) + (frame[self.label].to_numpy() == self.favourable)


KINDS = ("sums", "sums", "cuts", "encode", "encode", "measure", "train")


def values_of(column: str) -> list[str]:
    return {"a": ["t", "u", "v"], "city": [*CITIES], "country": ["north", "south"]}[column]


@st.composite
def asks(draw: st.DrawFn) -> Ask:
    group_by = draw(st.sampled_from(["a", "city", "country", "x"]))
    if group_by == "x":
        first = (str(draw(st.integers(-1, 7))),)
    else:
        some = st.lists(st.sampled_from(values_of(group_by)), min_size=1, max_size=2, unique=True)
        first = tuple(sorted(draw(some)))
    column = draw(st.sampled_from([None, None, "a", "city", "country"]))
    dropped = () if column is None else ((column, draw(st.sampled_from(values_of(column)))),)
    label = draw(st.sampled_from(["y", "y", "a", "country"]))
    roles = draw(st.lists(st.sampled_from(CATEGORICAL), min_size=1, max_size=3, unique=True))
    return Ask(
        kind=draw(
            st.sampled_from(["sums", "sums", "cuts", "encode", "encode", "measure", "train"])
        ),
        group_by=group_by,
        first=first,
        dropped=dropped,
        roles=tuple(sorted(roles)),
        label="y" if label == group_by else label,
        seed=draw(st.integers(0, 3)),
        test=draw(st.sampled_from([0.0, 0.1, 0.2, 0.2, 0.2, 0.5])),
        cuts=tuple(sorted(draw(st.sets(st.integers(0, 8), min_size=1, max_size=3)))),
        place=(draw(st.integers(0, 1)), draw(st.integers(0, 1))),
    )


# ------------------------------------------------------------------ a silo, and what it told


@dataclass
class Told:
    """A set of rows, the number that was told about it, and in which message."""

    what: str
    rows: np.ndarray
    count: int | None = None


@dataclass
class Exchange:
    """A silo, its file, and all that it was made to tell."""

    frame: pd.DataFrame
    settings: SiloSettings
    policy: Policy
    enrolled: Ask | None = None
    told: list[Told] = field(default_factory=list)
    sizes: list[tuple[str, int]] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def account(self) -> Any:
        """Return the silo's own account: the only look behind its answers."""
        sha256 = read_file(self.settings.csv).sha256
        s = self.settings
        return disclosed.open_account(
            s.state, s.csv, sha256, len(self.frame), self.policy.disclosure
        )

    def parts(self) -> np.ndarray:
        """Return each row's split: 0 train, 1 validation, 2 test."""
        return np.maximum(self.account()._arrays["split"], 0)

    def ask(self, one: Ask) -> None:
        """Send a message; note the sets of rows that its answer is about."""
        packet = self._packet(one)
        if packet is None:
            return
        try:
            answer = Responder(self.settings, self.policy).handle(RUN, packet)
        except MfairflError as error:
            self.refusals.append(f"{one.kind}: {error}")
            return
        if one.kind == "encode":
            self.enrolled = one
        getattr(self, f"_{one.kind}")(one, answer)

    def _packet(self, one: Ask) -> Packet | None:
        said = {"task": one.task().model_dump(mode="json"), "seed": one.seed, "test": one.test}
        said["validation"] = 0.0
        if one.kind == "sums":
            return make_packet("sums", said)
        if one.kind == "cuts":
            return pack_cuts({"x": np.array(one.cuts, dtype=np.float64)}, said)
        if one.kind == "encode":
            encoder = _encoder(one).to_json()
            return make_packet("encode", said | {"encoder": encoder, "model": {"hidden": []}})
        if self.enrolled is None:
            return None
        weights = np.zeros(len(_encoder(self.enrolled).feature_names) + 1, np.float32)
        if one.kind == "measure":
            rest = {"models": 1, "splits": ["train"], "slot": None, "thresholds": None}
            return make_packet("measure", rest, {"model/0": weights})
        table = np.ones((2, 2))
        table[one.place] = 2.0
        plan = {"epochs": 1, "batch_size": 64, "optimizer": {"name": "gradient"}}
        jobs = [{"client": NAME, "plan": plan | {"loss_table": table.tolist()}}]
        return make_packet("train", {"round": 0, "jobs": jobs}, {"server": weights})

    # ------------------------------------------------------------------ what answers are about

    def _sums(self, one: Ask, answer: Packet) -> None:
        said = read_header(answer)[1]
        kept, parts = one.read(self.frame), self.parts()
        self._note("rows", kept, said["rows"])
        for name, sums in said["sums"].items():
            inside = kept & ((parts == 0) if name == "train" else (parts > 0))
            for column, numbers in sums["numeric"].items():
                self._note(f"{name} {column}", inside, numbers["count"] + numbers["missing"])
            for column, levels in sums["categorical"].items():
                for level, count in levels.items():
                    held = inside & (self.frame[column].to_numpy() == level)
                    self._note(f"{name} {column}={level}", held, count)

    def _cuts(self, one: Ask, answer: Packet) -> None:
        counts = answer.arrays["counts/0"]
        self._note("train with x", one.read(self.frame) & (self.parts() == 0), int(counts.sum()))
        self.sizes += [("bins", int(n)) for n in counts if n]

    def _encode(self, one: Ask, answer: Packet) -> None:
        kept, parts, strata = one.read(self.frame), self.parts(), one.strata(self.frame)
        for place, split in enumerate(SPLITS):
            inside = kept & (parts == place)
            for stratum, count in enumerate(answer.arrays[split].ravel().tolist()):
                if count:
                    self._note(f"{split} {stratum}", inside & (strata == stratum), count)

    def _measure(self, one: Ask, answer: Packet) -> None:
        own = self.enrolled
        inside = own.read(self.frame) & (self.parts() == 0)
        for stratum, count in enumerate(answer.arrays["0/train"][0].ravel().tolist()):
            if count:
                rows = inside & (own.strata(self.frame) == stratum)
                self._note(f"measured {stratum}", rows, int(count))

    def _train(self, one: Ask, answer: Packet) -> None:
        own, stratum = self.enrolled, 2 * one.place[0] + one.place[1]
        inside = own.read(self.frame) & (self.parts() == 0)
        self._note("trained", inside)
        self._note(f"priced {stratum}", inside & (own.strata(self.frame) == stratum))

    def _note(self, what: str, rows: np.ndarray, count: int | None = None) -> None:
        self.told.append(Told(what, rows, count))


def _encoder(one: Ask) -> Encoder:
    columns = [c for c in one.roles if c != one.label]
    return Encoder(
        numeric=(),
        categorical=tuple(
            CategoricalColumn(name=c, levels=tuple(sorted(values_of(c)))) for c in columns
        ),
        unknown_category="ignore",
    )


# ------------------------------------------------------------------ the property


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    floor=st.sampled_from([3, 4]),
    sequence=st.lists(asks(), min_size=1, max_size=12),
)
def test_no_sequence_of_messages_isolates_fewer_rows_than_the_floor(seed, floor, sequence):
    with tempfile.TemporaryDirectory() as folder:
        exchange = exchange_in(Path(folder), seed, floor)
        for one in sequence:
            exchange.ask(one)
        note(exchange.refusals)
        check(exchange, floor)


def exchange_in(folder: Path, seed: int, floor: int) -> Exchange:
    frame = small_table(np.random.default_rng(seed))
    frame.to_csv(folder / "silo.csv", index=False)
    silo = SiloSettings(name=NAME, csv=folder / "silo.csv", state=folder / "state")
    # As many ways to form groups as are asked for: the account alone must hold.
    return Exchange(frame, silo, Policy(disclosure=Disclosure(min_rows=floor, tasks=1000)))


def check(exchange: Exchange, floor: int) -> None:
    """What was told is in the account, and the account isolates nobody."""
    partitions = exchange.account().partitions
    assert min_support_below(partitions, floor) is None
    known = indicators(partitions)
    for told in exchange.told:
        if told.count is not None:
            assert int(told.rows.sum()) == told.count, told.what
        if told.rows.any():
            one = told.rows.astype(np.int64)[None]
            assert rank(np.concatenate([known, one])) == rank(known), told.what
    for what, size in exchange.sizes:
        assert size >= floor, what
    # The sets themselves, without the account: what an attacker has.
    own = [np.where(told.rows, 0, -1) for told in exchange.told if told.rows.any()]
    assert min_support_below(own, floor) is None


def test_the_check_sees_a_set_that_is_not_in_the_account(tmp_path):
    exchange = exchange_in(tmp_path, 1, 3)
    exchange.ask(Ask("encode"))
    check(exchange, 3)
    assert exchange.told
    exchange.told.append(Told("one row", np.arange(len(exchange.frame)) == 0))
    with pytest.raises(AssertionError, match="one row"):
        check(exchange, 3)


def test_the_sequences_are_not_all_refused(tmp_path):
    """Different questions about one file are answered, of every kind."""
    exchange = exchange_in(tmp_path, 3, 3)
    answered = set()
    for kind in ("sums", "cuts", "encode", "measure", "train"):
        for place in ((0, 0), (0, 1), (1, 0), (1, 1)):
            before = len(exchange.told)
            exchange.ask(Ask(kind, place=place))
            answered |= {kind} if len(exchange.told) > before else set()
    assert answered == {"sums", "cuts", "encode", "measure", "train"}
