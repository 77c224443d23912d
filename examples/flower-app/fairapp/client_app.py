"""The client: its own model, its own loop; the loss and the measurement are mfairfl's."""

from __future__ import annotations

from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fairapp.task import SENSITIVE, Net, load_clients
from mfairfl.flower import (
    fair_loss,
    make_optimizer,
    measurement_record,
    proximal_term,
    read_plan,
)

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train as the plan says, from the weights that were sent."""
    plan, model = read_plan(message), received_model(message)
    X, y, cells = rows_of(context, "train")
    start = [w.detach().clone() for w in model.parameters()]
    optimizer = make_optimizer(plan, model.parameters())
    order = torch.Generator().manual_seed(int(message.content["config"]["server-round"]))
    for _ in range(plan.epochs):
        for batch in torch.randperm(len(y), generator=order).split(plan.batch_size):
            optimizer.zero_grad()
            loss = fair_loss(plan, model(X[batch]), y[batch], cells[batch])
            (loss + proximal_term(plan, model.parameters(), start)).backward()
            optimizer.step()
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict())}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Return this client's name, and sums and counts of the model's results on its rows."""
    model = received_model(message)
    reply = RecordDict({"client": ConfigRecord({"name": name_of(context)})})
    for part in ("train", "test"):  # the next round is planned from train; test is only reported
        reply[part] = measured(model, *rows_of(context, part))
    return Message(reply, reply_to=message)


def received_model(message: Message) -> Net:
    """Return the model that was sent."""
    model = Net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    return model


@torch.no_grad()
def measured(model: Net, X: torch.Tensor, y: torch.Tensor, cells: torch.Tensor) -> MetricRecord:
    """Return the model's sums and counts on these rows."""
    return measurement_record(SENSITIVE, model(X), y, cells)


def name_of(context: Context) -> str:
    """Return the name that identifies this client."""
    return f"client-{context.node_config['partition-id']}"


def rows_of(context: Context, part: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return features, labels and cells of this client's train or test rows."""
    at, count = (int(context.node_config[key]) for key in ("partition-id", "num-partitions"))
    shard = getattr(load_clients(count).clients[at], part)
    first = slice(int(context.run_config["rows"]) or None)
    X, y, cells = (torch.tensor(values[first]) for values in (shard.X, shard.y, shard.cells))
    return X, y, cells
