"""What a silo under masks answers and refuses, message by message, if the server cheats."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import federations as fed
from answers import one_line
from masked_silos import Office, masked_silos
from mfairfl.data import Task
from mfairfl.engine.state import Measure
from mfairfl.errors import ConfigError, MessageError
from mfairfl.remote.codec import Packet, Shape, make_packet, pack_ask, read_header
from mfairfl.remote.enrolment import EnrolmentTerms, ModelTerms
from mfairfl.remote.mask_keys import KeyStock
from mfairfl.remote.masked_enrolment import enrol_masked
from mfairfl.remote.masked_forms import open_measures, read_measures
from mfairfl.remote.masked_messages import quantity_of, with_roster
from mfairfl.remote.masked_tables import coarse_profile
from mfairfl.remote.masking import Roster, opened
from mfairfl.remote.responder import Responder

TASK = Task(label="hired", favourable="yes", sensitive=("sex",))
TERMS = EnrolmentTerms(task=TASK, seed=3, model=ModelTerms(hidden=(4,)))
SITES = sorted(fed.SITES)


class Enrolled:
    """Four silos that are enrolled, and a server that asks what it likes."""

    def __init__(self, folder):
        self.silos = masked_silos(folder)
        self.office = Office(self.silos)
        found = enrol_masked(self.office, SITES, TERMS)
        size = TERMS.model.build(len(found.encoder.feature_names)).size
        self.shape, self.whole = Shape(size, 2), found.whole
        self.keys = KeyStock(self.office, SITES)

    def weights(self, seed=0):
        rng = np.random.default_rng(seed)
        return rng.normal(size=self.shape.weights).astype(np.float32)

    def measure(self, seed=0):
        return Measure((self.weights(seed),), ("train",))

    def handle(self, name, packet):
        return Responder(self.silos[name], fed.policy()).handle("run-1", packet)

    def ask(self, name, ask, roster):
        return self.handle(name, with_roster(pack_ask(ask, name), roster))

    def refusal(self, name, ask, roster):
        with pytest.raises(MessageError) as caught:
            self.ask(name, ask, roster)
        return one_line(caught)


@pytest.fixture
def enrolled(tmp_path):
    return Enrolled(tmp_path)


def words(reply):
    return reply.arrays["mask/words"].view(np.uint64)


def of(roster, *names):
    """The same exchange with these silos only."""
    return replace(roster, offers=tuple(o for o in roster.offers if o.name in names))


def test_a_sum_over_all_silos_is_read_and_no_part_of_it(enrolled):
    ask, roster = enrolled.measure(), enrolled.keys.roster()
    replies = {name: enrolled.ask(name, ask, roster) for name in SITES}
    parts = {
        name: read_measures(reply, ask, enrolled.shape, summed=True)
        for name, reply in replies.items()
    }
    total = opened([one.words for one in parts.values()])
    (found,) = open_measures(ask, enrolled.shape, parts, total)
    assert np.array_equal(found["train"].whole.counts, enrolled.whole["train"])
    for left_out in SITES:
        rest = opened([one.words for name, one in parts.items() if name != left_out])
        assert np.abs(rest.view(np.int64).astype(float)).min() > 2**40


def test_a_question_without_a_roster_is_told_no_more_than_singles(enrolled):
    reply = enrolled.ask("east", enrolled.measure(), None)
    assert words(reply).size == 0
    assert reply.arrays["told"].shape == (1, 3)


def test_a_plain_question_is_refused(enrolled):
    others = [make_packet(kind, {"task": {}}) for kind in ("sums", "cuts", "encode", "audit")]
    for packet in (pack_ask(enrolled.measure(), "east"), *others):
        with pytest.raises(MessageError) as caught:
            enrolled.handle("east", packet)
        assert one_line(caught) == (
            "this silo tells sums under masks only (members in its silo.toml): set masked = true "
            "in the settings of the run, or of the audit"
        )


def test_an_exchange_is_answered_once(enrolled):
    ask, roster = enrolled.measure(), enrolled.keys.roster()
    enrolled.ask("east", ask, roster)
    for again in (ask, enrolled.measure(seed=1)):
        assert enrolled.refusal("east", again, roster) == (
            f"this silo has no unused key for exchange {roster.exchange}: it is answered once"
        )


def test_the_key_is_gone_from_disk_when_the_answer_leaves(enrolled, monkeypatch):
    roster, seen = enrolled.keys.roster(), []
    stored = enrolled.silos["east"].state / "run-1" / "masks.json"
    before = {key["exchange"] for key in json.loads(stored.read_text())["keys"]}
    assert roster.exchange in before

    def leaving(parts):
        left = json.loads(stored.read_text())
        seen.append({key["exchange"] for key in left["keys"]})
        return Packet("{}", {})

    monkeypatch.setattr("mfairfl.remote.masked_answers.pack_masked", leaving)
    enrolled.ask("east", enrolled.measure(), roster)
    assert seen == [before - {roster.exchange}]


def test_a_pretended_drop_yields_nothing(enrolled):
    """West answered; the server says that it did not, and asks the others without it."""
    ask, roster = enrolled.measure(), enrolled.keys.roster()
    for name in SITES:
        enrolled.ask(name, ask, roster)
    rest = [name for name in SITES if name != "west"]
    for name in rest:
        smaller = of(enrolled.keys.roster(), *rest)
        assert enrolled.refusal(name, ask, smaller) == (
            "this question was answered with other silos: it is not again"
        )
        # Nor with other weights, whose counts are the same.
        assert enrolled.refusal(name, enrolled.measure(seed=1), smaller) == (
            "together with earlier sums, one over these silos would tell 'west' apart"
        )


def test_a_drop_before_this_silo_s_answer_yields_nothing_either(enrolled):
    """East has not answered; it learns of the earlier roster by enrolment only."""
    smaller = of(enrolled.keys.roster(), "east", "north", "south")
    assert enrolled.refusal("east", enrolled.measure(), smaller) == (
        "together with earlier sums, one over these silos would tell 'west' apart"
    )


def test_silos_that_are_asked_about_different_weights_give_a_sum_that_says_nothing(enrolled):
    """With zero weights nobody is selected: the sum would hold east's decisions alone."""
    roster = enrolled.keys.roster()
    nothing = Measure((np.zeros(enrolled.shape.weights, np.float32),), ("train",))
    asks = {name: enrolled.measure() if name == "east" else nothing for name in SITES}
    total = opened([words(enrolled.ask(name, asks[name], roster)) for name in SITES])
    assert np.abs(total.view(np.int64).astype(float)).min() > 2**40


