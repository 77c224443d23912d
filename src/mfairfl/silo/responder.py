"""A silo's side of the exchange: it answers messages from its own file and its own disk.

Every message may reach a new process, so what was agreed and the encoded rows are kept on disk, in
a folder per run. A request that is absurd, or beyond what the silo's own policy.toml allows, is
refused before any work.

Answers hold names, sums, counts, histograms and weight updates. Names and counts of few rows are
kept back (`silo/rows.py`), which protects people in what is published. A coordinator that
makes its requests for the purpose can still read rows: it must be trusted (docs/what-leaves.md).
"""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import Field, ValidationError

from mfairfl.data import Attribute, Inputs, Task
from mfairfl.data.agreement import describe_columns
from mfairfl.data.federation import SPLITS, Client, Shard, Split
from mfairfl.data.values import StrictModel
from mfairfl.engine.checkpoint import read_sealed, write_sealed
from mfairfl.engine.clients import DiskSlots, SoleClient
from mfairfl.engine.state import Ask, Train
from mfairfl.errors import CheckpointError, ConfigError, DataError, MessageError, TimeLimitError
from mfairfl.fairness.cells import Cells
from mfairfl.files import make_private_folder
from mfairfl.silo import ledger
from mfairfl.silo.decisions import count_decisions, frequent_groups
from mfairfl.silo.policy import KINDS, POLICY, Policy, Usage, policy_sha256, refuse_beyond
from mfairfl.silo.refusals import RunConsent, refuse_absurd, refuse_excess
from mfairfl.silo.rows import FileMemory, ReleasedRows, Session, release_rows
from mfairfl.silo.silo_file import SiloSettings, follow_extensions, require_listed
from mfairfl.text import one_line
from mfairfl.training.execution import time_limit
from mfairfl.wire import enrolment_messages as messages
from mfairfl.wire.audit_messages import AuditQuestion, GroupsQuestion
from mfairfl.wire.packing import Packet, SiloAnswer, pack, require, unpack
from mfairfl.wire.run_messages import Shape, answer_message, unpack_ask

_ROWS = "rows.safetensors"  # the encoded rows of a run, and in the header what was agreed
_NAME = re.compile(r"(?!\.)[\w.-]{1,100}")
_ROW = 16  # bytes stored of a row beside its features
_OF_A_RUN = ("measure", "score", "train")  # what is answered once a run is known here


class _Agreed(StrictModel):
    """What the participants of a run agreed on, as a silo stores it."""

    task: Task
    seed: int = Field(ge=0)
    model: messages.ModelTerms
    layout: tuple[int, int, int]

    @property
    def features(self) -> int:
        """Number of the model's inputs."""
        return self.layout[2]


