"""The best of a random number of trials: its distribution, its cost, and what the ledger makes of it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from fedfair.accounting import Event, Ledger, Release, calibrate, epsilon
from fedfair.accounting.events import Preprocessed
from fedfair.accounting.renyi import ORDERS
from fedfair.accounting.selection import Selection, gamma_of, mean_of, most_gained, number_of_trials
from fedfair.mechanisms.randomness import SystemEntropy, stream
from tests.for_each import for_each

SHAPES = [-0.5, 0.0, 0.5, 1.0]
DELTA = 1e-6


def probabilities(gamma: float, shape: float, most: int = 4000) -> np.ndarray:
    """Return P(K = 1), P(K = 2), ... by the definition, up to what is left out."""
    k = np.arange(1, most + 1)
    factors = (k - 1 + shape) / k
    factors[0] = 1.0  # the same for all, and 0 for the logarithmic distribution
    masses = (1 - gamma) ** k * np.cumprod(factors)
    return np.asarray(masses / masses.sum())


@for_each("shape", SHAPES)
@for_each("gamma", [0.05, 0.3])
def test_mean_and_gamma_are_those_of_the_distribution(shape: float, gamma: float) -> None:
    masses = probabilities(gamma, shape)
    mean = float(masses @ np.arange(1, len(masses) + 1))
    assert mean_of(gamma, shape) == pytest.approx(mean, rel=1e-9)
    assert gamma_of(mean, shape) == pytest.approx(gamma, rel=1e-6)


@for_each("shape", SHAPES)
def test_draws_follow_the_distribution(shape: float) -> None:
    source, mean, draws = stream(5, "trials"), 4.0, 20_000
    drawn = np.array([number_of_trials(mean, shape, source) for _ in range(draws)])
    masses = probabilities(gamma_of(mean, shape), shape)
    for number in range(1, 8):
        expected = masses[number - 1]
        assert abs((drawn == number).mean() - expected) < 4 * math.sqrt(expected / draws)
    assert drawn.max() > 20


def test_the_operating_system_draws_other_numbers_each_time() -> None:
    drawn = {number_of_trials(10.0, 0.0, SystemEntropy()) for _ in range(200)}
    assert min(drawn) == 1
    assert len(drawn) > 10


@for_each(("mean", "shape"), [(1.0, 0.0), (0.5, 0.0), (10.0, -1.0), (10.0, 1.1), (math.inf, 0.0),
                              (math.nan, 0.0), (10.0, math.nan)])
def test_a_distribution_that_is_none_is_refused(mean: float, shape: float) -> None:
    with pytest.raises(ValueError, match="trials are expected"):
        gamma_of(mean, shape)


@for_each(("mean", "shape", "multiplier"), [(10.0, 0.0, 7.5), (3.0, 0.0, 2.0), (20.0, 1.0, 9.0),
                                           (5.0, 0.5, 4.0), (10.0, 1.0, 0.8)])
def test_epsilon_is_less_than_by_renyi_divergences(mean: float, shape: float, multiplier: float) -> None:
    """dp-accounting has Theorem 2 of Papernot and Steinke; ours also holds by Renyi divergences, and is never above."""
    accountant = RdpAccountant(list(ORDERS))
    accountant.compose(RepeatAndSelectDpEvent(GaussianDpEvent(multiplier), mean, shape))
    accountant.compose(GaussianDpEvent(20.0))
    charged = {Selection(multiplier, mean, shape): 1, Release(1.0, 20.0): 1}
    assert epsilon(charged, DELTA) <= epsilon(charged, DELTA, "rdp") <= accountant.get_epsilon(DELTA)
    assert epsilon(charged, DELTA) > epsilon({Release(1.0, multiplier): 1, Release(1.0, 20.0): 1}, DELTA)


def best(selection: Selection, outputs: np.ndarray) -> np.ndarray:
    """Return the probabilities of the best of K outputs, in ascending order of scores: f(P(<= y)) - f(P(< y)).

    Written so that small ones are exact, too: with u = 1 - (1 - gamma) x, f is affine in u^-shape, or in log u.
    """
    _, mean, shape = selection
    gamma = gamma_of(mean, shape)
    u = gamma + (1 - gamma) * np.cumsum(outputs[::-1])[::-1]
    falls = np.log1p(-(1 - gamma) * outputs / u)
    return np.asarray(falls / math.log(gamma) if shape == 0 else
                      u**-shape * np.expm1(-shape * falls) / (gamma**-shape - 1))


def true_delta(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    """Return the delta of two distributions at an epsilon: their hockey-stick divergence."""
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def outputs(multiplier: float, at: float, bins: int = 400) -> np.ndarray:
    """Return the probabilities that a noisy number falls into bins."""
    ends = np.concatenate([[-np.inf], np.linspace(-8 * multiplier, 8 * multiplier + 1, bins), [np.inf]]) - at
    left, right = ends[:-1] / multiplier, ends[1:] / multiplier
    return np.where(left > 0, norm.sf(left) - norm.sf(right), norm.cdf(right) - norm.cdf(left))


def in_blocks(bins: int, low: int, high: int) -> np.ndarray:
    """Return bins from the worst to the best: from `low` on, from `high` on, and those below `low`.

    The worst order known: the outputs that are likeliest with the record win over all that are nearly as likely.
    """
    return np.array([*range(low, high), *range(high, bins), *range(low)])


ORDERS_OF_401 = st.one_of(
    st.none(), st.integers(0, 2**32 - 1).map(lambda seed: np.random.default_rng(seed).permutation(401)),
    st.tuples(st.integers(0, 401), st.integers(0, 401)).map(lambda cuts: in_blocks(401, *sorted(cuts))))


@settings(max_examples=200, deadline=None)
@given(st.floats(0.3, 12.0), st.floats(1.5, 40.0), st.sampled_from(SHAPES), st.booleans(),
       st.sampled_from([1e-2, 1e-4, 1e-6]), ORDERS_OF_401)
def test_no_selection_costs_more_than_it_is_charged(multiplier: float, mean: float, shape: float, added: bool,
                                                    delta: float, order: np.ndarray | None) -> None:
    """A trial releases a noisy number in bins; scores follow the number itself, or any order whatever."""
    selection = Selection(multiplier, mean, shape)
    ranked = slice(None) if order is None else order if added else 400 - order
    pair = [best(selection, outputs(multiplier, at)[ranked]) for at in ((1.0, 0.0) if added else (0.0, 1.0))]
    assert true_delta(*pair, epsilon({selection: 1}, delta)) <= delta * (1 + 1e-9)


@given(st.floats(0.5, 6.0), st.floats(0.5, 6.0), st.sampled_from(SHAPES), st.booleans(),
       st.tuples(st.integers(0, 201), st.integers(0, 201)))
@settings(max_examples=60, deadline=None)
def test_a_release_beside_a_selection_adds_up(multiplier: float, beside: float, shape: float, added: bool,
                                              cuts: tuple[int, int]) -> None:
    selection, delta = Selection(multiplier, 8.0, shape), 1e-4
    order = in_blocks(201, *sorted(cuts)) if added else 200 - in_blocks(201, *sorted(cuts))
    p, q = (np.outer(best(selection, outputs(multiplier, at, 200)[order]), outputs(beside, at, 200))
            for at in ((1.0, 0.0) if added else (0.0, 1.0)))
    assert true_delta(p, q, epsilon({selection: 1, Release(1.0, beside): 1}, delta)) <= delta * (1 + 1e-9)


@pytest.mark.parametrize(("charged", "least"), [(Selection(5.5972, 10.0), 0.99), (Selection(49.72, 10.0), 0.97),
                                                (Selection(0.8205, 10.0), 0.995), (Selection(1.6826, 3.0), 0.99),
                                                (Selection(5.2973, 10.0, 0.0), 0.99)])
def test_no_bound_on_a_selection_could_be_much_less(charged: Selection, least: float) -> None:
    """Blocks of outputs reach almost what is charged: what is proved of Gaussian trials must be above `least` of it."""
    bins, claim = 2001, epsilon({charged: 1}, 1e-5)
    with_it, without = (outputs(charged.multiplier, at, bins - 1) for at in (1.0, 0.0))
    cuts = [(low, high) for low in range(300, 1100, 25) for high in range(1100, 1900, 25)]
    orders = [in_blocks(bins, *cut) for cut in cuts]
    pairs = [(best(charged, with_it[order]), best(charged, without[order])) for order in orders]
    assert max(true_delta(*pair, claim) for pair in pairs) <= 1e-5
    assert max(true_delta(*pair, least * claim) for pair in pairs) > 1e-5


def test_what_one_trial_costs_is_too_little() -> None:
    """The attack: the best of some numbers tells more of a record than one of them may."""
    selection, delta = Selection(2.0, 30.0, 1.0), 1e-3
    p, q = (best(selection, outputs(2.0, at, 4000)) for at in (1.0, 0.0))
    assert true_delta(p, q, epsilon({Release(1.0, 2.0): 1}, delta)) > 2 * delta
    assert true_delta(p, q, epsilon({selection: 1}, delta)) <= delta


@for_each("shape", SHAPES)
def test_what_the_choice_costs_is_the_most_that_it_can(shape: float) -> None:
    """By the slow way: over many events of all probabilities."""
    selection = Selection(3.0, 12.0, shape)
    gamma, t = gamma_of(12.0, shape), np.exp(np.linspace(-30, 0, 20_001))
    with_it = norm.cdf(norm.ppf(t) - 1 / 3.0)
    slow = (1 + shape) * np.log((gamma + (1 - gamma) * t) / (gamma + (1 - gamma) * with_it)).max()
    assert slow <= most_gained(selection) <= slow + 1e-3


def test_calibration_keeps_a_target() -> None:
    multiplier = calibrate(lambda noise: {Selection(noise, 10.0): 1, Release(1.0, 30.0): 1}, 1.0, DELTA)
    spent = epsilon({Selection(multiplier, 10.0): 1, Release(1.0, 30.0): 1}, DELTA)
    assert 0.999 < spent <= 1.0
    assert 1 / multiplier == pytest.approx(0.16, abs=0.01)  # of mu, where one release would have 0.23


def selecting() -> Ledger:
    """Return a ledger with a selection on the training and on the validation part, and releases beside both."""
    ledger = Ledger(("a", "b"), DELTA, preprocessing=Preprocessed(30.0, 1e-7))
    ledger.record_held_out("valid", 40.0)
    ledger.record_selection("train", Selection(8.0, 10.0))
    ledger.record_selection("valid", Selection(7.0, 10.0))
    return ledger


def test_the_ledger_charges_each_part_its_own_selection() -> None:
    ledger = selecting()
    assert ledger.epsilon() == epsilon({Release(1.0, 30.0): 1, Selection(8.0, 10.0): 1}, DELTA - 1e-7)
    assert ledger.held_out_epsilon("valid") == epsilon({Release(1.0, 40.0): 1, Selection(7.0, 10.0): 1}, DELTA)
    assert ledger.held_out_epsilon("test") == 0
    assert ledger.epsilon() == ledger.epsilon_separate() < ledger.epsilon(accountant="rdp")
    assert set(ledger.approximate_by_group().values()) == {ledger.epsilon()}
    assert ledger.odometer_by_group()["a"] >= ledger.epsilon()
    assert "random number of trials" in ledger.reason
    assert ledger.guarantee == "proved"


def test_who_sees_sums_without_noise_is_kept_from_nothing() -> None:
    assert selecting().by_observer() == {"model": selecting().epsilon(), "server": math.inf,
                                         "client": selecting().epsilon()}


def test_the_ledger_is_read_back() -> None:
    ledger = selecting()
    again = Ledger.from_dict(json.loads(json.dumps(ledger.to_dict())))
    assert again.selections == ledger.selections
    assert again.to_dict() == ledger.to_dict()
    assert again.after(1.0).epsilon() == ledger.epsilon()


def test_a_selection_stands_beside_steps() -> None:
    ledger = selecting()
    before = ledger.epsilon()
    ledger.record(Event((0.1, 0.1), (2.0, 2.0), (2.0, 2.0)), 10)
    assert ledger.epsilon() > before


def test_a_second_selection_of_a_part_is_refused() -> None:
    with pytest.raises(ValueError, match="is in the ledger already"):
        selecting().record_selection("train", Selection(8.0, 10.0))
