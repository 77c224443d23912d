"""Silos that tell sums under masks only, and a transport whose every message is a new process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd

import federations as fed
from members import write_members
from mfairfl.errors import MfairflError
from mfairfl.flower.records import from_records, to_records
from mfairfl.remote.codec import Packet, read_header
from mfairfl.remote.responder import Responder
from mfairfl.remote.silo_file import SiloSettings

Lost = Callable[[str, str, int], bool]
Lie = Callable[[str, str, int, Packet], Packet]


def masked_silos(folder: Path, frame: pd.DataFrame | None = None) -> dict[str, SiloSettings]:
    """Every site's rows in a file of its own, with its own key and all members' public ones."""
    frame = fed.people() if frame is None else frame
    sites = sorted(frame["site"].unique())
    keys, found = write_members(folder, sites), {}
    for site in sites:
        path = folder / f"{site}.csv"
        frame[frame["site"] == site].drop(columns="site").to_csv(path, index=False)
        found[site] = SiloSettings(
            name=site,
            csv=path,
            state=folder / "state" / site,
            key=keys[site],
            members=folder / "members",
        )
    return found


class Office:
    """Carries messages to new processes.

    `lost(name, kind, number)` says whose answers get lost; `number` counts exchanges of a kind.
    `lie` changes an answer on its way.
    `seen` holds every answer that reached the server, by kind and silo.
    """

    def __init__(
        self,
        silos: Mapping[str, SiloSettings],
        run: str = "run-1",
        lost: Lost = lambda name, kind, number: False,
        lie: Lie = lambda name, kind, number, answer: answer,
    ) -> None:
        self.silos, self.run, self.lost, self.lie = silos, run, lost, lie
        self.asked: dict[str, int] = {}
        self.seen: list[tuple[str, str, Packet]] = []
        self.sent: list[tuple[str, str, Packet]] = []

    def exchange(self, asks: Mapping[str, Packet]) -> dict[str, Packet | str]:
        found: dict[str, Packet | str] = {}
        kinds = {read_header(packet)[0] for packet in asks.values()}
        for kind in kinds:
            self.asked[kind] = self.asked.get(kind, 0) + 1
        for name, packet in asks.items():
            kind = read_header(packet)[0]
            self.sent.append((kind, name, packet))
            try:
                asked = self._carried(packet)
                answer = Responder(self.silos[name], fed.policy()).handle(self.run, asked)
            except MfairflError as error:
                found[name] = str(error)
                continue
            if not self.lost(name, kind, self.asked[kind]):
                told = self.lie(name, kind, self.asked[kind], answer)
                found[name] = self._carried(told)
                self.seen.append((kind, name, answer))
        return found

    def _carried(self, packet: Packet) -> Packet:
        """Return a message as it comes out of Flower, which carries few types of arrays."""
        return from_records(to_records(packet, self.run))[1]
