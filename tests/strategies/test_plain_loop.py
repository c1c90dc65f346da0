"""A method knows no messages: a plain loop asks it for rule, counts and steps, and ends where a run does."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from flwr.serverapp import Grid

from fedfair import client_app, per_example
from fedfair.models.published import loss
from simulations import run
from simulations.engines.local import LocalGrid
from strategies import find_strategy
from strategies.server.replies.requests import population
from tests.strategies.test_equivalence import full_batch, weights


@pytest.mark.parametrize("strategy", ["sgd", "dpsgd", "dpsgd-f", "dpsgd-global-adapt", "naive", "dpsgd-soft"])
def test_a_loop_without_messages_ends_at_the_weights_of_the_run(strategy: str) -> None:
    made = full_batch(strategy, steps=3)
    grid: Grid = LocalGrid(client_app.app, 1)
    method = find_strategy(strategy)(made.task, made.training, population(grid, made.task))
    train, model = made.task.data().train, made.task.build_model()
    parameters = dict(model.named_parameters())
    method.descent.hold({name: value.detach().clone() for name, value in parameters.items()}, method.training)
    for step in range(method.rounds):
        plan = method.plan(step)
        with torch.no_grad():
            for name, value in method.descent.weights.items():
                parameters[name].copy_(value)
        probe = per_example(model, loss, train.x, train.y)
        counts = None if plan.query is None else plan.query.counts(probe.norms, train.group, len(train.names))
        if counts is not None and method.counts_first:
            method.take_counts(counts, method.expected_batch())
            plan = replace(plan, query=None)
        rule = method.decided(plan).rule
        assert rule is not None
        method.update(probe.weighted_sum(rule.coefficients(probe.norms, train.group)))
        if counts is not None and not method.counts_first:
            method.take_counts(counts, method.expected_batch())
    ended = torch.cat([value.flatten() for value in method.descent.weights.values()])
    assert torch.allclose(ended, weights(run(made)), rtol=0, atol=1e-10)


def test_a_method_is_imported_without_flower() -> None:
    code = "import sys, strategies.server.strategy, strategies.dpsgd_f; print('flwr' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
