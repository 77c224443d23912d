"""A silo's side of the exchange: it answers messages from its own file and its own disk.

Every message may reach a new process, so what was agreed and the encoded rows are kept on disk, in
a folder per run. Answers hold descriptions, sums, counts, histograms and weight updates. They are
not yet safe against a coordinator that chooses its requests to isolate single rows: it can rebuild
rows from them (docs/deployment.md, "Ports and trust").
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mfairfl.data import Encoder, Task
from mfairfl.data.agreement import describe_columns
from mfairfl.data.assembly import ClientRows, split_client
from mfairfl.data.columns import columns_of
from mfairfl.data.federation import SPLITS, Client, Shard
from mfairfl.data.frame import read_file
from mfairfl.data.table import read_table
from mfairfl.engine.clients import DiskSlots, SoleClient
from mfairfl.engine.sealed import read_sealed, write_sealed
from mfairfl.errors import DataError, MessageError, first_problem
from mfairfl.fairness.cells import Cells
from mfairfl.files import make_private_folder
from mfairfl.remote.codec import Packet, Shape, make_packet, pack_answer, read_header, unpack_ask
from mfairfl.remote.enrolment import ModelTerms
from mfairfl.remote.histograms import pack_histograms, unpack_cuts
from mfairfl.remote.silo_file import (
    SiloSettings,
    follow_extensions,
    require_consent,
    require_listed,
)

__all__ = ["Responder"]

_ROWS = "rows.safetensors"  # the encoded rows of a run, and in the header what was agreed
_NAME = re.compile(r"[\w.-]{1,100}")


class _Agreed(BaseModel):
    """What the participants of a run agreed on, as a silo stores it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: Task
    seed: int = Field(ge=0)
    model: ModelTerms
    features: int = Field(ge=1)


class Responder:
    """Answers messages for one silo."""

    def __init__(self, settings: SiloSettings) -> None:
        self._settings, self._listed = settings, follow_extensions(settings)
        self._silos: dict[str, tuple[SoleClient, Shape]] = {}

    def handle(self, run: str, packet: Packet) -> Packet:
        """Answer a message that belongs to `run`."""
        if not _NAME.fullmatch(run) or run.startswith("."):
            raise MessageError(f"'{run}' is not a valid name of a run")
        kind, header = read_header(packet)
        require_listed(self._listed, header)  # before anything looks a name up
        try:
            if kind == "profile":
                return self._profile(header)
            if kind == "sums":
                return self._sums(header)
            if kind == "cuts":
                return self._histograms(header, packet)
            if kind == "encode":
                return self._encode(run, header)
        except ValidationError as error:
            raise MessageError(f"a '{kind}' message: {first_problem(error)}") from None
        except KeyError as error:
            raise MessageError(f"a '{kind}' message lacks {error}") from None
        silo, shape = self._open(run)
        name = self._settings.name
        return pack_answer(silo.answer(unpack_ask(packet, name, shape)))

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
        found = describe_columns(columns, task, s.name, min_count=s.min_count)
        return make_packet("profile", {"profile": found.model_dump(mode="json")})

    def _sums(self, header: dict[str, Any]) -> Packet:
        """Return what the encoder is fitted from: train rows, and categories of the others."""
        silo = self._split(header)
        parts = {
            "train": silo.statistics("train"),
            "others": silo.statistics("validation", "test"),
        }
        least = self._settings.min_count
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
        silo, least = self._split(header), self._settings.min_count
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
            features=len(encoder.feature_names),
        )
        cells = Cells(agreed.task.attributes).size
        arrays: dict[str, np.ndarray] = {}
        counts: dict[str, np.ndarray] = {}
        for part in SPLITS:
            rows = silo.rows[part]
            arrays[f"{part}/X"] = encoder.transform(table.X, rows)
            arrays[f"{part}/y"] = table.y[rows]
            arrays[f"{part}/cells"] = table.cells[rows].astype(np.int32)
            strata = 2 * table.cells[rows].astype(np.int64) + table.y[rows]
            counts[part] = np.bincount(strata, minlength=2 * cells).reshape(cells, 2)
        folder = make_private_folder(make_private_folder(self._settings.state) / run)
        write_sealed(folder / _ROWS, arrays, agreed.model_dump(mode="json"))
        self._silos.pop(run, None)
        return make_packet("counts", {}, counts)

    def _split(self, header: dict[str, Any]) -> ClientRows:
        """Read the file with the agreed task and split its rows as the embedded engine would."""
        s, task = self._settings, self._task(header)
        table = read_table(s.csv, task, **asdict(s.format), reading=s)
        if table.task != task:
            raise DataError(f"{s.csv.name}: does not fit the agreed task; profile it again")
        given = {key: header[key] for key in ("seed", "test", "validation")}
        return split_client(s.name, table, **given)

    def _open(self, run: str) -> tuple[SoleClient, Shape]:
        """Return the silo of a run, from memory or from disk."""
        if run not in self._silos:
            folder = self._settings.state / run
            remedy = f"delete {folder}, and start a new run to enrol again"
            try:
                arrays, header = read_sealed(folder / _ROWS, remedy=remedy)
                agreed = _Agreed.model_validate(header)
            except FileNotFoundError:
                raise MessageError(
                    f"'{self._settings.name}' knows no run '{run}'; it must be enrolled first"
                ) from None
            except ValidationError:
                raise MessageError(
                    f"'{self._settings.name}' was enrolled in run '{run}' with another version of "
                    "mfairfl; start a new run"
                ) from None
            rows = np.arange(0)  # row numbers are not needed here
            shards = [
                Shard(arrays[f"{part}/X"], arrays[f"{part}/y"], arrays[f"{part}/cells"], rows)
                for part in SPLITS
            ]
            attributes = agreed.task.attributes
            model = agreed.model.build(agreed.features)
            client = Client(self._settings.name, *shards)
            slots = DiskSlots(folder / "slots")
            silo = SoleClient(client, model, attributes, agreed.seed, slots)
            self._silos[run] = silo, Shape(model.size, Cells(attributes).size)
        return self._silos[run]
