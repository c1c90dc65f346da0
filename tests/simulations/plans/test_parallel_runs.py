"""A comparison in several processes gives what it gives in one."""

from __future__ import annotations

import pandas as pd
import pytest
import torch

from simulations.plans.compare import compare, experiments, in_parallel


def test_processes_change_nothing() -> None:
    planned = experiments(["dpsgd", "dpsgd-f", "gs-dp-sgd-to"], [0, 1], None, {
        "hidden": [8], "epochs": 1.0, "favourable": "1", "split": [0.7, 0.1, 0.2]})
    heard: list[int] = []
    results = in_parallel(planned, lambda done, *_: heard.append(done), jobs=2)
    assert heard == sorted(set(heard))
    assert heard[-1] == 6
    for one, other in zip(results, compare(planned), strict=True):
        assert one.experiment == other.experiment
        pd.testing.assert_frame_equal(one.metrics, other.metrics)
        assert one.ledger.to_dict() == other.ledger.to_dict()
        assert one.threshold == other.threshold
        assert all(map(torch.equal, one.model.parameters(), other.model.parameters()))


def test_an_error_of_a_process_is_raised_as_it_is() -> None:
    planned = experiments(["dpsgd"], [0, 1], None, {"batch_size": 5000})
    with pytest.raises(ValueError, match="batch_size is 5000"):
        in_parallel(planned, jobs=2)
