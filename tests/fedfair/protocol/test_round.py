"""Rounds travel as JSON."""

from __future__ import annotations

import pytest

from fedfair.mechanisms.clipping import Flat, Global, GlobalAdapt, PerGroup, Reweighted, Unclipped
from fedfair.mechanisms.counting import Above, AboveAndBelow, AtMost, GroupSizes
from fedfair.mechanisms.noise import Trust
from fedfair.protocol.round import LocalSgd, LocalTraining, Round

RULES = [Unclipped(), Flat(0.5), PerGroup((0.5, 1.5)), Global(0.5, 50.0), GlobalAdapt(0.5, 50.0),
         Reweighted((0.5, 0.7), (1.0, 2.0))]
LOCAL = LocalTraining(32, "adam", 0.01, 0.0, 0.0, (1.0, 2.0), (0.25, 0.75), (20, 60))


@pytest.mark.parametrize("rule", [None, *RULES])
@pytest.mark.parametrize("query", [None, Above(3.5), AboveAndBelow((0.5, 1.5)), AtMost(2.5), GroupSizes()])
@pytest.mark.parametrize("local", [(None, None), (LOCAL, None), (None, LocalSgd(2, 16, 0.1, 0.0))])
def test_a_round_survives_json(rule: object, query: object, local: tuple[object, object]) -> None:
    made = Round(7, 3, (0.1, 0.2), 1.5, 15.0, Trust.LOCAL, 5, rule, query,  # type: ignore[arg-type]
                 local=local[0], local_sgd=local[1])  # type: ignore[arg-type]
    assert Round.from_json(made.to_json()) == made


@pytest.mark.parametrize(("part", "message"), [
    ('"kind": "flat"', "unknown clip rule 'flatt': did you mean 'flat'"),
    ('"kind": "above"', "unknown count query 'abovv': did you mean 'above'")])
def test_an_unknown_rule_or_query_is_refused(part: str, message: str) -> None:
    text = Round(3, 7, (0.1,), 1.0, 10.0, Trust.CENTRAL, 4, Flat(0.5), Above(2.0)).to_json()
    assert part in text
    wrong = part.replace("flat", "flatt").replace('"above"', '"abovv"')
    with pytest.raises(ValueError, match=message):
        Round.from_json(text.replace(part, wrong))
