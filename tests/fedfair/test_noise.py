"""The noise has the deviation that is asked for, and everybody adds the share that is theirs."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from fedfair.noise import Trust, add_gaussian, client_share, server_share
from fedfair.randomness import generator


def zeros(numbers: int = 20_000, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Two tensors of zeros with that many numbers in all."""
    return {"weight": torch.zeros(numbers // 2, dtype=dtype), "bias": torch.zeros(2, numbers // 4, dtype=dtype)}


def flat(values: dict[str, Tensor]) -> Tensor:
    return torch.cat([value.flatten() for value in values.values()])


def is_normal(values: Tensor, deviation: float) -> bool:
    """Whether a Kolmogorov-Smirnov test lets the values pass for N(0, deviation^2)."""
    return bool(stats.kstest(values.double().numpy() / deviation, "norm").pvalue > 1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("deviation", [0.01, 1.0, 300.0])
def test_the_deviation_is_the_one_asked_for(deviation: float, dtype: torch.dtype) -> None:
    drawn = flat(add_gaussian(zeros(dtype=dtype), deviation, generator(1, "noise")))
    assert drawn.dtype == dtype
    assert is_normal(drawn, deviation)
    assert not is_normal(drawn, deviation * 2 / 3)
    assert not is_normal(drawn, deviation * 3 / 2)


def test_noise_is_added_to_the_values_which_stay_as_they_were() -> None:
    values = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(())}
    noisy = add_gaussian(values, 0.5, generator(1, "noise"))
    drawn = add_gaussian({name: torch.zeros_like(v) for name, v in values.items()}, 0.5, generator(1, "noise"))
    assert list(noisy) == ["a", "b"]
    assert all(torch.allclose(noisy[name] - values[name], drawn[name]) for name in values)
    assert torch.equal(values["a"], torch.arange(6.0).view(2, 3))


@pytest.mark.parametrize(("trust", "variance"), [(Trust.CENTRAL, 1), (Trust.DISTRIBUTED, 1), (Trust.LOCAL, 7)])
def test_the_sum_over_seven_clients_carries_one_full_noise_or_seven(trust: Trust, variance: int) -> None:
    """Hazard 10: what everybody adds is what the ledger assumes."""
    total, sigma = zeros(), 2.0
    for client in range(7):
        total = add_gaussian(total, client_share(trust, 7) * sigma, generator(3, "noise", client + 1))
    assert (trust is Trust.CENTRAL) == (not flat(total).any())
    total = add_gaussian(total, server_share(trust) * sigma, generator(3, "noise", 0))
    assert is_normal(flat(total), sigma * math.sqrt(variance))
    assert not is_normal(flat(total), sigma * math.sqrt(variance) * 2 / 3)
    assert not is_normal(flat(total), sigma * math.sqrt(variance) * 3 / 2)


@pytest.mark.parametrize("clients", [1, 2, 10, 1000])
def test_shares_add_up_in_variance(clients: int) -> None:
    def total(trust: Trust) -> float:
        return clients * client_share(trust, clients) ** 2 + server_share(trust) ** 2

    assert total(Trust.DISTRIBUTED) == pytest.approx(1)
    assert total(Trust.CENTRAL) == pytest.approx(1)
    assert total(Trust.LOCAL) == pytest.approx(clients)
    assert client_share(Trust.CENTRAL, clients) == 0
    assert server_share(Trust.LOCAL) == server_share(Trust.DISTRIBUTED) == 0


def test_equal_generators_draw_the_same_bits_and_others_do_not() -> None:
    first, again, other = (flat(add_gaussian(zeros(), 1.0, generator(seed, "noise"))) for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not (first == other).any()


def test_no_deviation_draws_nothing() -> None:
    values, draws = {"a": torch.ones(3)}, generator(1, "noise")
    before = draws.get_state()
    assert torch.equal(add_gaussian(values, 0.0, draws)["a"], values["a"])
    assert torch.equal(draws.get_state(), before)


def test_every_number_has_its_own_draw() -> None:
    drawn = add_gaussian({"a": torch.zeros(10_000), "b": torch.zeros(10_000)}, 1.0, generator(2, "noise"))
    assert abs(float(torch.corrcoef(torch.stack([drawn["a"], drawn["b"]]))[0, 1])) < 0.05
    assert len(flat(drawn).double().unique()) > 19_900


def test_a_deviation_that_is_not_finite_is_not_hidden() -> None:
    """An unclipped rule has an infinite sensitivity: noise for it must not look like a result."""
    assert not bool(flat(add_gaussian(zeros(8), math.inf, generator(1, "noise"))).isfinite().any())
