"""A silo that tells sums under masks only: what it answers, and what it refuses.

Which silos there are is decided by the folder of public keys that the silo itself holds
(`SiloSettings.members`), not by the coordinator. A silo with such a folder tells nothing by cell,
level or interval in another way, whatever it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from mfairfl.data.values import StrictModel
from mfairfl.errors import ConfigError, MessageError, first_problem
from mfairfl.remote.codec import Packet
from mfairfl.remote.mask_memory import MaskMemory
from mfairfl.remote.masked_audit import hide_audit
from mfairfl.remote.masked_forms import hide_measures, hide_reports, hide_scores
from mfairfl.remote.masked_messages import (
    MASK,
    MOST_OFFERS,
    Parts,
    pack_masked,
    pack_offers,
    quantity_of,
    roster_in,
    without_mask,
)
from mfairfl.remote.masked_tables import (
    coarse_profile,
    hide_counts,
    hide_histograms,
    hide_sums,
    level_names,
)
from mfairfl.remote.masking import (
    check_roster,
    load_members,
    load_signer,
    make_key,
    masked,
)
from mfairfl.remote.silo_file import SiloSettings

__all__ = ["MaskedSilo"]

Header = Mapping[str, Any]
Plain = Callable[[str, dict[str, Any], Packet], Packet]
"""Answers a plain question of some kind."""


class _KeysHeader(StrictModel):
    first: Annotated[int, Field(strict=True, ge=0, le=1 << 53)]


class MaskedSilo:
    """Answers one run's messages under masks.

    Parameters
    ----------
    settings : SiloSettings
        Its silo.toml, with its own key.
    members : Path
        The folder of the members' public keys.
    run : str
        The run's name.
    plain : callable
        Answers a plain question; what it answers does not leave this class as it is.
    train_rows : callable
        Says how many rows this silo trains on in the run.
    """

    def __init__(
        self,
        settings: SiloSettings,
        members: Path,
        run: str,
        plain: Plain,
        train_rows: Callable[[], int],
    ) -> None:
        self._settings, self._members, self._run = settings, members, run
        self._plain, self._train_rows = plain, train_rows

    def answer(self, kind: str, header: Header, packet: Packet) -> Packet:
        """Answer a message."""
        try:
            return self._answer(kind, header, packet)
        except ValidationError as error:
            raise MessageError(f"a '{kind}' message: {first_problem(error)}") from None
        except KeyError as error:
            raise MessageError(f"a '{kind}' message lacks {error}") from None

    def _answer(self, kind: str, header: Header, packet: Packet) -> Packet:
        if kind == "mask-keys":
            return self._keys(header)
        if kind == "profile":
            return coarse_profile(self._plain(kind, dict(header), packet))
        if kind == "levels":
            return level_names(self._plain("sums", dict(header), packet))
        if kind == "audit-groups":  # names of groups, without counts
            return self._plain(kind, dict(header), packet)
        if MASK not in header:
            raise MessageError(
                "this silo tells sums under masks only (members in its silo.toml): set masked = "
                "true in the settings of the run, or of the audit"
            )
        return self._masked(kind, header, packet)

    def _keys(self, header: Header) -> Packet:
        """Make keys for exchanges to come, and keep them on disk."""
        asked = _KeysHeader.model_validate({"first": header["first"]})
        if self._settings.key is None:
            raise ConfigError("silo.toml: masks are signed with the silo's own key: name it (key)")
        memory, name = self._memory(), self._settings.name
        first = max(asked.first, memory.next)
        signer = load_signer(self._settings.key)
        keys = [make_key(signer, self._run, first + i, name) for i in range(MOST_OFFERS)]
        memory.add(keys)
        return pack_offers(first, [key.offer for key in keys])

    def _memory(self, kind: str = "") -> MaskMemory:
        """Return what is remembered of the file that this kind of question is about."""
        own, file = self._settings.audit, self._settings.csv
        if kind == "audit" and own is not None and own.file is not None:
            file = own.file
        return MaskMemory(self._settings.state, self._run, str(file))

    def _masked(self, kind: str, header: Header, packet: Packet) -> Packet:
        """Answer a question with what may be told, and the rest under masks."""
        asked, plain = without_mask(packet, header)
        quantity = quantity_of(plain)
        roster = roster_in(packet, header, self._run, quantity)
        if roster is None:
            parts = self._taken_apart(kind, asked, plain, silos=0)
            return pack_masked(Parts(parts.told, parts.arrays))
        # All that can be refused is, before anything is computed.
        memory = self._memory(kind)
        own = memory.key(roster.exchange, self._settings.name)
        check_roster(roster, self._run, own, load_members(self._members))
        memory.check(quantity, roster.names)
        parts = self._taken_apart(kind, asked, plain, silos=len(roster.offers))
        words = masked(parts.words, roster, own, quantity)
        memory.commit(roster.exchange, quantity, roster.names)
        return pack_masked(Parts(parts.told, parts.arrays, words))

    def _taken_apart(self, kind: str, asked: dict[str, Any], plain: Packet, silos: int) -> Parts:
        answer = self._plain(kind, asked, plain)
        if kind == "train":
            return hide_reports(answer, self._train_rows(), silos)
        forms: dict[str, Callable[[Header, Packet, int], Parts]] = {
            "measure": hide_measures,
            "score": hide_scores,
            "sums": hide_sums,
            "cuts": hide_histograms,
            "encode": hide_counts,
            "audit": hide_audit,
        }
        if kind not in forms:
            raise MessageError(f"a '{kind}' message is not answered under masks")
        return forms[kind](asked, answer, max(silos, 1))
