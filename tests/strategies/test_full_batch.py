"""Batches of all records, or of a share of them; and where features are bounded, no gradient is clipped."""

from __future__ import annotations

import math
from typing import Any

import dp_accounting as dpa
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor

from fedfair.gradients.probe import per_example
from fedfair.models.find import build
from fedfair.models.published import loss
from simulations import Experiment, run
from simulations.engines.checkpoint import Checkpoint
from simulations.settings.presets import merged
from strategies.server.existing_app import PrivateTraining
from strategies.server.training import Training
from tests.strategies.test_contract import experiment, server, weights
from tests.strategies.two_groups import two_groups


@pytest.mark.parametrize("strategy", ["dpsgd", "dpsgd-f", "naive", "gs-dp-sgd", "raco", "raco-odds", "fermi", "puffle",
                                      "dpsgd-rank"])
def test_a_rate_of_one_is_a_batch_size_of_all_records(strategy: str) -> None:
    all_records = len(experiment(strategy).task.data().train)
    named, sized = (run(experiment(strategy, sync="step", noise_multiplier=0.0, dtype="float64", **batch))
                    for batch in ({"batch_size": 256, "sampling_rate": 1.0}, {"batch_size": all_records}))
    assert torch.equal(weights(named), weights(sized))
    assert {rate for event in named.ledger.events for rate in event.rates} == {1.0}


@pytest.mark.parametrize(("rate", "records"), [(1.0, 332), (0.5, 166), (0.01, 3), (1e-9, 1)])
def test_a_rate_is_the_nearest_whole_batch_of_the_public_number_of_records(rate: float, records: int) -> None:
    strategy = server("dpsgd", batch_size=256, sampling_rate=rate)
    assert strategy.training.batch_size == records
    assert strategy.rates() == (records / 332,) * 10
    assert strategy.rounds == 4


def test_full_batches_cost_what_gaussian_releases_without_sampling_cost() -> None:
    ledger = run(experiment("dpsgd", batch_size=256, sampling_rate=1, noise_multiplier=9.0, steps=20)).ledger
    step = dpa.GaussianDpEvent(9.0)
    assert ledger.epsilon() == pytest.approx(PLDAccountant().compose(step, 20).get_epsilon(1e-4), rel=1e-3)


def test_a_checkpoint_goes_on_with_full_batches(tmp_path: Any) -> None:
    made = experiment("dpsgd", batch_size=256, sampling_rate=1, steps=6)

    def stop(done: int, rounds: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    checkpoint = Checkpoint(tmp_path / "out", made.settings(), 2)
    with pytest.raises(KeyboardInterrupt):
        run(made, checkpoint=checkpoint, progress=stop)
    assert torch.equal(weights(run(made, checkpoint=checkpoint)), weights(run(made)))


def test_a_rate_and_a_batch_size_are_not_both_given_but_the_later_wins() -> None:
    with pytest.raises(ValidationError, match="sampling_rate is 1, which takes the place of batch_size"):
        Training(sampling_rate=1, batch_size=32)
    assert merged({"batch_size": 32}, {"sampling_rate": 1}) == {"sampling_rate": 1}
    assert merged({"sampling_rate": 1}, {"batch_size": 32}) == {"batch_size": 32}


def test_an_app_whose_clients_sizes_are_unknown_has_no_rate() -> None:
    with pytest.raises(ValueError, match="sampling_rate is 1, but the sizes of an app's clients are not known"):
        PrivateTraining(None, ["a", "b"], sampling_rate=1)  # type: ignore[arg-type]


BOUNDED = {"features": "bounded", "model": "linear", "hidden": ()}


def norms_on_table(scale: float, seed: int) -> Tensor:
    """Return per-example gradient norms of a linear model on bounded features, at drawn weights."""
    train = Experiment(**two_groups(), **BOUNDED).task.data().train
    model = build("linear", (), train.x.shape[1:], train.classes, 0, train.x.dtype)
    draws = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.data = scale * torch.randn(p.shape, generator=draws, dtype=p.dtype)
    return per_example(model, loss, train.x, train.y).norms


@settings(deadline=None, max_examples=30)
@given(st.sampled_from([0.0, 1.0, 30.0, 1e4]), st.integers(0, 10**6))
def test_with_bounded_features_no_gradient_is_longer_than_the_root_of_two(scale: float, seed: int) -> None:
    assert float(norms_on_table(scale, seed).max()) <= math.sqrt(2) * (1 + 1e-6)


def test_some_gradient_comes_near_it() -> None:
    """So a smaller clip norm can clip, and this one is no larger than it needs to be."""
    assert float(norms_on_table(1e4, 0).max()) > 0.7 * math.sqrt(2)


def test_a_clip_norm_of_the_root_of_two_clips_nothing_and_a_smaller_one_does() -> None:
    common: dict[str, Any] = {**two_groups(), **BOUNDED, "sampling_rate": 1, "steps": 30, "learning_rate": 20.0,
                              "noise_multiplier": 0.0, "dtype": "float64", "delta": 1e-4}
    free, loose, tight = (weights(run(Experiment(strategy=name, clip_norm=clip, **common)))
                          for name, clip in (("sgd", 1.0), ("dpsgd", math.sqrt(2)), ("dpsgd", 0.5)))
    assert torch.equal(free, loose)
    assert not torch.allclose(free, tight, rtol=0, atol=1e-3)
