"""Flower's classes between the loop and the silos: the embedded engine's bits, and faults."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Error,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)

import federations as fed
from grids import LocalGrid, key_of, transport_over
from mfairfl.coordinator.enrolment import EnrolmentTerms, enrol
from mfairfl.coordinator.transport import drive
from mfairfl.data import EncoderConfig, Task, partition, table_from_frame
from mfairfl.deployment.silo_app import app
from mfairfl.engine.embedded import splits_of, summarize
from mfairfl.engine.output import Output
from mfairfl.engine.state import Absent, Refusal
from mfairfl.errors import ConfigError, FederationError, MessageError
from mfairfl.fairness.constraints import Goal
from mfairfl.fairness.fitting import Demand
from mfairfl.flower.records import from_records, to_records
from mfairfl.silo.silo_file import load_silo
from mfairfl.strategies import available, create
from mfairfl.strategies.base import Summary
from mfairfl.wire.enrolment_messages import ModelTerms
from mfairfl.wire.packing import Packet, make_packet

TASK = Task(label="hired", favourable="yes", sensitive=("sex",))
TERMS = EnrolmentTerms(task=TASK, seed=5, model=ModelTerms(hidden=(4,)))
GOAL = Goal(notions=("dp",), attributes=("sex",))
NAMES = {23757: "east", 15838: "north", 7919: "west"}
FEDERATED = [name for name in available() if create(name).card.trains_on == "clients"]


@pytest.fixture
def nodes(tmp_path):
    """Three silos with a file and a folder each, on nodes with random numbers."""
    frame = fed.people()
    found = {}
    for i, site in enumerate(["east", "north", "west"]):
        folder = tmp_path / site
        folder.mkdir()
        rows = frame[frame["site"] == site].drop(columns="site")
        rows.to_csv(folder / "rows.csv", index=False)
        settings = f'name = "{site}"\ncsv = "rows.csv"\nstate = "state"\n'
        (folder / "silo.toml").write_text(settings)
        (folder / "policy.toml").write_text("[disclosure]\nmin_rows = 1\n")
        found[7919 * (3 - i)] = {"silo": str(folder / "silo.toml")}
    return found


def embedded(encoder=None):
    frame = fed.people()
    frame = frame[frame["site"] != "south"].reset_index(drop=True)
    task = TASK.model_copy(update={"client": "site"})
    table = table_from_frame(frame, task, name="people")
    return partition(table, "column", seed=TERMS.seed, encoder=encoder)


def over_flower(name, grid, rounds=2, minimum=3, terms=TERMS, output=None):
    transport = transport_over(grid, NAMES)
    names = transport.wait_for(["east", "north", "west"], minimum=minimum, seconds=0)
    enrolled = enrol(transport, names, terms, minimum=minimum)
    summary = Summary(counts=enrolled.counts["train"], attributes=enrolled.attributes, goal=GOAL)
    inputs = len(enrolled.encoder.feature_names)
    setup = fed.enrolled_setup(name, summary, inputs, ("train", "test"), TERMS)
    setup = replace(setup, rounds=rounds, output=output or setup.output)
    state = fed.first(setup)
    return drive(setup, state, transport, minimum=min(minimum, 2)), state


@pytest.mark.parametrize("name", FEDERATED)
def test_every_strategy_ends_where_the_embedded_engine_ends(name, nodes):
    federation = embedded()
    inputs, splits = federation.pool.X.shape[1], splits_of(federation)
    setup = fed.enrolled_setup(name, summarize(federation, GOAL), inputs, splits, TERMS)
    found, state = over_flower(name, LocalGrid(app, nodes))
    fed.assert_equals_embedded(setup, state, found, fed.run(setup, federation))


def test_thresholds_of_clients_end_where_the_embedded_engine_ends(nodes):
    federation = embedded()
    inputs, splits = federation.pool.X.shape[1], splits_of(federation)
    demand = Demand(by="both", local_tolerance=0.2)
    output = Output(rule="thresholds", tolerance=0.05, demand=demand)
    setup = fed.enrolled_setup("fedavg", summarize(federation, GOAL), inputs, splits, TERMS)
    expected = fed.run(replace(setup, output=output), federation)
    found, state = over_flower("fedavg", LocalGrid(app, nodes), output=output)
    fed.assert_equals_embedded(setup, state, found, expected)
    rules = found.served.thresholds, expected[0].served.thresholds
    assert rules[0].to_json() == rules[1].to_json()
    assert set(rules[0].clients) == {"east", "north", "west"}
    assert found.fitted.otherwise == expected[0].fitted.otherwise > 0


def test_bins_end_where_the_embedded_engine_ends(nodes):
    bins = EncoderConfig(numeric="bins", bins=4, min_rows=8, min_level_rows=70)
    federation = embedded(bins)
    inputs, splits = federation.pool.X.shape[1], splits_of(federation)
    assert inputs > embedded().pool.X.shape[1]
    setup = fed.enrolled_setup("fedavg", summarize(federation, GOAL), inputs, splits, TERMS)
    terms = replace(TERMS, encoder=bins)
    found, state = over_flower("fedavg", LocalGrid(app, nodes), terms=terms)
    fed.assert_equals_embedded(setup, state, found, fed.run(setup, federation))


def test_a_node_whose_app_raises_is_left_out_with_the_reason(nodes, caplog):
    enrolled = []

    def broken(message, context):
        run, packet = from_records(message.content)
        if '"train"' in packet.text and "north" in context.node_config["silo"] and enrolled:
            raise RuntimeError("disk\nfull")
        enrolled.append(run)
        return app(message, context)

    found, state = over_flower("fedavg", LocalGrid(broken, nodes))
    assert "north is left out: it reported an error: disk full" in caplog.text
    assert np.isfinite(state.weights).all()
    assert found.rounds == 2


def allow(folder, site, limit):
    (folder / site / "policy.toml").write_text(f"[disclosure]\nmin_rows = 1\n[limits]\n{limit}\n")


@pytest.mark.slow
def test_a_run_goes_on_without_a_silo_that_refuses_to_train(nodes, tmp_path, caplog):
    def to_north(node, message):
        return node == 15838 and '"kind": "train"' in from_records(message.content)[1].text

    _, without = over_flower("mfairfl", LocalGrid(app, nodes, lose=to_north))
    caplog.clear()
    allow(tmp_path, "north", "epochs = 1")
    found, state = over_flower("mfairfl", LocalGrid(app, nodes))
    assert (
        caplog.messages
        == [
            "north is left out: it reported an error: 2 epochs in a job: this silo allows 1 "
            "(limits.epochs of its policy.toml)"
        ]
        * 2
    )
    assert found.rounds == 2
    assert np.array_equal(state.weights, without.weights)


def test_a_run_goes_on_without_a_silo_that_has_answered_enough(nodes, tmp_path, caplog):
    allow(tmp_path, "west", "requests = 5")  # four to enrol, one measurement
    found, state = over_flower("mfairfl", LocalGrid(app, nodes))
    assert "west is left out: it reported an error: 6 requests in a run: this" in caplog.text
    assert found.rounds == 2
    assert np.isfinite(state.weights).all()
    assert sorted(found.measured[0]["train"]) == ["east", "north"]


def test_a_silo_that_has_begun_enough_runs_stays_out_with_the_reason(nodes, tmp_path):
    allow(tmp_path, "west", "runs_a_day = 1")
    names = ["east", "north", "west"]
    for run, out in (("run-1", []), ("run-2", ["west"]), ("run-1", [])):
        transport = transport_over(LocalGrid(app, nodes), NAMES, run)
        enrolled = enrol(transport, names, TERMS, minimum=2)
        assert list(enrolled.refused) == out
        assert all("limits.runs_a_day" in why for why in enrolled.refused.values())


class Echoing(LocalGrid):
    """A second, other reply follows every reply; and the first comes again, too late."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.late, self.asked = [], []

    def push_messages(self, messages):
        self.asked = list(messages)
        return super().push_messages(self.asked)

    def pull_messages(self, message_ids):
        found = super().pull_messages(message_ids)
        second = [Message(Error(code=2, reason="again"), reply_to=m) for m in self.asked]
        earlier, self.late = self.late, found
        return [*found, *second, *earlier]


