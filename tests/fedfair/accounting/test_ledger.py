"""What a ledger says of the events that happened: by group, by observer, fixed in advance and spent."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.accounting import Accountant, Event, Ledger, Release, RenyiFilter, Unit, epsilon, noise_present
from fedfair.accounting.events import Preprocessed
from fedfair.accounting.ledger_words import reading
from fedfair.mechanisms.noise import Trust
from tests.fedfair.accounting.oracle import direct
from tests.for_each import for_each

DELTA = 1e-6


def ledger_of(*events: tuple[Event, int], **settings: object) -> Ledger:
    made = Ledger(("a", "b"), DELTA, **{"accountant": "rdp", **settings})  # type: ignore[arg-type]
    for event, steps in events:
        made.record(event, steps)
    return made


def through_json(ledger: Ledger) -> Ledger:
    return Ledger.from_dict(json.loads(json.dumps(ledger.to_dict())))


ADAPTIVE = [(Event((0.01, 0.02), (1.0, 1.0), (1.0, 1.0 + 0.5 * i), 10.0), 40) for i in range(3)]
LOCAL = [(Event((0.1, 0.0), (1.5, 1.5), (1.5, 1.5), None, 0), 30),
         (Event((0.0, 0.3), (1.2, 1.2), (1.2, 1.2), None, 1), 20),
         (Event((0.2, 0.2), (2.0, 2.0), (2.0, 2.0), None, 2), 25)]
SPENT = sum(steps * RenyiFilter(8, 0.0).cost(event.spent(1)) for event, steps in ADAPTIVE)
"""What the second group spent in `ADAPTIVE`, as a budget of order 8 counts it."""


def composed(releases: Iterable[Release]) -> dict[Release, int]:
    """Return how often there was each release, of which every event of `ADAPTIVE` had one."""
    times: dict[Release, int] = {}
    for release, (_, steps) in zip(releases, ADAPTIVE, strict=True):
        times[release] = times.get(release, 0) + steps
    return times


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_each_groups_epsilon_is_the_composition_of_its_events(accountant: Accountant) -> None:
    ledger = ledger_of(*ADAPTIVE, accountant=accountant)

    def slow(group: int, adaptive: bool) -> float:
        releases = []
        for event, _ in ADAPTIVE:
            gradient = (event.spent_multipliers if adaptive else event.multipliers)[group]
            releases.append(Release(event.rates[group], 1 / math.sqrt(gradient**-2 + 10.0**-2)))
        return direct(composed(releases), accountant)

    assert ledger.epsilon_by_group() == pytest.approx({"a": slow(0, True), "b": slow(1, True)}, rel=1e-3)
    assert ledger.guaranteed_by_group() == pytest.approx({"a": slow(0, False), "b": slow(1, False)}, rel=1e-3)
    assert ledger.epsilon() == max(ledger.guaranteed_by_group().values())
    assert ledger.epsilon_by_group()["b"] < ledger.guaranteed_by_group()["b"]
    assert reading(ledger).startswith("an odometer reading")


def test_many_events_are_charged_within_half_a_percent_and_never_too_little() -> None:
    events = [(Event((0.05, 0.05), (1.0, 1.0), (1.0, 1.0 + 0.05 * i), 10.0), 8) for i in range(40)]
    exact = direct({event.spent(1): steps for event, steps in events})
    assert exact * (1 - 1e-9) <= ledger_of(*events).epsilon_by_group()["b"] <= exact * 1.005


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.floats(1, 3), st.floats(1, 3)), min_size=1, max_size=5),
       st.sampled_from(["rdp", "pld"]))
def test_the_group_with_the_largest_bound_pays_epsilon_and_the_others_less(ratios: list[tuple[float, float]],
                                                                         accountant: Accountant) -> None:
    """Three groups: the first always has the largest bound, the others smaller ones by these ratios."""
    events = [(Event((0.05,) * 3, (1.2,) * 3, (1.2, 1.2 * b, 1.2 * c), 12.0), 30) for b, c in ratios]
    ledger = Ledger(("a", "b", "c"), DELTA, accountant=accountant)
    for event, steps in events:
        ledger.record(event, steps)
    spent, overall = ledger.epsilon_by_group(), ledger.epsilon()
    assert spent["a"] == pytest.approx(overall, rel=1e-9)
    for place, name in enumerate("bc"):
        if max(pair[place] for pair in ratios) > 1.01:
            assert spent[name] < overall
        assert spent[name] <= overall * (1 + 1e-9)


def test_clients_hold_different_records_so_the_largest_of_them_counts() -> None:
    ledger = ledger_of(*LOCAL)
    first, second, third = (direct({Release(*pair): steps}) for pair, steps in (
        ((0.1, 1.5), 30), ((0.3, 1.2), 20), ((0.2, 2.0), 25)))
    assert ledger.guaranteed_by_group() == pytest.approx({"a": max(first, third), "b": max(second, third)}, rel=1e-9)
    assert ledger.epsilon() == pytest.approx(max(first, second, third), rel=1e-9)
    assert reading(ledger) == "guaranteed in advance"


def test_an_event_over_all_clients_adds_to_each_clients_own() -> None:
    common = Event((0.1, 0.1), (2.0, 2.0), (2.0, 2.0))
    ledger = ledger_of((common, 10), *LOCAL[:2])
    assert ledger.guaranteed_by_group() == pytest.approx({
        "a": direct({Release(0.1, 2.0): 10, Release(0.1, 1.5): 30}),
        "b": direct({Release(0.1, 2.0): 10, Release(0.3, 1.2): 20})}, rel=1e-9)


def test_counts_are_charged_and_the_papers_way_is_beside_it() -> None:
    """Hazard 3."""
    with_counts, without = (ledger_of((Event((0.01, 0.01), (1.0, 1.0), (1.0, 1.0), counts), 500))
                            for counts in (3.0, None))
    assert with_counts.epsilon() > without.epsilon()
    assert with_counts.epsilon_separate() == pytest.approx(
        direct({Release(0.01, 1.0): 500, Release(0.01, 3.0): 500}), rel=1e-9)
    assert without.epsilon_separate() == without.epsilon()


@for_each(("events", "mean"), [
    (ADAPTIVE, (1 + 1 / 1.5 + 1 / 2) / 3),
    ([(Event((0.1, 0.1), (1.0, 1.0), (1.0, ratio)), steps) for ratio, steps in ((2.0, 30), (4.0, 10))],
     (30 / 2 + 10 / 4) / 40)])
def test_the_papers_approximation_is_the_mean_ratio_of_all_steps_times_epsilon(events: list[tuple[Event, int]],
                                                                               mean: float) -> None:
    ledger = ledger_of(*events)
    assert ledger.approximate_by_group() == pytest.approx({"a": ledger.epsilon(), "b": mean * ledger.epsilon()})


def test_delta_and_accountant_can_be_chosen() -> None:
    ledger = ledger_of(*ADAPTIVE)
    assert ledger.epsilon(delta=1e-3) < ledger.epsilon() == ledger.epsilon(DELTA, "rdp")
    assert ledger.epsilon(accountant="pld") < ledger.epsilon()
    with pytest.raises(ValueError, match="delta is 0"):
        ledger.epsilon(delta=0.0)


def test_without_noise_there_is_no_guarantee() -> None:
    ledger = ledger_of((Event((0.1, 0.1), (0.0, 0.0), (0.0, 0.0)), 1))
    assert math.isinf(ledger.epsilon())
    assert all(map(math.isinf, ledger.epsilon_by_group().values()))
    assert ledger.guarantee == "none"


def test_gradient_noise_without_count_noise_is_no_guarantee() -> None:
    assert ledger_of((Event((0.1, 0.1), (1.0, 1.0), (1.0, 1.0), 0.0), 1)).guarantee == "none"


def test_an_empty_ledger_has_spent_nothing() -> None:
    ledger = ledger_of()
    assert ledger.epsilon() == ledger.epsilon_separate() == 0
    assert ledger.epsilon_by_group() == {"a": 0.0, "b": 0.0}


@pytest.mark.parametrize("trust", list(Trust))
@for_each("clients", [2, 5])
def test_each_observer_is_charged_the_noise_that_it_sees(trust: Trust, clients: int) -> None:
    """By hand: variances of what is left between a record and whoever looks."""
    planned = {Trust.CENTRAL: {"model": 1, "server": 0, "client": 1},
               Trust.DISTRIBUTED: {"model": 1, "server": 1 / clients, "client": (clients - 1) / clients},
               Trust.LOCAL: {"model": clients, "server": 1, "client": clients - 1}}[trust]
    ledger = ledger_of(*ADAPTIVE, trust=trust, clients=clients)
    fixed = [event.guaranteed(1) for event, _ in ADAPTIVE]
    spent = [event.spent(1) for event, _ in ADAPTIVE]
    for name, variance in planned.items():
        for observed, charged in ((ledger.by_observer()[name], fixed),  # type: ignore[index]
                                  (ledger.by_observer_and_group()[name]["b"], spent)):  # type: ignore[index]
            seen = [release._replace(multiplier=release.multiplier * math.sqrt(variance)) for release in charged]
            assert observed == pytest.approx(epsilon(composed(seen), DELTA, "rdp"), rel=1e-9)


@pytest.mark.parametrize("trust", list(Trust))
def test_local_epochs_are_protected_before_they_leave(trust: Trust) -> None:
    observed = ledger_of(*LOCAL, trust=trust, clients=3).by_observer()
    assert observed["server"] == observed["client"] == observed["model"] < math.inf


def test_secure_aggregation_hides_the_shares_from_the_server() -> None:
    bare, secure = (ledger_of(*ADAPTIVE, trust=Trust.DISTRIBUTED, clients=5, secure_aggregation=s).by_observer()
                    for s in (False, True))
    assert secure["server"] == secure["model"] == bare["model"] < bare["server"]
    assert secure["client"] == bare["client"] > secure["model"]


@pytest.mark.parametrize(("unit", "unmasked"), [("record", (6.0,)), ("participant", (6.0, 3.0))])
def test_what_is_sent_without_masks_is_charged_without_them(unit: Unit, unmasked: tuple[float, ...]) -> None:
    """Counts of preprocessing and of a threshold search: the server sees each client's, with a share of the noise."""
    ledger = ledger_of((Event((1.0, 1.0), (2.0, 2.0), (2.0, 2.0)), 1), trust=Trust.DISTRIBUTED, clients=4,
                       secure_aggregation=True, protects=unit, preprocessing=Preprocessed(6.0, 0.0))
    ledger.record_held_out("valid", 3.0)
    shares = {Release(1.0, multiplier / 2): 1 for multiplier in unmasked}
    assert ledger.by_observer()["server"] == pytest.approx(direct({Release(1.0, 2.0): 1, **shares}), rel=1e-9)
    assert ledger.by_observer()["server"] > ledger.by_observer()["model"]


