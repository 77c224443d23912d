"""Any `torch.nn.Module` as a model.

The models of a stack are evaluated one after the other with automatic differentiation: a batched
evaluation (`vmap`) takes kernels that depend on the size of the stack, and the last bits with them
(decision 0006).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mfairfl.errors import ConfigError
from mfairfl.models import Pullback, Workspace

__all__ = ["ModuleModel"]


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
    would tie a client's trajectory to the stack it is in. So are layers that mix the rows of a
    batch: batches are padded.

    Examples
    --------
    >>> ModuleModel(lambda inputs: nn.Linear(inputs, 1), inputs=3).size
    4
    """

    def __init__(self, factory: Callable[[int], nn.Module], inputs: int) -> None:
        self._factory = factory
        self._inputs = inputs
        self._module = self._build(0)
        _check_parameters(self._module)
        self._shapes = {name: p.shape for name, p in self._module.named_parameters()}
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
        logits: Tensor = out.reshape(rows.shape[0])
        return logits

    def forward(
        self, weights: Tensor, inputs: Tensor, workspace: Workspace | None = None
    ) -> tuple[Tensor, Pullback]:
        """Return logits (S, B) and the pullback; the workspace is not used."""
        del workspace
        flats = [flat.detach().requires_grad_() for flat in weights[:, : self.size]]
        with torch.enable_grad():
            each = [self._logits(flat, rows) for flat, rows in zip(flats, inputs, strict=True)]

        def pullback(dlogits: Tensor, out: Tensor) -> Tensor:
            for i, gradient in enumerate(torch.autograd.grad(each, flats, list(dlogits))):
                out[i, : self.size] = gradient
            return out

        return torch.stack([logits.detach() for logits in each]), pullback

    def describe(self) -> dict[str, Any]:
        """Return a description; the factory itself is code and is not stored."""
        return {"kind": "module", "inputs": self._inputs, "size": self.size}


def _check_parameters(module: nn.Module) -> None:
    for name, _ in module.named_buffers():
        raise ConfigError(
            f"model: buffer '{name}' cannot be federated (running statistics such as BatchNorm's "
            "have no agreed average); use LayerNorm or GroupNorm"
        )
    parameters = dict(module.named_parameters())
    if not parameters:
        raise ConfigError("model: the module has no parameters to train")
    for name, parameter in parameters.items():
        if parameter.dtype != torch.float32:
            raise ConfigError(f"model: parameter '{name}' is {parameter.dtype}; use float32")


@torch.no_grad()
def _check_output(module: nn.Module, inputs: int) -> None:
    """Try the module on a few rows: one logit each, no chance, no mixing of rows."""
    rows = torch.linspace(-1, 1, 5 * inputs).reshape(inputs, 5).T
    with torch.random.fork_rng(devices=[]):
        before = torch.random.get_rng_state()
        logits = module(rows)
        drawn = not torch.equal(before, torch.random.get_rng_state())
    if drawn:
        raise ConfigError(
            "model: the module draws random numbers (Dropout?), so a client's result would depend "
            "on the others; use weight decay instead"
        )
    shape = tuple(logits.shape)
    if shape not in {(5,), (5, 1)}:
        raise ConfigError(
            f"model: for 5 rows the module returned shape {shape}; one logit per row is needed"
        )
    if not torch.allclose(module(rows[:3]), logits[:3], rtol=1e-3, atol=1e-5):
        raise ConfigError(
            "model: a row's logit changes with the other rows of its batch (BatchNorm?); "
            "use LayerNorm or GroupNorm"
        )