def test_late_and_repeated_replies_change_nothing(nodes):
    _, state = over_flower("mfairfl", Echoing(app, nodes))
    _, quiet = over_flower("mfairfl", LocalGrid(app, nodes))
    assert np.array_equal(state.weights, quiet.weights)


def test_keys_and_not_claims_decide_who_a_node_is(nodes):
    transport = transport_over(LocalGrid(app, nodes), {23757: "east", 15838: "north"})
    with pytest.raises(FederationError, match="missing: west"):
        transport.wait_for(["east", "north", "west"], minimum=3, seconds=0)
    transport = transport_over(LocalGrid(app, nodes), {23757: "north", 15838: "east"})
    with pytest.raises(FederationError, match="it describes itself as 'east'"):
        enrol(transport, ["east", "north"], TERMS, minimum=2)


def test_what_an_error_quotes_of_a_file_stays_with_the_silo(nodes, tmp_path, caplog):
    path = tmp_path / "west" / "rows.csv"
    lines = path.read_text().splitlines()
    lines[3] = lines[3].replace("yes", "secret").replace("no", "secret")
    path.write_text("\n".join(lines) + "\n")
    transport = transport_over(LocalGrid(app, nodes), NAMES)
    split = {"seed": 1, "test": 0.2, "validation": 0.0}
    resolved = TASK.model_dump(mode="json") | {"unfavourable": "no"}
    replies = transport.exchange({"west": make_packet("sums", split | {"task": resolved})})
    assert "secret" in caplog.text
    assert replies["west"].reason.startswith("it reported an error: its file cannot be used")