def test_shares_of_missing_clients_protect_nobody() -> None:
    """Hazard 13: with 2 of 8 shares missing, the noise is sigma sqrt(6/8), for another client sqrt(5/8)."""
    event = Event((0.01, 0.01), (1.0, 1.0), (1.0, 1.0), noise_present=noise_present(8, 2))
    ledger = ledger_of((event, 100), trust=Trust.DISTRIBUTED, clients=8)
    for name, variance in (("model", 6 / 8), ("client", 5 / 8)):
        assert ledger.by_observer()[name] == pytest.approx(  # type: ignore[index]
            direct({Release(0.01, math.sqrt(variance)): 100}), rel=1e-9)
    assert ledger.epsilon() == ledger.by_observer()["model"] == ledger.epsilon_by_group()["a"]


def test_the_odometer_is_above_what_was_spent_and_does_not_hang_on_the_guarantee() -> None:
    ledger = ledger_of(*ADAPTIVE)
    spent, read = ledger.epsilon_by_group(), ledger.odometer_by_group()
    assert all(spent[name] < read[name] < 2.5 * spent[name] for name in "ab")
    assert read["b"] == ledger_of(*[(Event(e.rates, e.spent_multipliers, e.spent_multipliers, 10.0), n)
                                    for e, n in ADAPTIVE]).odometer_by_group()["b"]


