"""FairLens as Algorithm 4 of Esipova et al. 2023 writes it: a centralised loop, and autograd of the penalty itself."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def penalty(model: nn.Module, x: Tensor, y: Tensor, group: Tensor, clip: float, gamma1: float, gamma2: float) -> Tensor:
    """Compute gamma1 R1 + gamma2 R2 of a batch, a function of the parameters: every gradient keeps its graph."""
    parameters = list(model.parameters())
    rows, clipped = [], []
    for x_i, y_i in zip(x, y, strict=True):
        loss = nn.functional.cross_entropy(model(x_i[None]), y_i[None])
        g = torch.cat([part.flatten() for part in torch.autograd.grad(loss, parameters, create_graph=True)])
        rows.append(g)
        clipped.append(g * torch.clamp(clip / g.norm(), max=1.0))
    probability = model(x).softmax(1)[:, 1]
    total = torch.zeros((), dtype=x.dtype)
    for k in (0, 1):
        if bool((group == k).any()):
            f = probability[group == k].mean()
            total = total + gamma2 * f * (1 - f) / 2
    if len(set(group.tolist())) == 2:
        g = torch.stack(rows)
        difference = g[group == 0].mean(0) - g[group == 1].mean(0)
        distortion = torch.stack(clipped).mean(0) - g.mean(0)
        total = total + gamma1 * (difference @ distortion).abs()
    return total


def clipped_sum(model: nn.Module, x: Tensor, y: Tensor, group: Tensor, clip: float, gamma1: float = 1.0,
                gamma2: float = 1.0) -> Tensor:
    """Compute the sum over a batch of the clipped `g_i + r`, flattened."""
    parameters = list(model.parameters())
    r = torch.autograd.grad(penalty(model, x, y, group, clip, gamma1, gamma2), parameters, allow_unused=True,
                            materialize_grads=True)
    shift = torch.cat([part.flatten() for part in r])
    total = torch.zeros_like(shift)
    for x_i, y_i in zip(x, y, strict=True):
        loss = nn.functional.cross_entropy(model(x_i[None]), y_i[None])
        g = torch.cat([part.flatten() for part in torch.autograd.grad(loss, parameters)]) + shift
        total += g * min(1.0, clip / float(g.norm()))
    return total


def train(model: nn.Module, x: Tensor, y: Tensor, group: Tensor, *, steps: int, lr: float, clip: float,
          gamma1: float = 1.0, gamma2: float = 1.0) -> Tensor:
    """Return the parameters after `steps` full-batch steps without noise, flattened."""
    for _ in range(steps):
        total = clipped_sum(model, x, y, group, clip, gamma1, gamma2)
        with torch.no_grad():
            offset = 0
            for p in model.parameters():
                p -= lr * total[offset : offset + p.numel()].view_as(p) / len(x)
                offset += p.numel()
    return torch.cat([p.detach().flatten() for p in model.parameters()])
