"""Epsilon against the published figures, other accountants and slow direct compositions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedfair.accounting import Accountant, Event, Release, epsilon
from fedfair.accounting.renyi import ORDERS, divergences, to_epsilon
from tests.fedfair.accounting.oracle import direct, google_divergences, opacus_divergences
from tests.for_each import for_each

DELTA = 1e-6
PUBLISHED = [  # N, epochs, sigma, RDP, PLD, RDP of the joint event with s1 = 10 sigma: methods.md, section 0
    (48336, 20, 1.0, 2.270, 2.039, 2.294), (54600, 60, 0.8, 5.914, 5.432, 5.991),
    (162770, 30, 0.8, 2.493, 2.033, 2.527), (36177, 20, 1.0, 2.662, 2.413, 2.691)]
XU = [(54649, 60, 0.8, 6.55), (60000, 60, 0.8, 6.23), (36177, 20, 1.0, 3.10), (22400, 20, 1.0, 3.99),
      (48336, 20, 1.0, 2.66), (32000, 20, 1.0, 3.29)]  # N, epochs, sigma, epsilon as Xu et al. 2020 and 2021 print it
rates = st.floats(1e-3, 0.5)
multipliers = st.floats(0.6, 8)
few = settings(deadline=None, max_examples=6)


@for_each(("records", "epochs", "sigma", "rdp", "pld", "joint"), PUBLISHED)
def test_the_published_figures(records: int, epochs: int, sigma: float, rdp: float, pld: float, joint: float) -> None:
    rate, steps = 256 / records, int(epochs * records / 256)
    assert epsilon({Release(rate, sigma): steps}, DELTA, "rdp") == pytest.approx(rdp, abs=0.001)
    assert epsilon({Release(rate, sigma): steps}, DELTA, "pld") == pytest.approx(pld, abs=0.001)
    both = Event((rate,), (sigma,), (sigma,), 10 * sigma)
    assert epsilon({both.guaranteed(0): steps}, DELTA, "rdp") == pytest.approx(joint, abs=0.001)


def moments_accountant(rate: float, sigma: float, steps: int) -> float:
    """Abadi et al. 2016, section 3: log moments of whole orders, term by term, and their tail bound."""
    def moment(order: int) -> float:
        return math.fsum(math.comb(order, k) * rate**k * (1 - rate) ** (order - k)
                         * math.exp((k * k - k) / 2 / sigma**2) for k in range(order + 1))

    return min((steps * math.log(moment(order)) + math.log(1 / DELTA)) / (order - 1) for order in range(2, 30))


@for_each(("records", "epochs", "sigma", "printed"), XU)
def test_the_older_conversion_gives_what_xu_print(records: int, epochs: int, sigma: float, printed: float) -> None:
    rate, steps = 256 / records, epochs * records // 256
    found = epsilon({Release(rate, sigma): steps}, DELTA, "rdp-classic")
    assert round(found, 2) == printed
    assert found == pytest.approx(moments_accountant(rate, sigma, steps), rel=1e-9)


@given(st.dictionaries(st.builds(Release, rates, multipliers), st.integers(1, 200), min_size=1, max_size=3),
       st.floats(1e-9, 0.1))
@few
def test_the_older_conversion_is_never_the_smaller_one(releases: dict[Release, int], delta: float) -> None:
    assert epsilon(releases, delta, "rdp-classic") > epsilon(releases, delta, "rdp")


@pytest.mark.parametrize(("rate", "sigma", "steps"), [(256 / 48336, 1.0, 3776), (0.05, 1.5, 400), (1.0, 20.0, 100)])
def test_opacus_agrees(rate: float, sigma: float, steps: int) -> None:
    from opacus.accountants import RDPAccountant

    theirs = RDPAccountant()
    theirs.history = [(sigma, rate, steps)]
    assert epsilon({Release(rate, sigma): steps}, 1e-5, "rdp") == pytest.approx(theirs.get_epsilon(1e-5), rel=3e-3)


def test_one_gaussian_release_has_the_epsilon_of_its_closed_form() -> None:
    """Balle and Wang 2018: the only mechanism here whose epsilon is known exactly."""
    def delta_of(eps: float, sigma: float) -> float:
        def cdf(t: float) -> float:
            return math.erfc(-t / math.sqrt(2)) / 2
        return cdf(0.5 / sigma - eps * sigma) - math.exp(eps) * cdf(-0.5 / sigma - eps * sigma)

    for sigma in (0.5, 1.0, 5.0):
        found = epsilon({Release(1.0, sigma): 1}, 1e-5, "pld")
        assert delta_of(found, sigma) <= 1e-5 * 1.000001
        assert delta_of(found * 0.995, sigma) > 1e-5


@pytest.mark.parametrize("accountant", ["pld", "rdp", "rdp-classic"])
@given(rate=rates, multiplier=multipliers, steps=st.integers(1, 100), more=st.floats(1.05, 2))
@settings(deadline=None, max_examples=4)
def test_epsilon_falls_with_noise_and_grows_with_steps_and_rate(accountant: Accountant, rate: float, multiplier: float,
                                                                steps: int, more: float) -> None:
    base = epsilon({Release(rate, multiplier): steps}, DELTA, accountant)
    slack = 1e-3 if accountant == "pld" else 1e-9  # the discretisation
    assert epsilon({Release(rate, multiplier * more): steps}, DELTA, accountant) <= base + slack
    assert epsilon({Release(rate, multiplier): math.ceil(steps * more)}, DELTA, accountant) >= base - slack
    assert epsilon({Release(min(1.0, rate * more), multiplier): steps}, DELTA, accountant) >= base - slack
    assert epsilon({Release(rate, multiplier): steps}, DELTA * 10, accountant) <= base + slack


@few
@given(st.dictionaries(st.builds(Release, rates, multipliers), st.integers(1, 200), min_size=1, max_size=3))
def test_a_few_distinct_releases_are_composed_exactly(releases: dict[Release, int]) -> None:
    assert epsilon(releases, DELTA, "rdp") == pytest.approx(direct(releases), rel=1e-9)


@settings(deadline=None, max_examples=3)
@given(rates, multipliers, st.floats(1.1, 3), st.integers(1, 20))
@example(0.0034884284, 2.0769528, 2.0575720, 8)  # few steps on rare records: the best order is among the largest
def test_many_distinct_releases_are_charged_at_most_half_a_percent_more_than_exactly(rate: float, least: float,
                                                                                  ratio: float, count: int) -> None:
    releases = {Release(rate, least * ratio ** (i / 39)): count for i in range(40)}
    exact = direct(releases)
    assert exact * (1 - 1e-9) <= epsilon(releases, DELTA, "rdp") <= exact * 1.005


@pytest.mark.parametrize(("rate", "low", "high", "count"), [(0.005, 0.9, 3.0, 60), (0.1, 2.0, 9.0, 10)])
def test_many_distinct_releases_cost_by_pld_what_dp_accounting_says(rate: float, low: float, high: float, count: int
                                                                    ) -> None:
    releases = {Release(rate, low + (high - low) * i / 39): count for i in range(40)}
    exact = direct(releases, "pld", interval=2e-4)
    assert direct(releases, "pld", pessimistic=False, interval=2e-4) <= epsilon(releases, DELTA, "pld") <= exact * 1.005


@given(rates, multipliers, st.integers(1, 100))
@settings(deadline=None, max_examples=6)
def test_pld_is_never_above_rdp(rate: float, multiplier: float, steps: int) -> None:
    releases = {Release(rate, multiplier): steps}
    assert epsilon(releases, DELTA, "pld") <= epsilon(releases, DELTA, "rdp") + 1e-3


@pytest.mark.parametrize("accountant", ["pld", "rdp", "rdp-classic"])
def test_what_costs_nothing_and_what_costs_everything(accountant: Accountant) -> None:
    assert epsilon({}, DELTA, accountant) == 0
    assert epsilon({Release(0.0, 1.0): 10, Release(0.0, 0.0): 1, Release(0.1, 0.0): 0}, DELTA, accountant) == 0
    assert epsilon({Release(0.1, math.inf): 10}, DELTA, accountant) == 0
    assert math.isinf(epsilon({Release(0.1, 0.0): 1, Release(0.1, 5.0): 1}, DELTA, accountant))


@pytest.mark.parametrize("accountant", ["pld", "rdp", "rdp-classic"])
def test_little_noise_is_charged_and_ends(accountant: Accountant) -> None:
    assert 100 < epsilon({Release(0.5, 0.05): 10}, DELTA, accountant) < math.inf
    assert 1e5 < epsilon({Release(0.5, 0.001): 10}, DELTA, accountant) < math.inf


@for_each("delta", [0.0, 1.0, -1e-6, 2.0, math.nan])
def test_a_delta_outside_0_and_1_is_refused(delta: float) -> None:
    with pytest.raises(ValueError, match=f"delta is {delta}: it must lie strictly between 0 and 1"):
        epsilon({Release(0.1, 1.0): 1}, delta)


DELTAS = (1e-5, 1e-6)
GRID = list(itertools.product((0.001, 0.004, 0.01, 0.05, 0.2), (0.7, 1.0, 1.5, 3.0, 6.0), (10, 100, 1000, 4000),
                              DELTAS))
SOME = GRID[::17]  # a few of everything


def other_accountants_agree(rate: float, sigma: float, steps: int, delta: float) -> None:
    """Within 0.5 % of dp-accounting's RDP at whole orders (between them its divergences are upper bounds), of Opacus's
    RDP at the same orders as ours, and of dp-accounting's PLD.
    """
    from opacus.accountants.analysis.rdp import get_privacy_spent

    releases = {Release(rate, sigma): steps}
    by_rdp, by_pld = epsilon(releases, delta, "rdp"), epsilon(releases, delta, "pld")
    google, whole = steps * google_divergences(rate, sigma), np.floor(ORDERS) == ORDERS
    theirs = to_epsilon(ORDERS[whole], google[whole], delta)
    ours = to_epsilon(ORDERS[whole], steps * divergences(Release(rate, sigma))[whole], delta)
    assert ours == pytest.approx(theirs, rel=5e-3)
    assert by_rdp <= to_epsilon(ORDERS, google, delta) * (1 + 1e-6)
    opacus = get_privacy_spent(orders=ORDERS, rdp=steps * opacus_divergences(rate, sigma), delta=delta)[0]
    assert by_rdp == pytest.approx(opacus, rel=5e-3)
    interval = min(max(1e-4 * epsilon(releases, max(DELTAS), "rdp"), 1e-5), 1e-3)  # one distribution for both deltas
    assert by_pld == pytest.approx(direct(releases, "pld", delta, interval=interval), rel=5e-3)
    assert by_pld >= direct(releases, "pld", delta, False, interval) - 1e-9


@for_each(("rate", "sigma", "steps", "delta"), SOME)
def test_other_accountants_agree_here_and_there(rate: float, sigma: float, steps: int, delta: float) -> None:
    other_accountants_agree(rate, sigma, steps, delta)


@pytest.mark.slow
@pytest.mark.parametrize("rate", sorted({setting[0] for setting in GRID}))
def test_other_accountants_agree_over_the_whole_grid(rate: float) -> None:
    assert len(GRID) == 200
    for setting in [setting for setting in GRID if setting[0] == rate][::3]:
        other_accountants_agree(*setting)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rate", sorted({setting[0] for setting in GRID}))
def test_opacus_prv_agrees(rate: float) -> None:
    """It returns its estimate and `eps_error` more."""
    from opacus.accountants import PRVAccountant

    for _, sigma, steps, delta in [setting for setting in GRID if setting[0] == rate][1::3]:
        theirs = PRVAccountant()
        theirs.history = [(sigma, rate, steps)]
        ours = epsilon({Release(rate, sigma): steps}, delta)
        error = max(0.05 * ours, 5e-4)
        assert ours == pytest.approx(theirs.get_epsilon(delta, eps_error=error) - error, rel=5e-3), (sigma, steps)


@pytest.mark.parametrize("accountant", ["pld", "rdp", "rdp-classic"])
def test_little_noise_among_much_is_charged_and_ends(accountant: Accountant) -> None:
    """Losses of thousands, which no grid holds, beside losses of hundredths."""
    little = {Release(0.5, 0.01): 2}
    alone, both = (epsilon(releases, DELTA, accountant) for releases in (little, {**little, Release(0.1, 5.0): 10}))
    assert 1e3 < alone <= both < alone * 1.01
