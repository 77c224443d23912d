"""Train FedAvg and mFairFL on Adult side by side, and show what fairness cost, and whom."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from mfairfl.errors import MfairflError
from mfairfl.experiments.comparison import compare, write_comparison
from mfairfl.experiments.figures.runs import draw_comparison
from mfairfl.runs.config import make_config
from mfairfl.runs.workers import run_many

FOLDER = Path("runs/demo")
STRATEGIES = ("fedavg", "mfairfl")


def main() -> None:
    runs = [
        (
            make_config(
                {
                    "data": {"name": "adult"},
                    "clients": {"scheme": "high"},
                    "fairness": {"notion": "demographic_parity"},
                    "strategy": {"name": name},
                }
            ),
            FOLDER / name,
        )
        for name in STRATEGIES
    ]
    with Progress(console=Console(stderr=True)) as bar:
        tasks = {str(out): bar.add_task(out.name, total=None) for _, out in runs}

        def tell(out: str, done: int, rounds: int) -> None:
            bar.update(tasks[out], completed=done, total=rounds)

        run_many(runs, processes=len(runs), progress=tell)
    folders = [out for _, out in runs]
    draw_comparison(folders, FOLDER / "comparison.svg")
    print(write_comparison(compare(folders)))
    print(f"picture: {FOLDER / 'comparison.svg'}; each run in full: {FOLDER}/<name>/run.json")


if __name__ == "__main__":
    try:
        main()
    except MfairflError as error:
        raise SystemExit(f"error: {error}") from None
