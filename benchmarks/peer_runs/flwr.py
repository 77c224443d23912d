"""Flower: `FedAvg` over `ClientApp`s in its simulation on Ray, two workers with one CPU each.

One logit, AdamW, weighted by size, no evaluation. The clients run the plain loop's training. A
worker reads the rows once and keeps them. Flower alone uses two cores here. While others run it
polls: nothing to speak of with 5 clients, a fifteenth of a core with 5,000.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from functools import cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from peer_runs.pace import Pace
from peer_runs.torch_loop import train as train_locally
from peer_runs.work import Batches, Work

WORKERS = 2
WORK = "PEER_RUNS_WORK"

app = ClientApp()


@cache
def shared_work() -> Work:
    """Return the work, read once a process."""
    torch.set_num_threads(1)
    return Work(**json.loads(os.environ[WORK]))


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train one client from the server's weights."""
    work = shared_work()
    X, y = work.clients[int(context.node_config["partition-id"])]
    net = work.model(outputs=1)
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    train_locally(net, Batches(X, y, work.batch))
    content = RecordDict(
        {
            "arrays": ArrayRecord(net.state_dict()),
            "metrics": MetricRecord({"num-examples": len(y)}),
        }
    )
    return Message(content=content, reply_to=message)


def run(work: Work, pace: Pace) -> None:
    os.environ[WORK] = json.dumps(asdict(work))
    server = ServerApp()

    def watch(server_round: int, arrays: ArrayRecord) -> None:  # noqa: ARG001
        if server_round:
            pace.lap(alone=False)
        else:
            pace.start("flwr", "ray", "torch")

    @server.main()
    def main(grid: Grid, context: Context) -> None:  # noqa: ARG001
        strategy = FedAvg(
            fraction_train=work.share,
            fraction_evaluate=0.0,
            min_train_nodes=work.drawn,
            min_available_nodes=len(work.clients),
        )
        strategy.start(
            grid,
            ArrayRecord(work.model(outputs=1).state_dict()),
            num_rounds=work.rounds,
            evaluate_fn=watch,
        )

    run_simulation(
        server,
        app,
        num_supernodes=len(work.clients),
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": WORKERS},
        },
    )
