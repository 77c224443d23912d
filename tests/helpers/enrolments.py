"""Enrolling the four sites, each message in a process of its own."""

from __future__ import annotations

import federations as fed
from mfairfl.coordinator.enrolment import EnrolmentTerms
from mfairfl.data import Task
from mfairfl.engine.state import Refusal
from mfairfl.errors import MfairflError
from mfairfl.silo.responder import Responder
from mfairfl.wire.enrolment_messages import ModelTerms

TASK = Task(label="hired", favourable="yes", sensitive=("sex", "age"))
TERMS = EnrolmentTerms(task=TASK, seed=3, model=ModelTerms(hidden=(4,)), validation=0.1)


class Fresh:
    """A transport whose every message reaches a new process: nothing is kept in memory."""

    def __init__(self, settings, min_rows=1):
        self._settings, self._policy = settings, fed.policy(min_rows=min_rows)

    def exchange(self, asks):
        found = {}
        for name, packet in asks.items():
            try:
                found[name] = Responder(self._settings[name], self._policy).handle("run-1", packet)
            except MfairflError as error:
                found[name] = Refusal(str(error))
        return found
