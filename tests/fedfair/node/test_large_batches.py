"""A batch of a whole table has the gradients that its features would have, by lookups and in portions."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from fedfair.datasets.features.bounded import bounded
from fedfair.datasets.features.cells import Cells, with_features
from fedfair.datasets.features.features import Range, binned
from fedfair.datasets.grouped import GroupedDataset
from fedfair.datasets.schema import Listed, Schema, prepared
from fedfair.datasets.table import from_table
from fedfair.gradients.layers import flat
from fedfair.gradients.looked_up import LookedUpProbe
from fedfair.gradients.portioned import PortionedProbe
from fedfair.gradients.probe import per_example
from fedfair.models.published import loss
from fedfair.node.large_batches import MADE_TOGETHER, probe_of
from fedfair.node.node import Node
from fedfair.protocol.task import Task

WIDTH = 8
SCHEMA = Schema("here", (Range("age", 0, 90),), (Listed("town", ("north", "south")), Listed("sex", ("f", "m"))))


def people(records: int) -> GroupedDataset:
    """Return records of a table with missing numbers and towns that are not listed."""
    draws = np.random.default_rng(0)
    frame = pd.DataFrame({"age": draws.choice(["20", "50", ""], records),
                          "town": draws.choice(["north", "south", "east"], records),
                          "sex": draws.choice(["f", "m"], records), "good": draws.choice(["no", "yes"], records)})
    data = from_table(frame, "good", "sex", "keep", numbers=("age",))
    made = with_features(data, lambda part: prepared(part, SCHEMA, lambda own, ranges: binned(own, {"age": (30.0,)})))
    return with_features(made, partial(bounded, kind="binned"))


@pytest.mark.parametrize(("model", "kind"), [
    (nn.Linear(WIDTH, 2), LookedUpProbe),
    (nn.Sequential(nn.Linear(WIDTH, 4), nn.Tanh(), nn.Linear(4, 2)), PortionedProbe)])
def test_gradients_of_all_records_are_those_of_their_features(model: nn.Module, kind: type) -> None:
    data = people(MADE_TOGETHER + 100)
    assert isinstance(data.x, Cells)
    model = model.double()
    probe, plain = probe_of(model, loss, data.x, data.y), per_example(model, loss, data.x.clone(), data.y)
    assert type(probe) is kind
    assert torch.allclose(probe.norms, plain.norms, rtol=1e-12)
    factors = 1 / (1 + plain.norms)
    expected = plain.weighted_sum(factors)
    assert all(torch.allclose(value, expected[name], rtol=1e-10) for name, value in probe.weighted_sum(factors).items())
    few = data.take(slice(0, 100))
    assert type(probe_of(model, loss, few.x, few.y)) is (type(plain) if kind is PortionedProbe else kind)
    none = data.take(slice(0, 0))
    assert not any(value.any() for value in probe_of(model, loss, none.x, none.y).weighted_sum(torch.ones(0)).values())


class Own(nn.Module):
    """A model that `per_example` reads by `vmap` alone."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.ones(width, 2, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores."""
        return x @ self.own


@pytest.mark.parametrize("records", [10, MADE_TOGETHER + 10])
def test_a_model_of_ones_own_is_trained_on_cells_of_a_table(records: int) -> None:
    data, model = people(records), Own()
    assert isinstance(data.x, Cells)
    plain = per_example(model, loss, data.x.clone(), data.y)
    assert torch.allclose(probe_of(model, loss, data.x, data.y).norms, plain.norms, rtol=1e-12)


def test_the_gradient_norms_of_such_a_model_are_measured_on_cells_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,sex,good\n" + "20,f,no\n,m,yes\n50,m,no\n" * 20)
    task = Task.model_validate({
        "csv": str(tmp_path / "t.csv"), "label": "good", "group": "sex", "missing": "keep", "features": "binned",
        "ranges": {"age": (0, 90)}, "categories": {"sex": ("f", "m")}, "dtype": "float64", "split": (1, 0, 0)})
    clients = task.clients_data(0, 1)
    data = clients.together.train
    assert isinstance(data.x, Cells)
    model = Own(data.x.shape[1])
    plain = per_example(model, loss, data.x.clone(), data.y).norms
    counted = Node(clients, model, "cpu").evaluate({"own": model.own.detach()}, "train", gradient_norms=True)
    assert float(counted.gradient_norms.sum()) == pytest.approx(float(plain.sum()), rel=1e-9)


def test_a_record_more_changes_the_clipped_sum_by_the_clip_norm_at_any_weights() -> None:
    """A score is 0 up to rounding, by huge weights that cancel; rounded in two ways it is two scores."""
    data, model = people(MADE_TOGETHER + 1), nn.Linear(WIDTH, 2, dtype=torch.float64)
    signs = torch.tensor([1.0 if feature.column == "town" else -1.0 if feature.column == "sex" else 0.0
                          for feature in data.encoding.features] + [0.0])
    with torch.no_grad():
        model.weight[0] += 1e17 * signs
    sums = []
    for rows in (slice(0, MADE_TOGETHER), slice(0, MADE_TOGETHER + 1)):
        probe = probe_of(model, loss, data.x[rows], data.y[rows])
        sums.append(flat(probe.weighted_sum((1 / probe.norms).clamp(max=1))))
    assert float((sums[1] - sums[0]).norm()) <= 1 + 1e-9
