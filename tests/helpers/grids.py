"""A Flower Grid in this process: the real server and client code, no SuperLink."""

from __future__ import annotations

import os
import uuid

from flwr.app import Context, Error, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from mfairfl.flower.grid import GridTransport

# Message() asks for them; a deployed process has them set.
TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1


def key_of(node):
    """Return the public key of a node."""
    return f"key of {node}".encode()


def transport_over(grid, names, run="run-1", *, deadline=2, signals=None):
    """Return the transport of a server that enrolled each node's key under a name."""
    members = {key_of(node): name for node, name in names.items()}
    return GridTransport(grid, run, deadline=deadline, members=members, signals=signals or grid)


class LocalGrid(Grid):
    """Hands each message to the client app of its node, in a fresh context.

    `lose(node, message)` says which messages never arrive; `keys` are the nodes' public keys. It
    signals at any time that every node has sent its whole reply.
    """

    def __init__(self, app, nodes, lose=lambda node, message: False, keys=None, run_config=None):
        self.app, self.nodes, self.lose = app, dict(nodes), lose
        self.keys = keys or {node: key_of(node) for node in nodes}
        self.run_config, self.box = run_config or {}, {}

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def get_node_ids(self):
        return list(self.nodes)

    def get_nodes(self):
        return [NodeInfo(node_id=node, public_key=key) for node, key in self.keys.items()]

    def announce_messages(self):
        pass

    def visit(self, key):
        return os.urandom(8)

    def push_messages(self, messages):
        ids = []
        for message in messages:
            ids.append(uuid.uuid4().hex)
            message.metadata.__dict__["_message_id"] = ids[-1]
            if (reply := self._answer(message)) is not None:
                self.box[ids[-1]] = reply
        return ids

    def _answer(self, message):
        node = message.metadata.dst_node_id
        if self.lose(node, message):
            return None
        context = Context(
            run_id=1,
            node_id=node,
            node_config=self.nodes[node],
            state=RecordDict(),
            run_config=self.run_config,
        )
        try:
            return self.app(message, context)
        except Exception as error:
            return Message(Error(code=2, reason=str(error)), reply_to=message)

    def pull_messages(self, message_ids):
        found = [self.box.pop(one) for one in message_ids if one in self.box]
        return found[::-1]  # in another order than they were asked

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))
