"""Invented person records in the format of the US Census Bureau, and its archives."""

from __future__ import annotations

import io
import random
import zipfile

import pandas as pd

from mfairfl.data.census import STATES

CODES = ("COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "SEX", "RAC1P")
HIGHEST = {"COW": 8, "SCHL": 24, "MAR": 5, "OCCP": 30, "POBP": 20, "SEX": 2, "RAC1P": 9}


def people(state, count=120, seed=0, *, year=2018):
    """Invent records: every seventh is too young, every eleventh does not work."""
    rng = random.Random(f"{state}{seed}")
    found = []
    for i in range(count):
        one = {"RT": "P", "SERIALNO": f"2018HU{i:07d}", "ST": STATES[state], "ADJINC": 1013097}
        one |= {column: rng.randint(1, high) for column, high in HIGHEST.items()}
        one |= {"AGEP": 16 if i % 7 == 0 else rng.randint(17, 95), "PWGTP": rng.randint(1, 200)}
        one |= {"PINCP": rng.choice([100, 101, 30_000, 50_000, 50_001, 90_000])}
        one |= {"AGEP": 14, "PINCP": ""} if i % 14 == 0 else {}
        one |= {"WKHP": "" if i % 11 == 0 else rng.randint(1, 99)}
        one |= {"RELP": rng.randint(0, 17)} if year < 2019 else {"RELSHIPP": rng.randint(20, 38)}
        found.append(one)
    found[1]["PWGTP"] = 0
    return found


def in_task(records):
    """The rule of the task, person by person."""
    return [
        one
        for one in records
        if one["AGEP"] > 16 and one["PINCP"] > 100 and one["WKHP"] != "" and one["PWGTP"] >= 1
    ]


PADDED = {"ST": 2, "SCHL": 2, "POBP": 3, "OCCP": 4}


def csv_bytes(records):
    """Write records as the Bureau does: codes have leading zeros."""

    def cell(name, value):
        return f"{value:0{PADDED[name]}d}" if name in PADDED and type(value) is int else value

    text = io.StringIO()
    rows = [{name: cell(name, value) for name, value in one.items()} for one in records]
    pd.DataFrame(rows).to_csv(text, index=False)
    return text.getvalue().encode()


def zip_bytes(members):
    """Pack files; the same ones give the same bytes, whatever the time."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def archive_of(state, **changes):
    records = people(state, **changes)
    member = f"psam_p{STATES[state]:02d}.csv"
    return zip_bytes({member: csv_bytes(records), "ACS2018_PUMS_README.pdf": b"%PDF"})


def edition():
    """Rows that somebody else reduced: labels as text, race in five and marriage in two values."""
    rows = []
    for one in in_task(people("WY") + people("VT")):
        row = {c: one[c] for c in ("AGEP", *CODES, "WKHP")}
        row |= {"STATE": "WY" if one["ST"] == 56 else "VT"}
        row |= {"MAR": 1 + (one["MAR"] > 1), "RAC1P": 1 + one["RAC1P"] % 5}
        rows.append(row | {"PINCP": ">50K" if one["PINCP"] > 50_000 else "<=50K"})
    return pd.DataFrame(rows)
