"""R models at once against one model at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn

from fedfair.gradients.kernels import Tanh
from fedfair.gradients.passes import UnreadableError
from fedfair.gradients.probe import per_example
from fedfair.gradients.stacked import Batches, refuse_unstackable, stacked
from fedfair.models.published import loss
from tests.fedfair.gradients.probing import assert_close, few, seeds, small
from tests.for_each import for_each

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "tanh": Tanh, "torch's tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "relu": lambda: nn.ReLU(inplace=True)}


def chain(width: int, activation: str, bias: bool) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(6, width, bias=bias), ACTIVATIONS[activation](),
                         nn.Sequential(nn.Linear(width, 4), ACTIVATIONS[activation]()), nn.Linear(4, 3, bias=bias)
                         ).double()


def models(runs: int, model: nn.Module, draws: torch.Generator) -> list[nn.Module]:
    made = [copy.deepcopy(model) for _ in range(runs)]
    for each in made:
        for parameter in each.parameters():
            parameter.data = torch.randn(parameter.shape, generator=draws, dtype=parameter.dtype)
    return made


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


@few
@example(sizes=[0, 4, 1], width=1, activation="tanh", bias=False, dtype=torch.float32, seed=66)  # a number a row
@given(st.lists(st.integers(0, 40), min_size=1, max_size=4), small, st.sampled_from(list(ACTIVATIONS)), st.booleans(),
       st.sampled_from([torch.float32, torch.float64]), seeds)
def test_each_model_has_the_norms_losses_and_sums_that_it_has_alone_and_the_bits_of_a_stack_of_one(
        sizes: list[int], width: int, activation: str, bias: bool, dtype: torch.dtype, seed: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    made = models(len(sizes), chain(width, activation, bias).to(dtype), draws)
    x = [torch.randn(size, 2, 3, generator=draws, dtype=dtype) for size in sizes]
    y = [torch.randint(3, (size,), generator=draws) for size in sizes]
    batches = Batches.of(x, y)
    factors = torch.randn(len(batches.y), generator=draws, dtype=dtype)
    probe = stacked(made[0], loss, [weights(model) for model in made], batches)
    for model, own, labels, span, sums in zip(made, x, y, probe.spans, probe.weighted_sums(factors), strict=True):
        alone = per_example(model, loss, own, labels)
        tolerance = 1e-10 if dtype == torch.float64 else 1e-4
        assert_close(probe.norms[span], alone.norms, tolerance)
        assert_close(probe.losses[span], alone.losses, tolerance)
        expected = alone.weighted_sum(factors[span])
        assert list(sums) == list(expected)
        for name, value in sums.items():
            assert_close(value, expected[name], tolerance)
        single = stacked(model, loss, [weights(model)], Batches.of([own], [labels]))
        assert torch.equal(single.norms[:len(own)], probe.norms[span])
        factors_of_it = torch.zeros_like(single.norms)
        factors_of_it[:len(own)] = factors[span]
        assert all(torch.equal(value, sums[name]) for name, value in single.weighted_sums(factors_of_it)[0].items())


def test_what_one_batch_holds_moves_no_other() -> None:
    made = models(2, chain(3, "tanh", True), torch.Generator().manual_seed(1))
    x, y = [torch.ones(3, 6, dtype=torch.float64)] * 2, [torch.zeros(3, dtype=torch.long)] * 2
    both = [weights(model) for model in made]
    before = stacked(made[0], loss, both, Batches.of(x, y))
    broken = stacked(made[0], loss, both, Batches.of([x[0], x[1] * torch.inf], y))
    assert torch.equal(before.norms[:3], broken.norms[:3])
    factors = torch.ones_like(before.norms)
    first, after = before.weighted_sums(factors)[0], broken.weighted_sums(factors)
    assert all(torch.equal(value, after[0][name]) for name, value in first.items())
    assert not bool(after[1]["1.weight"].isfinite().all())


class OwnLinear(nn.Linear):
    """It may compute something else."""


def tied() -> nn.Sequential:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    return nn.Sequential(first, second)


def frozen() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    model[0].bias.requires_grad_(False)
    return model


def hooked() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(3, 3))
    model.register_forward_hook(lambda *_: None)
    return model


@for_each("model", [
    nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2, 2)), nn.Sequential(OwnLinear(3, 2)), tied(), frozen(),
    hooked(), nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)), nn.Sequential(nn.Flatten(2), nn.Linear(3, 2)),
    nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.Linear(3, 2))])
def test_a_model_that_is_no_chain_of_known_layers_does_not_stack(model: nn.Module) -> None:
    with pytest.raises(UnreadableError):
        refuse_unstackable(model)