def test_a_roster_with_an_invented_or_forged_silo_is_refused(enrolled):
    roster = enrolled.keys.roster()
    own, *others = roster.offers
    invented = Roster(
        "", roster.exchange, (*roster.offers, replace(own, name="zzz", key=b"k" * 32))
    )
    assert enrolled.refusal("east", enrolled.measure(), invented) == (
        "the roster names 'zzz', whose public key is not in this silo's folder of members"
    )
    forged = Roster("", roster.exchange, (own, replace(others[0], key=b"k" * 32), *others[1:]))
    assert enrolled.refusal("east", enrolled.measure(), forged) == (
        f"the roster's key of 'north' is not signed by 'north' for exchange {roster.exchange} of "
        "this run"
    )
    two = of(roster, "east", "north")
    assert enrolled.refusal("east", enrolled.measure(), two) == (
        "a roster of 2 silos: sums are over at least 3"
    )
    assert enrolled.refusal("east", enrolled.measure(), of(roster, "north", "south", "west")) == (
        "the roster lacks the key that this silo made for the exchange"
    )


def test_keys_of_another_run_are_refused(enrolled):
    mine = enrolled.keys.roster()
    stock = KeyStock(Office(enrolled.silos, "run-2"), SITES)
    stock._next = mine.exchange
    other = stock.roster()
    assert other.exchange == mine.exchange
    own = next(offer for offer in mine.offers if offer.name == "east")
    mixed = Roster("", mine.exchange, (own, *(o for o in other.offers if o.name != "east")))
    assert "is not signed by 'north'" in enrolled.refusal("east", enrolled.measure(), mixed)


def test_a_roster_that_was_made_for_other_weights_is_refused(enrolled):
    roster = enrolled.keys.roster()
    asked, other = (
        with_roster(pack_ask(enrolled.measure(seed), "east"), roster) for seed in (0, 1)
    )
    for mixed in (replace(asked, text=other.text), replace(asked, arrays=other.arrays)):
        with pytest.raises(MessageError) as caught:
            enrolled.handle("east", mixed)
        assert one_line(caught) == (
            "the roster was made for another question than the one it came with"
        )


@pytest.mark.parametrize(
    ("mask", "reason"),
    [
        ({"exchange": -1, "names": []}, "a question's roster: exchange"),
        ({"exchange": "1", "names": []}, "a question's roster: exchange"),
        ({"exchange": 1}, "a question's roster: names"),
        ({"exchange": 1, "names": ["a"], "more": 1}, "a question's roster: "),
        ({"exchange": 1, "names": ["a"], "quantity": "0"}, "a question's roster: quantity"),
        ({"exchange": 1, "names": ["a"], "quantity": None}, "the array 'mask/keys' is missing"),
        ([1], "a question's roster: "),
    ],
)
def test_a_malformed_roster_is_refused_in_one_line(enrolled, mask, reason):
    packet = pack_ask(enrolled.measure(), "east")
    if isinstance(mask, dict) and mask.get("quantity", 0) is None:
        mask = {**mask, "quantity": quantity_of(packet).hex()}
    text = json.dumps({**json.loads(packet.text), "mask": mask})
    with pytest.raises(MessageError) as caught:
        enrolled.handle("east", Packet(text, packet.arrays))
    assert reason in one_line(caught)