def test_a_silo_answers_for_the_task_it_agreed_to_only(nodes, tmp_path):
    (tmp_path / "west" / "agreed.toml").write_text(
        '[task]\nlabel = "hired"\nfavourable = "yes"\nsensitive = ["sex"]\nignore = ["skill"]\n'
    )
    with (tmp_path / "west" / "silo.toml").open("a") as file:
        file.write('task = "agreed.toml"\n')
    transport = transport_over(LocalGrid(app, nodes), NAMES)
    enrolled = enrol(transport, ["east", "north", "west"], TERMS, minimum=2)
    assert list(enrolled.refused) == ["west"]
    assert "task.ignore = (); agreed to: ('skill',) (agreed.toml)" in enrolled.refused["west"]


@pytest.mark.slow
def test_a_node_that_does_not_answer_in_time_is_left_out(nodes, caplog):
    asked = []

    def slow(node, message):
        _, packet = from_records(message.content)
        asked.append(packet.text)
        return node == 7919 and '"kind": "train"' in packet.text

    over_flower("mfairfl", LocalGrid(app, nodes, lose=slow))
    assert "west is left out: no answer before the deadline" in caplog.text


class Unreadable(LocalGrid):
    """Flower itself cannot read a reply of one node, and forgets those it read before."""

    bad = 7919
    pulls = 0

    def push_messages(self, messages):
        found = list(messages)
        self.by_id = dict(zip(super().push_messages(found), found, strict=True))
        return list(self.by_id)

    def pull_messages(self, message_ids):
        self.pulls += 1
        replies = super().pull_messages(message_ids)
        if any(self.by_id[one].metadata.dst_node_id == self.bad for one in message_ids):
            raise ValueError("cannot inflate\nthe object")
        return replies


def test_a_reply_that_flower_cannot_read_is_its_sender_s_alone(nodes, caplog):
    names = dict(zip(nodes, "abc", strict=True))
    transport = transport_over(Unreadable(app, nodes), names, deadline=0)
    ask = dict.fromkeys("abc", make_packet("hello", {}))
    first = transport.exchange(ask)
    assert first["c"].reason == "it reported an error: ValueError: cannot inflate the object"
    again = transport.exchange(ask)
    assert [type(again[name]) for name in "abc"] == [Packet, Packet, Refusal]
    assert "from now on they are pulled one by one" in caplog.text


