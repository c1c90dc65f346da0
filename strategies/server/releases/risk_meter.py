"""The server's part of the excessive-risk terms: what it asks nodes for, and how the terms follow. Not private.

One measurement costs a pass over all training records, for the groups' exact losses and gradients; Hessian-vector
products over a sample of each group, two for the step and a few for the largest eigenvalue; and two backward passes
over another sample, for the trace. Eigenvectors are kept from one measurement to the next.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from flwr.app import ArrayRecord
from flwr.serverapp import Grid
from torch import Tensor

from fedfair.fairness.metrics import ALL
from fedfair.gradients.layer_gradients import Gradients
from fedfair.mechanisms.clipping import sensitivity
from fedfair.mechanisms.noise import Trust
from fedfair.mechanisms.randomness import generator
from fedfair.node import exchanges
from fedfair.protocol.exchange import Exchange
from fedfair.protocol.round import Round
from fedfair.protocol.task import Task
from fedfair.risk.derivatives import largest_eigenvalues, unit_vectors
from fedfair.risk.risk_sums import send_clipping_effect, send_hessian_products, send_traces
from fedfair.risk.terms import (
    Along,
    clip_gap_bound,
    direction_gap_bound,
    direction_risk,
    expected_error,
    gaussian_scale,
    magnitude_risk,
    noise_risk,
    rademacher,
    trace_estimate,
)
from strategies.server.population import Population
from strategies.server.replies.requests import added, ask
from strategies.server.training import Training

_FIRST_ITERATIONS, _ITERATIONS = 20, 2

Measured = tuple[str, str, float]
"""A group or "all", a metric, a value."""


class RiskMeter:
    """Measures one run's risk terms, every `every` steps.

    Making one raises what `refuse_unmeasurable` does.
    """

    def __init__(self, task: Task, training: Training, population: Population, sync: str,
                 exchange: Exchange | None) -> None:
        refuse_unmeasurable(training, sync, exchange)
        assert training.risk_every is not None
        self.every = training.risk_every
        self._task, self._training, self._population = task, training, population
        self._eigenvectors: Tensor | None = None

    def measure(self, grid: Grid, weights: ArrayRecord, round_: Round, divisor: float,
                learning_rate: float) -> Iterator[Measured]:
        """Yield the risk terms of a round's step from `weights` along the gradient sum over `divisor`."""
        assert round_.rule is not None
        sums = self._ask(grid, send_clipping_effect, "sums", weights=weights, round_=round_)
        sizes = sums["records"].double()  # the population's may be rounded
        gradients = sums["gradients"].double() / sizes[:, None]
        steps = torch.stack([sums["plain"], sums["clipped"]]).cpu() / divisor
        starts = self._starts(sums["plain"].numel())
        rates = _rates(sizes, self._training.risk_records)
        products = self._products(grid, weights, round_, rates, [torch.cat([steps, start[None]]) for start in starts])
        plain, clipped = _along(steps, gradients, products)
        bound = sensitivity(round_.rule, len(sizes))
        deviation = round_.noise_multiplier * bound if round_.noise_multiplier else 0.0
        traces, errors = self._traces(grid, weights, round_, sizes)
        magnitude = magnitude_risk(learning_rate, plain, clipped)
        direction = direction_risk(learning_rate, plain, clipped)
        images = torch.stack([product[-1] for product in products])
        eigenvalues = self._eigenvalues(grid, weights, round_, rates, starts, images)
        yield from self._by_group({
            "risk_noise": noise_risk(learning_rate, deviation / divisor, traces),
            "risk_noise_se": noise_risk(learning_rate, deviation / divisor, errors),
            "risk_magnitude": magnitude, "risk_direction": direction, "risk_clip": magnitude + direction,
            "hessian_trace": traces, "largest_eigenvalue": eigenvalues,
            "loss_exact": sums["losses"] / sizes, "gradient_norm_exact": gradients.norm(dim=1),
            "expected_error": expected_error(sums["sizes"], sums["excess"], gaussian_scale(deviation)),
        })
        yield ALL, "learning_rate_times_eigenvalue", learning_rate * float(eigenvalues.max())
        yield from _gap("direction", direction, direction_gap_bound(learning_rate, plain, clipped))
        yield from _gap("clip", magnitude + direction,
                        clip_gap_bound(learning_rate, gradients.norm(dim=1), sizes / sizes.sum(), bound))

    def _traces(self, grid: Grid, weights: ArrayRecord, round_: Round, sizes: Tensor) -> tuple[Tensor, Tensor]:
        """Return `Tr(H_k)` and its standard error, `[K]` each, by about `risk_vectors` random vectors or some more.

        Each is with another record, as long as a group has enough of its `sizes` `[K]` records; else with all of them,
        several times.
        """
        vectors = self._training.risk_vectors
        times = (vectors / sizes).ceil().clamp(min=1, max=vectors).int().tolist()
        traces = self._ask(grid, send_traces, "traces", weights=weights, round_=round_, rates=_rates(sizes, vectors),
                           times=times)
        return trace_estimate(traces["sums"], traces["squares"], traces["samples"])

    def _starts(self, size: int) -> Tensor:
        """Return unit vectors to start from, `[K, P]`: the last eigenvectors, or one random vector for all groups."""
        if self._eigenvectors is not None:
            return self._eigenvectors
        start = rademacher(size, generator(self._task.seed, "eigenvector"), self._task.torch_dtype)
        return unit_vectors(start.repeat(len(self._population.names), 1))

    def _eigenvalues(self, grid: Grid, weights: ArrayRecord, round_: Round, rates: list[float], starts: Tensor,
                     images: Tensor) -> Tensor:
        """Return the largest eigenvalue of each H_k, `[K]`.

        The iteration starts from the unit vectors `starts`, whose products with H_k are `images`, `[K, P]` each.
        """
        iterations = _FIRST_ITERATIONS if self._eigenvectors is None else _ITERATIONS

        def products(vectors: Tensor) -> Tensor:
            """Multiply each group's Hessian by the group's vector."""
            return torch.cat(self._products(grid, weights, round_, rates, [row[None] for row in vectors]))

        values, self._eigenvectors = largest_eigenvalues(products, starts, images, iterations)
        return values

    def _products(self, grid: Grid, weights: ArrayRecord, round_: Round, rates: list[float], vectors: list[Tensor]
                  ) -> list[Tensor]:
        """Multiply each group's mean Hessian, over records sampled at `rates`, by the group's vectors `[n, P]`."""
        asked = {"vectors": {str(group): rows for group, rows in enumerate(vectors)}}
        sums = self._ask(grid, send_hessian_products, "products", weights=weights, round_=round_, tensors=asked,
                         rates=rates)
        return [sums[str(group)] / sums[f"{group}/records"] for group in range(len(vectors))]

    def _ask(self, grid: Grid, exchange: Exchange, name: str, **parts: Any) -> Gradients:
        """Add up the nodes' answers to one exchange."""
        return added(ask(exchange, grid, self._task, self._training, self._population, **parts), name)

    def _by_group(self, metrics: dict[str, Tensor]) -> Iterator[Measured]:
        """Yield values `[K]` as rows."""
        for metric, values in metrics.items():
            for name, value in zip(self._population.names, values.tolist(), strict=True):
                yield name, metric, value


