"""The app a SuperNode runs: every message is one question to the silo's desk.

The node's configuration names the silo's own file, ``silo="/etc/mfairfl/silo.toml"``: what is
read, where state is kept, and the name it is enrolled under are the silo's decision.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from pydantic import ValidationError

from mfairfl.engine.desk import Desk, SiloSettings
from mfairfl.engine.flower.records import from_records, to_records
from mfairfl.engine.messages import make_packet, read_header
from mfairfl.errors import ConfigError
from mfairfl.files import load_toml

__all__ = ["app", "load_settings"]

app = ClientApp()


@app.query()
def answer(message: Message, context: Context) -> Message:
    """Answer one message."""
    settings = load_settings(context.node_config)
    run, packet = from_records(message.content)
    kind, _ = read_header(packet)
    if kind == "hello":
        reply = make_packet("hello", {"name": settings.name})
    else:
        reply = Desk(settings).handle(run, packet)
    return Message(to_records(reply, run), reply_to=message)


def load_settings(node_config: Any) -> SiloSettings:
    """Read the silo's own file; paths in it are relative to its folder."""
    path = node_config.get("silo")
    if not isinstance(path, str):
        raise ConfigError("the SuperNode has no file: start it with --node-config 'silo=\"FILE\"'")
    file = Path(path)
    values = load_toml(file)
    for key in ("csv", "state"):
        if isinstance(values.get(key), str):
            values[key] = file.parent / values[key]
    try:
        return SiloSettings.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{file}: {where}: {first['msg']}") from None
