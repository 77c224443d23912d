"""The bare batched products of one epoch: forward, weight and input gradients, nothing else.

What no trainer that advances all participants together can undercut. The head (one column) is left
out. Clients with fewer batches leave the stack early; a client's batches are of equal size. In the
arithmetic that our runs use.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import ceil

import torch

from mfairfl.training.execution import steady_arithmetic
from peer_runs.pace import Pace
from peer_runs.work import Work


def run(work: Work, pace: Pace) -> None:
    epoch = products(work)
    pace.start("torch")
    with steady_arithmetic():
        for _ in range(work.rounds):
            epoch()
            pace.lap()


def products(work: Work) -> Callable[[], None]:
    sizes = [len(y) for _, y in work.clients][: work.drawn]
    steps = sorted((ceil(n / work.batch) for n in sizes), reverse=True)
    batch = max(ceil(n / ceil(n / work.batch)) for n in sizes)
    widths = [work.clients[0][0].shape[1], *work.hidden]
    H = [torch.randn(len(sizes), batch, width) for width in widths]
    W = [torch.randn(len(sizes), a, b) for a, b in pairwise(widths)]
    D = [torch.empty_like(w) for w in W]
    out = [torch.empty_like(h) for h in H]

    def epoch() -> None:
        for step in range(steps[0]):
            n = sum(1 for count in steps if count > step)
            for i, w in enumerate(W):
                torch.bmm(H[i][:n], w[:n], out=out[i + 1][:n])
            for i in range(len(W) - 1, -1, -1):
                torch.bmm(H[i][:n].transpose(1, 2), H[i + 1][:n], out=D[i][:n])
                if i:
                    torch.bmm(H[i + 1][:n], W[i][:n].transpose(1, 2), out=out[i][:n])

    return epoch
