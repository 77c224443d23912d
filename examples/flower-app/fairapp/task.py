"""The app's own PyTorch model and the rows it is trained on."""

from __future__ import annotations

from functools import lru_cache

from torch import Tensor, nn

import mfairfl
from mfairfl.data import EncoderConfig, Federation

SENSITIVE = {"sex": ["Female", "Male"]}
FEATURES = 91  # Adult, encoded
# Numbers standardised, a 0/1 input for each category: this many inputs whatever rows a client has.
ENCODER = EncoderConfig(numeric="standard", min_level_rows=1)


class Net(nn.Module):
    """A small network with one logit per row."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(FEATURES, 32)
        self.head = nn.Linear(32, 1)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the logits, (n, 1)."""
        logits: Tensor = self.head(nn.functional.relu(self.hidden(rows)))
        return logits


@lru_cache
def load_clients(count: int) -> Federation:
    """Split the Adult data among this many clients, with different shares of women and men.

    In a real federation a client reads its own file here, and `mfairfl.flower.cells_of`
    turns its sensitive columns into cells.
    """
    table = mfairfl.load_dataset("adult")
    split = {"clients": count, "on": "group", "concentration": 1.0, "seed": 0}
    return mfairfl.partition(table, "dirichlet", encoder=ENCODER, **split)
