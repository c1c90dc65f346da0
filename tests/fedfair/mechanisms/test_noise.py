"""The noise has the deviation that is asked for, and each party adds its share."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from fedfair.mechanisms.discrete_gaussian import SCALE
from fedfair.mechanisms.noise import (
    NoiseName,
    Trust,
    add_discrete_gaussian,
    add_gaussian,
    add_noise,
    client_share,
    server_share,
)
from fedfair.mechanisms.randomness import Source, SystemEntropy, generator, stream
from tests.for_each import for_each


def zeros(numbers: int = 20_000, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Two tensors of zeros with that many numbers in all."""
    return {"weight": torch.zeros(numbers // 2, dtype=dtype), "bias": torch.zeros(2, numbers // 4, dtype=dtype)}


def flat(values: dict[str, Tensor]) -> Tensor:
    return torch.cat([value.flatten() for value in values.values()])


def is_normal(values: Tensor, deviation: float) -> bool:
    """Whether a Kolmogorov-Smirnov test lets the values pass for N(0, deviation^2)."""
    return bool(stats.kstest(values.double().numpy() / deviation, "norm").pvalue > 1e-3)


@for_each("dtype", [torch.float32, torch.float64])
@for_each("deviation", [0.01, 1.0, 300.0])
def test_the_deviation_is_the_one_asked_for(deviation: float, dtype: torch.dtype) -> None:
    drawn = flat(add_gaussian(zeros(dtype=dtype), deviation, stream(1, "noise")))
    assert drawn.dtype == dtype
    assert is_normal(drawn, deviation)
    assert not is_normal(drawn, deviation * 2 / 3)
    assert not is_normal(drawn, deviation * 3 / 2)


def test_noise_is_added_to_the_values_which_stay_as_they_were() -> None:
    values = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(())}
    noisy = add_gaussian(values, 0.5, stream(1, "noise"))
    drawn = add_gaussian({name: torch.zeros_like(v) for name, v in values.items()}, 0.5, stream(1, "noise"))
    assert list(noisy) == ["a", "b"]
    assert all(torch.allclose(noisy[name] - values[name], drawn[name]) for name in values)
    assert torch.equal(values["a"], torch.arange(6.0).view(2, 3))


@for_each("source", [stream(1, "noise"), SystemEntropy()])
@for_each("noise", ["gaussian", "discrete"])
def test_every_way_of_sampling_has_the_deviation(noise: NoiseName, source: Source) -> None:
    """Hazards 14 and 15."""
    drawn = flat(add_noise(noise, zeros(), 0.3, source))
    assert is_normal(drawn, 0.3)
    assert not is_normal(drawn, 0.3 * 2 / 3)
    assert not is_normal(drawn, 0.3 * 3 / 2)


def test_the_operating_system_never_repeats_itself() -> None:
    one, other = (flat(add_noise("gaussian", zeros(), 1.0, SystemEntropy())) for _ in range(2))
    assert not (one == other).any()


def test_discrete_noise_leaves_only_multiples_of_a_step_that_depends_on_public_numbers() -> None:
    """Hazard 15: whatever the data, the low bits are the grid's."""
    step = 0.7 * (1 + 2**-12) / SCALE
    for scale in (1e-9, 1.0, 1e3):
        values = {"a": scale * torch.rand(500, generator=generator(0, "data"), dtype=torch.float64)}
        noisy = add_discrete_gaussian(values, 0.7, stream(3, "noise"))["a"]
        assert torch.equal((noisy / step).round() * step, noisy)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=40), st.floats(1e-3, 1e3), st.integers(0, 10**6))
def test_rounding_to_the_grid_adds_no_more_sensitivity_than_its_margin(values: list[float], deviation: float,
                                                                       seed: int) -> None:
    """With one stream of noise for two neighbours, what remains is what rounding did: at most half a step a number."""
    step = deviation * (1 + 2**-12) / SCALE
    first = torch.tensor(values, dtype=torch.float64)
    change = torch.randn(len(values), generator=generator(seed, "change"), dtype=torch.float64)
    change /= change.norm()
    released = [add_discrete_gaussian({"a": data}, deviation, stream(seed, "noise"))["a"]
                for data in (first, first + change)]
    moved = float((released[1] - released[0]).norm())
    floats = 4 * 2.0**-52 * (float(first.norm()) + 10 * deviation * len(values) + 1)
    assert moved <= 1 + step * math.sqrt(len(values)) + floats