def test_odometer_and_budget_charge_what_was_certain_before_counts_of_the_same_batch() -> None:
    certain = [(replace(e, certain_multipliers=e.multipliers), n) for e, n in ADAPTIVE]
    known = [(e.in_advance(), n) for e, n in ADAPTIVE]
    assert ledger_of(*certain).epsilon_by_group() == ledger_of(*ADAPTIVE).epsilon_by_group()
    assert ledger_of(*certain).odometer_by_group() == ledger_of(*known).odometer_by_group()
    assert ledger_of(*certain).odometer_by_group()["b"] > ledger_of(*ADAPTIVE).odometer_by_group()["b"]
    budget = RenyiFilter(8, 1.001 * SPENT)
    assert ledger_of(*certain, budget=budget).guaranteed_by_group() == ledger_of(*known).guaranteed_by_group()
    assert through_json(ledger_of(*certain)).events == ledger_of(*certain).events


def test_a_budget_counts_only_as_long_as_it_was_kept() -> None:
    kept, broken = RenyiFilter(8, 1.001 * SPENT), RenyiFilter(8, 0.999 * SPENT)
    for budget, holds in ((kept, True), (broken, False)):
        ledger = ledger_of(*ADAPTIVE, budget=budget)
        group = ledger.guaranteed_by_group()["b"]
        assert (group == pytest.approx(budget.epsilon(DELTA))) is holds
        assert holds or group == ledger_of(*ADAPTIVE).guaranteed_by_group()["b"]
    assert through_json(ledger).budget == broken


