"""Models as pairs of pure functions on stacks of flat weight vectors.

A stack holds S models of one shape: weights (S, m), inputs (S, B, d), logits (S, B). `forward`
returns the logits and a *pullback* that turns ∂objective/∂logits into ∂objective/∂weights. The
objective itself lives in the trainer: every method of the project differs only there.

`MLP` spells out its backward pass: for these small nets automatic differentiation costs more than
the matrix products. `ModuleModel` accepts any `torch.nn.Module` through `torch.func.vmap`.

Bit-equality: a model's numbers must not depend on the stack it is in. Batched products and
row-wise sums obey that for any stack size, except a product with a single column, which takes
another kernel when alone; the head therefore multiplies and sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from mfairfl.errors import ConfigError

__all__ = ["MLP", "Model", "ModuleModel", "Pullback", "Workspace", "logistic"]

Pullback = Callable[[Tensor, Tensor], Tensor]
"""pullback(dlogits (S, B), out (S, m)) fills and returns `out` with the weights' gradients."""

Workspace = dict[tuple[str, int], Tensor]
"""Reusable buffers of a stack; a model fills it as it likes, keyed by name and layer."""


class Model(Protocol):
    """What the trainer needs to know about a model."""

    @property
    def inputs(self) -> int:
        """Number of encoded features d."""

    @property
    def size(self) -> int:
        """Number of weights m."""

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """Draw initial weights, float32 (m,)."""

    def constant(self, logit: float) -> np.ndarray:
        """Return weights whose logit is `logit` for every input."""

    def forward(
        self, weights: Tensor, inputs: Tensor, workspace: Workspace | None = None
    ) -> tuple[Tensor, Pullback]:
        """Return logits (S, B) and the pullback; with a workspace, its buffers are reused."""

    def describe(self) -> dict[str, Any]:
        """Return what a run record must hold to rebuild the model."""


@dataclass(frozen=True, slots=True)
class _Layer:
    inputs: int
    outputs: int
    start: int

    @property
    def bias(self) -> int:
        return self.start + self.inputs * self.outputs

    @property
    def stop(self) -> int:
        return self.bias + self.outputs

    def weight(self, flat: Tensor) -> Tensor:
        """The (S, inputs, outputs) view of this layer's matrix in a (S, m) stack."""
        return flat[:, self.start : self.bias].unflatten(1, (self.inputs, self.outputs))

    def offset(self, flat: Tensor) -> Tensor:
        """The (S, outputs) view of this layer's bias."""
        return flat[:, self.bias : self.stop]


def _buffer(workspace: Workspace | None, key: tuple[str, int], shape: tuple[int, ...]) -> Tensor:
    """Return a buffer of `shape`; a stack that shrank reuses the head of the larger one."""
    if workspace is None:
        return torch.empty(shape)
    kept = workspace.get(key)
    if kept is None or kept.shape[0] < shape[0] or kept.shape[1:] != shape[1:]:
        kept = workspace[key] = torch.empty(shape)
    return kept[: shape[0]]


@dataclass(frozen=True)
class MLP:
    """Multi-layer perceptron with ReLU layers and one logit.

    Parameters
    ----------
    inputs : int
        Number of encoded features.
    hidden : tuple of int
        Widths of the hidden layers; `()` is logistic regression.

    Examples
    --------
    >>> model = MLP(inputs=3, hidden=(4,))
    >>> model.size  # 3·4 + 4 weights and biases, then 4 + 1
    21
    """

    inputs: int
    hidden: tuple[int, ...] = (32, 32, 32, 32)

    @cached_property
    def _layers(self) -> tuple[_Layer, ...]:
        widths = (self.inputs, *self.hidden, 1)
        layers: list[_Layer] = []
        for i, (a, b) in enumerate(zip(widths, widths[1:], strict=False)):
            layers.append(_Layer(a, b, layers[i - 1].stop if i else 0))
        return tuple(layers)

    @property
    def size(self) -> int:
        """Number of weights."""
        return self._layers[-1].stop

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """Draw weights and biases from U(−1/√fan_in, 1/√fan_in), PyTorch's default."""
        parts = [
            rng.uniform(-1, 1, layer.stop - layer.start) / np.sqrt(layer.inputs)
            for layer in self._layers
        ]
        return np.concatenate(parts).astype(np.float32)

    def constant(self, logit: float) -> np.ndarray:
        """Return all-zero weights with the head's bias at `logit`."""
        weights = np.zeros(self.size, dtype=np.float32)
        weights[-1] = logit
        return weights

    def forward(
        self, weights: Tensor, inputs: Tensor, workspace: Workspace | None = None
    ) -> tuple[Tensor, Pullback]:
        """Return logits (S, B) and the pullback (see `Model.forward`)."""
        *hidden, head = self._layers
        stack, batch = inputs.shape[0], inputs.shape[1]
        activations = [inputs]
        for i, layer in enumerate(hidden):
            out = _buffer(workspace, ("activation", i), (stack, batch, layer.outputs))
            bias = layer.offset(weights).unsqueeze(1)
            torch.baddbmm(bias, activations[-1], layer.weight(weights), out=out)
            activations.append(out.relu_())
        last = activations[-1]
        product = _buffer(workspace, ("head", 0), (stack, batch, head.inputs))
        torch.mul(last, head.weight(weights).transpose(1, 2), out=product)
        logits = product.sum(dim=2).add_(head.offset(weights))

        def pullback(dlogits: Tensor, out: Tensor) -> Tensor:
            column = dlogits.unsqueeze(2)
            torch.mul(last, column, out=product)
            head.weight(out).copy_(product.sum(dim=1).unsqueeze(2))
            head.offset(out).copy_(dlogits.sum(dim=1, keepdim=True))
            torch.mul(column, head.weight(weights).transpose(1, 2), out=product)
            upper = product
            for i in range(len(hidden) - 1, -1, -1):
                layer = hidden[i]
                # ReLU passes the gradient where its output was positive; in place on purpose.
                torch.ops.aten.threshold_backward.grad_input(
                    upper, activations[i + 1], 0, grad_input=upper
                )
                # A product written straight into the strided slice is slower than copying it.
                torch.bmm(activations[i].transpose(1, 2), upper, out=layer.weight(out))
                layer.offset(out).copy_(upper.sum(dim=1))
                if i:
                    below = _buffer(workspace, ("gradient", i), (stack, batch, layer.inputs))
                    upper = torch.bmm(upper, layer.weight(weights).transpose(1, 2), out=below)
            return out

        return logits, pullback

    def describe(self) -> dict[str, Any]:
        """Return the record from which the model can be rebuilt."""
        return {"kind": "mlp", "inputs": self.inputs, "hidden": list(self.hidden)}


