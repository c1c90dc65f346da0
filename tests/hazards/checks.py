"""Checks that fail when a mistake is made: small, each about one promise. Others are tests of the packages."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from fedfair.accounting import Event, Ledger
from fedfair.datasets import GroupedDataset, Parts
from fedfair.gradients.probe import per_example
from fedfair.mechanisms.clipping import ClipRule, Flat, PerGroup, Reweighted
from fedfair.mechanisms.counting import GroupSizes
from fedfair.mechanisms.noise import Trust
from fedfair.mechanisms.randomness import generator, poisson, stream
from fedfair.models.published import loss
from fedfair.node.node import Node
from fedfair.protocol.round import Round
from simulations import run
from simulations.results.environment import environment
from tests.strategies.test_contract import experiment, server, weights
from tests.strategies.two_groups import two_groups


def records(count: int, groups: int = 2, scale: float = 1.0) -> GroupedDataset:
    """Return records of 60 features, the same at every call."""
    x = scale * torch.randn(count, 60, generator=generator(0, "records"), dtype=torch.float64)
    rows = torch.arange(count)
    return GroupedDataset(x, rows % 3, rows % groups, tuple(map(str, range(groups))), 3)


def release(rule: ClipRule, count: int, rate: float, noise: float = 0.0, clients: tuple[int, ...] = (0,),
            scale: float = 1.0) -> tuple[Tensor, Tensor | None]:
    """Return what a node with `records` records releases under local trust: all sums in a row, and group sizes."""
    data = records(count, scale=scale)
    model = nn.Sequential(nn.Linear(60, 60), nn.Tanh(), nn.Linear(60, 3)).double()
    draws = generator(1, "weights")
    weights = {name: 0.3 * torch.randn(p.shape, generator=draws, dtype=p.dtype) for name, p in model.named_parameters()}
    empty = data.take(torch.arange(0))
    hosted = {client: Parts(data if client == clients[0] else empty, empty, empty) for client in clients}
    round_ = Round(key="0", step=0, rates=(rate, rate), noise_multiplier=noise, count_noise_multiplier=10 * noise,
                   trust=Trust.LOCAL, clients=len(clients), rule=rule, query=GroupSizes())
    found = Node(hosted, model, "cpu").gradient_sum(weights, round_)
    return torch.cat([value.flatten() for value in found.sums.values()]), found.counts


def an_empty_batch_gets_the_noise_of_the_largest_bound_of_all_groups() -> None:
    """Hazard 1."""
    drawn, _ = release(PerGroup((1.0, 5.0)), 4, 0.0, noise=2.0)
    assert stats.kstest((drawn / 10).numpy(), "norm").pvalue > 1e-4
    only_the_smaller = release(PerGroup((1.0, 5.0)), 1, 1.0, noise=2.0)[0] - release(PerGroup((1.0, 5.0)), 1, 1.0)[0]
    assert stats.kstest((only_the_smaller / 10).numpy(), "norm").pvalue > 1e-4


def one_record_adds_at_most_the_sensitivity_of_its_group_and_can_add_it() -> None:
    """Check that a record with a large gradient adds the norm that the rule declares."""
    for rule in (Flat(0.7), PerGroup((0.7, 2.0)), Reweighted((0.7, 0.7), (3.0, 1.0))):
        norm = float(release(rule, 1, 1.0)[0].norm())
        assert norm == pytest.approx(rule.group_sensitivities(2)[0])


def a_step_divides_by_the_public_batch_size() -> None:
    """Hazard 2: compare with a plain sum over the batch, whose size is not the expected one."""
    settings: dict[str, Any] = {"steps": 1, "noise_multiplier": 0.0, "dtype": "float64", "seed": 1}
    made = experiment("dpsgd", **settings)
    data, model = made.task.data().train, made.task.build_model()
    rows = poisson(server("dpsgd", **settings).key, 0, data.records, 32 / len(data))
    assert len(rows) != 32
    total = torch.zeros(sum(p.numel() for p in model.parameters()), dtype=torch.float64)
    for row in rows:
        value = loss(model(data.x[row][None]), data.y[row][None])[0]
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(value, list(model.parameters()))])
        total += gradient * min(1.0, 1 / float(gradient.norm()))
    moved = torch.cat([p.detach().flatten() for p in model.parameters()]) - weights(run(made))
    assert torch.allclose(moved, 0.1 * total / 32, rtol=0, atol=1e-12)


def batch_sizes_vary_as_poisson_sampling_makes_them() -> None:
    """Hazard 4: look at what a node really draws."""
    sizes = []
    for step in range(300):
        data = records(100)
        model = nn.Linear(60, 3).double()
        here = Node({0: Parts(data, data, data)}, model, "cpu")
        round_ = Round(key="0", step=step, rates=(0.2, 0.2), noise_multiplier=0.0, trust=Trust.CENTRAL, clients=1,
                       rule=Flat(1.0))
        sizes.append(len(here.batch({name: p.detach() for name, p in model.named_parameters()}, round_).groups))
    assert stats.binomtest(sum(sizes), 300 * 100, 0.2).pvalue > 1e-4
    assert np.std(sizes) == pytest.approx(4.0, rel=0.2)


def batch_norm_is_refused() -> None:
    """Hazard 5."""
    mixing = nn.BatchNorm1d(8, affine=False, track_running_stats=False)
    model = nn.Sequential(nn.Linear(60, 8), mixing, nn.Linear(8, 3)).double()
    with pytest.raises(ValueError, match=r"mixes the examples of a batch"):
        per_example(model, loss, records(6).x, records(6).y)


def fairlens_is_nominal() -> None:
    """Hazard 6, for this reason: the scaling of the data's numbers is another one."""
    ledger = run(experiment("fairlens")).ledger
    assert ledger.guarantee == "nominal"
    assert "depends on the whole batch" in ledger.reason