def test_a_budget_that_was_kept_guarantees_as_much_against_whoever_gets_the_model() -> None:
    budget = RenyiFilter(8, 0.1)
    ledger = ledger_of((Event((0.05, 0.05), (1.0, 1.0), (9.0, 9.0)), 10), budget=budget, trust=Trust.LOCAL, clients=1)
    assert ledger.by_observer()["model"] == ledger.epsilon() == budget.epsilon(DELTA)
    assert budget.epsilon(DELTA) < ledger.by_observer()["server"]


@pytest.mark.parametrize("trust", list(Trust))
def test_where_there_is_one_client_no_other_knows_noise_of_its_own(trust: Trust) -> None:
    observed = ledger_of(*ADAPTIVE, trust=trust, clients=1).by_observer()
    assert observed["client"] == observed["model"] < math.inf


def test_validation_data_and_unprotected_releases_are_named_apart() -> None:
    ledger = ledger_of(*ADAPTIVE)
    ledger.record_held_out("valid", 3.0)
    ledger.expose("metrics on the test part", "counts and losses by group, without noise")
    assert ledger.held_out_epsilon("valid") == pytest.approx(epsilon({Release(1.0, 3.0): 1}, DELTA, ledger.accountant))
    assert ledger.epsilon() == ledger_of(*ADAPTIVE).epsilon()
    again = through_json(ledger)
    assert (again.held_out, again.unprotected) == (ledger.held_out, ledger.unprotected)
    assert list(again.to_dict()["not_protected"]) == ["metrics on the test part"]


@for_each("events", [ADAPTIVE, LOCAL, [], [(Event((0.1, 0.1), (0.0, 0.0), (0.0, 0.0)), 3)]])
def test_a_ledger_survives_json(events: list[tuple[Event, int]]) -> None:
    """Hazard 12: what a resumed run starts from."""
    ledger = ledger_of(*events, trust=Trust.LOCAL, clients=3, nominal="a reason")
    again = through_json(ledger)
    assert again.events == ledger.events
    assert again.to_dict() == ledger.to_dict()
    again.record(Event((0.2, 0.2), (1.0, 1.0), (1.0, 1.0)), 5)
    assert again.epsilon() > ledger.epsilon() or math.isinf(ledger.epsilon())


@for_each("events", [ADAPTIVE, LOCAL, [*LOCAL, *ADAPTIVE], []])
@for_each("trust", list(Trust))
def test_what_was_known_in_advance_costs_what_was_guaranteed(events: list[tuple[Event, int]], trust: Trust) -> None:
    ledger = ledger_of(*events, trust=trust, clients=3)
    before = ledger.guaranteed_by_group(), ledger.by_observer()
    known = ledger.holding(ledger.log.in_advance())
    assert (known.guaranteed_by_group(), known.by_observer()) == before
    assert known.epsilon_by_group() == known.guaranteed_by_group()
    assert reading(known) == "guaranteed in advance"


