"""Models as pairs of pure functions on stacks of flat weight vectors.

A stack holds S models of one shape: weights (S, m), inputs (S, B, d), logits (S, B). `forward`
returns the logits and a *pullback* that turns ∂objective/∂logits into ∂objective/∂weights. The
objective itself lives in the trainer: every method of the project differs only there.

`MLP` spells out its backward pass: for these small nets automatic differentiation costs more than
the matrix products. `mfairfl.models.ModuleModel` accepts any `torch.nn.Module`.

Bit-equality: a model's numbers must not depend on the stack it is in. Batched products and
row-wise sums obey that for any stack size, except a product with a single column, which takes
another kernel when alone; the head therefore multiplies and sums, and a hidden layer has at least
two units.

A categorical column of many levels is held as codes, the indices of its ones: to multiply by it is
to look up a row of the matrix, and its gradient is a sum over the rows that name each input. A
client's numbers depend on its own rows and their order alone there as well.
"""

import copy
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from mfairfl.errors import ConfigError

Pullback = Callable[[Tensor, Tensor], Tensor]
"""pullback(dlogits (S, B), out (S, m)) fills and returns `out` with the weights' gradients."""

Key = tuple[str, int]
"""Names a buffer: what it holds, and of which layer."""

_VECTOR = 16  # float32 numbers in 64 bytes: the alignment of torch's memory


@dataclass(frozen=True, slots=True)
class _Part:
    """Views of one layer's matrix and bias in a stack of weights.

    `matrix` (S, numbers, outputs) multiplies the inputs that are numbers: all but in a first layer
    of inputs that are held as codes, which look up rows of `rows` (S, inputs, outputs).
    """

    matrix: Tensor
    bias: Tensor
    transposed: Tensor
    bias_row: Tensor
    rows: Tensor


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

    def part(self, flat: Tensor, numbers: int) -> _Part:
        """Return this layer's part of a (S, m) stack, for inputs of which so many are numbers."""
        rows = flat[:, self.start : self.bias].view(len(flat), self.inputs, self.outputs)
        matrix, bias = rows[:, :numbers], flat[:, self.bias : self.stop]
        return _Part(matrix, bias, matrix.transpose(1, 2), bias.unsqueeze(1), rows)


class Workspace:
    """Memory that is asked for again and again: new memory costs more than most sums over it.

    Examples
    --------
    >>> workspace = Workspace()
    >>> large = workspace.buffer(("activation", 0), (3, 8))
    >>> small = workspace.buffer(("activation", 0), (2, 8))
    >>> small.shape, small.data_ptr() == large.data_ptr()
    (torch.Size([2, 8]), True)
    """

    def __init__(self) -> None:
        self._memory: dict[Key, Tensor] = {}
        self._views: dict[tuple[Key, tuple[int, ...]], Tensor] = {}
        self._parts: dict[tuple[str, int], tuple[Tensor, list[_Part]]] = {}

    def buffer(self, key: Key, shape: tuple[int, ...]) -> Tensor:
        """Return memory of this shape, with whatever was last written under the key."""
        view = self._views.get((key, shape))
        if view is None:
            size, memory = math.prod(shape), self._memory.get(key)
            if memory is None or memory.numel() < size:
                memory = self._memory[key] = torch.empty(size)
                self._views = {k: v for k, v in self._views.items() if k[0] != key}
            view = self._views[key, shape] = memory[:size].view(shape)
        return view

    def parts(
        self, name: str, flat: Tensor, layers: Sequence[_Layer], numbers: int
    ) -> list[_Part]:
        """Return the layers' parts of a stack, the same views while it is the same tensor."""
        key = name, numbers
        if key not in self._parts or self._parts[key][0] is not flat:
            first, *others = layers
            parts = [first.part(flat, numbers), *(o.part(flat, o.inputs) for o in others)]
            self._parts[key] = flat, parts
        return self._parts[key][1]


def _batched_product(
    left: Tensor, right: Tensor, out: Tensor, workspace: Workspace, layer: int
) -> None:
    """Write left @ right into `out`, the slices of a weight stack."""
    if out.shape[1] * out.shape[2] % _VECTOR:
        # Packed results would start off the vector boundary, each differently: other last bits.
        for a, b, product in zip(left, right, out, strict=True):
            torch.mm(a, b, out=product)
    else:
        # A product into a strided slice leaves the batched kernel; copying is cheaper.
        packed = workspace.buffer(("matrix", layer), tuple(out.shape))
        out.copy_(torch.bmm(left, right, out=packed))


