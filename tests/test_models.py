"""Models against `torch.autograd` on an nn.Sequential of the same weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mfairfl.errors import ConfigError
from mfairfl.models import MLP, ModuleModel, Workspace, logistic

SHAPES = st.sampled_from([(), (2,), (4,), (5, 3), (32, 32), (7, 2, 9)])


def sequential(inputs, hidden):
    layers, width = [], inputs
    for units in hidden:
        layers += [nn.Linear(width, units), nn.ReLU()]
        width = units
    return nn.Sequential(*layers, nn.Linear(width, 1))


def linears(module):
    return [part for part in module if isinstance(part, nn.Linear)]


def filled(model, flat):
    """An nn.Sequential in float64 with the weights of an MLP's flat vector."""
    module, at = sequential(model.inputs, model.hidden).double(), 0
    flat = torch.as_tensor(flat).double()
    for layer in linears(module):
        size = layer.weight.numel()
        matrix = flat[at : at + size].reshape(layer.in_features, layer.out_features)
        layer.weight.data = matrix.T.clone()
        layer.bias.data = flat[at + size : at + size + layer.out_features].clone()
        at += size + layer.out_features
    assert at == model.size
    return module


def flat_gradient(module):
    parts = [t for layer in linears(module) for t in (layer.weight.grad.T, layer.bias.grad)]
    return torch.cat([part.reshape(-1) for part in parts])


def random_stack(model, stack, batch, seed):
    rng = np.random.default_rng(seed)
    weights = torch.tensor(np.stack([model.init(rng) for _ in range(stack)]))
    inputs = torch.tensor(rng.normal(size=(stack, batch, model.inputs)), dtype=torch.float32)
    slopes = torch.tensor(rng.normal(size=(stack, batch)) / batch, dtype=torch.float32)
    return weights, inputs, slopes


def exact_stack(model, stack, batch, seed):
    """Small multiples of ¼: every sum and product of a pass is exact, in float32 as in float64."""
    rng = np.random.default_rng(seed)
    shapes = (stack, model.size), (stack, batch, model.inputs), (stack, batch)
    weights, inputs, slopes = (rng.integers(-3, 4, size=shape) for shape in shapes)
    parts = weights / 4, inputs, slopes / 4
    return tuple(torch.tensor(part, dtype=torch.float32) for part in parts)


def autograd(model, flat, rows, slopes):
    module = filled(model, flat)
    logits = module(rows.double()).squeeze(1)
    logits.backward(slopes.double())
    return logits.detach(), flat_gradient(module)


@settings(max_examples=30, deadline=None)
@given(
    inputs=st.integers(1, 20),
    hidden=SHAPES,
    stack=st.integers(1, 4),
    batch=st.integers(1, 70),
    seed=st.integers(0),
)
def test_forward_and_pullback_equal_autograd_exactly(inputs, hidden, stack, batch, seed):
    model = MLP(inputs, hidden)
    weights, rows, slopes = exact_stack(model, stack, batch, seed)
    logits, pullback = model.forward(weights, rows)
    gradient = pullback(slopes, torch.full((stack, model.size + 3), 9.0))
    assert (gradient[:, model.size :] == 9.0).all()  # what lies beyond the weights is not ours
    for i in range(stack):
        expected, slope = autograd(model, weights[i], rows[i], slopes[i])
        assert torch.equal(logits[i].double(), expected)
        assert torch.equal(gradient[i, : model.size].double(), slope)


