"""A silo answers with the client app that is installed, whatever code the server sends.

Flower's own runner starts, for every message, a program that unpacks the app sent by the server
and runs it. A silo's SuperNode has no such runner (``--isolation process``): the silo's own
process asks it for work, forks, takes the message, and answers with the client app of the
installed mfairfl. The server's code is neither unpacked nor imported. Other kinds of work that a
server may ask for (agents, models, simulations) are refused.

Importing this module loads Flower and PyTorch, which takes seconds.
"""

from __future__ import annotations

import logging

import httpx
from flwr.app import Context, Error, Message
from flwr.common.constant import SubStatus
from flwr.common.serde import context_from_proto
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
)
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
)
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.runtime.run_clientapp import push_message, push_task_output

from mfairfl.deployment.client_app import app
from mfairfl.deployment.processes import silence_flower
from mfairfl.errors import MessageError

_RAISED = 2  # Flower's code for an app that raised
# A SuperNode offers a message before it has fetched its arrays. Who asks for them too early tries
# again after so many seconds, at most; Flower's own programs wait for one, then two, then four.
_FIRST_RETRY, _LAST_RETRY = 0.03, 0.5
_log = logging.getLogger("mfairfl")


class SiloTasks:
    """What a silo's SuperNode has to be done: a task for each message.

    Parameters
    ----------
    port : int
        Where the SuperNode listens, on loopback.
    """

    def __init__(self, port: int) -> None:
        silence_flower()
        self._address = f"127.0.0.1:{port}"
        self._supernode = RuntimeHttpClient.from_server_address(
            self._address,
            insecure=True,  # both are on this machine
            root_certificates=None,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="SuperExec")],
        )

    def close(self) -> None:
        """Leave the SuperNode."""
        self._supernode.close()

    def take(self) -> str | None:
        """Return what identifies the next task, if there is one for the client app."""
        # Also what is refused is taken, so that the SuperNode does not wait for it for ever.
        request = AcquireTaskRequest(supported_task_types=sorted(TaskType))
        try:
            found = self._supernode.AcquireTask(request)
        except httpx.HTTPError as error:  # it starts, or it has just ended
            _log.debug("the SuperNode does not answer: %r", error)
            return None
        if not found.token:
            return None
        if found.task.type != TaskType.CLIENT_APP:
            _log.warning(
                "the server asked for '%s'; this silo only runs its client app", found.task.type
            )
            return None
        return str(found.token)

    def answer(self, token: str) -> None:
        """Carry out a task: take its message, answer it, and say that it is done."""
        with RuntimeHttpClient.from_server_address(
            self._address,
            insecure=True,
            root_certificates=None,
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"),
                RuntimeTokenHttpInterceptor(token),
            ],
            retry_invoker=make_simple_http_retry_invoker(),
        ) as supernode:
            alive = HeartbeatSender(make_task_heartbeat_fn_http(supernode))
            alive.start()
            context, status = None, SubStatus.FAILED
            try:
                message, context = _fetch(supernode)
                push_message(supernode, _reply(message, context), context)
                status = SubStatus.COMPLETED
            finally:
                push_task_output(supernode, context, sub_status=status, details="")
                alive.stop()


def _fetch(supernode: RuntimeHttpClient) -> tuple[Message, Context]:
    """Return the message of a task, and its context."""
    task = supernode.PullTaskInput(PullTaskInputRequest())
    TaskIdentity.task_id = task.task_id
    TaskIdentity.run_id = task.run.run_id
    TaskIdentity.node_id = task.context.node_id
    listed = supernode.PullMessages(PullAppMessagesRequest())
    if len(listed.message_object_trees) != 1:
        raise MessageError(f"a task with {len(listed.message_object_trees)} messages, not one")
    node, run = Node(node_id=task.context.node_id), task.run.run_id
    (tree,) = listed.message_object_trees
    message = pull_and_inflate_object_from_tree(
        tree,
        make_pull_object_fn_protobuf(supernode.PullObject, node, run),
        make_confirm_message_received_fn_protobuf(supernode.ConfirmMessageReceived, node, run),
        return_type=Message,
        initial_backoff=_FIRST_RETRY,
        backoff_cap=_LAST_RETRY,
    )
    vars(message.metadata)["_message_id"] = tree.object_id  # a message does not hold its own
    return message, context_from_proto(task.context)


def _reply(message: Message, context: Context) -> Message:
    """Return the client app's reply, or why there is none: it is for some kinds of messages."""
    try:
        return app(message, context)
    except Exception as error:
        _log.exception("a message could not be answered")
        reason = f"{type(error).__name__}; its own log says more"
        return Message(Error(code=_RAISED, reason=reason), reply_to=message)
