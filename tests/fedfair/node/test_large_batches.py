"""A batch of a whole table has the gradients that its features would have, by lookups and in portions.

A batch in portions stays bounded where a model is random.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedfair.datasets.features.bounded import bounded
from fedfair.datasets.features.cells import Cells, with_features
from fedfair.datasets.features.features import Range, binned
from fedfair.datasets.grouped import GroupedDataset
from fedfair.datasets.schema import Listed, Schema, prepared
from fedfair.datasets.table import from_table
from fedfair.gradients.layer_gradients import Materialised, flat
from fedfair.gradients.layer_probe import LayerProbe
from fedfair.gradients.passes import UnreadableError
from fedfair.gradients.probe import per_example
from fedfair.mechanisms.clipping import Flat
from fedfair.models.published import linear, loss
from fedfair.node.large_batches import MADE_TOGETHER, LookedUpProbe, Ones, PortionedProbe, probe_of
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
    (nn.Linear(WIDTH, 2), LookedUpProbe), (linear((WIDTH,), (), 2), LookedUpProbe),
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


@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 9))
@settings(max_examples=20, deadline=None)
def test_portions_are_the_whole(records: int, size: int, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(records, 3, generator=random, dtype=torch.float64)
    y = torch.randint(2, (records,), generator=random)
    model = nn.Linear(3, 2, dtype=torch.float64)
    portions = [partial(per_example, model, loss, x[rows], y[rows])
                for rows in torch.split(torch.arange(records), size)]
    whole, probe = per_example(model, loss, x, y), PortionedProbe(portions)
    assert torch.allclose(probe.norms, whole.norms, rtol=1e-12)
    assert torch.allclose(probe.losses, whole.losses, rtol=1e-12)
    factors = Flat(0.5).coefficients(whole.norms, torch.zeros(records, dtype=torch.long))
    expected = whole.weighted_sum(factors)
    found = probe.weighted_sum(factors)
    assert all(torch.allclose(found[name], expected[name], atol=1e-12) for name in expected)
    assert torch.allclose(probe.dot(expected), whole.dot(expected), atol=1e-12)


def test_a_gradient_that_is_longer_when_it_is_made_again_is_bounded_by_the_norm_that_was_seen() -> None:
    lengths = iter([1.0, 5.0, 0.5])

    def portion() -> LayerProbe:
        """Return the probe of one example, of another length each time."""
        gradient = torch.tensor([[next(lengths)]])
        return LayerProbe([Materialised({"w": gradient})], torch.zeros(1), {"w": gradient[0]})

    probe = PortionedProbe([portion])
    assert probe.weighted_sum(torch.tensor([1.0]))["w"].item() == 1.0
    assert probe.weighted_sum(torch.tensor([1.0]))["w"].item() == 0.5


@given(st.integers(0, 9), st.integers(1, 9), st.integers(1, 4), st.booleans())
@settings(max_examples=40, deadline=None)
def test_rows_of_ones_are_rows(seed: int, records: int, columns: int, bias: bool) -> None:
    random = torch.Generator().manual_seed(seed)
    features = 2 * columns  # two for each column, or none
    places = torch.stack([torch.tensor([2 * column, 2 * column + 1, features])[
        torch.randint(3, (records,), generator=random)] for column in range(columns)], 1)
    values, constant = torch.rand(records, generator=random, dtype=torch.float64), 0.7
    x = torch.zeros(records, features + 1, dtype=torch.float64).scatter_(1, places, values[:, None].expand_as(places))
    x[:, features] = constant
    model = nn.Sequential(nn.Linear(features + 1, 3, bias=bias, dtype=torch.float64))
    y = torch.randint(3, (records,), generator=random)
    probe = LookedUpProbe(model, loss, Ones(places.to(torch.uint8), values, features, constant), y)
    plain = per_example(model, loss, x, y)
    assert torch.allclose(probe.norms, plain.norms, rtol=1e-12)
    assert torch.allclose(probe.losses, plain.losses, rtol=1e-12)
    factors = torch.rand(records, generator=random, dtype=torch.float64)
    expected, found = plain.weighted_sum(factors), probe.weighted_sum(factors)
    assert [*found] == [*expected]
    assert all(torch.allclose(found[name], expected[name], atol=1e-12) for name in expected)
    assert torch.allclose(probe.dot(expected), plain.dot(expected), atol=1e-12)


@pytest.mark.parametrize("model", [
    nn.Linear(3, 2), nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)).double(), nn.Linear(3, 2).double(),
    nn.Bilinear(3, 3, 2).double()])
def test_another_model_is_not_read(model: nn.Module) -> None:
    if type(model) is nn.Linear and model.weight.dtype == torch.float64:
        model.bias.requires_grad_(False)
    rows = Ones(torch.zeros(1, 1, dtype=torch.uint8), torch.ones(1).double(), 2, 1.0)
    with pytest.raises(UnreadableError):
        LookedUpProbe(model, loss, rows, torch.zeros(1).long())
