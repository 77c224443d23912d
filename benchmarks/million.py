"""A million rows: ACSIncome from Parquet, 40 rounds of the default, where time and memory go.

Takes a reduced table of the ACSIncome task (`mfairfl data describe acs-income`). Each number of
workers is a process of its own, which first imports everything; what is counted begins after that.
Printed are wall-clock seconds by phase, the share of training, the peak memory above that of the
idle process, as a multiple of the encoded rows (rows × columns × 4 bytes, were all columns dense),
and what more workers save. Aims: training at least 70 % of the time, memory at most 2 ×, two
workers 1.6 × as fast as one. Needs Linux.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

AIMS = {"share": 0.7, "memory": 2.0, "workers": 1.6}


def noting(times: Counter[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, with its seconds added up under a name."""

    def timed(*args: Any, **kwargs: Any) -> Any:
        begun = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            times[name] += time.perf_counter() - begun

    return timed


def peak() -> int:
    """Return the largest size of this process, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def one_run(file: Path, rounds: int, workers: int) -> dict[str, Any]:
    """Train in this process, and return what it took."""
    import mfairfl  # noqa: PLC0415 - not in the process that only compares
    from mfairfl.engine import clients  # noqa: PLC0415
    from mfairfl.runs import execute  # noqa: PLC0415

    idle, times = peak(), Counter[str]()
    for name, method in (("training", "_train"), ("measuring", "_measure"), ("scores", "_score")):
        whole = getattr(clients.LocalClients, method)
        setattr(clients.LocalClients, method, noting(times, name, whole))
    execute.table_of = noting(times, "reading", execute.table_of)
    execute.federation_of = noting(times, "dividing and encoding", execute.federation_of)
    execute.with_warnings = noting(times, "looking for traps", execute.with_warnings)
    execute.finish_run = noting(times, "closing numbers", execute.finish_run)
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = mfairfl.train(
            "acs-income",
            rounds=rounds,
            workers=workers,
            out=Path(folder) / "run",
            **{"data.path": str(file)},
        )
        seconds = time.perf_counter() - begun
        digest = hashlib.sha256((Path(folder) / "run" / "model.safetensors").read_bytes())
    facts = run.record.federation
    rows = sum(client.rows or 0 for client in facts.clients)
    return {
        "workers": workers,
        "seconds": seconds,
        "phases": {**times, "server, files, the rest": seconds - sum(times.values())},
        "memory": peak() - idle,
        "encoded": rows * facts.features * 4,
        "rows": rows,
        "columns": facts.features,
        "clients": len(facts.clients),
        "model": digest.hexdigest(),
    }


def child(file: Path, rounds: int, workers: int) -> dict[str, Any]:
    """Run it in a process of its own."""
    words = [sys.executable, __file__, str(file), "--rounds", str(rounds), "--one", str(workers)]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def shown(found: dict[str, Any]) -> None:
    """Print one run."""
    seconds = found["seconds"]
    print(f"\n{found['workers']} worker{'s' * (found['workers'] > 1)}: {seconds:.1f} s")
    for name, part in sorted(found["phases"].items(), key=lambda item: -item[1]):
        aim = f"  (aim: at least {AIMS['share']:.0%})" if name == "training" else ""
        print(f"  {name:<24} {part:7.2f} s  {part / seconds:5.1%}{aim}")
    print(
        f"  memory above idle {found['memory'] / 1e9:.2f} GB, "
        f"{found['memory'] / found['encoded']:.2f} × the encoded rows (aim: at most 2)"
    )


def main() -> None:
    """Print the comparison; with `--one`, one run as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="a reduced table of ACSIncome")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    file = given.file.resolve()
    if given.one is not None:
        print(json.dumps(one_run(file, given.rounds, given.one)))
        return
    load = os.getloadavg()[0]
    runs = [child(file, given.rounds, count) for count in given.workers]
    first = runs[0]
    print(
        f"{first['rows']:,} rows × {first['columns']} columns × 4 bytes = "
        f"{first['encoded'] / 1e9:.2f} GB, {first['clients']} clients, {given.rounds} rounds of "
        f"the default; {len(os.sched_getaffinity(0))} processors, load {load:.1f} at the start"
    )
    for found in runs:
        shown(found)
    for found in runs[1:]:
        saved = first["phases"]["training"] / found["phases"]["training"]
        whole = first["seconds"] / found["seconds"]
        same = "same model" if found["model"] == first["model"] else "OTHER MODEL"
        print(
            f"\n{found['workers']} workers: training {saved:.2f} ×, all {whole:.2f} × "
            f"(aim {AIMS['workers']}), {same}"
        )


if __name__ == "__main__":
    main()
