"""Slow, plain, centralised loops for every method: one example at a time, sharing no code with the strategies."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from fedfair.mechanisms.randomness import generator, normal, poisson, source


def gradients(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return each example's gradient, flattened: `[N, P]`."""
    rows, parameters = [], list(model.parameters())
    for x_i, y_i in zip(x, y, strict=True):
        loss = nn.functional.cross_entropy(model(x_i[None]), y_i[None])
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]))
    return torch.stack(rows)


def train(method: str, model: nn.Module, x: Tensor, y: Tensor, group: Tensor, *, groups: int, steps: int, lr: float,
          clip: float, bound: float, tau: float, eta: float, bounds: str = "paper", weighted: bool = False,
          quantile: float = 0.5, gamma: float = 0.01, max_norm: float = 1.0, late_lr: float = 0.005) -> Tensor:
    """Return the parameters after `steps` full-batch steps without noise, flattened."""
    n_all, members = len(x), group.tolist()
    z = bound
    followed = dict.fromkeys(range(groups), clip)
    for step in range(steps):
        if method == "fair-dp":
            lr = late_lr if step + 1 > 0.9 * steps else lr
            with torch.no_grad():
                last = [p for p in model.parameters() if p.dim() > 1][-1]
                last *= min(1.0, max_norm / float((last * last).sum()) ** 0.5)
        g = gradients(model, x, y)
        total = torch.zeros_like(g[0])
        norms = [float(row.norm()) for row in g]
        clip_of = dict.fromkeys(range(groups), clip)
        if method == "dpsgd-f":
            above = {k: sum(n > clip for n, a in zip(norms, members, strict=True) if a == k) for k in range(groups)}
            size = {k: sum(1 for a in members if a == k) for k in range(groups)}
            share = {k: above[k] / size[k] if size[k] else 1.0 for k in range(groups)}
            mean = sum(share.values()) / groups
            overall = max(sum(above.values()), 1) / n_all if bounds == "paper" else mean or math.inf
            clip_of = {k: clip * (1 + share[k] / overall) for k in range(groups)}
        if method == "dpsgd-f-quantile":
            clip_of = dict(followed)
            for k in range(groups):
                own = [n for n, a in zip(norms, members, strict=True) if a == k]
                m, o = sum(n > clip_of[k] for n in own), sum(n <= clip_of[k] for n in own)
                moved = clip_of[k] * math.exp(-eta * ((1 - quantile) * o - quantile * m) * groups / n_all)
                followed[k] = min(max(moved, 0.1 * clip), 4 * clip)
        if method == "dpsgd-bounded":
            now = followed[0]
            clip_of = dict.fromkeys(range(groups), now)
            above = sum(n > now for n in norms) / n_all
            followed[0] = max(now * math.exp(eta * (above - (1 - quantile))), 0.1 * clip)
        mean_clip = sum(clip_of.values()) / groups
        for row, n, a in zip(g, norms, members, strict=True):
            if method == "sgd":
                total += row / n_all
            elif method in ("dpsgd", "dpsgd-f", "dpsgd-f-quantile", "dpsgd-bounded"):
                total += row * min(1, clip_of[a] / n) / n_all * (clip_of[a] / mean_clip if weighted else 1)
            elif method == "naive":
                size_of_group = sum(1 for b in members if b == a)
                total += row * (n_all / groups / max(size_of_group, 1)) * min(1, clip / n) / n_all
            elif method == "dpsgd-global":
                total += row * (clip / z if n <= z else 0) / n_all
            elif method == "dpsgd-global-adapt":
                total += row * (clip / z if n <= z else clip / n) / n_all
            elif method == "dpsgd-soft":
                total += row * clip * math.tanh(n / clip) / n / n_all
            elif method == "dpsgd-auto":
                total += row * clip / (n + gamma) / n_all
            elif method in ("gs-dp-sgd", "fair-dp"):
                total += row * min(1, clip / n) / sum(1 for b in members if b == a) / groups
        if method == "dpsgd-global-adapt":
            z = z * math.exp(-eta + sum(n > tau * z for n in norms) / n_all)
        with torch.no_grad():
            offset = 0
            for p in model.parameters():
                p -= lr * total[offset : offset + p.numel()].view_as(p)
                offset += p.numel()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def fedavg(model: nn.Module, clients: list[tuple[Tensor, Tensor]], *, seed: int, rounds: int, rate: float, epochs: int,
           batch: int, lr: float, clip: float, server_lr: float, quantile: float | None = None, eta: float = 0.2,
           momentum: float = 0.0, decay: float = 0.0, proximal: float = 0.0) -> tuple[Tensor, float]:
    """Return the parameters after `rounds` of DP-FedAvg without noise, flattened, and the clip norm that follows.

    One participant and one batch at a time; the proximal term (Li et al. 2020, Equation 2) by its exact step.
    """
    server = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    velocity = torch.zeros_like(server)
    for now in range(rounds):
        total, below = torch.zeros_like(server), 0
        for number, (x, y) in enumerate(clients):
            if len(poisson(seed, now, torch.tensor([number]), rate)) == 0:
                continue
            own = copy.deepcopy(model)
            torch.nn.utils.vector_to_parameters(server.clone(), own.parameters())
            optimizer, draws = torch.optim.SGD(own.parameters(), lr=lr, weight_decay=decay), generator(
                seed, "local order", number, now)
            for _ in range(epochs):
                for rows in torch.randperm(len(x), generator=draws).split(batch) if len(x) else ():
                    optimizer.zero_grad()
                    nn.functional.cross_entropy(own(x[rows]), y[rows]).backward()
                    optimizer.step()
                    stepped = torch.nn.utils.parameters_to_vector(own.parameters()).detach()
                    near = (stepped + lr * proximal * server) / (1 + lr * proximal)
                    torch.nn.utils.vector_to_parameters(near, own.parameters())
            update = torch.nn.utils.parameters_to_vector(own.parameters()).detach() - server
            norm = float(update.norm())
            total += update if norm <= clip else update * clip / norm
            below += norm <= clip
        velocity = momentum * velocity + total / (rate * len(clients))
        server = server + server_lr * velocity
        if quantile is not None:
            clip = clip * math.exp(-eta * (below / (rate * len(clients)) - quantile))
    return server, clip