def refuse_unmeasurable(training: Training, sync: str, exchange: Exchange | None) -> None:
    """Raise `ValueError` unless a run takes plain SGD steps, with a seed, and shows the server all exact sums."""
    for name, value, needed in (("sync", sync, "step"), ("optimizer", training.optimizer, "sgd"),
                                ("momentum", training.momentum, 0), ("weight_decay", training.weight_decay, 0),
                                ("trust", training.trust, Trust.CENTRAL), ("dropouts", training.dropouts, 0),
                                ("randomness", training.randomness, "seeded")):
        if value != needed:
            raise ValueError(f"risk_every looks at single SGD steps with exact sums at the server, in simulations, but "
                             f"{name} is {str(value)!r}: take {str(needed)!r}, or leave risk_every out")
    if exchange not in (None, exchanges.send_gradient_sum):
        raise other_steps()


def other_steps() -> ValueError:
    """Return the error of a strategy that takes other steps than the terms describe."""
    return ValueError("risk_every describes steps along sums of clipped gradients, which this strategy does not take: "
                      "leave it out")


def _rates(sizes: Tensor, records: int) -> list[float]:
    """Return the sampling rates that take about `records` records of each group; `sizes` `[K]` is all of them."""
    return (records / sizes).clamp(max=1).tolist()


def _along(steps: Tensor, gradients: Tensor, products: list[Tensor]) -> tuple[Along, Along]:
    """Return the groups' losses along the plain and the clipped batch gradient, `steps` `[2, P]`.

    `gradients` `[K, P]` are the groups' own; `products` start with each group's Hessian times `steps`.
    """
    slopes = gradients @ steps.double().T
    curvatures = torch.stack([(images[:2].double() * steps.double()).sum(1) for images in products])
    plain, clipped = (Along(float(steps[i].norm()), slopes[:, i], curvatures[:, i]) for i in (0, 1))
    return plain, clipped


def _gap(name: str, risks: Tensor, bounds: Tensor) -> Iterator[Measured]:
    """Yield the largest difference between two groups' risks, and the lower bound on it.

    Both are nan if a risk is.
    """
    gap, bound = risks.max() - risks.min(), bounds[int(risks.argmax()), int(risks.argmin())]
    yield ALL, f"risk_{name}_gap", float(gap)
    yield ALL, f"risk_{name}_gap_bound", math.nan if gap.isnan() else float(bound)