@dataclass(frozen=True)
class MLP:
    """Multi-layer perceptron with ReLU layers and one logit.

    Parameters
    ----------
    inputs : int
        Number of encoded features.
    hidden : tuple of int
        Widths of the hidden layers, at least 2 each; `()` is logistic regression.

    Examples
    --------
    >>> model = MLP(inputs=3, hidden=(4,))
    >>> model.size  # 3·4 + 4 weights and biases, then 4 + 1
    21
    """

    inputs: int
    hidden: tuple[int, ...] = (64, 64)

    def __post_init__(self) -> None:
        if self.inputs < 1:
            raise ConfigError(f"model: {self.inputs} input features; at least 1 is needed")
        for width in self.hidden:
            if width < 2:
                raise ConfigError(
                    f"model.hidden: a layer of {width} units in {list(self.hidden)}; "
                    "give every hidden layer at least 2, or none at all"
                )

    @cached_property
    def _layers(self) -> tuple[_Layer, ...]:
        layers: list[_Layer] = []
        for inputs, outputs in pairwise((self.inputs, *self.hidden, 1)):
            layers.append(_Layer(inputs, outputs, layers[-1].stop if layers else 0))
        return tuple(layers)

    @property
    def size(self) -> int:
        """Number of weights."""
        return self._layers[-1].stop

    @property
    def rows_stand_alone(self) -> bool:
        """Whether a row's logit has the same bits at any place of a block, beside any others.

        So it is where a layer's outputs fill whole vectors. What is left over beyond them is
        computed by other kernels, and which one a row gets depends on where it stands.
        """
        return all(width % _VECTOR == 0 for width in self.hidden)

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """Draw weights and biases from U(−1/√fan_in, 1/√fan_in), PyTorch's default."""
        sizes = [(layer.stop - layer.start, layer.inputs) for layer in self._layers]
        parts = [rng.uniform(-1, 1, size) / np.sqrt(fan_in) for size, fan_in in sizes]
        return np.concatenate(parts).astype(np.float32)

    def constant(self, logit: float) -> np.ndarray:
        """Return all-zero weights with the head's bias at `logit`."""
        weights = np.zeros(self.size, dtype=np.float32)
        weights[-1] = logit
        return weights

    def forward(
        self,
        weights: Tensor,
        inputs: Tensor,
        workspace: Workspace | None = None,
        codes: Tensor | None = None,
    ) -> tuple[Tensor, Pullback]:
        """Return logits (S, B) and the pullback; with a workspace, its buffers are reused.

        The inputs are (S, B, d). With codes, int32 (S, B, g), they are the first ones only: of
        the others those are 1 that the codes name, and all else is 0.
        """
        workspace = workspace or Workspace()
        stack, batch, numbers = inputs.shape
        *hidden, head = workspace.parts("weights", weights, self._layers, numbers)
        activations = [inputs]
        for i, part in enumerate(hidden):
            out = workspace.buffer(("activation", i), (stack, batch, part.matrix.shape[2]))
            torch.baddbmm(part.bias_row, activations[-1], part.matrix, out=out)
            if codes is not None and i == 0:
                add_looked_up(out, part.rows, codes)
            activations.append(out.relu_())
        last = activations[-1]
        product = workspace.buffer(("head", 0), tuple(last.shape))
        torch.mul(last, head.transposed, out=product)
        logits = product.sum(dim=2).add_(head.bias)
        if codes is not None and not hidden:
            add_looked_up(logits.unsqueeze(2), head.rows, codes)

        def pullback(dlogits: Tensor, out: Tensor) -> Tensor:
            slopes = workspace.parts("gradient", out, self._layers, numbers)
            column, top = dlogits.unsqueeze(2), slopes[-1]
            torch.mul(last, column, out=product)
            torch.sum(product, dim=1, keepdim=True, out=top.transposed)
            torch.sum(dlogits, dim=1, keepdim=True, out=top.bias)
            upper = column
            if hidden:
                upper = torch.mul(column, head.transposed, out=product)
            for i in range(len(hidden) - 1, -1, -1):
                # ReLU passes the gradient where its output was positive; in place on purpose.
                torch.ops.aten.threshold_backward.grad_input(
                    upper, activations[i + 1], 0, grad_input=upper
                )
                below = activations[i].transpose(1, 2)
                _batched_product(below, upper, slopes[i].matrix, workspace, i)
                torch.sum(upper, dim=1, out=slopes[i].bias)
                if i:
                    lower = workspace.buffer(("gradient", i), tuple(activations[i].shape))
                    upper = torch.bmm(upper, hidden[i].transposed, out=lower)
            if codes is not None:  # `upper` is the gradient of what the first layer returns
                named = sums_by_code(upper, codes, numbers, self.inputs)
                slopes[0].rows[:, numbers:].copy_(named)
            return out

        return logits, pullback

    def to_module(self, weights: np.ndarray) -> nn.Module:
        """Return one model as linear layers with ReLU between them.

        Examples
        --------
        >>> model = MLP(inputs=3, hidden=(4,))
        >>> model.to_module(model.constant(0.5))(torch.zeros(2, 3)).tolist()
        [[0.5], [0.5]]
        """
        flat, modules = torch.tensor(weights, dtype=torch.float32).unsqueeze(0), []
        for layer in self._layers:
            part = layer.part(flat, layer.inputs)
            linear = nn.Linear(layer.inputs, layer.outputs, device="meta")  # draws no numbers
            linear.weight = nn.Parameter(part.transposed[0].contiguous())
            linear.bias = nn.Parameter(part.bias[0].clone())
            modules += [linear, nn.ReLU()]
        return nn.Sequential(*modules[:-1])

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
    would tie a client's trajectory to the stack it is in. So are layers that mix the rows of a
    batch: batches are padded.

    Examples
    --------
    >>> ModuleModel(lambda inputs: nn.Linear(inputs, 1), inputs=3).size
    4
    """

    def __init__(self, factory: Callable[[int], nn.Module], inputs: int) -> None:
        self._factory = factory
        self.inputs = inputs
        self._module, self._threads = self._build(0), threading.local()
        _check_parameters(self._module)
        self._shapes = {name: p.shape for name, p in self._module.named_parameters()}
        self.size = sum(shape.numel() for shape in self._shapes.values())
        _check_output(self._module, inputs)

    rows_stand_alone = False  # nothing is known of a module's arithmetic

    def _build(self, seed: int) -> nn.Module:
        # torch draws initial weights from its global generator: use it on loan, put it back.
        with torch.random.fork_rng(devices=[]):
            torch.random.manual_seed(seed)
            try:
                module = self._factory(self.inputs)
            except TypeError as error:
                reason = " ".join(str(error).split())
                raise ConfigError(
                    f"model: the factory cannot be called with the number of inputs ({reason})"
                ) from error
        if not isinstance(module, nn.Module):
            raise ConfigError(
                f"model: the factory returned a {type(module).__name__}, not a torch.nn.Module"
            )
        return module

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the module's own initial weights from `rng`, float32 (m,)."""
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

    def _own_module(self) -> nn.Module:
        """Return this thread's module: while it is called, it holds the weights of one model."""
        if not hasattr(self._threads, "module"):
            self._threads.module = copy.deepcopy(self._module)
        module: nn.Module = self._threads.module
        return module

    def forward(
        self,
        weights: Tensor,
        inputs: Tensor,
        workspace: Workspace | None = None,
        codes: Tensor | None = None,
    ) -> tuple[Tensor, Pullback]:
        """Return logits (S, B) and the pullback, as `MLP.forward` does; the workspace is not used.

        The module gets every input as a number.
        """
        del workspace
        if codes is not None:
            inputs = with_one_hot(inputs, codes, self.inputs)
        module = self._own_module()
        flats = [flat.detach().requires_grad_() for flat in weights[:, : self.size]]
        with torch.enable_grad():
            each = [
                torch.func.functional_call(module, dict(self._pieces(flat)), (rows,)).flatten()
                for flat, rows in zip(flats, inputs, strict=True)
            ]

        def pullback(dlogits: Tensor, out: Tensor) -> Tensor:
            for i, gradient in enumerate(torch.autograd.grad(each, flats, list(dlogits))):
                out[i, : self.size] = gradient
            return out

        return torch.stack([logits.detach() for logits in each]), pullback

    def to_module(self, weights: np.ndarray) -> nn.Module:
        """Return a module of the factory with these weights.

        Examples
        --------
        >>> model = ModuleModel(lambda inputs: nn.Linear(inputs, 1), inputs=2)
        >>> model.to_module(np.array([1, 2, 3], dtype=np.float32))(torch.ones(1, 2)).item()
        6.0
        """
        module, flat = self._build(0), torch.tensor(weights, dtype=torch.float32)
        with torch.no_grad():
            for name, part in self._pieces(flat):
                module.get_parameter(name).copy_(part)
        return module

    def describe(self) -> dict[str, Any]:
        """Return a description; the factory itself is code and is not stored."""
        return {"kind": "module", "inputs": self.inputs, "size": self.size}


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


