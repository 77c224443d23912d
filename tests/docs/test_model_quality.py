"""benchmarks/model_quality.py: paired differences, verdicts, and a page from real runs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import federations as fed
from mfairfl.fairness import Measured

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def quality():
    path = ROOT / "benchmarks" / "model_quality.py"
    spec = importlib.util.spec_from_file_location("model_quality", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def records(quality, **numbers):
    """A record for each seed with these numbers on the test rows."""
    names = {"violation": quality.VIOLATION, "loss": "loss", "accuracy": "accuracy"}
    rows = [
        dict(zip(numbers, values, strict=True)) for values in zip(*numbers.values(), strict=True)
    ]
    tables = [
        {names[key]: Measured(name=names[key], value=value) for key, value in row.items()}
        for row in rows
    ]
    return [SimpleNamespace(table=lambda _, numbers=numbers: numbers) for numbers in tables]


def methods(quality, *, behind, loss=0.005, fair=(0.845, 0.007)):
    boosting = np.array([0.87, 0.88, 0.86])
    return {
        "fedavg": records(
            quality, accuracy=boosting - behind, loss=[0.28 + loss] * 3, violation=[0.1] * 3
        ),
        "mfairfl": records(
            quality, accuracy=[fair[0]] * 3, loss=[0.3] * 3, violation=[fair[1]] * 3
        ),
        "boosting": records(quality, accuracy=boosting, loss=[0.28] * 3, violation=[0.1] * 3),
    }


def test_half_an_interval_is_that_of_scipy(quality):
    numbers = np.array([0.01, 0.03, 0.02, 0.06])
    middle, half = quality.mean(numbers)
    low, high = stats.ttest_1samp(numbers, 0).confidence_interval(0.95)
    assert (middle - half, middle + half) == pytest.approx((low, high))
    assert quality.spread(np.array([0.01])) == "0.0100"


def test_differences_are_paired_by_seed(quality):
    found = methods(quality, behind=np.array([0.004, 0.005, 0.006]))
    gaps = quality.difference(found, ("fedavg", "boosting"), "accuracy")
    assert gaps == pytest.approx([-0.004, -0.005, -0.006])
    assert quality.spread(gaps, "+") == "-0.0050 ± 0.0025"


@pytest.mark.parametrize(
    ("data", "changes", "reached"),
    [
        ("adult", {"behind": 0.004}, [True, True, True]),
        ("adult", {"behind": 0.006}, [False, True, True]),
        ("adult", {"behind": 0.004, "loss": 0.011}, [True, False, True]),
        ("adult", {"behind": 0.004, "fair": (0.843, 0.007)}, [True, True, False]),
        ("adult", {"behind": 0.004, "fair": (0.845, 0.009)}, [True, True, False]),
        ("bank", {"behind": 0.004}, [False, True]),
        ("compas", {"behind": np.array([0.001, 0.002, 0.009])}, [True, True]),
        ("compas", {"behind": np.array([0.004, 0.005, 0.006])}, [False, True]),
        ("ACS 2018, modified edition", {"behind": 0.004}, [True, True]),
        ("german", {"behind": 0.5}, []),
    ],
)
def test_aims_are_judged_by_means_or_by_the_interval(quality, data, changes, reached):
    found = list(quality.aims({data: methods(quality, **changes)}))
    assert [aim.reached for aim in found] == reached
    assert {aim.data for aim in found} <= {data}


@pytest.mark.slow
def test_a_page_of_a_file_of_one_s_own(quality, one_process, tmp_path):
    own = fed.write_people(tmp_path)
    given = ["--data", "--own", f"my people={own}", "--seeds", "0", "1", "--protocol", "1x1"]
    options = quality.arguments([*given, "--processes", "1", "--runs", str(tmp_path / "runs")])
    found = quality.carried_out(options)
    assert list(found) == ["my people"]
    assert {name: [record.seed for record in of] for name, of in found["my people"].items()} == {
        name: [0, 1] for name in (*quality.METHODS, *quality.REFERENCES)
    }
    text = quality.page(found, options)
    assert "260 rows, 4 clients (scheme column), SHA-256 " in text
    both = [record.table("test")["accuracy"].value for record in found["my people"]["boosting"]]
    assert f"| boosting † | {np.mean(both):.4f} ± " in text
    assert "overlap" in text


def test_seeds_that_are_looked_at_once_are_the_default(quality):
    assert quality.arguments([]).seeds == [60, 61, 62, 63, 64]
