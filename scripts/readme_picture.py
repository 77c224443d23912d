"""Draw docs/images/adult-high.svg: who holds what in the demo, and how well each is served.

Reads the run that `make demo` writes.
"""

from __future__ import annotations

import json
from pathlib import Path

from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    record = json.loads((ROOT / "runs/demo/run.json").read_text(encoding="utf-8"))
    metrics, ranges = record["metrics"]["test"], record["intervals"]["test"]
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)

    clients = record["federation"]["clients"]
    names = [client["name"] for client in clients]
    start = [0] * len(clients)
    for shade, group in zip(("#f2f2f2", "#595959"), ("Female", "Male"), strict=True):
        rows = [client["attributes"]["sex"][group]["rows"] for client in clients]
        left.barh(names, rows, left=start, color=shade, edgecolor="black", label=group)
        start = [a + b for a, b in zip(start, rows, strict=True)]
    left.invert_yaxis()
    left.set_xlabel("rows")
    left.set_title("who holds what (Adult, split high)")
    left.legend()

    shown = [("client", name, metrics["by_client"][name]) for name in names]
    shown += [("group", name, cell) for name, cell in metrics["by_group"]["sex"].items()]
    for i, (kind, name, cell) in enumerate(shown):
        low, high = (
            ranges["by_client"][name] if kind == "client" else ranges["by_group"]["sex"][name]
        )["accuracy"]
        right.plot([low, high], [i, i], color="black")
        right.plot(cell["accuracy"], i, "o" if kind == "client" else "s", color="black")
    right.axvline(metrics["accuracy"], color="black", linestyle=":", label="overall")
    right.set_yticks(range(len(shown)), [name for _, name, _ in shown])
    right.invert_yaxis()
    right.set_xlabel("test accuracy, 95 % interval")
    right.set_title("who is served how well (FedAvg)")
    right.legend()
    target = ROOT / "docs/images/adult-high.svg"
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, metadata={"Date": None})
    print(f"wrote {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