@pytest.mark.parametrize(("event", "nominal", "guarantee", "why"), [
    (ADAPTIVE[0][0], None, "proved", "every release is a Poisson-sampled Gaussian .* composed by rdp"),
    (ADAPTIVE[0][0], "the loss depends on the batch", "nominal", "the loss depends on the batch"),
    (Event((0.1, 0.1), (0.0, 0.0), (0.0, 0.0)), None, "none", "a release carried no noise")])
def test_the_guarantee_gives_its_reason(event: Event, nominal: str | None, guarantee: str, why: str) -> None:
    ledger = ledger_of((event, 1), nominal=nominal)
    assert ledger.guarantee == guarantee
    assert re.match(why, ledger.reason)
    assert ledger.to_dict().get("nominal_because") == nominal


def test_recording_adds_up() -> None:
    once, twice = ledger_of((ADAPTIVE[0][0], 80)), ledger_of(ADAPTIVE[0], ADAPTIVE[0])
    assert once.events == twice.events
    assert once.epsilon() == twice.epsilon() > ledger_of(ADAPTIVE[0]).epsilon()


def test_nothing_that_a_ledger_was_made_with_is_lost_in_json() -> None:
    """What it forgets, a resumed run would claim anew: that sums are not broadcast, or who is protected."""
    ledger = ledger_of(*ADAPTIVE, trust=Trust.DISTRIBUTED, clients=4, nominal="a reason", protects="participant",
                       broadcasts=True, secure_aggregation=True, public="the number of sites",
                       budget=RenyiFilter(8, 1.0))
    again = through_json(ledger)
    assert {**vars(again), "log": None} == {**vars(ledger), "log": None}
    assert math.isinf(again.by_observer()["client"])


def test_searches_on_the_same_validation_records_add_up() -> None:
    """Two Gaussians of one multiplier are one of it over the root of 2; one without noise tells everything."""
    ledger = ledger_of()
    for multiplier, joint in ((3.0, 3.0), (3.0, 3.0 / math.sqrt(2)), (4.0, (2 / 9 + 1 / 16) ** -0.5), (0.0, 0.0),
                              (5.0, 0.0)):
        ledger.record_held_out("valid", multiplier)
        assert ledger.held_out["valid"] == pytest.approx((1.0, joint))
    assert math.isinf(ledger.held_out_epsilon("valid"))


def test_a_chosen_delta_is_that_of_every_figure() -> None:
    """As if it had been the ledger's own."""
    budget = RenyiFilter(8, 1.001 * SPENT)
    usual, other = ledger_of(*ADAPTIVE, budget=budget), Ledger(("a", "b"), 1e-7, accountant="rdp", budget=budget)
    for event, steps in ADAPTIVE:
        other.record(event, steps)
    for ledger in (usual, other):
        ledger.record_held_out("valid", 5.0)
    assert usual.guaranteed_by_group(1e-7) == other.guaranteed_by_group() != usual.guaranteed_by_group()
    assert usual.guaranteed_by_group(1e-7)["b"] == budget.epsilon(1e-7)
    assert usual.odometer_by_group(1e-7) == other.odometer_by_group() != usual.odometer_by_group()
    assert usual.held_out_epsilon("valid", 1e-7) == other.held_out_epsilon("valid") != usual.held_out_epsilon("valid")


def test_secure_aggregation_adds_nothing_where_the_server_adds_the_noise_or_everybody_a_whole_one() -> None:
    for trust, seen in ((Trust.CENTRAL, math.inf), (Trust.LOCAL, ledger_of(*ADAPTIVE).epsilon())):
        observed = ledger_of(*ADAPTIVE, trust=trust, clients=5, secure_aggregation=True).by_observer()
        assert observed["server"] == pytest.approx(seen)


def test_a_simulated_guarantee_says_what_it_would_be_and_survives_json() -> None:
    """Hazard 30: whoever has the seed has the noise."""
    ledger = Ledger(("a", "b"), 1e-5, simulated="batches and noise come from a seed")
    ledger.record(ADAPTIVE[0][0], 3)
    again = through_json(ledger)
    for each in (ledger, again):
        assert each.guarantee == "simulated"
        assert each.reason == "batches and noise come from a seed; with secret randomness it would be proved"
    nominal = ledger_of(ADAPTIVE[0], nominal="nothing bounds it", simulated="batches and noise come from a seed")
    assert nominal.guarantee == "nominal"
    assert nominal.reason == "nothing bounds it; batches and noise come from a seed"
