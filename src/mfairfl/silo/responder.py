"""A silo's side of the exchange: it answers messages from its own file and its own disk.

Every message may reach a new process, so what was agreed and the encoded rows are kept on disk, in
a folder per run. A request that is absurd, or beyond what the silo's own policy.toml allows, is
refused before any work.

Answers hold names, sums, counts, histograms and weight updates. Names and counts of few rows are
kept back (`silo/release.py`), which protects people in what is published. A coordinator that
makes its requests for the purpose can still read rows: it must be trusted (docs/what-leaves.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mfairfl.data import Attribute, Encoder, Inputs, Task
from mfairfl.data.agreement import describe_columns
from mfairfl.data.columns import columns_of
from mfairfl.data.federation import SPLITS, Client, Shard, Split
from mfairfl.data.files import FileContent, read_file
from mfairfl.data.table import table_from_content
from mfairfl.engine.checkpoint import read_sealed, write_sealed
from mfairfl.engine.clients import DiskSlots, SoleClient
from mfairfl.engine.state import Ask, Train
from mfairfl.errors import ConfigError, DataError, MessageError, TimeLimitError, first_problem
from mfairfl.fairness.cells import Cells
from mfairfl.files import make_private_folder
from mfairfl.silo.audit_counting import answer_audit, answer_groups
from mfairfl.silo.consent import RunConsent
from mfairfl.silo.ledger import (
    Ledger,
    LedgerEntry,
    RowSetFacts,
    about_request,
    packet_bytes,
    packet_sha256,
)
from mfairfl.silo.policy import KINDS, POLICY, Policy, policy_sha256
from mfairfl.silo.refusals import refuse_absurd, refuse_excess
from mfairfl.silo.release import FileMemory, ReleasedRows, SplitTerms, release_rows
from mfairfl.silo.silo_file import (
    SiloSettings,
    follow_extensions,
    require_listed,
)
from mfairfl.silo.usage import Usage, refuse_beyond
from mfairfl.text import one_line
from mfairfl.training.execution import time_limit
from mfairfl.wire.codec import Packet, Shape, make_packet, pack_answer, read_header, unpack_ask
from mfairfl.wire.enrolment_answers import ModelTerms
from mfairfl.wire.histograms import pack_histograms, unpack_cuts

_ROWS = "rows.safetensors"  # the encoded rows of a run, and in the header what was agreed
_NAME = re.compile(r"[\w.-]{1,100}")
_ROW = 16  # bytes stored of a row beside its features
# What may be asked before a run is known here: an enrolment, and audits, which belong to no run.
_FIRST = ("profile", "sums", "cuts", "encode", "audit-groups", "audit")
_SPLIT = ("task", "seed", "test", "validation")
_HEADERS: dict[str, tuple[str, ...]] = {
    "profile": ("task",),
    "sums": _SPLIT,
    "cuts": (*_SPLIT, "columns"),
    "encode": (*_SPLIT, "encoder", "model"),
    "measure": ("models", "splits", "slot", "thresholds"),
    "score": ("splits", "slot", "drawn"),
    "train": ("round", "jobs"),
}
"""What a message may say beside version and kind, but for audits, which are read strictly."""


class _Agreed(BaseModel):
    """What the participants of a run agreed on, as a silo stores it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: Task
    seed: int = Field(ge=0)
    model: ModelTerms
    layout: tuple[int, int, int]

    @property
    def features(self) -> int:
        """Number of the model's inputs."""
        return self.layout[2]


class _OpenRun(NamedTuple):
    """A run that this silo takes part in."""

    silo: SoleClient
    shape: Shape
    attributes: tuple[Attribute, ...]
    train_rows: int
    row_sets: Mapping[Split, RowSetFacts]