def a_run_that_scales_by_its_records_is_nominal() -> None:
    """Hazard 27: a table's numbers are standardised unless they get public ranges."""
    ledger = run(experiment("dpsgd", **two_groups(), imbalance=None, randomness="system")).ledger
    assert ledger.guarantee == "nominal"
    assert "means and deviations of the training records" in ledger.reason


def a_seeded_run_is_simulated() -> None:
    """Hazard 30, and without a seed it is proved."""
    kinds = [run(experiment("dpsgd", randomness=name)).ledger.guarantee for name in ("seeded", "system")]
    assert kinds == ["simulated", "proved"]


def a_nan_adds_nothing_and_a_zero_gradient_stays_zero() -> None:
    """Hazards 9 and 31: an error would reveal the record."""
    for scale in (math.nan, math.inf):
        added, counts = release(Flat(1.0), 4, 1.0, scale=scale)
        assert counts is not None
        assert not added.any()
        assert not counts.any()
    assert Flat(1.0).coefficients(torch.zeros(1), torch.zeros(1, dtype=torch.long)) * 0 == 0


def a_threshold_search_is_in_the_ledger() -> None:
    """Hazard 11."""
    data = {**two_groups(), "imbalance": None, "split": (0.5, 0.3, 0.2)}
    without, private = (run(experiment("dpsgd", threshold="toc", threshold_epsilon=epsilon, **data)).ledger
                        for epsilon in (None, 1.0))
    assert math.isinf(without.held_out_epsilon("valid"))
    assert 0.9 < private.held_out_epsilon("valid") <= 1.0


def a_resumed_ledger_goes_on() -> None:
    """Hazard 12."""
    ledger = Ledger(("a", "b"), 1e-5)
    ledger.record(Event((0.1, 0.1), (1.0, 1.0), (1.0, 1.0)), 50)
    again = Ledger.from_dict(json.loads(json.dumps(ledger.to_dict())))
    again.record(Event((0.1, 0.1), (1.0, 1.0), (1.0, 1.0)), 1)
    assert again.epsilon() > ledger.epsilon() > 0


def every_draw_has_a_stream_of_its_own() -> None:
    """Hazard 14: sampling, the noise of sums and counts, and clients have nothing in common."""
    one, counts = release(Flat(1.0), 4, 0.0, noise=1.0, clients=(0,))
    other, _ = release(Flat(1.0), 4, 0.0, noise=1.0, clients=(1,))
    assert counts is not None
    assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 0.1
    assert not torch.allclose(one[:2], counts / 10)
    states = {tuple(stream(0, purpose, client).get_state().tolist()) for purpose in ("noise", "counts", "scores")
              for client in range(50)}
    assert len(states) == 150


def two_settings_share_no_noise() -> None:
    """Hazard 30: two budgets of one seed; what is common to both releases goes out of their weighted difference."""
    made = experiment("dpsgd", steps=1, imbalance=None, hidden=(40,), dtype="float64")
    start = torch.cat([p.detach().flatten() for p in made.task.build_model().parameters()])
    drawn = [(weights(run(made.model_copy(update={"noise_multiplier": noise}))) - start) for noise in (30.0, 60.0)]
    assert abs(float(torch.corrcoef(torch.stack(drawn))[0, 1])) < 0.1


def a_seed_tells_nothing_where_the_operating_system_draws() -> None:
    """Hazard 14: two runs with the same seed have other batches and other noise."""
    for settings in ({"noise_multiplier": 0.0}, {"batch_size": 328, "noise_multiplier": 1.0}):
        made = experiment("dpsgd", randomness="system", steps=1, imbalance=None, **_full(settings))
        assert not torch.allclose(weights(run(made)), weights(run(made)))


def results_say_what_is_not_private() -> None:
    """Hazard 16."""
    said: dict[str, Any] = environment([experiment("dpsgd")])
    assert any("metrics" in sentence for sentence in said["not_private"])
    assert "seed" in said["randomness"][0]


def _full(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with a batch size above the default, that of a full batch."""
    if "batch_size" not in settings:
        return settings
    return {**settings, "batch_size": len(experiment("dpsgd", imbalance=None).task.data().train)}
