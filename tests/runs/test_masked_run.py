"""A run over silos under masks ends where the one without masks ends, and tells less."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

import federations as fed
import mfairfl
from masked_silos import Office, masked_silos
from mfairfl.data import table_from_frame
from mfairfl.runs.config import make_config
from mfairfl.runs.federated import FederatedRequest, run_federated, run_name

TASK = {"label": "hired", "favourable": "yes", "sensitive": ["sex", "age"]}
SETTINGS = {
    "seed": 2,
    "model": {"hidden": [4]},
    "training": {"rounds": 4, "local_epochs": 2, "batch_size": 16, "lr": 0.02},
    "fairness": {"notion": "dp"},
}


def wanted(out, strategy="mfairfl", **more):
    settings = SETTINGS | {"task": TASK, "strategy": {"name": strategy}, "masked": True} | more
    return FederatedRequest(
        config=make_config(settings), clients=tuple(fed.SITES), minimum=2, out=out
    )


def embedded(out, strategy="mfairfl", **more):
    task = mfairfl.data.Task.model_validate(TASK | {"client": "site"})
    table = table_from_frame(fed.people(), task, name="people")
    settings = SETTINGS | {"strategy": {"name": strategy}} | more
    return mfairfl.train(table, config=settings, out=out)


@pytest.mark.parametrize("encoder", [{}, {"numeric": "bins", "bins": 6, "min_rows": 12}])
@pytest.mark.parametrize("strategy", ["mfairfl", "fedavg-threshold"])
def test_the_same_encoder_and_model_as_without_masks(strategy, encoder, tmp_path):
    asked = wanted(tmp_path / "silos", strategy, encoder=encoder)
    office = Office(masked_silos(tmp_path), run_name(asked.config))
    record = run_federated(asked, office)
    here = embedded(tmp_path / "here", strategy, encoder=encoder)
    for name in ("encoder.json",):
        ours, theirs = ((tmp_path / one / name).read_bytes() for one in ("silos", "here"))
        assert ours == theirs
    ours, theirs = (load_file(tmp_path / one / "model.safetensors") for one in ("silos", "here"))
    assert np.array_equal(ours["members"], theirs["members"])
