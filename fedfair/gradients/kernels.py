"""Faster products, activations and memory for small layers on a CPU.

Products of matrices in single precision on a processor, by oneDNN where it is faster.

torch multiplies with MKL, which uses half the width of AVX-512 on processors that are not Intel's. oneDNN, which torch
uses for convolutions, uses all of it: an EPYC multiplies twice as fast. torch's public switch to oneDNN also rounds to
bfloat16 where a processor has AMX; the operation used here, that of `torch.compile`, does not round.

tanh computed from the sigmoid, which PyTorch computes about three times as fast on a CPU.

Freed memory that a process keeps from one step to the next.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_AVAILABLE = torch.backends.cpu.get_cpu_capability() == "AVX512" and hasattr(torch.ops.mkldnn, "_linear_pointwise")
_LEAST_NUMBERS, _LEAST_WIDTH = 2**21, 8  # multiplications, and sides of a matrix, that are worth a call
_BLOCK = 16  # oneDNN prepares anew for each number of rows, so batches are padded to few sizes


def product(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `F.linear`: `rows weight' + bias` `[m, n]` for rows `[m, k]`, a weight `[n, k]` and a bias `[n]`."""
    if not _is_faster(rows, weight):
        return F.linear(rows, weight, bias)
    if torch.is_grad_enabled() and any(part is not None and part.requires_grad for part in (rows, weight, bias)):
        products: Tensor = _Product.apply(rows, weight, bias)  # type: ignore[no-untyped-call]
        return products
    return _multiply(rows, weight, bias)


def sum_of_outer_products(left: Tensor, right: Tensor) -> Tensor:
    """Return `sum_i left_i right_i'`, or `left' right`: `[n, k]` for rows `[m, n]` and `[m, k]`."""
    if not _is_faster(left.t(), right.t()):
        return left.t() @ right
    if right.shape[1] < left.shape[1]:  # the left one is copied
        return sum_of_outer_products(right, left).t().contiguous()
    return product(_filled(left).t(), _filled(right).t())


class FastLinear(TorchFunctionMode):
    """Context in which every `F.linear`, and so every `nn.Linear`, is `product`."""

    def __torch_function__(self, function: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (),
                           kwargs: Mapping[str, Any] | None = None) -> Any:
        """Call `function`, or `product` in place of `F.linear`."""
        return (product if function is F.linear else function)(*args, **(kwargs or {}))


class _Product(torch.autograd.Function):
    """`product` by oneDNN; its gradients are such products, and can be differentiated again."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """See `product`."""
        ctx.save_for_backward(rows, weight)
        return _multiply(rows, weight, bias)

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients with respect to the inputs that need one."""
        rows, weight = ctx.saved_tensors
        of_rows, of_weight, of_bias = ctx.needs_input_grad
        return (product(slopes, weight.t()) if of_rows else None,
                sum_of_outer_products(slopes, rows) if of_weight else None,
                slopes.sum(0) if of_bias else None)


def _multiply(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute `product` by oneDNN."""
    products: Tensor = torch.ops.mkldnn._linear_pointwise(_filled(rows), weight, bias, "none", [], "")
    return products.resize_(len(rows), len(weight))  # a view could not be overwritten by the next layer


def _filled(rows: Tensor) -> Tensor:
    """Pad the rows with zeros to a multiple of `_BLOCK`."""
    missing = -len(rows) % _BLOCK
    return F.pad(rows, (0, 0, 0, missing)) if missing else rows


def _is_faster(rows: Tensor, weight: Tensor) -> bool:
    """Say whether oneDNN can multiply rows `[m, k]` by a weight `[n, k]`, and does so faster than MKL."""
    return (_AVAILABLE and rows.dim() == weight.dim() == 2 and rows.dtype == weight.dtype == torch.float32
            and rows.device.type == weight.device.type == "cpu"
            and len(rows) * weight.numel() >= _LEAST_NUMBERS and min(*rows.shape, *weight.shape) >= _LEAST_WIDTH)


_MINUS_ONE = torch.tensor(-1.0)


class Tanh(nn.Module):
    """`tanh x = 2 / (1 + exp(-2x)) - 1`, for a tensor of any shape, within two units of rounding of 1.

    `torch.tanh` is exact to the last bit, also near 0, but takes a fifth of a private step of a convolutional network.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Map `[...]` to `[...]`; devices other than CPUs use their own tanh, which is fast."""
        if x.device.type != "cpu":
            return torch.tanh(x)
        values: Tensor = _BySigmoid.apply(x)  # type: ignore[no-untyped-call]
        return values


class _BySigmoid(torch.autograd.Function):
    """The sum, sigmoid and product as one operation with the derivative of tanh: a third of their passes."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        """Map `[...]` to `[...]`."""
        values = (x + x).sigmoid_()
        return torch.add(_MINUS_ONE, values, alpha=2, out=values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        """Save the output: the derivatives are functions of it."""
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Return `(1 - tanh^2 x)` times the gradient; can be differentiated again."""
        slopes: Tensor = torch.ops.aten.tanh_backward(gradient, *ctx.saved_tensors)
        return slopes

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None], x: Tensor) -> tuple[Tensor, int | None]:
        """Apply to a batch as to any tensor: the function is elementwise."""
        return _BySigmoid.apply(x), in_dims[0]  # type: ignore[no-untyped-call]

    jvp = backward  # the Jacobian is diagonal, so forward mode multiplies by the same numbers


_BySigmoid.forward.__signature__ = signature(_BySigmoid.forward)  # type: ignore[attr-defined]
"""Read at every call: reading it off the function takes longer than the function on a small layer."""


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt, malloc.h
_LARGEST_BLOCK, _MOST_FREE = 2**30, 2**31 - 1  # bytes


@cache
def keep_freed() -> None:
    """Have the C library keep freed memory for as long as the process lives; a second call changes nothing.

    Every step needs blocks of the same sizes again. By default glibc returns freed blocks of some MiB to the system
    (mallopt(3)), which then clears every page anew when it is touched: up to a third of a private step of a
    convolutional network. Blocks of over 1 GiB, and free memory beyond 2 GiB, are returned as before. Does nothing if
    the C library is not glibc, or refuses.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK)
        mallopt(_TRIM_THRESHOLD, _MOST_FREE)


def give_back() -> None:
    """Return freed memory to the system after all: what many records needed, and nothing else will.

    Arrow keeps some of its own. Does nothing of the C library's if that is not glibc.
    """
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
