"""Seconds to read a CSV file: mfairfl, pyarrow alone, and mfairfl's careful reader.

A file of invented people is written three times: without quotes, with all texts in quotes, and
with line breaks in some of them. The readers take turns; what is printed is the least processor
time of each. pyarrow alone guesses types and checks nothing; the careful reader goes record by
record, and is the one that mfairfl uses where quotes occur.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.csv

from mfairfl.data import read_frame
from mfairfl.data.files.contents import decode
from mfairfl.data.files.records import careful_records, frame_of_records

AIM = 2.0


def people(rows: int) -> pd.DataFrame:
    """Invent numbers and texts, some of which hold a delimiter or quotes."""
    rng = np.random.default_rng(0)
    jobs = np.array(["clerk", "cook, part-time", 'smith "the elder"', "", "nurse"])
    return pd.DataFrame(
        {
            "id": np.arange(rows),
            "age": rng.integers(18, 90, rows),
            "score": rng.normal(size=rows).round(3),
            "job": jobs[rng.integers(0, len(jobs), rows)],
            "sex": rng.choice(["f", "m"], rows),
            "site": rng.choice([f"hospital {i}" for i in range(50)], rows),
            "hours": rng.integers(0, 60, rows),
            "hired": rng.choice(["yes", "no"], rows),
        }
    )


def files(folder: Path, rows: int) -> dict[str, Path]:
    """Write the three files."""
    frame = people(rows)
    plain = frame.assign(job=frame["job"].str.replace('[,"]', "", regex=True))
    broken = frame.assign(job=frame["job"].str.replace(", ", ",\n"))
    forms = {
        "no quotes": (plain, csv.QUOTE_MINIMAL),
        "texts in quotes": (frame, csv.QUOTE_NONNUMERIC),
        "line breaks in quotes": (broken, csv.QUOTE_NONNUMERIC),
    }
    for name, (form, quoting) in forms.items():
        form.to_csv(folder / f"{name}.csv", index=False, quoting=quoting)
    return {name: folder / f"{name}.csv" for name in forms}


def by_arrow(path: Path) -> None:
    """Read with pyarrow alone, on one thread as mfairfl does."""
    pyarrow.csv.read_csv(
        path,
        pyarrow.csv.ReadOptions(use_threads=False),
        pyarrow.csv.ParseOptions(newlines_in_values="breaks" in path.name),
    )


def with_care(path: Path) -> pd.DataFrame:
    """Read record by record."""
    records = careful_records(path, decode(path, path.read_bytes(), None), ",")
    return frame_of_records(path, records, header=None, fix="")


def least(readers: list[Callable[[Path], object]], path: Path, repeats: int) -> list[float]:
    """Return the least processor time of each reader; they take turns."""
    best = [float("inf")] * len(readers)
    for _ in range(repeats):
        for i, read in enumerate(readers):
            began = time.process_time()
            read(path)
            best[i] = min(best[i], time.process_time() - began)
    return best


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    print(f"{given.rows:,} rows, 8 columns; seconds, least of {given.repeats} in turns")
    print(
        f"{'file':<22} {'mfairfl':>8} {'pyarrow':>8} {'careful':>8}  "
        f"× pyarrow (aim: at most {AIM:g} without quotes)  careful ×"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name, path in files(Path(folder), given.rows).items():
            pd.testing.assert_frame_equal(
                read_frame(path), with_care(path), check_index_type=False
            )
            own, arrow, careful = least([read_frame, by_arrow, with_care], path, given.repeats)
            print(
                f"{name:<22} {own:>8.3f} {arrow:>8.3f} {careful:>8.3f}  {own / arrow:<43.2f}  "
                f"{careful / own:.1f}"
            )


if __name__ == "__main__":
    main()
