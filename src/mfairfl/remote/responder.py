"""A silo's side of the exchange: it answers messages from its own file and its own disk.

Every message may reach a new process, so what was agreed and the encoded rows are kept on disk, in
a folder per run. A request that is absurd, or beyond the limits of the silo's own policy.toml, is
refused before any work.

Answers hold descriptions, sums, counts, histograms and weight updates. They are not yet safe
against a coordinator that chooses its requests to isolate single rows: it can rebuild rows from
them (docs/deployment.md, "Ports and trust").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mfairfl.data import Attribute, Encoder, Inputs, Task
from mfairfl.data.agreement import describe_columns
from mfairfl.data.assembly import ClientRows, split_client
from mfairfl.data.columns import columns_of
from mfairfl.data.federation import SPLITS, Client, Shard, Split
from mfairfl.data.frame import read_file
from mfairfl.data.table import read_table
from mfairfl.engine.clients import DiskSlots, SoleClient
from mfairfl.engine.sealed import read_sealed, write_sealed
from mfairfl.engine.state import Ask, Train
from mfairfl.errors import ConfigError, DataError, MessageError, TimeLimitError, first_problem
from mfairfl.fairness.cells import Cells
from mfairfl.files import make_private_folder
from mfairfl.remote.audit_counting import answer_audit, answer_groups
from mfairfl.remote.codec import Packet, Shape, make_packet, pack_answer, read_header, unpack_ask
from mfairfl.remote.enrolment import ModelTerms
from mfairfl.remote.histograms import pack_histograms, unpack_cuts
from mfairfl.remote.policy import POLICY, Policy
from mfairfl.remote.refusals import refuse_absurd, refuse_excess
from mfairfl.remote.silo_file import (
    SiloSettings,
    follow_extensions,
    require_consent,
    require_listed,
)
from mfairfl.remote.usage import Usage, refuse_beyond
from mfairfl.training.deadline import time_limit

__all__ = ["Responder"]

_ROWS = "rows.safetensors"  # the encoded rows of a run, and in the header what was agreed
_NAME = re.compile(r"[\w.-]{1,100}")
_ROW = 16  # bytes stored of a row beside its features
# What may be asked before a run is known here: an enrolment, and audits, which belong to no run.
_FIRST = ("profile", "sums", "cuts", "encode", "audit-groups", "audit", "mask-keys", "levels")


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


class Responder:
    """Answers messages for one silo.

    Parameters
    ----------
    settings : SiloSettings
        Its silo.toml.
    policy : Policy, optional
        Its policy.toml; by default the limits of a silo without one.
    """

    def __init__(self, settings: SiloSettings, policy: Policy | None = None) -> None:
        self._settings, self._listed = settings, follow_extensions(settings)
        self._policy = policy or Policy()
        self._limits = self._policy.limits
        self._usage = Usage(settings.state, self._limits)
        self._runs: dict[str, _OpenRun] = {}

    def handle(self, run: str, packet: Packet) -> Packet:
        """Answer a message that belongs to `run`."""
        if not _NAME.fullmatch(run) or run.startswith("."):
            raise MessageError(f"'{run}' is not a valid name of a run")
        kind, header = read_header(packet)
        require_listed(self._listed, header)  # before anything looks a name up
        if kind not in _FIRST and not (self._settings.state / run / _ROWS).exists():
            raise self._unknown(run)
        with self._usage.turn():
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
        members = self._settings.members
        if members is None:
            if "mask" in header or kind in ("mask-keys", "levels"):
                raise MessageError(
                    "masks are asked for, and this silo holds no keys of the other members: name "
                    "their folder in its silo.toml (members)"
                )
            return self._plain(run, kind, header, packet)
        from mfairfl.remote.masked_answers import MaskedSilo  # noqa: PLC0415 - an extra is needed

        plain, rows = partial(self._plain, run), lambda: self._open(run).train_rows
        return MaskedSilo(self._settings, members, run, plain, rows).answer(kind, header, packet)

    def _plain(self, run: str, kind: str, header: dict[str, Any], packet: Packet) -> Packet:
        """Answer without masks."""
        settings, policy = self._settings, self._policy
        others: dict[str, Callable[[], Packet]] = {
            "profile": lambda: self._profile(header),
            "sums": lambda: self._sums(header),
            "cuts": lambda: self._histograms(header, packet),
            "encode": lambda: self._encode(run, header),
            "audit-groups": lambda: answer_groups(settings, policy, header),
            "audit": lambda: answer_audit(settings, policy, packet),
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
        refuse_excess(ask, self._limits, enrolled.train_rows)
        if kept := _kept_bytes(ask, self._settings.state / run, enrolled.shape):
            self._usage.require_room(kept)
        return pack_answer(enrolled.silo.answer(ask))

    def _task(self, header: dict[str, Any]) -> Task:
        """Return the requested task; it must be the one that this silo agreed to."""
        task = Task.model_validate(header["task"])
        require_consent(self._settings, task)
        return task

    def _profile(self, header: dict[str, Any]) -> Packet:
        """Describe the file."""
        s, task = self._settings, self._task(header)
        content = read_file(s.csv, **asdict(s.format))
        columns = columns_of(content.frame, s.csv.name, task.read_as(s))
        found = describe_columns(columns, task, s.name, min_count=self._limits.min_count)
        return make_packet("profile", {"profile": found.model_dump(mode="json")})

    def _sums(self, header: dict[str, Any]) -> Packet:
        """Return what the encoder is fitted from: train rows, and categories of the others."""
        silo = self._split(header)
        parts = {
            "train": silo.statistics("train"),
            "others": silo.statistics("validation", "test"),
        }
        least = self._limits.min_count
        plain = {name: asdict(sums) for name, sums in parts.items()}
        for sums in plain.values():
            sums["categorical"] = {
                column: {level: n for level, n in levels.items() if n >= least}
                for column, levels in sums["categorical"].items()
            }
        facts = {"sha256": silo.table.sha256, "rows": len(silo.table)}
        return make_packet("sums", {"sums": plain, **facts})

    def _histograms(self, header: dict[str, Any], packet: Packet) -> Packet:
        """Count train rows between cuts, none of them in an interval with too few."""
        silo, least = self._split(header), self._limits.min_count
        cuts = unpack_cuts(packet, silo.table.task.numeric or ())
        found = [silo.histogram(column, given).with_floor(least) for column, given in cuts.items()]
        return pack_histograms(found)

    def _encode(self, run: str, header: dict[str, Any]) -> Packet:
        """Encode the rows, store them for this run, and return counts per (cell, label)."""
        silo = self._split(header)
        table = silo.table
        encoder = Encoder.from_json(header["encoder"], name="the agreed encoder")
        agreed = _Agreed(
            task=table.task,
            seed=header["seed"],
            model=header["model"],
            layout=encoder.layout,
        )
        weights = agreed.model.build(agreed.features).size
        refuse_beyond(self._limits, "weights", weights, "weights of a model")
        self._usage.require_room(len(table) * (encoder.row_bytes + _ROW))
        cells = Cells(agreed.task.attributes).size
        arrays: dict[str, np.ndarray] = {}
        counts: dict[str, np.ndarray] = {}
        for part in SPLITS:
            rows = silo.rows[part]
            inputs = encoder.encode(table.X, rows)
            arrays[f"{part}/numbers"], arrays[f"{part}/codes"] = inputs.numbers, inputs.codes
            arrays[f"{part}/y"] = table.y[rows]
            arrays[f"{part}/cells"] = table.cells[rows].astype(np.int32)
            strata = 2 * table.cells[rows].astype(np.int64) + table.y[rows]
            counts[part] = np.bincount(strata, minlength=2 * cells).reshape(cells, 2)
        folder = make_private_folder(make_private_folder(self._settings.state) / run)
        write_sealed(folder / _ROWS, arrays, agreed.model_dump(mode="json"))
        self._runs.pop(run, None)
        return make_packet("counts", {}, counts)

    def _split(self, header: dict[str, Any]) -> ClientRows:
        """Read the file with the agreed task and split its rows as the embedded engine would."""
        s, task = self._settings, self._task(header)
        table = read_table(s.csv, task, **asdict(s.format), reading=s)
        if table.task != task:
            raise DataError(f"{s.csv.name}: does not fit the agreed task; profile it again")
        given = {key: header[key] for key in ("seed", "test", "validation")}
        return split_client(s.name, table, **given)

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
            self._runs[run] = _OpenRun(silo, shape, attributes, len(client.train.y))
        return self._runs[run]


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
