"""Train FedAvg and mFairFL on Adult side by side, and show what fairness cost, and whom."""

from __future__ import annotations

import mfairfl

FOLDER = "runs/demo"


def main() -> None:
    runs = []
    for name in ("fedavg", "mfairfl"):
        print(f"training {name} on five clients ...", flush=True)
        out = f"{FOLDER}/{name}"
        runs.append(mfairfl.train("adult", heterogeneity="high", strategy=name, out=out))
    both = mfairfl.compare(runs)
    both.plot(f"{FOLDER}/comparison.svg")
    print(both)
    print(f"picture: {FOLDER}/comparison.svg; each run in full: {FOLDER}/<name>/run.json")


if __name__ == "__main__":
    main()
