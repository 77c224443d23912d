"""The client app of a silo, which answers messages with the mfairfl that is installed there.

The node's configuration names the silo's own file, ``silo="/etc/mfairfl/silo.toml"``, which
decides what is read, where state is kept, and the name that the silo is enrolled under; the
policy.toml beside it decides how much is done for a coordinator.

Flower's own runner starts, for every message, a program that unpacks the app sent by the server
and runs it. A silo's SuperNode has no such runner (``--isolation process``): the silo's own
process asks it for work (`SiloTasks`), forks, takes the message, and answers with this app. The
server's code is neither unpacked nor imported. Other kinds of work that a server may ask for
(agents, models, simulations) are refused.

Importing this module loads Flower and PyTorch, which takes seconds.
"""

import logging
from pathlib import Path
from typing import Any

import httpx
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import SubStatus
from flwr.common.serde import context_from_proto
from flwr.proto import runtime_pb2
from flwr.proto.node_pb2 import Node
from flwr.supercore import interceptors
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.inflatable import inflatable_protobuf_utils as protobuf
from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.runtime.run_clientapp import push_message, push_task_output

from mfairfl.deployment.processes import silence_flower
from mfairfl.errors import ConfigError, MessageError, MfairflError
from mfairfl.flower.records import from_records, to_records
from mfairfl.runs.silo_runs import read_consent
from mfairfl.silo.policy import load_policy
from mfairfl.silo.responder import Responder, disclosed_reason
from mfairfl.silo.rows import Session
from mfairfl.silo.silo_file import SiloSettings, load_silo
from mfairfl.wire.packing import HelloAnswer, pack

_RAISED = 2  # Flower's code for an app that raised
# A SuperNode offers a message before it has fetched its arrays. A request that comes too early is
# repeated after so many seconds, at most; Flower's own programs wait for one, then two, then four.
_FIRST_RETRY, _LAST_RETRY = 0.03, 0.5
_log = logging.getLogger("mfairfl")

app = ClientApp()


@app.query()
def answer(message: Message, context: Context) -> Message:
    """Answer one message.

    The text of an error may quote the data: the coordinator gets it without the quotation, which
    only the silo's own log has.
    """
    try:
        return Message(_reply(message, context), reply_to=message)
    except Exception as error:
        return _refused(message, error)


def _refused(message: Message, error: Exception) -> Message:
    """Return the reply to a message that cannot be answered; log what it does not disclose."""
    reason = disclosed_reason(error)
    if not isinstance(error, MfairflError):
        _log.exception("a message could not be answered")
    elif reason != str(error):
        _log.error("%s", error)
    return Message(Error(code=_RAISED, reason=reason), reply_to=message)


def _reply(message: Message, context: Context) -> RecordDict:
    path = context.node_config.get("silo")
    if not isinstance(path, str):
        raise ConfigError("the SuperNode has no file: start it with `mfairfl deploy silo FILE`")
    settings = load_silo(Path(path))
    run, packet = from_records(message.content)
    if packet.request.kind == "hello":
        return to_records(pack(HelloAnswer(name=settings.name)), run)
    session = session_of(settings)
    responder = Responder(settings, load_policy(Path(path)), read_consent(settings), session)
    return to_records(responder.handle(run, packet), run)


_sessions: dict[str, Session] = {}


def session_of(settings: SiloSettings) -> Session:
    """Return the files of a silo, as far as this process has read them."""
    session = _sessions.get(settings.name)
    if session is None or session.settings != settings:
        session = _sessions[settings.name] = Session(settings)
    return session


class SiloTasks:
    """The work that a silo's SuperNode offers: a task for each message.

    Parameters
    ----------
    port : int
        Where the SuperNode listens, on loopback.
    """

    def __init__(self, port: int) -> None:
        silence_flower()
        self._address = f"127.0.0.1:{port}"
        self._supernode = self._connect("SuperExec")

    def _connect(self, component: str, *more: Any, **options: Any) -> RuntimeHttpClient:
        version = interceptors.RuntimeVersionHttpInterceptor(component_name=component)
        return RuntimeHttpClient.from_server_address(
            self._address,
            insecure=True,  # both are on this machine
            root_certificates=None,
            interceptors=[version, *more],
            **options,
        )

    def close(self) -> None:
        """Leave the SuperNode."""
        self._supernode.close()

    def take(self) -> str | None:
        """Return what identifies the next task, if there is one for the client app."""
        # Refused tasks are taken as well, so that the SuperNode does not wait for them for ever.
        request = runtime_pb2.AcquireTaskRequest(supported_task_types=sorted(TaskType))
        try:
            offer = self._supernode.AcquireTask(request)
        except httpx.HTTPError as error:  # it starts, or it has just ended
            _log.debug("the SuperNode does not answer: %r", error)
            return None
        if not offer.token:
            return None
        if offer.task.type != TaskType.CLIENT_APP:
            _log.warning(
                "the server asked for '%s'; this silo only runs its client app", offer.task.type
            )
            return None
        return str(offer.token)

    def read_ahead(self, file: Path) -> None:
        """Read a silo's rows before this process forks, so that none of its copies needs to."""
        try:
            session_of(load_silo(file)).rows.content()
        except (MfairflError, OSError) as error:  # the answers name it
            _log.debug("the rows cannot be read: %s", error)

    def answer(self, token: str) -> None:
        """Carry out a task: take its message, answer it, and report that it is done."""
        signed = interceptors.RuntimeTokenHttpInterceptor(token)
        retry = make_simple_http_retry_invoker()
        with self._connect("flwr-clientapp", signed, retry_invoker=retry) as supernode:
            alive = HeartbeatSender(make_task_heartbeat_fn_http(supernode))
            alive.start()
            context, status = None, SubStatus.FAILED
            try:
                message, context = _fetch(supernode)
                try:
                    reply = app(message, context)
                except Exception as error:  # a kind of message that it does not answer
                    reply = _refused(message, error)
                push_message(supernode, reply, context)
                status = SubStatus.COMPLETED
            finally:
                push_task_output(supernode, context, sub_status=status, details="")
                alive.stop()


def _fetch(supernode: RuntimeHttpClient) -> tuple[Message, Context]:
    """Return the message of a task, and its context."""
    task = supernode.PullTaskInput(runtime_pb2.PullTaskInputRequest())
    node, run = Node(node_id=task.context.node_id), task.run.run_id
    TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, run
    TaskIdentity.node_id = node.node_id
    trees = supernode.PullMessages(runtime_pb2.PullAppMessagesRequest()).message_object_trees
    if len(trees) != 1:
        raise MessageError(f"a task with {len(trees)} messages, not one")
    confirm = supernode.ConfirmMessageReceived
    message = pull_and_inflate_object_from_tree(
        trees[0],
        protobuf.make_pull_object_fn_protobuf(supernode.PullObject, node, run),
        protobuf.make_confirm_message_received_fn_protobuf(confirm, node, run),
        return_type=Message,
        initial_backoff=_FIRST_RETRY,
        backoff_cap=_LAST_RETRY,
    )
    vars(message.metadata)["_message_id"] = trees[0].object_id  # a message does not hold its own
    return message, context_from_proto(task.context)
