"""An audit over silos under masks: the numbers of all rows, and no count of a single silo."""

from __future__ import annotations

import numpy as np
import pytest

from answers import one_line
from audit_silos import SILOS, Silos, policy, predictions, write_silos
from members import write_members
from mfairfl.deployment.audit import build_silo_audit, read_gathered, terms_of, write_gathered
from mfairfl.deployment.audit_request import AuditRequest
from mfairfl.errors import FederationError
from mfairfl.remote.audit import gather_counts

REQUEST = AuditRequest(
    sensitive=("sex", "race"),
    label="hired",
    favourable="yes",
    prediction="decision",
    score="score",
    tolerance=0.1,
    masked=True,
)


def masked(folder, frame):
    keys = write_members(folder, list(SILOS))
    more = {"members": folder / "members"}
    settings = {
        name: one.model_copy(update={"key": keys[name], **more})
        for name, one in write_silos(folder, frame).items()
    }
    return Silos(settings, policy(10))


def plainly(folder, frame):
    """The same audit by silos that tell each its own counts."""
    (folder / "plain").mkdir()
    silos = Silos(write_silos(folder / "plain", frame), policy(10))
    return gather_counts(silos, SILOS, terms_of(REQUEST.model_copy(update={"masked": False})))


def values(part, place=()):
    """Yield every number in some part of a document, with its place."""
    if isinstance(part, dict):
        if "value" in part and "name" in part:
            yield (*place, part["name"]), part["value"]
        for key, inner in part.items():
            yield from values(inner, (*place, key))
    elif isinstance(part, list):
        for i, inner in enumerate(part):
            yield from values(inner, (*place, i))


def test_the_audit_is_that_of_all_rows(tmp_path):
    frame = predictions()
    found = gather_counts(masked(tmp_path, frame), SILOS, terms_of(REQUEST))
    expected = plainly(tmp_path, frame).counts
    assert found.counts.clients == ("all silos", *SILOS)
    assert found.counts.attributes == expected.attributes
    assert np.array_equal(found.counts.decided[0], expected.decided.sum(axis=0))
    assert np.array_equal(found.counts.scored[0], expected.scored.sum(axis=0))
    assert not found.counts.decided[1:].any()
    whole = found.counts.sums[0]
    np.testing.assert_allclose(whole.losses, sum(one.losses for one in expected.sums), rtol=1e-8)
    assert [one.floor for one in found.silos.values()] == [10, 10, 10]


def test_no_count_of_a_single_silo_is_told(tmp_path):
    silos = masked(tmp_path, predictions())
    gather_counts(silos, SILOS, terms_of(REQUEST))
    told = [packet for reply in silos.kept for packet in reply.values()]
    assert {name for packet in told for name in packet.arrays} == {
        *("mask/keys", "mask/signatures", "mask/words", "hidden", "withheld")
    }
    assert all(not p.arrays["withheld"].any() for p in told if "withheld" in p.arrays)


def test_the_document_and_its_file_hold_the_sums(tmp_path):
    frame = predictions()
    found = gather_counts(masked(tmp_path, frame), SILOS, terms_of(REQUEST))
    write_gathered(tmp_path, found)
    built = build_silo_audit(REQUEST, read_gathered(tmp_path))
    expected = build_silo_audit(REQUEST, plainly(tmp_path, frame))
    ours, theirs = (
        dict(values(one.model_dump(mode="json")["sections"])) for one in (built, expected)
    )
    assert len(ours) > 50
    assert ours == pytest.approx(theirs, rel=1e-7, nan_ok=True)


def test_what_a_silo_withholds_is_known_of_it(tmp_path):
    frame = predictions(rows=60)
    found = gather_counts(masked(tmp_path, frame), SILOS, terms_of(REQUEST))
    plain = plainly(tmp_path, frame)
    assert plain.counts.withheld.any()
    assert np.array_equal(found.counts.withheld[1:], plain.counts.withheld)
    assert np.array_equal(found.counts.hidden[1:], plain.counts.hidden)
    assert np.array_equal(found.counts.decided[0], plain.counts.decided.sum(axis=0))
    assert build_silo_audit(REQUEST, found).headline.warnings is not None


def test_a_silo_that_does_not_answer_loses_the_audit_and_cannot_be_left_out(tmp_path):
    silos = masked(tmp_path, predictions())

    class Away:
        def exchange(self, asks):
            found = silos.exchange(asks)
            if "mask/words" in getattr(found["west"], "arrays", {}):
                del found["west"]
            return found

    with pytest.raises(FederationError) as caught:
        gather_counts(Away(), SILOS, terms_of(REQUEST))
    assert one_line(caught) == (
        "sums over all silos need every one of them (west: no answer before the deadline); when "
        "all are there, run the same command again"
    )
    with pytest.raises(FederationError, match="2 of 2 clients take part, at least 3 must"):
        gather_counts(silos, ["east", "north"], terms_of(REQUEST))
    assert gather_counts(silos, SILOS, terms_of(REQUEST)).counts.decided.any()


def test_a_plain_audit_is_refused(tmp_path):
    silos = masked(tmp_path, predictions())
    plain = terms_of(REQUEST.model_copy(update={"masked": False}))
    with pytest.raises(FederationError, match="settings of the run, or of the audit"):
        gather_counts(silos, SILOS, plain)
