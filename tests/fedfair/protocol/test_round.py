"""Rounds travel as JSON, and charge the noise that they plan."""

from __future__ import annotations

import ast
import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedfair.accounting import Event
from fedfair.mechanisms.clipping import Flat, Global, GlobalAdapt, PerGroup, Reweighted, Unclipped
from fedfair.mechanisms.counting import Above, AboveAndBelow, AtMost, GroupSizes
from fedfair.mechanisms.noise import Trust
from fedfair.protocol.round import Charge, LocalSgd, LocalTraining, Round
from tests.for_each import for_each

ROOT = Path(__file__).resolve().parents[3]
RULES = [Unclipped(), Flat(0.5), PerGroup((0.5, 1.5)), Global(0.5, 50.0), GlobalAdapt(0.5, 50.0),
         Reweighted((0.5, 0.7), (1.0, 2.0))]
LOCAL = LocalTraining(batch_size=32, optimizer="adam", learning_rate=0.01, weight_decay=0.0, momentum=0.0,
                      noise_multipliers=(1.0, 2.0), weights=(0.25, 0.75), sizes=(20, 60))
SGD = LocalSgd(epochs=2, batch_size=16, learning_rate=0.1, weight_decay=0.0, seed=7)
PLAN = Round(key="7", step=3, rates=(0.1, 0.2), noise_multiplier=1.5, count_noise_multiplier=15.0, trust=Trust.LOCAL,
             clients=5, planned_multipliers=(1.5, 1.5), rule=PerGroup((0.5, 1.5)), query=GroupSizes())


def test_a_round_survives_json() -> None:
    plain = Round(key="7", step=3, rates=(0.1, 0.2), noise_multiplier=1.5, count_noise_multiplier=15.0,
                  trust=Trust.LOCAL, clients=5, planned_multipliers=(1.5, 1.0), certain_multipliers=(1.0, 0.5))
    queries = (None, Above(3.5), AboveAndBelow((0.5, 1.5)), AtMost(2.5), GroupSizes())
    locally = ({}, {"local": LOCAL}, {"local_sgd": SGD})
    for rule, query, local in itertools.product((None, *RULES), queries, locally):
        made = replace(plain, rule=rule, query=query, **local)  # type: ignore[arg-type]
        assert Round.from_json(made.to_json()) == made


@pytest.mark.parametrize(("part", "message"), [
    ('"kind": "flat"', "unknown clip rule 'flatt': did you mean 'flat'"),
    ('"kind": "above"', "unknown count query 'abovv': did you mean 'above'")])
def test_an_unknown_rule_or_query_is_refused(part: str, message: str) -> None:
    text = Round(key="3", step=7, rates=(0.1,), noise_multiplier=1.0, count_noise_multiplier=10.0, trust=Trust.CENTRAL,
                 clients=4, rule=Flat(0.5), query=Above(2.0)).to_json()
    assert part in text
    wrong = part.replace("flat", "flatt").replace('"above"', '"abovv"')
    with pytest.raises(ValueError, match=message):
        Round.from_json(text.replace(part, wrong))


def test_a_round_that_counts_says_with_which_noise() -> None:
    with pytest.raises(ValueError, match="no count_noise_multiplier: give one, 0 for exact counts"):
        Round(key="0", step=0, rates=(0.1,), noise_multiplier=1.0, trust=Trust.CENTRAL, clients=1, query=Above(2.0))


def test_a_step_charges_each_group_for_the_noise_in_units_of_its_own_bound() -> None:
    (charge,) = PLAN.charges([(10, 10)])
    assert charge == Charge(Event((0.1, 0.2), (1.5, 1.5), (4.5, 1.5), 15.0), 1, 3)


@pytest.mark.parametrize("claim", [{"planned_multipliers": (1.5, 1.6)}, {"spent_multipliers": (4.6, 1.5)}])
def test_a_round_that_charges_for_more_noise_than_it_adds_is_refused(claim: dict[str, tuple[float, ...]]) -> None:
    with pytest.raises(ValueError, match="the round charges for the noise multipliers"):
        replace(PLAN, **claim).event()


def test_every_client_with_records_is_charged_for_its_own_local_epoch() -> None:
    plan = Round(key="7", step=3, rates=(0.1, 0.2), noise_multiplier=1.5, trust=Trust.CENTRAL, clients=2,
                 rule=Flat(1.0), local=LOCAL)
    first, second = plan.charges([(20, 0), (0, 60)])
    assert first == Charge(Event((1.0, 0.0), (1.0, 1.0), (1.0, 1.0), None, 0), 1, 3)
    assert second == Charge(Event((0.0, 32 / 60), (2.0, 2.0), (2.0, 2.0), None, 1), 1, 3)


def makers_of_events(source: str) -> list[str]:
    """Return the expressions in a program that make an `Event`, or copy one with other figures."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    named = [ast.unparse(call.func) for call in calls]
    return [name for name in named if name.split(".")[-1] == "Event"]


def test_only_accounting_and_the_rounds_plan_make_events() -> None:
    assert makers_of_events("from fedfair import accounting\naccounting.Event((1.0,), (1.0,), (1.0,))")
    allowed = {ROOT / "fedfair" / "protocol" / "round.py", *(ROOT / "fedfair" / "accounting").glob("*.py")}
    others = [path for package in ("fedfair", "strategies", "simulations") for path in (ROOT / package).rglob("*.py")
              if path not in allowed]
    assert len(others) > 100
    assert {path.name: makers_of_events(path.read_text()) for path in others} == {path.name: [] for path in others}


@for_each("rule", [
    {"kind": "per-group", "clip_norms": [1.0, -1e6]}, {"kind": "per-group", "clip_norms": [1.0, 0.0]},
    {"kind": "per-group", "clip_norms": [1.0]}, {"kind": "per-group", "clip_norms": []},
    {"kind": "flat", "clip_norm": float("nan")}, {"kind": "flat", "clip_norm": float("inf")},
    {"kind": "flat", "clip_norm": "1"}, {"kind": "flat", "clip_norm": True}, {"kind": "flat", "clip_norm": None},
    {"kind": "global", "clip_norm": 1.0, "bound": 0.0}, {"kind": "global-adapt", "clip_norm": 1.0, "bound": 0},
    {"kind": "reweighted", "clip_norms": [1.0, 1.0], "weights": [1.0, -1.0]}])
def test_a_rule_that_bounds_nothing_cannot_be_read(rule: dict[str, object]) -> None:
    """Under a negative clip norm a group's gradients are unbounded, while the noise follows the largest clip norm."""
    text = json.dumps({**json.loads(PLAN.to_json()), "rule": rule})
    with pytest.raises(ValueError, match=r"clip rule|group_sensitivities"):
        Round.from_json(text)


@for_each("numbers", [{"noise_multiplier": -1.0}, {"noise_multiplier": float("nan")},
                      {"count_noise_multiplier": -1.0}, {"rates": [0.1, 1.5]},
                      {"rates": [0.1, float("nan")]}, {"rates": [0.1, "0.2"]}])
def test_a_round_with_noise_or_rates_that_are_none_cannot_be_read(numbers: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="give finite numbers from 0"):
        Round.from_json(json.dumps({**json.loads(PLAN.to_json()), **numbers}))