def test_a_node_that_goes_away_and_comes_back_under_another_number(nodes, caplog):
    grid = LocalGrid(app, nodes)
    transport = transport_over(grid, NAMES)
    names = ["east", "north", "west"]
    assert transport.wait_for(names, minimum=3, seconds=0) == names
    gone, key = grid.nodes.pop(7919), grid.keys.pop(7919)
    ask = {name: Packet('{"version": 7, "kind": "x"}', {}) for name in names}
    assert transport.exchange(ask)["west"] == Absent("it is not online")
    grid.nodes[55], grid.keys[55] = gone, key
    assert "unknown kind 'x'" in str(transport.exchange(ask)["west"])  # it answers again


class Listing(LocalGrid):
    """Lists a node that was killed until its lease runs out; then another takes its place."""

    greeted = 0

    def _answer(self, message):
        if message.metadata.dst_node_id == 7919:
            self.greeted += 1
            if self.greeted == 1:
                return Message(Error(code=5, reason="node unavailable"), reply_to=message)
        return super()._answer(message)


def test_a_node_that_is_listed_but_gone_is_waited_for(nodes):
    grid = Listing(app, nodes)
    transport = transport_over(grid, NAMES)
    with pytest.raises(FederationError, match="missing: west"):
        transport.wait_for(sorted(NAMES.values()), minimum=3, seconds=0)
    grid.greeted = 0
    online = transport.wait_for(sorted(NAMES.values()), minimum=3, seconds=60)
    assert online == ["east", "north", "west"]
    assert grid.greeted == 2


def test_too_few_nodes_are_named(nodes):
    nodes.pop(7919)
    transport = transport_over(LocalGrid(app, nodes), NAMES)
    with pytest.raises(FederationError, match=r"2 clients are online after 0 s.*missing: west"):
        transport.wait_for(["east", "north", "west"], minimum=3, seconds=0)
    assert transport.wait_for(["east", "north", "west"], minimum=2, seconds=0) == ["east", "north"]


# ------------------------------------------------------------------ records


def test_records_keep_every_bit():
    arrays = {"a/0": np.array([np.pi, np.nan], np.float64), "b": np.arange(6).reshape(2, 3)}
    run, found = from_records(to_records(Packet("{}", arrays), "r"))
    assert (run, found.text) == ("r", "{}")
    for name, array in arrays.items():
        assert found.arrays[name].tobytes() == array.tobytes()
        assert found.arrays[name].shape == array.shape


def content(**changes):
    parts = {
        "text": ConfigRecord({"json": "{}", "run": "r"}),
        "arrays": ArrayRecord({"a": Array(np.zeros(3, np.float32))}),
    }
    return RecordDict({k: v for k, v in (parts | changes).items() if v is not None})


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (content(arrays=None), "other parts than text and arrays"),
        (content(more=MetricRecord({"x": 1})), "other parts"),
        (content(text=ConfigRecord({"json": "{}"})), "without its text or its run"),
        (content(text=ConfigRecord({"json": b"{}", "run": "r"})), "without its text"),
        (content(arrays=ArrayRecord({"a": Array(np.zeros(2, complex))})), "complex128"),
        (
            content(arrays=ArrayRecord({"a": Array("float32", (3,), "pickle", b"x" * 12)})),
            "not plain numbers",
        ),
        (
            content(
                arrays=ArrayRecord({"a": Array("float32", (10**9,), "numpy.ndarray", b"x" * 140)})
            ),
            "does not begin as an array of numpy",
        ),
        (
            content(
                arrays=ArrayRecord({"a": Array("float32", (3,), "numpy.ndarray", b"x" * 140)})
            ),
            "cannot be read",
        ),
    ],
)
def test_records_that_are_not_a_packet_are_refused(records, message):
    with pytest.raises(MessageError, match=message):
        from_records(records)


GOOD = Array(np.zeros(3, np.float32)).data