def logistic(inputs: int) -> MLP:
    """Return logistic regression: an MLP without hidden layers."""
    return MLP(inputs=inputs, hidden=())


class ModuleModel:
    """Any `torch.nn.Module` as a stack of models.

    Parameters
    ----------
    factory : callable
        `factory(inputs) -> nn.Module` mapping (B, inputs) to one logit per row, (B,) or (B, 1).
    inputs : int
        Number of encoded features.

    Notes
    -----
    Modules with buffers (BatchNorm's running statistics) are refused: averaging weights says
    nothing about how to average them. Layers that draw random numbers (Dropout) are refused: they
    would tie a client's trajectory to the stack it is in.
    """

    def __init__(self, factory: Callable[[int], nn.Module], inputs: int) -> None:
        self._factory = factory
        self._inputs = inputs
        self._module = self._build(0)
        _refuse_unstackable(self._module)
        self._shapes = {name: p.shape for name, p in self._module.named_parameters()}
        if any(p.dtype != torch.float32 for p in self._module.parameters()):
            raise ConfigError("model: all parameters must be float32")
        _check_output(self._module, inputs)

    @property
    def inputs(self) -> int:
        """Number of encoded features."""
        return self._inputs

    @property
    def size(self) -> int:
        """Number of weights."""
        return sum(shape.numel() for shape in self._shapes.values())

    def _build(self, seed: int) -> nn.Module:
        # torch draws initial weights from its global generator: use it on loan, put it back.
        with torch.random.fork_rng(devices=[]):
            torch.random.manual_seed(seed)
            return self._factory(self._inputs)

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the module's own initial weights from `rng`."""
        module = self._build(int(rng.integers(2**62)))
        flat = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
        return np.asarray(flat.numpy(), dtype=np.float32)

    def constant(self, logit: float) -> np.ndarray:
        """Refuse: a general module has no known weights with a constant output."""
        raise ConfigError(
            f"strategy 'constant' needs a built-in model (mlp or logistic) to hold logit {logit:g}"
        )

    def _pieces(self, flat: Tensor) -> Iterator[tuple[str, Tensor]]:
        at = 0
        for name, shape in self._shapes.items():
            yield name, flat[at : at + shape.numel()].reshape(shape)
            at += shape.numel()

    def _logits(self, flat: Tensor, rows: Tensor) -> Tensor:
        out = torch.func.functional_call(self._module, dict(self._pieces(flat)), (rows,))
        return out.reshape(rows.shape[0])

    def forward(
        self, weights: Tensor, inputs: Tensor, workspace: Workspace | None = None
    ) -> tuple[Tensor, Pullback]:
        """Return logits (S, B) and the pullback (see `Model.forward`)."""
        used = weights[:, : self.size]
        # A stack of one takes other kernels than a larger one: give it a twin, drop its answer.
        alone = used.shape[0] == 1
        pair = (used.repeat(2, 1), inputs.repeat(2, 1, 1)) if alone else (used, inputs)
        stacked = torch.func.vmap(self._logits)
        logits, vjp = torch.func.vjp(lambda w: stacked(w, pair[1]), pair[0])

        def pullback(dlogits: Tensor, out: Tensor) -> Tensor:
            (gradient,) = vjp(dlogits.repeat(2, 1) if alone else dlogits)
            out[:, : self.size] = gradient[: out.shape[0]]
            return out

        return logits[: inputs.shape[0]].detach(), pullback

    def describe(self) -> dict[str, Any]:
        """Return a description; the factory itself is code and is not stored."""
        return {"kind": "module", "inputs": self._inputs, "size": self.size}


def _refuse_unstackable(module: nn.Module) -> None:
    for name, _ in module.named_buffers():
        raise ConfigError(
            f"model: buffer '{name}' cannot be federated (running statistics such as BatchNorm's "
            "have no agreed average); use LayerNorm or GroupNorm"
        )
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.dropout._DropoutNd):
            raise ConfigError(
                f"model: layer '{name}' draws random numbers, so a client's result would depend "
                "on the others; use weight decay instead of dropout"
            )
    if not any(True for _ in module.parameters()):
        raise ConfigError("model: the module has no parameters to train")


def _check_output(module: nn.Module, inputs: int) -> None:
    with torch.no_grad():
        shape = tuple(module(torch.zeros(3, inputs)).shape)
    if shape not in {(3,), (3, 1)}:
        raise ConfigError(
            f"model: for 3 rows the module returned shape {shape}; one logit per row is needed"
        )
