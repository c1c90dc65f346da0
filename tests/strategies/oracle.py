"""Slow, plain, centralised loops for every method: one example at a time, sharing no code with the strategies."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def gradients(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Each example's gradient, flattened: `[N, P]`."""
    rows = []
    for x_i, y_i in zip(x, y, strict=True):
        loss = nn.functional.cross_entropy(model(x_i[None]), y_i[None])
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))]))
    return torch.stack(rows)


def train(method: str, model: nn.Module, x: Tensor, y: Tensor, group: Tensor, *, groups: int, steps: int, lr: float,
          clip: float, bound: float, tau: float, eta: float, bounds: str = "paper") -> Tensor:
    """Parameters after `steps` full-batch steps without noise, flattened."""
    n_all = len(x)
    z = bound
    for _ in range(steps):
        g = gradients(model, x, y)
        total = torch.zeros_like(g[0])
        norms = [float(row.norm()) for row in g]
        clip_of = dict.fromkeys(range(groups), clip)
        if method == "dpsgd-f":
            above = {k: sum(n > clip for n, a in zip(norms, group, strict=True) if a == k) for k in range(groups)}
            size = {k: sum(1 for a in group if a == k) for k in range(groups)}
            share = {k: above[k] / size[k] if size[k] else 1.0 for k in range(groups)}
            mean = sum(share.values()) / groups
            overall = max(sum(above.values()), 1) / n_all
            clip_of = {k: clip * (1 + share[k] / (overall if bounds == "paper" else mean)) for k in range(groups)}
        for row, n, a in zip(g, norms, group.tolist(), strict=True):
            if method == "sgd":
                total += row / n_all
            elif method in ("dpsgd", "dpsgd-f"):
                total += row * min(1, clip_of[a] / n) / n_all
            elif method == "naive":
                size_of_group = sum(1 for b in group if b == a)
                total += row * (n_all / groups / max(size_of_group, 1)) * min(1, clip / n) / n_all
            elif method == "dpsgd-global":
                total += row * (clip / z if n <= z else 0) / n_all
            elif method == "dpsgd-global-adapt":
                total += row * (clip / z if n <= z else clip / n) / n_all
            elif method == "gs-dp-sgd":
                total += row * min(1, clip / n) / sum(1 for b in group if b == a) / groups
        if method == "dpsgd-global-adapt":
            z = z * math.exp(-eta + sum(n > tau * z for n in norms) / n_all)
        with torch.no_grad():
            offset = 0
            for p in model.parameters():
                p -= lr * total[offset : offset + p.numel()].view_as(p)
                offset += p.numel()
    return torch.cat([p.detach().flatten() for p in model.parameters()])