Model = MLP | ModuleModel
"""What the trainer trains."""


# ------------------------------------------------------------------ inputs that are held as codes


def add_looked_up(out: Tensor, weights: Tensor, codes: Tensor) -> None:
    """Add to each row of `out` the rows of a matrix that its codes name; negative ones name none.

    Parameters
    ----------
    out : Tensor (S, B, H)
        What is added to.
    weights : Tensor (S, inputs, H)
        A matrix for each of the stack.
    codes : Tensor, int32 (S, B, g)
        Numbers of inputs.

    Examples
    --------
    >>> out, weights = torch.zeros(1, 2, 1), torch.tensor([[[1.0], [10.0], [100.0]]])
    >>> add_looked_up(out, weights, torch.tensor([[[0, 2], [1, -1]]], dtype=torch.int32))
    >>> out.flatten().tolist()
    [101.0, 10.0]
    """
    lacking = (codes.flatten(1).amin(dim=1) < 0).tolist()
    for sums, matrix, inputs, gaps in zip(out, weights, codes, lacking, strict=True):
        if gaps:
            named = inputs >= 0
            counts = named.sum(dim=1, dtype=torch.int32)
            starts = counts.cumsum(0, dtype=torch.int32) - counts
            sums.add_(embedding_bag(inputs[named], matrix, starts, mode="sum"))
        else:
            sums.add_(embedding_bag(inputs, matrix, mode="sum"))


