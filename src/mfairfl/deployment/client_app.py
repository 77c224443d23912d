"""The client app that a SuperNode runs: it passes every message to the silo's `Responder`.

The node's configuration names the silo's own file, ``silo="/etc/mfairfl/silo.toml"``, which
decides what is read, where state is kept, and the name that the silo is enrolled under; the
policy.toml beside it decides how much is done for a coordinator. The text
of an error may quote the data: the coordinator is told without the quotation, which only the
silo's own log has.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from mfairfl.errors import CheckpointError, ConfigError, DataError, MessageError
from mfairfl.flower.records import from_records, to_records
from mfairfl.runs.consent import read_consent
from mfairfl.silo.policy import load_policy
from mfairfl.silo.responder import Responder
from mfairfl.silo.silo_file import SiloSettings, load_silo
from mfairfl.wire.codec import make_packet, read_header

_RAISED = 2  # Flower's code for an app that raised
_log = logging.getLogger("mfairfl")

app = ClientApp()


@app.query()
def answer(message: Message, context: Context) -> Message:
    """Answer one message."""
    try:
        return Message(_reply(message, context), reply_to=message)
    except (MessageError, ConfigError) as error:
        reason = str(error)
    except DataError as error:
        _log.error("%s", error)
        reason = "its file cannot be used with the agreed task; its own log says why"
    except CheckpointError as error:
        _log.error("%s", error)
        reason = "what it stored of this run is damaged; its own log says what to do"
    except Exception as error:
        _log.exception("a message could not be answered")
        reason = f"{type(error).__name__}; its own log says more"
    return Message(Error(code=_RAISED, reason=reason), reply_to=message)


def _reply(message: Message, context: Context) -> RecordDict:
    settings = settings_of(context.node_config)
    run, packet = from_records(message.content)
    kind, _ = read_header(packet)
    if kind == "hello":
        return to_records(make_packet("hello", {"name": settings.name}), run)
    policy = load_policy(_silo_file(context.node_config))
    responder = Responder(settings, policy, read_consent(settings))
    return to_records(responder.handle(run, packet), run)


def settings_of(node_config: Mapping[str, Any]) -> SiloSettings:
    """Return the settings in the silo's own file."""
    return load_silo(_silo_file(node_config))


def _silo_file(node_config: Mapping[str, Any]) -> Path:
    path = node_config.get("silo")
    if not isinstance(path, str):
        raise ConfigError("the SuperNode has no file: start it with `mfairfl deploy silo FILE`")
    return Path(path)
