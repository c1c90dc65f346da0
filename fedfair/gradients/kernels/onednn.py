"""Products of matrices in single precision on a processor, by oneDNN where it is faster.

torch multiplies with MKL, which uses half the width of AVX-512 on processors that are not Intel's. oneDNN, which torch
uses for convolutions, uses all of it: an EPYC multiplies twice as fast. torch's public switch to oneDNN also rounds to
bfloat16 where a processor has AMX; the operation used here, that of `torch.compile`, does not round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
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
