"""Every number of an answer that depends on rows declares what one row changes in it."""

from __future__ import annotations

import numpy as np
import pytest

from audit_silos import COLUMNS, Silos, policy, predictions, write_silos
from mfairfl.coordinator.audit import AuditTerms, gather_counts
from mfairfl.errors import MessageError
from mfairfl.wire.audit_messages import AuditAnswer
from mfairfl.wire.packing import HelloAnswer, Packet, RowChange, SiloAnswer, pack, unpack
from mfairfl.wire.run_messages import ScoreAnswer, ScoreArrays

ANSWERS = {*SiloAnswer.__subclasses__(), ScoreArrays} - {HelloAnswer, ScoreAnswer}
SETTINGS = {"floor", "policy"}  # of the silo's policy.toml


def row_change(field):
    return next((m for m in field.metadata if isinstance(m, RowChange)), None)


@pytest.mark.parametrize("answer", sorted(ANSWERS, key=str))
def test_every_field_of_an_answer_says_what_a_row_changes(answer):
    for name, field in answer.model_fields.items():
        nested = name in SETTINGS or "ScoreArrays" in str(field.annotation)
        assert nested or row_change(field) is not None, name
    assert list(ScoreAnswer.model_fields) == ["scores"]
    assert len(ANSWERS) == 9


def test_one_row_less_changes_as_much_of_an_audit_as_is_declared(tmp_path):
    frame = predictions()
    east = frame.index[frame["silo"] == "east"]
    arrays = []
    for name, rows in (("all", frame), ("less", frame.drop(east[7]))):
        (tmp_path / name).mkdir()
        silos = Silos(write_silos(tmp_path / name, rows), policy(min_rows=1))
        gather_counts(silos, ["east", "north", "west"], AuditTerms(subject=COLUMNS))
        arrays.append(silos.kept[-1]["east"].arrays)
    for name in arrays[0]:
        moved = np.abs(arrays[0][name] - arrays[1][name])
        fields = ScoreArrays if name.startswith("scores/") else AuditAnswer
        change = row_change(fields.model_fields[name.rpartition("/")[2]])
        assert np.count_nonzero(moved) <= change.entries, name
        assert change.most is None or moved.max() <= change.most, name
    assert sum(np.count_nonzero(arrays[0][n] - arrays[1][n]) for n in arrays[0]) >= 3


def test_the_text_of_a_request_is_parsed_once():
    packet = pack(HelloAnswer(name="east"))
    assert packet.request is packet.request
    assert unpack(HelloAnswer, packet) == HelloAnswer(name="east")


@pytest.mark.parametrize(
    "arrays", [{"name": np.zeros(1)}, {"name/0": np.zeros(1)}, {"/": np.zeros(1)}]
)
def test_an_array_in_the_place_of_a_value_is_refused(arrays):
    packet = Packet(pack(HelloAnswer(name="east")).text, arrays)
    with pytest.raises(MessageError, match=r"was not asked for|Extra inputs"):
        unpack(HelloAnswer, packet)
