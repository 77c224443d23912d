"""A silo's process takes messages from Flower's own SuperNode interface, and runs its own app."""

from __future__ import annotations

import json
import threading
import time
from contextlib import closing, contextmanager
from types import SimpleNamespace

import pytest
import uvicorn
from consortium import SITES, write_files
from flwr.app import Context, Message, MessageType, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.supercore.constant import TaskType
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.main import create_app
from flwr.supernode.nodestate import NodeStateFactory

from mfairfl.deployment.processes import free_ports
from mfairfl.deployment.silo_app import SiloTasks
from mfairfl.flower.records import from_records, to_records
from mfairfl.wire.packing import make_packet

RUN, NODE = 5, 77


@pytest.fixture
def tasks(node):
    with closing(SiloTasks(node.port)) as tasks:
        yield tasks


@contextmanager
def supernode(silo):
    """Flower's own server of a SuperNode, with its state, and no connection to anybody."""
    (port,) = free_ports(1)
    factory = NodeStateFactory(objectstore_factory=ObjectStoreFactory())
    state = factory.state()
    state.set_node_id(NODE)
    run = Run.create_empty(RUN)
    run.fab_hash = state.store_fab(Fab("", b"whatever the server sent", {}))
    state.store_run(run)
    context = Context(
        run_id=RUN,
        node_id=NODE,
        node_config={"silo": str(silo)},
        state=RecordDict(),
        run_config={},
    )
    state.set_run_series_context(run.series_id, context)
    server = uvicorn.Server(
        uvicorn.Config(create_app(state_factory=factory), port=port, ws="none", http="h11")
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        store = factory.objectstore_factory.store()
        yield SimpleNamespace(port=port, state=state, store=store)
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def node(tmp_path):
    rows = write_files(tmp_path)[SITES[0]]
    silo = tmp_path / "silo.toml"
    silo.write_text(f'name = "east"\ncsv = {json.dumps(str(rows))}\nstate = "state"\n')
    with supernode(silo) as node:
        yield node


def arrive(node, *, kind=MessageType.QUERY, task=TaskType.CLIENT_APP):
    """A message arrives as it does at a SuperNode: first offered, then fetched part by part."""
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = RUN
    content = to_records(make_packet("hello", {}), "run-1")
    message = Message(content, dst_node_id=NODE, message_type=kind)
    vars(message.metadata)["_message_id"] = message.object_id
    with no_object_id_recompute():
        tree, parts = get_object_tree(message), get_all_nested_objects(message)
        app = node.state.get_run(RUN).fab_hash
        node.state.create_task(task_type=task, run_id=RUN, fab_hash=app)
        node.store.preregister(RUN, tree)
        node.state.store_message(remove_content_from_message(message))
        return {one: part.deflate() for one, part in parts.items()}


def fetched(node, parts):
    for one, content in parts.items():
        node.store.put(one, content)


def replies(node):
    found = []
    for message in node.state.get_messages_legacy(is_reply=True):
        tree = node.store.get_object_tree(message.metadata.message_id)
        contents = {t.object_id: node.store.get(t.object_id) for t in iterate_object_tree(tree)}
        found.append(inflate_object_from_contents(tree.object_id, contents))
    return found


def test_a_message_is_answered_by_the_installed_app_whatever_the_server_sent(node, tasks):
    assert tasks.take() is None  # nothing is there
    fetched(node, arrive(node))
    token = tasks.take()
    assert tasks.take() is None  # it is taken once
    tasks.answer(token)
    (reply,) = replies(node)
    run, packet = from_records(reply.content)
    assert (run, json.loads(packet.text)["name"]) == ("run-1", "east")
    (done,) = node.state.get_tasks()
    assert (done.status.status, done.status.sub_status) == ("finished", "completed")


def test_a_message_whose_parts_arrive_later_is_waited_for(node, tasks, monkeypatch):
    given, get = [], node.state.get_object

    def noted(*which):
        given.append(get(*which))
        return given[-1]

    monkeypatch.setattr(node.state, "get_object", noted)
    parts = arrive(node)
    answering = threading.Thread(target=tasks.answer, args=(tasks.take(),))
    answering.start()
    while b"" not in given:  # it has asked too early
        time.sleep(0.01)
    fetched(node, parts)
    answering.join()
    assert not replies(node)[0].has_error()


def test_unknown_kind_of_message_is_answered_with_an_error(node, tasks, caplog):
    fetched(node, arrive(node, kind=MessageType.TRAIN))
    tasks.answer(tasks.take())
    (reply,) = replies(node)
    assert (reply.error.code, reply.error.reason) == (2, "ValueError; its own log says more")
    assert "could not be answered" in caplog.text


@pytest.mark.parametrize("kind", sorted(set(TaskType) - {TaskType.CLIENT_APP}))
def test_only_client_work_is_accepted(node, tasks, kind, caplog):
    arrive(node, task=kind)
    assert tasks.take() is None
    assert f"the server asked for '{kind}'" in caplog.text


def test_stopped_supernode_offers_no_task():
    with closing(SiloTasks(free_ports(1)[0])) as tasks:
        assert tasks.take() is None
