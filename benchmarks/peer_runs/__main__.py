"""`python -m peer_runs NAME JSON`: do rounds with one library as the lines on standard input ask.

The JSON holds the fields of `Work`. See `pace` for what goes over standard input and output.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module

import torch

from peer_runs.pace import Pace
from peer_runs.work import Work


def main() -> None:
    name, settings = sys.argv[1:]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    pace = Pace()
    import_module(f"peer_runs.{name}").run(Work(**json.loads(settings)), pace)


if __name__ == "__main__":
    main()
