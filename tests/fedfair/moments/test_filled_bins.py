"""Bins that no record fills: how many records fill each, against counting, and weights that decide nothing."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fedfair.datasets.features.encoding import OTHER, Bounding, Encoding, Feature
from fedfair.mechanisms.randomness import generator
from fedfair.moments.filled_bins import Records, columns_of, denoised, filled, numbers_of_records
from fedfair.moments.release import Moments
from fedfair.moments.sums import mixed, moment_sums, unmixed, unsvec
from tests.for_each import for_each

BINS = (Feature("age", bin=(None, 0.0)), Feature("age", bin=(0.0, 30.0)), Feature("age", bin=(30.0, 60.0)),
        Feature("age", bin=(60.0, None)), Feature("age", missing=True))
TOWNS = (Feature("town", "a"), Feature("town", "b"), Feature("town", OTHER))
ONLY = (Feature("job", "x"), Feature("job", OTHER))
BOUNDING = Bounding(math.sqrt(3), 1.0)
ENCODING = Encoding((*BINS, *TOWNS, *ONLY), bounding=BOUNDING, listed=("town", "job"))
AGES = torch.tensor([1] * 400 + [3] * 600)  # none under 0, from 30 to 60, or missing
IN_TOWN = torch.tensor(([0] * 3 + [1] * 2) * 200)


def features() -> Tensor:
    """Return the features of 1,000 records, `[1000, 11]`."""
    x = torch.zeros(1000, 10, dtype=torch.float64)
    rows = torch.arange(1000)
    x[rows, AGES] = x[rows, 5 + IN_TOWN] = x[rows, 8] = 1.0
    return BOUNDING.of(x)


def released(noise: float, seed: int = 0, mixing: bool = True) -> Moments:
    """Return moments of these records with noise."""
    draws, y = generator(seed, "filled"), (AGES == 3).long()
    exact = moment_sums(features(), y, IN_TOWN, 2, 2, by_group=False)
    second = exact["second"] + noise * torch.randn(exact["second"].shape, generator=draws, dtype=torch.float64)
    first = mixed(exact["first"]) if mixing else exact["first"]
    first = first + noise * torch.randn(first.shape, generator=draws, dtype=torch.float64)
    return Moments(unsvec(second), unmixed(first) if mixing else first, noise, BOUNDING.last, mixing=mixing)


@pytest.mark.parametrize("mixing", [True, False])
def test_numbers_are_exact_without_noise_and_their_deviation_is_that_of_draws(mixing: bool) -> None:
    exact = features()[:, :-1].count_nonzero(0).double()
    assert numbers_of_records(released(0.0, mixing=mixing), ENCODING).numbers == pytest.approx(exact)
    drawn = [numbers_of_records(released(3.0, seed, mixing), ENCODING) for seed in range(400)]
    apart = torch.stack([(found.numbers - exact) / found.deviations for found in drawn])
    assert apart.mean(0).abs().max() < 0.25
    assert apart.std(0) == pytest.approx(torch.ones(10, dtype=torch.float64), abs=0.15)
    assert float(drawn[0].deviations.max()) < 0.7 * 3.0 * (3 + 1)  # than that of S_jj alone


def test_what_no_record_has_decides_nothing() -> None:
    bins = filled(released(3.0), ENCODING)
    assert bins.kept.tolist() == [1, 3, 5, 6, 8, 10]
    weights = torch.randn(6, 2, generator=generator(1, "filled"), dtype=torch.float64)
    lifted, ending = bins.lift @ weights, bins.ending @ weights
    assert torch.equal(lifted[bins.kept], weights)
    assert torch.allclose(lifted[0], weights[0])  # below the first bin with records: as in that
    assert torch.allclose(lifted[2], (weights[0] + weights[1]) / 2)  # between two
    assert ending[[4, 7, 8, 9]].abs().max() < 1e-12  # missing, other, and the only job
    x = features()
    assert torch.allclose(x @ lifted, x @ ending)  # no record is decided otherwise
    assert torch.allclose(x @ lifted, x[:, bins.kept] @ weights)


def test_a_table_with_too_much_noise_keeps_one_bin_of_each_column() -> None:
    bins = filled(released(1e6), ENCODING)
    assert len(bins.kept) == 4
    assert bins.ending[:-1].abs().max() == 0


def test_features_that_are_no_bins_are_all_kept() -> None:
    bins = filled(released(3.0), ENCODING._replace(features=(*BINS, *TOWNS, Feature("x"), Feature("z"))))
    assert bins.records is None
    assert torch.equal(bins.lift, torch.eye(11, dtype=torch.float64))


def test_a_column_of_which_a_category_is_left_out_is_not_centred() -> None:
    """A record may have none of its features, so that what they share is not what every record gets."""
    less = ENCODING._replace(left_out=(Feature("job", "z"),))
    bins = filled(released(3.0), less)
    assert bins.ending[8].abs().max() > 0


def test_a_bin_has_a_say_where_it_is_told_from_none_or_holds_many_and_none_is_further() -> None:
    """Against the rule in words, one number at a time: of 1,000 records, ten are many."""
    cases = {(9.0, 2.0): True,  # three deviations and more: told
             (5.0, 2.0): False,  # not told, and few
             (11.0, 6.0): True,  # not told, but many, and more than sqrt(2) deviations
             (11.0, 8.0): False,  # many, but more likely noise
             (200.0, 150.0): False, (240.0, 150.0): True}
    numbers, deviations = torch.tensor([*cases], dtype=torch.float64).T
    assert Records(numbers, deviations, 1000.0).filled.tolist() == [*cases.values()]


def test_with_much_noise_numbers_that_have_a_say_are_nearer_than_all_or_than_those_of_three_deviations() -> None:
    """Mean squared error over 200 draws, where a number without a say counts as 0."""
    exact = features()[:, :-1].count_nonzero(0).double()
    lost = torch.zeros(3, dtype=torch.float64)
    for seed in range(200):
        found = numbers_of_records(released(60.0, seed), ENCODING)
        told = found.numbers > 3 * found.deviations
        for number, kept in enumerate((found.filled, torch.ones(10, dtype=torch.bool), told)):
            lost[number] += (torch.where(kept, found.numbers, 0.0) - exact).square().sum()
    assert lost[0] < 0.95 * lost[1:].min()


@for_each("seed", range(20))
def test_classifiers_are_fitted_to_what_pages_count_records_of(seed: int) -> None:
    """Else a category would decide that a scorecard has no record of."""
    bins = filled(released(60.0, seed), ENCODING)
    assert bins.records is not None
    counted = (bins.records.rounded > 0).nonzero().flatten().tolist()
    for places in columns_of(ENCODING.features).values():
        kept = {*bins.kept.tolist()} & {*places}
        assert kept == {*counted} & {*places} or (len(kept) == 1 and not {*counted} & {*places})


def test_what_differs_between_columns_is_kept_as_far_as_it_stands_out() -> None:
    """Of six columns two hang together. What is said to be still off is what is off, for weights of any kind."""
    levels, columns, draws, ratios = 8, 6, generator(0, "columns"), []
    features = tuple(Feature(f"c{column}", str(level)) for column in range(columns) for level in range(levels))
    encoding = Encoding(features, bounding=Bounding(math.sqrt(columns), 1.0))
    codes = torch.randint(levels, (20_000, columns), generator=draws)
    codes[:, 1] = torch.where(torch.rand(20_000, generator=draws) < 0.5, codes[:, 0], codes[:, 1])
    x = Bounding(math.sqrt(columns), 1.0).of(torch.nn.functional.one_hot(codes, levels).flatten(1).double())
    sums = moment_sums(x, codes[:, 0] % 2, codes[:, 1] % 2, 2, 2, by_group=False)
    weights = torch.randn(levels * columns + 1, 200, generator=draws, dtype=torch.float64)
    for noise in [0.0] + [8.0] * 8:
        second, first = (each + noise * torch.randn(each.shape, generator=draws, dtype=torch.float64)
                         for each in (sums["second"], mixed(sums["first"])))
        moments = Moments(unsvec(second), unmixed(first), noise, Bounding(math.sqrt(columns), 1.0).last, mixing=True)
        bins = filled(moments, encoding)
        assert len(bins.kept) == levels * columns + 1
        found, away = denoised(moments.pooled(), bins, encoding), moments.pooled().second - x.T @ x
        left = (found.second - x.T @ x) @ weights
        if not noise:
            assert left.abs().max() < 1e-6
            continue
        assert left.square().mean() < 0.2 * (away @ weights).square().mean()
        assert float(found.lost[:levels, levels:2 * levels].max()) < 0.2
        assert float(found.lost[:2 * levels, 2 * levels:-1].min()) > 0.8
        ratios.append(float(left.square().mean() / ((found.off @ weights) * weights).sum(0).mean()))
    assert 0.5 < sum(ratios) / len(ratios) < 2, ratios