@pytest.mark.parametrize(
    "data",
    [
        GOOD.replace(b"(3,)", b"(9999999999,)"),  # more than the bytes hold
        GOOD.replace(b"'<f4'", b"'|O'"),  # pickled objects
        GOOD.replace(b"'<f4'", b"'>f4'"),
        GOOD.replace(b"'descr'", b"'descr"),  # a header that is not a literal
        GOOD.replace(b"{", b"(" * 500),
        b"PK\x03\x04" + GOOD[4:],  # np.load would open a zip file
        GOOD[:40],
        b"",
    ],
)
def test_a_damaged_array_is_refused_in_one_line(data):
    arrays = ArrayRecord({"a": Array("float32", (3,), "numpy.ndarray", data)})
    with pytest.raises(MessageError, match="array 'a'") as caught:
        from_records(content(arrays=arrays))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "a"\ncsv = "a.csv"\n', "state: Field required"),
        ('name = "a/b"\ncsv = "a.csv"\nstate = "s"\n', "name: "),
        ('name = "a"\ncsv = "a.csv"\nstate = "s"\nrun = "x"\n', "unknown key 'run'"),
    ],
)
def test_a_silo_s_file_is_checked(tmp_path, text, message):
    path = tmp_path / "silo.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_silo(path)


def test_a_node_without_a_file_says_how_to_name_one():
    ask = Message(to_records(make_packet("hello", {}), "run-1"), 7, MessageType.QUERY)
    (reply,) = LocalGrid(app, {7: {}}).send_and_receive([ask])
    assert "start it with `mfairfl deploy silo FILE`" in reply.error.reason


class ListedGrid(LocalGrid):
    """Notes what is pulled; nothing is there at the first look."""

    def __init__(self, *words, **options):
        super().__init__(*words, **options)
        self.pulls = []

    def pull_messages(self, message_ids):
        self.pulls.append(sorted(message_ids))
        return [] if len(self.pulls) == 1 else super().pull_messages(message_ids)


class Visits:
    """Says that one silo after the other has sent all it had: the next one after each look."""

    def __init__(self, grid, order):
        self.grid, self.order, self.announced = grid, order, []

    def announce_messages(self):
        self.announced.append(len(self.grid.box))

    def visit(self, key):
        done = self.order[: len(self.grid.pulls)]
        return b"new" if key in done else b"old"


def listed(nodes, order):
    grid = ListedGrid(app, nodes)
    visits = Visits(grid, [key_of(node) for node in order])
    names = {node: f"silo-{node}" for node in nodes}
    return grid, visits, transport_over(grid, names, deadline=60, signals=visits)


def test_only_those_that_have_sent_all_are_asked_for_their_replies(nodes):
    order = sorted(nodes, reverse=True)
    grid, visits, transport = listed(nodes, order)
    asks = {f"silo-{node}": make_packet("hello", {}) for node in nodes}
    assert set(transport.exchange(asks)) == set(asks)
    everybody, *single = grid.pulls
    assert len(everybody) == 3
    assert [len(one) for one in single] == [1, 1, 1]
    assert sorted(one[0] for one in single) == everybody
    assert visits.announced == [3]  # once, when all messages were there


def test_without_a_signal_replies_are_looked_for_all_the_same(nodes, monkeypatch):
    monkeypatch.setattr("mfairfl.flower.grid._SURE", 0.0)
    grid, _, transport = listed(nodes, [])
    asks = {f"silo-{node}": make_packet("hello", {}) for node in nodes}
    assert set(transport.exchange(asks)) == set(asks)
    assert [len(one) for one in grid.pulls] == [3, 3]


def test_at_the_deadline_everybody_is_looked_for_once_more(nodes):
    grid, _, transport = listed(nodes, [])
    transport.deadline = 0.2
    asks = {f"silo-{node}": make_packet("hello", {}) for node in nodes}
    found = transport.exchange(asks)
    assert [len(one) for one in grid.pulls] == [3, 3]
    assert not any(isinstance(answer, Refusal | Absent) for answer in found.values())