@pytest.mark.parametrize("hidden", [(), (4,), (32, 32, 32, 32)])
def test_forward_and_pullback_equal_autograd_on_real_numbers(hidden):
    model = MLP(13, hidden)
    weights, rows, slopes = random_stack(model, 3, 64, seed=1)
    logits, pullback = model.forward(weights, rows)
    gradient = pullback(slopes, torch.zeros(3, model.size))
    for i in range(3):
        expected, slope = autograd(model, weights[i], rows[i], slopes[i])
        torch.testing.assert_close(logits[i].double(), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(gradient[i].double(), slope, rtol=1e-5, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    numbers=st.integers(0, 9),
    levels=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    hidden=SHAPES,
    stack=st.integers(1, 4),
    batch=st.integers(1, 70),
    seed=st.integers(0),
)
def test_codes_equal_autograd_on_the_one_hot_rows_exactly(
    numbers, levels, hidden, stack, batch, seed
):
    model, rng = MLP(numbers + sum(levels), hidden), np.random.default_rng(seed)
    weights, rows, slopes = exact_stack(model, stack, batch, seed)
    first = numbers + np.cumsum([0, *levels[:-1]])
    codes = first + rng.integers(0, levels, size=(stack, batch, len(levels)))
    codes[rng.random(codes.shape) < 0.1] = -1
    rows[:, :, numbers:] = 0
    for s, b, j in np.ndindex(*codes.shape):
        if codes[s, b, j] >= 0:
            rows[s, b, codes[s, b, j]] = 1
    held = rows[:, :, :numbers].contiguous(), torch.tensor(codes, dtype=torch.int32)
    logits, pullback = model.forward(weights, held[0], codes=held[1])
    gradient = pullback(slopes, torch.full((stack, model.size + 3), 9.0))
    assert (gradient[:, model.size :] == 9.0).all()
    for i in range(stack):
        expected, slope = autograd(model, weights[i], rows[i], slopes[i])
        assert torch.equal(logits[i].double(), expected)
        assert torch.equal(gradient[i, : model.size].double(), slope)


def test_hand_computed_network():
    # Two inputs, two units: h = relu([x1 − x2, x2]), z = 2·h1 + 3·h2 − 1.
    model = MLP(2, (2,))
    weights = torch.tensor([[1.0, 0, -1, 1, 0, 0, 2, 3, -1]])
    logits, pullback = model.forward(weights, torch.tensor([[[3.0, 1.0], [1.0, 2.0]]]))
    assert logits.tolist() == [[2 * 2 + 3 * 1 - 1, 0 + 3 * 2 - 1]]
    gradient = pullback(torch.tensor([[1.0, 10.0]]), torch.empty(1, model.size))
    # Row 2 does not reach unit 1 (its input is −1): only row 1 moves that unit's weights.
    w11, w21, b1 = 3 * 2, 1 * 2, 2
    w12, w22, b2 = 3 * 3 + 10 * 1 * 3, 1 * 3 + 10 * 2 * 3, 3 + 30
    head = [2 * 1 + 0 * 10, 1 * 1 + 2 * 10, 11]
    assert gradient.tolist() == [[w11, w12, w21, w22, b1, b2, *head]]


@settings(max_examples=20, deadline=None)
@given(hidden=SHAPES, seed=st.integers(0))
def test_a_workspace_that_shrinks_and_grows_changes_no_bit(hidden, seed):
    model, workspace = MLP(6, hidden), Workspace()
    for stack, batch in [(3, 64), (2, 64), (1, 32), (4, 64), (2, 32)]:
        weights, rows, slopes = random_stack(model, stack, batch, seed + stack)
        results = []
        for kept in (workspace, None):
            logits, pullback = model.forward(weights, rows, kept)
            results.append((logits.clone(), pullback(slopes, torch.zeros(stack, model.size))))
        assert torch.equal(results[0][0], results[1][0])
        assert torch.equal(results[0][1], results[1][1])


@pytest.mark.parametrize("hidden", [(), (4,), (32, 32, 32, 32)])
def test_size_is_the_number_of_parameters(hidden):
    assert MLP(11, hidden).size == sum(p.numel() for p in sequential(11, hidden).parameters())


def test_initial_weights_follow_pytorch_layer_by_layer():
    model = MLP(100, (400, 50))
    module = filled(model, model.init(np.random.default_rng(0)))
    for layer in linears(module)[:2]:
        bound = layer.in_features**-0.5
        drawn = torch.cat([layer.weight.data.reshape(-1), layer.bias.data])
        assert drawn.abs().max() <= bound * (1 + 1e-6)
        # 20 000 uniform draws: the mean is within 5 standard errors of 0, the variance bound²/3.
        assert abs(drawn.mean()) < 5 * bound / (3 * len(drawn)) ** 0.5
        assert float(drawn.var()) == pytest.approx(bound**2 / 3, rel=0.05)


def test_initial_weights_depend_on_the_stream_alone():
    model = MLP(3, (4,))
    a, b, c = (model.init(np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert a.dtype == np.float32
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


@pytest.mark.parametrize("hidden", [(), (4, 4)])
def test_constant_weights_ignore_the_input(hidden):
    model = MLP(3, hidden)
    weights = torch.tensor(model.constant(-1.25)).unsqueeze(0)
    logits, _ = model.forward(weights, torch.randn(1, 8, 3, generator=torch.manual_seed(0)))
    assert logits.tolist() == [[-1.25] * 8]


def test_logistic_is_the_closed_form():
    # z = w·x + b and ∂/∂w = Σ dz·x.
    model = logistic(2)
    weights, rows = torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[[1.0, 3.0], [4.0, 2.0]]])
    logits, pullback = model.forward(weights, rows)
    assert logits.tolist() == [[-0.5, 6.5]]
    assert pullback(torch.tensor([[1.0, 2.0]]), torch.empty(1, 3)).tolist() == [[9.0, 7.0, 3.0]]


def test_the_description_rebuilds_the_model():
    record = MLP(7, (4, 3)).describe()
    assert record == {"kind": "mlp", "inputs": 7, "hidden": [4, 3]}


@pytest.mark.parametrize(
    ("inputs", "hidden", "words"),
    [(0, (4,), "0 input features"), (3, (4, 1), "layer of 1 units"), (3, (0,), "layer of 0")],
)
def test_impossible_shapes_are_refused_in_one_line(inputs, hidden, words):
    with pytest.raises(ConfigError, match=words) as caught:
        MLP(inputs, hidden)
    assert "\n" not in str(caught.value)


# --- any nn.Module ---------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(hidden=SHAPES, stack=st.integers(1, 3), seed=st.integers(0))
def test_a_module_equals_autograd_on_its_own_weights(hidden, stack, seed):
    mlp, model = MLP(6, hidden), ModuleModel(lambda d: sequential(d, hidden), 6)
    assert model.size == mlp.size
    weights, rows, slopes = exact_stack(mlp, stack, 32, seed)
    modules = [filled(mlp, flat) for flat in weights]
    # nn.Linear keeps (outputs, inputs): the same numbers in the module's own order.
    own = [torch.cat([p.detach().reshape(-1) for p in m.parameters()]) for m in modules]
    with torch.no_grad():  # as the trainer calls it
        logits, pullback = model.forward(torch.stack(own).float(), rows)
        found = pullback(slopes, torch.full((stack, mlp.size + 5), 9.0))
    assert (found[:, mlp.size :] == 9.0).all()
    assert not logits.requires_grad
    expected, pull = mlp.forward(weights, rows)
    assert torch.equal(logits, expected)
    gradient = pull(slopes, torch.zeros(stack, mlp.size))
    for i, module in enumerate(modules):
        module(rows[i].double()).squeeze(1).backward(slopes[i].double())
        theirs = torch.cat([p.grad.reshape(-1) for p in module.parameters()])
        assert torch.equal(found[i, : mlp.size].double(), theirs)
        assert torch.equal(gradient[i].double(), flat_gradient(module))


def test_a_module_may_answer_with_a_flat_vector():
    class Sum(nn.Module):
        def __init__(self, inputs):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(inputs))

        def forward(self, x):
            return (x * self.scale).sum(dim=1)

    model = ModuleModel(Sum, 2)
    logits, pullback = model.forward(torch.tensor([[1.0, 10.0]]), torch.tensor([[[2.0, 3.0]]]))
    assert logits.tolist() == [[32.0]]
    assert pullback(torch.tensor([[1.0]]), torch.zeros(1, 2)).tolist() == [[2.0, 3.0]]