class Responder:
    """Answers messages for one silo.

    Parameters
    ----------
    settings : SiloSettings
        Its silo.toml.
    policy : Policy, optional
        Its policy.toml; by default that of a silo without one.
    consent : RunConsent, optional
        What it agreed to, of the file that `settings.task` names (`read_consent`); without one,
        whatever the policy allows is done.
    """

    def __init__(
        self,
        settings: SiloSettings,
        policy: Policy | None = None,
        consent: RunConsent | None = None,
    ) -> None:
        if settings.task is not None and consent is None:
            raise ConfigError(f"{settings.task}: what was agreed to was not read")
        self._consent = consent
        self._settings, self._listed = settings, follow_extensions(settings)
        self._policy = policy or Policy()
        self._limits = self._policy.limits
        self._usage = Usage(settings.state, self._policy)
        self._ledger = Ledger(settings.state)
        self._row_sets: list[RowSetFacts] = []  # of the answer under way, for the ledger
        self._runs: dict[str, _OpenRun] = {}

    def handle(self, run: str, packet: Packet) -> Packet:
        """Answer a message that belongs to `run`; the ledger has the answer before it leaves.

        A refusal has its line as well. Only who cannot have a turn leaves none.
        """
        with self._usage.turn():
            self._row_sets.clear()
            try:
                answer = self._handle(run, packet)
            except Exception as error:
                self._ledger.add(self._entry(run, packet, refusal=_reason(error)))
                raise
            told = {"answer_sha256": packet_sha256(answer), "answer_bytes": packet_bytes(answer)}
            self._ledger.add(self._entry(run, packet, row_sets=tuple(self._row_sets), **told))
            return answer

    def _entry(self, run: str, packet: Packet, **outcome: Any) -> LedgerEntry:
        """Return what the ledger says about an exchange."""
        try:
            _, header = read_header(packet)
        except MessageError:
            header = {}
        asked = about_request(run, packet, header)
        return LedgerEntry(**asked, policy_sha256=policy_sha256(self._policy), **outcome)

    def _handle(self, run: str, packet: Packet) -> Packet:
        if not _NAME.fullmatch(run) or run.startswith("."):
            raise MessageError(f"'{run}' is not a valid name of a run")
        kind, header = read_header(packet)
        require_listed(self._listed, header)  # before anything looks a name up
        if kind not in KINDS:
            raise MessageError(f"a message of unknown kind '{one_line(kind)}'")
        if kind not in self._policy.disclosure.kinds:
            raise MessageError(
                f"'{kind}' messages are not answered (disclosure.kinds of its {POLICY})"
            )
        if kind not in _FIRST and not (self._settings.state / run / _ROWS).exists():
            raise self._unknown(run)
        if extra := header.keys() - {"version", "kind", *_HEADERS.get(kind, header)}:
            raise MessageError(f"a '{kind}' message: unknown key '{one_line(min(extra), 60)}'")
        self._usage.count(run)
        try:
            with time_limit(self._limits.seconds):
                return self._answer(run, kind, header, packet)
        except TimeLimitError:
            raise MessageError(
                f"the answer takes longer than the {self._limits.seconds:,} seconds that this "
                f"silo allows (limits.seconds of its {POLICY})"
            ) from None

    def _answer(self, run: str, kind: str, header: dict[str, Any], packet: Packet) -> Packet:
        settings, policy = self._settings, self._policy
        others: dict[str, Callable[[], Packet]] = {
            "profile": lambda: self._profile(header),
            "sums": lambda: self._sums(header),
            "cuts": lambda: self._histograms(header, packet),
            "encode": lambda: self._encode(run, header),
            "audit-groups": lambda: answer_groups(settings, policy, header),
            "audit": lambda: self._audit(packet),
        }
        if kind not in others:
            return self._compute(run, kind, packet)
        try:
            return others[kind]()
        except ValidationError as error:
            raise MessageError(f"a '{kind}' message: {first_problem(error)}") from None
        except KeyError as error:
            raise MessageError(f"a '{kind}' message lacks {error}") from None

    def _compute(self, run: str, kind: str, packet: Packet) -> Packet:
        """Measure, score or train, unless that is absurd or too much."""
        enrolled = self._open(run)
        try:
            ask = unpack_ask(packet, self._settings.name, enrolled.shape)
            refuse_absurd(ask, enrolled.shape, enrolled.attributes)
        except (ConfigError, DataError) as error:  # about numbers in the message: no rows are read
            raise MessageError(f"a '{kind}' message: {error}") from None
        refuse_excess(ask, self._policy, enrolled.train_rows)
        if self._consent is not None:
            self._consent.require(ask, enrolled.attributes)
        splits: tuple[Split, ...] = ("train",) if isinstance(ask, Train) else ask.splits
        self._row_sets += [enrolled.row_sets[split] for split in splits]
        if kept := _kept_bytes(ask, self._settings.state / run, enrolled.shape):
            self._usage.require_room(kept)
        return pack_answer(enrolled.silo.answer(ask))

    def _task(self, header: dict[str, Any]) -> Task:
        """Return the requested task; it must be the one that this silo agreed to."""
        task = Task.model_validate(header["task"])
        if self._consent is not None:
            self._consent.require_task(task)
        return task

    def _profile(self, header: dict[str, Any]) -> Packet:
        """Describe the file."""
        s, task = self._settings, self._task(header)
        content = self._read()
        columns = columns_of(content.frame, s.csv.name, task.read_as(s))
        floor = self._policy.disclosure.min_rows
        found = describe_columns(columns, task, s.name, floor=floor)
        return make_packet("profile", {"profile": found.model_dump(mode="json")})

    def _sums(self, header: dict[str, Any]) -> Packet:
        """Return what the encoder is fitted from: train rows, and categories of the others."""
        released = self._released(header)
        plain = {name: asdict(sums) for name, sums in released.sums().items()}
        facts = {"sha256": released.table.sha256, "rows": len(released.table)}
        return make_packet("sums", {"sums": plain, **facts})

    def _histograms(self, header: dict[str, Any], packet: Packet) -> Packet:
        """Count train rows between cuts."""
        released = self._released(header)
        cuts = unpack_cuts(packet, released.table.task.numeric or ())
        return pack_histograms(released.histograms(cuts))

    def _encode(self, run: str, header: dict[str, Any]) -> Packet:
        """Encode the rows, store them for this run, and return counts per (cell, label)."""
        released = self._released(header)
        table = released.table
        encoder = Encoder.from_json(header["encoder"], name="the agreed encoder")
        agreed = _Agreed(
            task=table.task,
            seed=header["seed"],
            model=header["model"],
            layout=encoder.layout,
        )
        if self._consent is not None:
            self._consent.require_model(agreed.model)
        weights = agreed.model.build(agreed.features).size
        refuse_beyond(self._limits, "weights", weights, "weights of a model")
        self._usage.require_room(len(table) * (encoder.row_bytes + _ROW))
        arrays: dict[str, np.ndarray] = {}
        for part in SPLITS:
            rows = released.silo.rows[part]
            inputs = encoder.encode(table.X, rows)
            arrays[f"{part}/numbers"], arrays[f"{part}/codes"] = inputs.numbers, inputs.codes
            arrays[f"{part}/y"] = table.y[rows]
            arrays[f"{part}/cells"] = released.cells(part)
        folder = make_private_folder(make_private_folder(self._settings.state) / run)
        write_sealed(folder / _ROWS, arrays, agreed.model_dump(mode="json"))
        self._runs.pop(run, None)
        return self._counts(released)

    def _counts(self, released: ReleasedRows) -> Packet:
        """Return the rows per (cell, label) of each split, and what is withheld."""
        found = {part: released.counts(part) for part in SPLITS}
        arrays: dict[str, np.ndarray] = {part: counts for part, (counts, _) in found.items()}
        arrays |= {f"hidden/{part}": released.hidden[part].astype(np.int64) for part in SPLITS}
        arrays["withheld"] = np.array([rows for _, rows in found.values()], dtype=np.int64)
        policy = self._policy
        facts = {"floor": policy.disclosure.min_rows, "policy": policy_sha256(policy)}
        return make_packet("counts", facts, arrays)

    def _read(self) -> FileContent:
        return read_file(self._settings.csv, self._settings.format)

    def _released(self, header: dict[str, Any]) -> ReleasedRows:
        """Read the file with the agreed task, and split its rows as they always are."""
        s, task, content = self._settings, self._task(header), self._read()
        policy = self._policy.disclosure
        memory = FileMemory(s.state, s.csv, content, policy)
        # A group that too few rows are in is named nowhere.
        read = task if policy.min_rows == 1 else task.unnamed_as_unrecorded()
        table = table_from_content(content, read, name=s.csv.name, reading=s)
        if table.task != read:
            raise DataError(f"{s.csv.name}: does not fit the agreed task; profile it again")
        terms = SplitTerms(*(header[key] for key in SplitTerms._fields))
        released = release_rows(s.name, replace(table, task=task), memory, terms, policy)
        self._row_sets += [_row_sets(split, released.counts(split)[0]) for split in SPLITS]
        return released

    def _audit(self, packet: Packet) -> Packet:
        """Count decisions by group, label and score."""
        answer, counts = answer_audit(self._settings, self._policy, self._consent, packet)
        self._row_sets.append(_row_sets("audited", counts))
        return answer

    def _unknown(self, run: str) -> MessageError:
        name = self._settings.name
        return MessageError(f"'{name}' knows no run '{run}'; it must be enrolled first")

    def _open(self, run: str) -> _OpenRun:
        """Return what this silo keeps of a run, from memory or from disk."""
        if run not in self._runs:
            folder = self._settings.state / run
            remedy = f"delete {folder}, and start a new run to enrol again"
            try:
                arrays, header = read_sealed(folder / _ROWS, remedy=remedy)
                agreed = _Agreed.model_validate(header)
            except FileNotFoundError:
                raise self._unknown(run) from None
            except ValidationError:
                raise MessageError(
                    f"'{self._settings.name}' was enrolled in run '{run}' with another version of "
                    "mfairfl; start a new run"
                ) from None
            shards = [_shard(arrays, part, agreed.features) for part in SPLITS]
            attributes = agreed.task.attributes
            model = agreed.model.build(agreed.features)
            client = Client(self._settings.name, *shards)
            slots = DiskSlots(folder / "slots")
            silo = SoleClient(client, model, attributes, agreed.seed, slots)
            shape = Shape(model.size, Cells(attributes).size)
            self._runs[run] = _OpenRun(
                silo=silo,
                shape=shape,
                attributes=attributes,
                train_rows=len(client.train.y),
                row_sets={split: _shard_sets(client, split, shape.cells) for split in SPLITS},
            )
        return self._runs[run]


