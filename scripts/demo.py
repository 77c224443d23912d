"""Train FedAvg and mFairFL on Adult side by side, and show what fairness cost, and whom."""

from __future__ import annotations

import mfairfl

FOLDER = "runs/demo"


def main() -> None:
    runs = [
        mfairfl.train("adult", heterogeneity="high", strategy=name, out=f"{FOLDER}/{name}")
        for name in ("fedavg", "mfairfl")
    ]
    both = mfairfl.compare(runs)
    both.plot(f"{FOLDER}/comparison.svg")
    print(both)
    print(f"picture: {FOLDER}/comparison.svg; each run in full: {FOLDER}/<name>/run.json")


if __name__ == "__main__":
    main()
