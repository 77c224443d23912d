"""A silo reads each of its files once, however many messages an enrolment, a run, an audit has."""

from __future__ import annotations

from collections import Counter

import pytest

import federations as fed
from mfairfl.coordinator.audit import AuditTerms, gather_counts
from mfairfl.coordinator.enrolment import EnrolmentTerms, enrol
from mfairfl.coordinator.transport import drive
from mfairfl.data import EncoderConfig, Task
from mfairfl.data.predictions import PredictionColumns
from mfairfl.fairness.constraints import Goal
from mfairfl.silo import rows as silo_rows
from mfairfl.silo.responder import Responder
from mfairfl.silo.rows import SiloFile
from mfairfl.silo.silo_file import AuditConsent
from mfairfl.strategies.base import Summary
from mfairfl.wire.enrolment_messages import ModelTerms

TASK = Task(label="hired", favourable="yes", sensitive=("sex",))
BINS = EncoderConfig(numeric="bins", bins=4, min_rows=8, min_level_rows=5)
TERMS = EnrolmentTerms(task=TASK, seed=3, model=ModelTerms(hidden=(4,)), encoder=BINS)
COLUMNS = {"sensitive": ("sex",), "label": "hired", "favourable": "yes"}
COLUMNS |= {"prediction": "job", "selected": "clerk"}


class Silos:
    """Silos that run in this process."""

    def __init__(self, settings):
        self.responders = {name: Responder(silo, fed.policy()) for name, silo in settings.items()}

    def exchange(self, asks):
        return {name: self.responders[name].handle("run-1", ask) for name, ask in asks.items()}


@pytest.fixture
def reads(monkeypatch):
    """How often each file was read, and its cells typed."""
    counted, read, type_cells = Counter(), silo_rows.read_file, silo_rows.columns_of

    def counting_read(path, *rest):
        counted[path.parent.name, path.name] += 1
        return read(path, *rest)

    def counting_types(frame, name, *rest):
        counted["typed", name] += 1
        return type_cells(frame, name, *rest)

    monkeypatch.setattr(silo_rows, "read_file", counting_read)
    monkeypatch.setattr(silo_rows, "columns_of", counting_types)
    return counted


def with_audit(settings, **audit):
    consent = AuditConsent(**COLUMNS, **audit)
    return {name: s.model_copy(update={"audit": consent}) for name, s in settings.items()}


def enrol_and_train(silos):
    names = sorted(silos.responders)
    enrolled = enrol(silos, names, TERMS, minimum=len(names))
    summary = Summary(
        counts=enrolled.counts["train"],
        attributes=enrolled.attributes,
        goal=Goal(notions=("dp",), attributes=("sex",)),
    )
    inputs = len(enrolled.encoder.feature_names)
    setup = fed.enrolled_setup("fedavg", summary, inputs, ("train", "test"), TERMS)
    drive(setup, fed.first(setup), silos, minimum=len(names))


def test_an_enrolment_a_run_and_an_audit_read_a_file_once(settings, reads):
    silos = Silos(with_audit(settings))
    enrol_and_train(silos)
    assert {count for (where, _), count in reads.items() if where != "typed"} == {1}
    assert reads.total() == 2 * len(settings)  # each file is read once, and typed once
    gather_counts(silos, sorted(settings), AuditTerms(subject=PredictionColumns(**COLUMNS)))
    assert {count for (where, _), count in reads.items() if where != "typed"} == {1}


def test_an_audit_reads_its_own_file_once(settings, reads, tmp_path):
    rows = settings["east"].csv
    predictions = tmp_path / "predictions.csv"
    predictions.write_bytes(rows.read_bytes())
    silos = Silos(with_audit({"east": settings["east"]}, file=predictions))
    terms = AuditTerms(subject=PredictionColumns(**COLUMNS))
    gather_counts(silos, ["east"], terms)
    assert reads == {(tmp_path.name, "predictions.csv"): 1, ("typed", "predictions.csv"): 1}


def test_a_file_that_changed_is_read_again(settings, reads):
    path, file_format = settings["east"].csv, settings["east"].format
    file = SiloFile(path, file_format)
    first = file.content()
    assert file.content() is first
    path.write_bytes(path.read_bytes() + path.read_bytes().splitlines(keepends=True)[-1])
    assert len(file.content().frame) == len(first.frame) + 1
    assert reads.total() == 2