class _FunctionalDropout(nn.Linear):
    def __init__(self, inputs):
        super().__init__(inputs, 1)

    def forward(self, x):
        return super().forward(nn.functional.dropout(x, 0.1))


REFUSED = {
    "running_mean": lambda d: nn.Sequential(nn.Linear(d, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)),
    "other rows": lambda d: nn.Sequential(
        nn.Linear(d, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 1)
    ),
    r"draws random numbers \(Dropout": lambda d: nn.Sequential(nn.Linear(d, 1), nn.Dropout(0.1)),
    "draws random numbers": _FunctionalDropout,
    "no parameters": lambda d: nn.Flatten(),
    r"returned shape \(5, 2\)": lambda d: nn.Linear(d, 2),
    r"returned shape \(\)": lambda d: nn.Sequential(nn.Linear(d, 1), nn.Flatten(0), _Mean()),
    "'weight' is torch.float64; use float32": lambda d: nn.Linear(d, 1).double(),
}


class _Mean(nn.Module):
    def forward(self, x):
        return x.mean()


@pytest.mark.parametrize("words", REFUSED)
def test_modules_that_cannot_be_federated_are_refused_in_one_line(words):
    with pytest.raises(ConfigError, match=words) as caught:
        ModuleModel(REFUSED[words], 3)
    assert "\n" not in str(caught.value)


def test_a_module_has_no_constant_weights():
    with pytest.raises(ConfigError, match="built-in model"):
        ModuleModel(lambda d: nn.Linear(d, 1), 3).constant(0.5)


def test_module_weights_come_from_the_stream_and_leave_torch_alone():
    before = torch.random.get_rng_state()
    model = ModuleModel(lambda d: sequential(d, (4,)), 3)
    a, b, c = (model.init(np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert a.dtype == np.float32
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)
    assert np.abs(a[:16]).max() <= 3**-0.5  # nn.Linear's own bound for 3 inputs