def local_epochs(model: nn.Module, clients: list[tuple[Tensor, Tensor, Tensor]], *, key: str, rounds: int, batch: int,
                 lr: float, clip: float, sigma: float, proximal: float = 0.0, controls: bool = False,
                 server_lr: float = 1.0, epochs: int = 1) -> Tensor:
    """Return the parameters after `rounds` in which every client trains by DP-SGD for some epochs, flattened.

    `clients` hold features, labels and numbers of records. Each step adds the gradient of the proximal term, mu (w -
    w_0), where the step ends, to the clipped and noisy mean gradient. With `controls`, SCAFFOLD: Karimireddy et al.
    2020, Algorithm 1, option II, with shares of the records in place of 1 / N. One client and one record at a time.
    """
    server = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    records, c = sum(len(x) for x, _, _ in clients), torch.zeros_like(server)
    c_i = [torch.zeros_like(server) for _ in clients]
    for now in range(rounds):
        delta_y, delta_c = torch.zeros_like(server), torch.zeros_like(server)
        for number, (x, y, names) in enumerate(clients):
            own, steps, size = server.clone(), epochs * max(1, len(x) // batch) if len(x) else 0, min(batch, len(x))
            for step in range(now * steps, (now + 1) * steps):
                torch.nn.utils.vector_to_parameters(own.clone(), model.parameters())
                rows = poisson(key, step, names, size / len(x))
                total = sigma * clip * normal(source(key, "noise", number + 1, step), len(own), own.dtype)
                for row in gradients(model, x[rows], y[rows]) if len(rows) else ():
                    total += row * min(1.0, clip / float(row.norm()))
                slope = total / size - c_i[number] + c
                own = (own - lr * slope + lr * proximal * server) / (1 + lr * proximal)
            delta_y += len(x) / records * (own - server)
            if controls and steps:
                renewed = c_i[number] - c + (server - own) / (steps * lr)
                delta_c += len(x) / records * (renewed - c_i[number])
                c_i[number] = renewed
        server, c = server + server_lr * delta_y, c + delta_c
    return server
