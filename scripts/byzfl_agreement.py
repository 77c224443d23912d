"""Compare `mfairfl.geometry.robust` with ByzFL, and store some of ByzFL's outputs for the tests.

ByzFL needs torchvision, built for the very torch that is installed, only to be imported: `make
byzfl` fetches the package without what it asks for, and this script loads its rules alone.
Prints the largest difference of each rule over many random inputs, relative to the length of
ByzFL's output. With `--store FILE` the first inputs and ByzFL's outputs are written there.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from mfairfl.geometry import gram_matrix, robust

VERSION = "0.0.11"
STORED = 12  # inputs whose outputs the tests keep


def byzfl_rules() -> dict[str, Callable[[dict[str, Any]], Any]]:
    """Return what makes each of ByzFL's rules, by our name, of our options."""
    found, spec = version("byzfl"), find_spec("byzfl")
    if spec is None or found != VERSION:
        raise SystemExit(f"byzfl {VERSION} is needed, not {found}: make byzfl")
    package = ModuleType("byzfl")  # its own __init__ would import torchvision
    package.__path__ = list(spec.submodule_search_locations or [])
    sys.modules["byzfl"] = package
    prepare = import_module("byzfl.aggregators.preaggregators")
    combine = import_module("byzfl.aggregators.aggregators")
    return {
        "norm_clipping": lambda options: prepare.Clipping(options["bound"]),
        "nearest_neighbour_mixing": lambda options: prepare.NNM(options["f"]),
        "geometric_median": lambda options: combine.GeometricMedian(
            nu=options["nu"], T=options["rounds"]
        ),
        "krum": lambda options: combine.Krum(options["f"]),
        "multi_krum": lambda options: combine.MultiKrum(options["f"]),
        "centred_clipping": lambda options: combine.CenteredClipping(
            L=options["rounds"], tau=options["tau"]
        ),
    }


def inputs(seed: int) -> tuple[np.ndarray, list[tuple[str, dict[str, Any]]]]:
    """Return updates of norms over four decades, in short decimals, and what to do with them."""
    rng = np.random.default_rng(seed)
    # One client has no neighbours: ByzFL's Krum then takes the mean of nothing.
    count, width = int(rng.integers(2, 13)), int(rng.integers(2, 10))
    G = rng.normal(size=(count, width)) + rng.normal(size=width)
    G *= 10 ** rng.uniform(-2, 2, size=(count, 1))
    G = np.array([[float(f"{value:.4g}") for value in row] for row in G])
    f = int(rng.integers(0, (count + 1) // 2))
    bound = float(f"{10 ** rng.uniform(-2, 2):.3g}")
    rounds = int(rng.integers(1, 8))
    cases: list[tuple[str, dict[str, Any]]] = [
        ("norm_clipping", {"bound": bound}),
        ("geometric_median", {"nu": 0.1, "rounds": 3}),
        ("geometric_median", {"nu": bound / 100, "rounds": rounds}),
        ("centred_clipping", {"tau": bound, "rounds": rounds}),
    ]
    cases += [(rule, {"f": f}) for rule in ("nearest_neighbour_mixing", "krum", "multi_krum")]
    return G, cases


def ours(rule: str, G: np.ndarray, options: dict[str, Any]) -> np.ndarray:
    """Apply the coefficients of our rule to the updates."""
    c = getattr(robust, rule)(gram_matrix(G), **options)
    return np.diag(c) @ G if rule == "norm_clipping" else c @ G


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--store", type=Path)
    arguments = parser.parse_args()
    rules = byzfl_rules()
    worst = dict.fromkeys(rules, 0.0)
    stored = []
    for seed in range(arguments.inputs):
        G, cases = inputs(seed)
        outputs = []
        for rule, options in cases:
            theirs = rules[rule](options)(G.copy())  # ByzFL clips in place
            apart = np.linalg.norm(ours(rule, G, options) - theirs, axis=-1)
            worst[rule] = max(worst[rule], float((apart / np.linalg.norm(theirs, axis=-1)).max()))
            outputs.append({"rule": rule, "options": options, "output": theirs.tolist()})
        stored.append({"seed": seed, "updates": G.tolist(), "outputs": outputs})
    for rule, apart in worst.items():
        print(f"{rule:25} {arguments.inputs} inputs, largest difference {apart:.1e}")
    if arguments.store is not None:
        script = "scripts/byzfl_agreement.py"
        data = {"byzfl": VERSION, "script": script, "cases": stored[:STORED]}
        arguments.store.write_text(json.dumps(data) + "\n")


if __name__ == "__main__":
    main()