def sums_by_code(rows: Tensor, codes: Tensor, first: int, stop: int) -> Tensor:
    """Add up the rows that name each input first … stop − 1, in their order.

    Parameters
    ----------
    rows : Tensor (S, B, H)
        What is added up.
    codes : Tensor, int32 (S, B, g)
        Numbers of inputs, different ones in a row; negative ones name none.

    Returns
    -------
    Tensor (S, stop − first, H)

    Examples
    --------
    >>> rows = torch.tensor([[[1.0], [10.0], [100.0]]])
    >>> codes = torch.tensor([[[5], [4], [5]]], dtype=torch.int32)
    >>> sums_by_code(rows, codes, 4, 7).flatten().tolist()
    [10.0, 101.0, 0.0]
    """
    stack, batch, _ = codes.shape
    kinds = 1 + stop - first  # kind 0 takes the codes that name nothing
    kind = np.maximum(codes.numpy().astype(np.int64) - (first - 1), 0)
    # Sorted by (kind, row), each in one number: far faster than sorting positions.
    bits = int(batch - 1).bit_length()
    order = (kind << bits | np.arange(batch)[:, None]).reshape(stack, -1)
    order.sort(axis=1)
    order &= (1 << bits) - 1
    order += batch * np.arange(stack)[:, None]
    kind += kinds * np.arange(stack)[:, None, None]
    counts = np.bincount(kind.reshape(-1), minlength=stack * kinds)
    starts = np.cumsum(counts) - counts
    sums = embedding_bag(
        torch.from_numpy(order.reshape(-1)),
        rows.reshape(stack * batch, -1),
        torch.from_numpy(starts),
        mode="sum",
    )
    return sums.view(stack, kinds, -1)[:, 1:]


def with_one_hot(values: Tensor, codes: Tensor, width: int) -> Tensor:
    """Return rows with all their inputs, (S, B, width): the values, then the columns of 0 and 1.

    Examples
    --------
    >>> values, codes = torch.tensor([[[0.5]]]), torch.tensor([[[2, -1]]], dtype=torch.int32)
    >>> with_one_hot(values, codes, 4).tolist()
    [[[0.5, 0.0, 1.0, 0.0]]]
    """
    rows = torch.zeros(*values.shape[:2], width)
    rows[..., : values.shape[2]] = values
    # Where a code names nothing, 0 is added to the first input.
    index = codes.clamp(min=0).to(torch.int64)
    return rows.scatter_add_(2, index, (codes >= 0).to(torch.float32))