@pytest.mark.parametrize("first", [-1, "0", None, 2**60])
def test_malformed_requests_for_keys_are_refused(enrolled, first):
    with pytest.raises(MessageError, match="a 'mask-keys' message"):
        enrolled.handle("east", make_packet("mask-keys", {"first": first}))


def test_a_silo_without_a_key_of_its_own_says_so(enrolled):
    keyless = enrolled.silos["east"].model_copy(update={"key": None})
    with pytest.raises(ConfigError) as caught:
        Responder(keyless, fed.policy()).handle("run-1", make_packet("mask-keys", {"first": 0}))
    assert one_line(caught) == (
        "silo.toml: masks are signed with the silo's own key: name it (key)"
    )


def test_silos_whose_numbers_differ_meet_again(enrolled):
    for _ in range(3):  # west made keys that nobody fetched
        enrolled.handle("west", make_packet("mask-keys", {"first": 0}))
    fresh = KeyStock(enrolled.office, SITES)
    numbers = [fresh.roster().exchange for _ in range(70)]
    assert numbers == sorted(set(numbers))


def test_levels_that_the_agreed_list_lacks_are_refused(enrolled):
    kinds = {kind: packet for kind, name, packet in enrolled.office.sent if name == "east"}
    _, header = read_header(kinds["sums"])
    column = min(header["levels"])
    header["levels"][column] = header["levels"][column][1:]
    again = Packet(json.dumps({**header, "mask": {}}), {})
    with pytest.raises(MessageError, match=f"the agreed levels of '{column}' lack '"):
        enrolled.handle("east", again)


def test_a_coarse_profile_says_what_an_agreement_needs_and_no_counts():
    def column(**given):
        plain = {"name": "c", "values": 8, "texts": 0, "missing": 2, "numeric": False}
        return plain | {"dates": False, "levels": {}} | given

    columns = [
        column(levels={"a": 5, "b": 3}, texts=8),
        column(values=10, missing=0, numeric=True),
        column(values=0, missing=10),
        column(texts=3),
    ]
    profile = {"client": "x", "rows": 10, "columns": columns}
    told = read_header(coarse_profile(make_packet("profile", {"profile": profile})))[1]["profile"]
    short = [
        [one[key] for key in ("values", "missing", "texts", "levels")] for one in told["columns"]
    ]
    assert short == [
        [9, 1, 9, {"a": 0, "b": 0}],
        [10, 0, 0, {}],
        [0, 10, 0, {}],
        [9, 1, 1, {}],
    ]


def test_a_silo_that_dies_before_its_answer_leaves_has_told_nothing_and_answers_anew(
    enrolled, monkeypatch
):
    ask, roster = enrolled.measure(), enrolled.keys.roster()

    def dies(parts):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("mfairfl.remote.masked_answers.pack_masked", dies)
        with pytest.raises(KeyboardInterrupt):
            enrolled.ask("east", ask, roster)
    assert "no unused key" in enrolled.refusal("east", ask, roster)
    again = enrolled.keys.roster()
    total = opened([words(enrolled.ask(name, ask, again)) for name in SITES])
    counts = total[: 2 * enrolled.shape.cells].view(np.int64).reshape(-1, 2)
    assert np.array_equal(counts, enrolled.whole["train"])


def test_what_is_told_singly_tells_groups_to_a_server_that_chooses_its_models(tmp_path):
    """A limit, not a promise (docs/deployment.md): losses of four models made for the purpose."""
    silos = masked_silos(tmp_path)
    logistic = replace(TERMS, model=ModelTerms())
    found = enrol_masked(Office(silos), SITES, logistic)
    names = found.encoder.feature_names
    place = next(i for i, name in enumerate(names) if name.startswith("sex") and "F" in name)
    rows, losses = [], []
    for other, own in ((0.0, 1.0), (0.5, -2.0), (-1.0, 3.0), (2.0, 0.3)):
        weights = np.zeros(len(names) + 1, np.float32)
        weights[-1], weights[place] = other, own - other
        packet = with_roster(pack_ask(Measure((weights,), ("train",)), "east"), None)
        told = Responder(silos["east"], fed.policy()).handle("run-1", packet).arrays["told"][0]
        rows.append([np.logaddexp(0, sign * z) for z in (own, other) for sign in (1, -1)])
        losses.append(told[2])
    frame = fed.people()
    east = frame[frame["site"] == "east"]
    solved = np.linalg.solve(rows, losses)
    assert np.allclose(solved, np.rint(solved), atol=1e-2)
    whole = east.groupby(["sex", "hired"]).size().to_numpy()
    assert (np.rint(solved) <= whole).all()
    assert np.rint(solved).sum() == found.counts["train"]["east"].sum()