class _OpenRun(NamedTuple):
    """A run that this silo takes part in."""

    client: Client
    answers: SoleClient
    shape: Shape
    attributes: tuple[Attribute, ...]


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
    session : Session, optional
        Its files, if this process has read them already.
    """

    def __init__(
        self,
        settings: SiloSettings,
        policy: Policy | None = None,
        consent: RunConsent | None = None,
        session: Session | None = None,
    ) -> None:
        if settings.task is not None and consent is None:
            raise ConfigError(f"{settings.task}: what was agreed to was not read")
        self._consent = consent
        self._settings, self._listed = settings, follow_extensions(settings)
        self._session = session or Session(settings)
        self._policy = policy or Policy()
        self._limits = self._policy.limits
        self._usage = Usage(settings.state, self._policy)
        self._ledger = ledger.Ledger(settings.state)
        self._row_sets: list[ledger.RowSetFacts] = []  # of the answer under way, for the ledger
        self._runs: dict[str, _OpenRun] = {}
        self._released: tuple[object, ReleasedRows] | None = None

    def handle(self, run: str, packet: Packet) -> Packet:
        """Answer a message that belongs to `run`: the one place where an answer leaves a silo.

        The ledger has the answer before it leaves, and a refusal as well. Only a request that
        cannot have a turn leaves no line.
        """
        with self._usage.turn():
            self._row_sets.clear()
            policy = policy_sha256(self._policy)
            exchange = {**ledger.about_request(run, packet), "policy_sha256": policy}
            try:
                answer = pack(self._answer(run, packet))
            except Exception as error:
                self._ledger.add(**exchange, refusal=disclosed_reason(error))
                raise
            self._ledger.add(
                **exchange,
                row_sets=tuple(self._row_sets),
                answer_sha256=ledger.packet_sha256(answer),
                answer_bytes=ledger.packet_bytes(answer),
            )
            return answer

    def _answer(self, run: str, packet: Packet) -> SiloAnswer:
        """Return the answer to a request that may be answered at all."""
        require(_NAME.fullmatch(run), f"'{run}' is not a valid name of a run")
        kind, fields = packet.request
        require_listed(self._listed, fields)  # before anything looks a name up
        require(kind in KINDS, f"a message of unknown kind '{one_line(kind)}'")
        answered = kind in self._policy.disclosure.kinds
        require(answered, f"'{kind}' messages are not answered (disclosure.kinds of its {POLICY})")
        enrolled = kind not in _OF_A_RUN or (self._settings.state / run / _ROWS).exists()
        name = self._settings.name
        require(enrolled, f"'{name}' knows no run '{run}'; it must be enrolled first")
        self._usage.count(run)
        session, policy = self._session, self._policy
        answers: dict[str, Callable[[], SiloAnswer]] = {
            "profile": lambda: self._profile(unpack(messages.ProfileQuestion, packet)),
            "sums": lambda: self._sums(unpack(messages.SumsQuestion, packet)),
            "cuts": lambda: self._histograms(unpack(messages.CutsQuestion, packet)),
            "encode": lambda: self._encode(run, unpack(messages.EncodeQuestion, packet)),
            "audit-groups": lambda: frequent_groups(
                session, policy, unpack(GroupsQuestion, packet)
            ),
            "audit": lambda: self._audit(unpack(AuditQuestion, packet)),
            **dict.fromkeys(_OF_A_RUN, lambda: self._compute(run, packet)),
        }
        try:
            with time_limit(self._limits.seconds):
                return answers[kind]()
        except TimeLimitError:
            raise MessageError(
                f"the answer takes longer than the {self._limits.seconds:,} seconds that this "
                f"silo allows (limits.seconds of its {POLICY})"
            ) from None

    def _about(self, which: str, counts: np.ndarray) -> None:
        """Record for the ledger that the answer has counts of these sets of rows."""
        occupied = counts[counts > 0]
        what = f"groups and labels of {which} rows"
        smallest = int(occupied.min()) if len(occupied) else 0
        self._row_sets.append(
            ledger.RowSetFacts(what, len(occupied), smallest, int(occupied.sum()))
        )

    # ------------------------------------------------------------------ an enrolled run

    def _compute(self, run: str, packet: Packet) -> SiloAnswer:
        """Measure, score or train, unless that is absurd or too much."""
        enrolled = self._open(run)
        ask = unpack_ask(packet, self._settings.name, enrolled.shape)
        try:
            refuse_absurd(ask, enrolled.shape, enrolled.attributes)
        except (ConfigError, DataError) as error:  # about numbers in the message: no rows are read
            raise MessageError(f"a '{packet.request.kind}' message: {error}") from None
        refuse_excess(ask, self._policy, len(enrolled.client.train.y))
        if self._consent is not None:
            self._consent.require(ask, enrolled.attributes)
        splits: tuple[Split, ...] = ("train",) if isinstance(ask, Train) else ask.splits
        for split in splits:
            shard = enrolled.client.shard(split)
            strata = 2 * shard.cells.astype(np.int64) + shard.y
            self._about(split, np.bincount(strata[strata < 2 * enrolled.shape.cells]))
        if size := _stored_bytes(ask, self._settings.state / run, enrolled.shape):
            self._usage.require_room(size)
        return answer_message(enrolled.answers.answer(ask))

    def _open(self, run: str) -> _OpenRun:
        """Return what this silo keeps of a run, from memory or from disk."""
        if run not in self._runs:
            folder, name = self._settings.state / run, self._settings.name
            remedy = f"delete {folder}, and start a new run to enrol again"
            arrays, header = read_sealed(folder / _ROWS, remedy=remedy)
            try:
                agreed = _Agreed.model_validate(header)
            except ValidationError:
                raise MessageError(
                    f"'{name}' was enrolled in run '{run}' with another version of mfairfl; start "
                    "a new run"
                ) from None
            shards = []
            for part in SPLITS:
                numbers, codes, y, cells = (
                    arrays[f"{part}/{key}"] for key in ("numbers", "codes", "y", "cells")
                )
                # Their numbers in the table are not needed here.
                shards.append(
                    Shard(Inputs(numbers, codes, agreed.features), y, cells, rows=np.arange(0))
                )
            client, model = Client(name, *shards), agreed.model.build(agreed.features)
            attributes, slots = agreed.task.attributes, DiskSlots(folder / "slots")
            self._runs[run] = _OpenRun(
                client=client,
                answers=SoleClient(client, model, attributes, agreed.seed, slots),
                shape=Shape(model.size, Cells(attributes).size),
                attributes=attributes,
            )
        return self._runs[run]

    # ------------------------------------------------------------------ enrolment and audits

    def _profile(self, question: messages.ProfileQuestion) -> messages.ProfileAnswer:
        """Describe the file."""
        task, settings = question.task, self._settings
        self._require_task(task)
        columns = self._session.rows.columns(task.read_as(settings))
        floor = self._policy.disclosure.min_rows
        return messages.ProfileAnswer(
            profile=describe_columns(columns, task, settings.name, floor=floor)
        )

    def _sums(self, question: messages.SumsQuestion) -> messages.SumsAnswer:
        """Return what the encoder is fitted from: train rows, and categories of the others."""
        released = self._release(question)
        table = released.silo.table
        return messages.SumsAnswer(**released.sums(), sha256=table.sha256, rows=len(table))

    def _histograms(self, question: messages.CutsQuestion) -> messages.HistogramsAnswer:
        """Count train rows between cuts."""
        released = self._release(question)
        cuts = question.by_column(released.silo.table.task.numeric or ())
        histograms = released.histograms(cuts)
        return messages.HistogramsAnswer(
            counts=tuple(histogram.counts for histogram in histograms),
            values=tuple(histogram.values for histogram in histograms),
        )

    def _encode(self, run: str, question: messages.EncodeQuestion) -> messages.CountsAnswer:
        """Encode the rows, store them for this run, and return counts per (cell, label)."""
        released = self._release(question)
        table, encoder = released.silo.table, question.encoder
        agreed = _Agreed(
            task=table.task, seed=question.seed, model=question.model, layout=encoder.layout
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
        self._released = None  # the enrolment is over
        self._session.rows.forget_columns()
        counts = {part: released.counts(part) for part in SPLITS}
        return messages.CountsAnswer(
            floor=self._policy.disclosure.min_rows,
            policy=policy_sha256(self._policy),
            **{part: table for part, (table, _) in counts.items()},
            hidden={part: released.hidden[part].astype(np.int64) for part in SPLITS},
            withheld=np.array([rows for _, rows in counts.values()], dtype=np.int64),
        )

    def _require_task(self, task: Task) -> None:
        """Refuse a task other than the one that this silo agreed to."""
        if self._consent is not None:
            self._consent.require_task(task)

    def _release(self, question: messages.SplitQuestion) -> ReleasedRows:
        """Return the rows with the agreed task, split as they always are."""
        task, policy = question.task, self._policy.disclosure
        self._require_task(task)
        content = self._session.rows.content()
        terms = {name: getattr(question, name) for name in ("seed", "test", "validation")}
        key = (content.sha256, task, *terms.values())
        if self._released is None or self._released[0] != key:
            memory = FileMemory(self._settings.state, self._settings.csv, content, policy)
            # A group that too few rows are in is named nowhere.
            table = self._session.table(
                task if policy.min_rows == 1 else task.unnamed_as_unrecorded()
            )
            table = replace(table, task=task)
            released = release_rows(self._settings.name, table, memory, policy, **terms)
            self._released = key, released
        released = self._released[1]
        for split in SPLITS:
            self._about(split, released.counts(split)[0])
        return released

    def _audit(self, question: AuditQuestion) -> SiloAnswer:
        """Count decisions by group, label and score."""
        answer = count_decisions(self._session, self._policy, self._consent, question)
        self._about("audited", answer.decided.sum(axis=2))
        return answer


def disclosed_reason(error: Exception) -> str:
    """Return the reason that the coordinator receives; other errors may quote the file."""
    if isinstance(error, MessageError | ConfigError):
        return str(error)
    if isinstance(error, DataError):
        return "its file cannot be used with the agreed task; its own log says why"
    if isinstance(error, CheckpointError):
        return "what it stored of this run is damaged; its own log says what to do"
    return f"{type(error).__name__}; its own log says more"


def _stored_bytes(ask: Ask, folder: Path, shape: Shape) -> int:
    """Return how large the next file of slots may be: all that is stored, and what is new."""
    if not isinstance(ask, Train):
        return 0
    slots = [
        slot
        for job in ask.jobs
        for slot in (job.keep, job.keep_control, job.plan.controller and job.plan.controller.slot)
        if slot is not None
    ]
    files = (folder / "slots").glob("round-*") if slots else ()
    stored = max((path.stat().st_size for path in files), default=0)
    return stored + 4 * shape.weights * len(slots)
