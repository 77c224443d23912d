"""The served model as a plain torch module: scores of the run, from its weights alone."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import nn

import federations as fed
import mfairfl
from answers import one_line
from mfairfl.errors import DataError
from mfairfl.runs.predictor import _rounded_up

QUICK = {"rounds": 4, "hidden": (4,), "batch_size": 20, "lr": 0.05, "weight_decay": 0.1}


def own(inputs):
    return nn.Sequential(nn.Linear(inputs, 5), nn.Tanh(), nn.Linear(5, 1), nn.Flatten(0))


KINDS = {
    "fedavg": {"strategy": "fedavg"},
    "logistic": {"strategy": "fedavg", "hidden": ()},
    "mfairfl": {"strategy": "mfairfl", "hidden": (8, 8)},
    "ensemble": {"strategy": "indfair"},
    "personal": {"strategy": "ditto"},
    "mixture": {"strategy": "mfairfl", "output_rule": "mixture", "notion": "eo", "rounds": 8},
    "drawn thresholds": {
        "strategy": "fedavg-threshold",
        "notion": "eo",
        "tolerance": 0.0,
        "randomise": True,
    },
    "thresholds": {"strategy": "fedavg-threshold", "tolerance": 1.0},
    "one threshold": {"strategy": "fedavg", "output_rule": "thresholds", "tolerance": 1.0},
    "own": {"strategy": "mfairfl", "model": own},
}


@pytest.fixture(scope="module")
def predictors():
    """One of each kind; `own` has a module that is not ours."""
    table = fed.people_table()
    return {
        kind: mfairfl.train(table, **{**QUICK, **how}).predictor for kind, how in KINDS.items()
    }


def answer(module, frame):
    cells = module.cells(frame) if hasattr(module, "thresholds") else None
    return module(module.encode(frame), cells).numpy()


@pytest.mark.parametrize("kind", sorted({*KINDS} - {"personal"}))
def test_its_scores_are_those_of_the_run(predictors, kind):
    frame, predictor = fed.people(), predictors[kind]
    score = answer(predictor.to_module(), frame)
    assert score.dtype == np.float32
    np.testing.assert_allclose(score, predictor.predict_proba(frame)[:, 1], rtol=0, atol=1e-6)
    assert score.std() > 0.01  # it tells people apart


def test_the_kinds_are_those_that_are_meant(predictors):
    served = {kind: predictor.served for kind, predictor in predictors.items()}
    assert served["mixture"].kind == "mixture"
    assert served["ensemble"].kind == "ensemble"
    assert served["personal"].kind == "personal"
    assert predictors["drawn thresholds"].randomised
    assert served["thresholds"].thresholds is not None
    assert not predictors["thresholds"].randomised


def test_a_client_has_its_own_module(predictors):
    frame, predictor = fed.people(), predictors["personal"]
    found = {}
    for site in fed.SITES:
        module = predictor.to_module(client=site)
        expected = predictor.predict_proba(frame, client=site)[:, 1]
        found[site] = answer(module, frame)
        np.testing.assert_allclose(found[site], expected, rtol=0, atol=1e-6)
    assert not np.allclose(found["north"], found["south"])


def test_it_is_layers_of_torch(predictors):
    """By hand, from the parameters alone."""
    module, frame = predictors["fedavg"].to_module(), fed.people()
    first, relu, last = module.members[0]
    assert isinstance(first, nn.Linear)
    assert isinstance(relu, nn.ReLU)
    x = module.encode(frame).numpy().astype(float)
    hidden = np.maximum(x @ first.weight.numpy().T + first.bias.numpy(), 0)
    z = hidden @ last.weight.numpy()[0] + last.bias.numpy()[0]
    np.testing.assert_allclose(answer(module, frame), 1 / (1 + np.exp(-z)), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", sorted({*KINDS} - {"personal"}))
def test_its_state_is_all_it_computes_with(predictors, kind):
    """Through safetensors into a module whose numbers were all lost."""
    module, frame = predictors[kind].to_module(), fed.people()
    data = save_tensors(module.state_dict())
    empty = copy.deepcopy(module)
    for tensor in empty.state_dict().values():
        tensor.zero_()
    assert not np.array_equal(answer(empty, frame), answer(module, frame))
    empty.load_state_dict(load_tensors(data))
    assert answer(empty, frame).tobytes() == answer(module, frame).tobytes()


def test_it_answers_only_until_somebody_trains_it(predictors):
    module = predictors["own"].to_module()
    x = module.encode(fed.people())
    assert not module.training
    assert not module(x).requires_grad
    assert module.requires_grad_()(x).requires_grad


@pytest.mark.slow
def test_it_can_be_exported(predictors):
    module = predictors["ensemble"].to_module()
    x = module.encode(fed.people())
    exported = torch.export.export(module, (x,))
    torch.testing.assert_close(exported.module()(x), module(x))


@pytest.mark.parametrize(
    ("kind", "call", "message"),
    [
        ("personal", {}, "each client has a model of its own: give client=, one of: east, north"),
        ("personal", {"client": "nroth"}, "unknown client 'nroth': did you mean 'north'"),
        ("fedavg", {"client": "north"}, "client 'north': this run serves all clients alike"),
    ],
)
def test_whose_module_must_be_clear(predictors, kind, call, message):
    with pytest.raises(DataError, match=message) as caught:
        predictors[kind].to_module(**call)
    one_line(caught)


def test_thresholds_need_the_group(predictors):
    module = predictors["thresholds"].to_module()
    with pytest.raises(DataError, match=r"threshold for each group: module\(x, module.cells"):
        module(module.encode(fed.people()))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5), st.integers(-2, 2))
def test_thresholds_in_float32_let_the_same_scores_pass(values, steps):
    exact = np.array([values])
    rounded = _rounded_up(exact).numpy()
    z = exact.astype(np.float32)
    for _ in range(abs(steps)):
        z = np.nextafter(z, np.float32(np.copysign(np.inf, steps)))
    np.testing.assert_array_equal(z >= rounded, z.astype(np.float64) >= exact)