def _reason(error: Exception) -> str:
    """Return the reason that the coordinator is told; other errors may quote the file."""
    if isinstance(error, MessageError | ConfigError):
        return str(error)
    return f"{type(error).__name__}; the silo's own log says more"


def _shard_sets(client: Client, split: Split, cells: int) -> RowSetFacts:
    """Return the sets of rows that measurements and updates of a run are about."""
    shard = client.shard(split)
    strata = 2 * shard.cells.astype(np.int64) + shard.y
    return _row_sets(split, np.bincount(strata[strata < 2 * cells]))


def _row_sets(which: str, counts: np.ndarray) -> RowSetFacts:
    """Return what the ledger says about an answer that tells these counts."""
    held = counts[counts > 0]
    smallest = int(held.min()) if len(held) else 0
    return RowSetFacts(f"groups and labels of {which} rows", len(held), smallest, int(held.sum()))


def _shard(arrays: Mapping[str, np.ndarray], part: Split, width: int) -> Shard:
    """Return the rows of a split; their numbers in the table are not needed here."""
    inputs = Inputs(arrays[f"{part}/numbers"], arrays[f"{part}/codes"], width)
    return Shard(inputs, arrays[f"{part}/y"], arrays[f"{part}/cells"], rows=np.arange(0))


def _kept_bytes(ask: Ask, folder: Path, shape: Shape) -> int:
    """Return how large the next file of slots may be: all that is held, and what is new."""
    if not isinstance(ask, Train):
        return 0
    moving = [job.plan.controller for job in ask.jobs]
    names = [name for job in ask.jobs for name in (job.keep, job.keep_control)]
    names += [None if one is None else one.slot for one in moving]
    if not any(names):
        return 0
    held = max((path.stat().st_size for path in (folder / "slots").glob("round-*")), default=0)
    return held + 4 * shape.weights * sum(name is not None for name in names)
