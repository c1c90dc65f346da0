"""What is particular to FairLens: what it refuses, odd batches, and that its epsilon is rightly only nominal."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedfair.accounting import Ledger
from fedfair.datasets import GroupedDataset, Parts
from fedfair.mechanisms.clipping import Flat
from fedfair.mechanisms.noise import Trust
from fedfair.node import fairlens_sums as fairlens
from fedfair.node.node import Node
from fedfair.protocol.round import Round
from simulations import run
from simulations.results.ledger_table import notes, promise
from tests.for_each import for_each
from tests.strategies.oracle_fairlens import clipped_sum
from tests.strategies.test_contract import experiment, server

CLIP = 0.1


def records(seed: int, groups: list[int], scale: float = 1.0) -> GroupedDataset:
    """Return records of these groups, with four features."""
    draws = torch.Generator().manual_seed(seed)
    x = scale * torch.randn(len(groups), 4, generator=draws, dtype=torch.float64)
    y = torch.randint(2, (len(groups),), generator=draws)
    return GroupedDataset(x, y, torch.tensor(groups, dtype=torch.long), ("a", "b"), 2)


def model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).double()


def released(data: GroupedDataset, net: nn.Module, trust: Trust = Trust.CENTRAL) -> Tensor:
    """Return the clipped sum of a batch of all these records, flattened: what the strategy asks its clients for."""
    empty = records(0, [])
    here = Node({0: Parts(data, empty, empty)}, net, "cpu")
    weights = {name: p.detach() for name, p in net.named_parameters()}
    round_ = Round(key="0", step=0, rates=(1.0, 1.0), noise_multiplier=0.0, trust=trust, clients=1, rule=Flat(CLIP))
    sums = fairlens.batch_sums(here, weights, round_)
    assert sums is not None
    penalty = server("fairlens").penalty(sums)  # type: ignore[attr-defined]
    shift = fairlens.penalty_gradient(here, weights, round_, penalty)
    found = fairlens.shifted_gradient_sum(here, weights, round_, shift)
    return torch.cat([value.flatten() for value in found.values()])


@pytest.mark.parametrize("groups", [[0, 0, 1, 0, 1], [0, 0, 0], [1], [1, 0]])
def test_a_batch_without_one_of_the_groups_follows_the_definition(groups: list[int]) -> None:
    data, net = records(1, groups), model()
    expected = clipped_sum(net, data.x, data.y, data.group, CLIP)
    assert torch.allclose(released(data, net), expected, rtol=0, atol=1e-12)


def test_an_empty_batch_is_a_batch() -> None:
    assert not released(records(1, []), model()).any()


def test_a_gradient_of_zero_does_not_spoil_the_batch() -> None:
    """Where the loss is exactly 0 the norm has no derivative: the record must add r alone, and no NaN."""
    data, net = records(2, [0, 1, 0, 1]), model()
    certain = torch.tensor([1e4, 0.0, 0.0, 0.0], dtype=torch.float64)
    with torch.no_grad():
        net[0].weight[:, 0] = torch.tensor([1.0, -1.0, 1.0])
        net[2].weight.mul_(1e3)
    data.x[0], data.y[0] = certain, int(net(certain[None]).argmax())
    assert bool(released(data, net).isfinite().all())


def test_one_record_can_change_the_sum_by_more_than_the_clip_norm() -> None:
    """Hazard 6, a counterexample: without its only record of group b, a batch loses R1 and every gradient its shift."""
    net = model()
    data = records(4, [0] * 30 + [1], scale=3.0)
    change = released(data, net) - released(data.take(torch.arange(30)), net)
    assert float(change.norm()) > 10 * CLIP


def test_the_ledger_says_nominal_and_that_clients_see_means_of_the_batch() -> None:
    made = experiment("fairlens")
    ledger, plain = run(made).ledger, run(made.model_copy(update={"strategy": "dpsgd"})).ledger
    assert (ledger.guarantee, plain.guarantee) == ("nominal", "nominal")  # dpsgd for the scaling of its numbers
    assert "depends on the whole batch" in str(ledger.to_dict()["nominal_because"])
    assert ledger.epsilon() == plain.epsilon()
    assert math.isinf(ledger.by_observer()["client"])
    assert math.isfinite(plain.by_observer()["client"])


def test_a_run_that_is_nominal_for_two_reasons_names_both_wherever_it_says_why() -> None:
    """In ledger.json, which is read back, in `fedfair ledger` and in the report."""
    saved = Ledger.from_dict(json.loads(json.dumps(run(experiment("fairlens")).ledger.to_dict())))
    for said in (saved.nominal or "", saved.reason, " ".join(notes(saved, saved.delta)), promise(saved)):
        assert "depends on the whole batch" in said
        assert "means and deviations of the training records" in said


@pytest.mark.usefixtures("keyed_by_seed")
def test_a_penalty_of_weight_zero_is_dpsgd() -> None:
    made = experiment("fairlens", options={"gamma1": 0.0, "gamma2": 0.0}, dtype="float64")
    plain = run(made.model_copy(update={"strategy": "dpsgd", "options": {}}))
    for a, b in zip(run(made).model.parameters(), plain.model.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("settings", "message"), [
    ({"trust": "distributed"}, "needs sums without noise at the server, but trust is 'distributed'"),
    ({"trust": "local"}, "needs sums without noise at the server, but trust is 'local'"),
    ({"sync": "epoch"}, "sync is 'epoch', but fairlens runs only with sync = 'step'"),
    ({"csv": None, "label": None, "group": None, "dataset": "digits"}, "compares two groups, but there are 10 here"),
])
def test_what_it_cannot_do_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        server("fairlens", **settings)


def test_a_label_of_three_classes_is_refused(tmp_path: Any) -> None:
    made = experiment("fairlens").task.csv
    lines = open(str(made)).read().splitlines()  # noqa: SIM115
    place = lines[0].split(",").index("label")
    rows = [line.split(",") for line in lines[1:]]
    for row in rows[:20]:
        row[place] = "2"
    file = tmp_path / "three.csv"
    file.write_text("\n".join([lines[0], *(",".join(row) for row in rows)]))
    with pytest.raises(ValueError, match="needs a label of two classes, but there are 3"):
        server("fairlens", csv=str(file))


def test_a_client_that_does_not_trust_the_server_refuses() -> None:
    with pytest.raises(ValueError, match="only central trust allows it"):
        released(records(1, [0, 1]), model(), Trust.DISTRIBUTED)


@for_each("trust", [Trust.DISTRIBUTED, Trust.LOCAL])
@for_each("exchange", ["batch_sums", "penalty_gradient", "shifted_gradient_sum"])
def test_a_client_refuses_every_exchange_of_a_step_by_itself(exchange: str, trust: Trust) -> None:
    """None of them carries noise, and a server might not ask for them in their order."""
    data, net, empty = records(1, [0, 1]), model(), records(0, [])
    here, weights = Node({0: Parts(data, empty, empty)}, net, "cpu"), dict(net.named_parameters())
    round_ = Round(key="0", step=0, rates=(1.0, 1.0), noise_multiplier=0.0, trust=trust, clients=1, rule=Flat(CLIP))
    zeros = {name: torch.zeros_like(p) for name, p in weights.items()}
    given = {"batch_sums": (), "penalty_gradient": (fairlens.Penalty(zeros, zeros, (1.0, 1.0), (1.0, 1.0)),),
             "shifted_gradient_sum": (zeros,)}[exchange]
    with pytest.raises(ValueError, match=f"trust is '{trust.value}': only central trust allows it"):
        getattr(fairlens, exchange)(here, weights, round_, *given)