def test_discrete_noise_refuses_what_has_no_place_on_the_grid() -> None:
    for wrong in (math.nan, math.inf, 1e30):
        with pytest.raises(ValueError, match="not finite or too large for the grid"):
            add_discrete_gaussian({"a": torch.tensor([wrong], dtype=torch.float64)}, 1.0, stream(0, "noise"))


@pytest.mark.parametrize(("trust", "variance"), [(Trust.CENTRAL, 1), (Trust.DISTRIBUTED, 1), (Trust.LOCAL, 7)])
def test_the_sum_over_seven_clients_carries_one_full_noise_or_seven(trust: Trust, variance: int) -> None:
    """Hazard 10: what everybody adds is what the ledger assumes."""
    total, sigma = zeros(), 2.0
    for client in range(7):
        total = add_gaussian(total, client_share(trust, 7) * sigma, stream(3, "noise", client + 1))
    assert (trust is Trust.CENTRAL) == (not flat(total).any())
    total = add_gaussian(total, server_share(trust) * sigma, stream(3, "noise", 0))
    assert is_normal(flat(total), sigma * math.sqrt(variance))
    assert not is_normal(flat(total), sigma * math.sqrt(variance) * 2 / 3)
    assert not is_normal(flat(total), sigma * math.sqrt(variance) * 3 / 2)


@for_each("clients", [1, 2, 10, 1000])
def test_shares_add_up_in_variance(clients: int) -> None:
    def total(trust: Trust) -> float:
        return clients * client_share(trust, clients) ** 2 + server_share(trust) ** 2

    assert total(Trust.DISTRIBUTED) == pytest.approx(1)
    assert total(Trust.CENTRAL) == pytest.approx(1)
    assert total(Trust.LOCAL) == pytest.approx(clients)
    assert client_share(Trust.CENTRAL, clients) == 0
    assert server_share(Trust.LOCAL) == server_share(Trust.DISTRIBUTED) == 0


def test_equal_generators_draw_the_same_bits_and_others_do_not() -> None:
    first, again, other = (flat(add_gaussian(zeros(), 1.0, stream(seed, "noise"))) for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not (first == other).any()


def test_no_deviation_draws_nothing() -> None:
    values, draws = {"a": torch.ones(3)}, stream(1, "noise")
    before = draws.get_state()
    assert torch.equal(add_gaussian(values, 0.0, draws)["a"], values["a"])
    assert torch.equal(draws.get_state(), before)


def test_every_number_has_its_own_draw() -> None:
    drawn = add_gaussian({"a": torch.zeros(10_000), "b": torch.zeros(10_000)}, 1.0, stream(2, "noise"))
    assert abs(float(torch.corrcoef(torch.stack([drawn["a"], drawn["b"]]))[0, 1])) < 0.05
    assert len(flat(drawn).double().unique()) > 19_900


def test_a_deviation_that_is_not_finite_is_not_hidden() -> None:
    """An unclipped rule has an infinite sensitivity: noise for it must not look like a result."""
    assert not bool(flat(add_gaussian(zeros(8), math.inf, stream(1, "noise"))).isfinite().any())


def test_every_number_from_the_operating_system_has_its_own_draw() -> None:
    """A number that is another one again, or its negative, would be noise that a difference or a sum takes away."""
    drawn = flat(add_gaussian(zeros(), 1.0, SystemEntropy()))
    assert len(drawn.abs().unique()) > 19_990


@pytest.mark.parametrize("wrong", [math.nan, -math.inf, 1.5 * 2.0**22])
def test_one_number_without_a_place_on_the_grid_is_refused_among_others_that_have_one(wrong: float) -> None:
    """Also a finite one, of 2^62 steps or more, whose sum with a draw an integer of 64 bits may not hold."""
    values = {"a": torch.tensor([0.0, wrong, 1.0], dtype=torch.float64)}
    with pytest.raises(ValueError, match="not finite or too large for the grid"):
        add_discrete_gaussian(values, 1.0, stream(0, "noise"))


def test_the_margin_covers_rounding_to_the_grid_and_sums_over_a_million_records() -> None:
    """With a multiplier of 10 on a hundred million numbers, in float64: what the docstring adds up."""
    to_the_grid, of_sums = 10 * math.sqrt(1e8) * 2 / SCALE, 2 * 1e6**2 * 2.0**-53
    assert to_the_grid + of_sums <= 2.0**-12
