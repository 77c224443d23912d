"""The server: an ordinary Flower app, with a FairStrategy."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from fairapp.task import SENSITIVE, Net
from mfairfl.flower import FairStrategy, Recipe

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for the configured number of rounds; Flower logs the result."""
    config = context.run_config
    strategy = FairStrategy(
        str(config["strategy"]),
        sensitive=SENSITIVE,
        notion=str(config["notion"]),
        recipe=Recipe(local_epochs=int(config["local-epochs"]), lr=float(config["lr"])),
        min_available_nodes=int(config["min-clients"]),
    )
    torch.manual_seed(0)
    strategy.start(
        grid,
        ArrayRecord(Net().state_dict()),
        num_rounds=int(config["num-server-rounds"]),
    )
