"""The noise that really arrives: in local epochs, under every kind of sampling, and when clients are lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context, Error, Message
from flwr.common.constant import ErrorCode
from scipy import stats

from fedfair import client_app
from fedfair.mechanisms.clipping import sensitivity
from fedfair.mechanisms.noise import Trust
from fedfair.node.node import ClientError
from simulations import Experiment, run
from simulations.engines.local import LocalGrid
from simulations.engines.run import conduct
from simulations.results.result import Result
from strategies import Strategy, find_strategy
from tests.strategies.test_contract import (
    ONE_ROUND,
    OPTIONS,
    PRIVATE,
    PRIVATE_MODES,
    experiment,
    made_by,
    server,
    weights,
)

LOCALLY = [name for name, sync in PRIVATE_MODES if sync == "epoch" and name != "dp-fedavg"]
COUNTING = [name for name in PRIVATE if find_strategy(made_by(name)).query is not Strategy.query
            and name != "dp-fedavg"]
CAPPED = ("dpsgd-f", "dpsgd-f: printed", "dpsgd-f: floored")
"""Methods whose cap is 1.5 here: without it the largest bound follows the size of the batch."""
LARGEST = {**dict.fromkeys(CAPPED, 1.5e-3), "dpsgd-f: capped": 1.5e-3, "dpsgd-f: authors": 2e-3,
           "dpsgd-f: weighted": 1.5e-3, "naive": 3.2e-3}
"""Lengths of clipped gradients where bounds follow counts."""


def is_normal(drawn: np.ndarray) -> bool:
    """Return whether tests of shape and size accept the scale, and reject two thirds and three halves of it.

    The size is the sum of squares, which tells scales apart by a quarter of the draws that a Kolmogorov-Smirnov test
    needs.
    """
    def accepted(values: np.ndarray) -> bool:
        below = stats.chi2.cdf(np.square(values).sum(), len(values))
        return bool(min(stats.kstest(values, "norm").pvalue, 2 * below, 2 * (1 - below)) > 1e-4)

    return [accepted(drawn * factor) for factor in (1, 2 / 3, 3 / 2)] == [True, False, False]


def noise_between(*results: Result) -> np.ndarray:
    """Return what one run added to the weights that the other did not."""
    quiet, noisy = map(weights, results)
    return (noisy - quiet).double().numpy()


def arrives(strategy: str, trusts: Iterable[Trust], deviation: Callable[[Strategy, float], float], **settings: Any
            ) -> None:
    """Fail unless one step adds noise of the expected deviation, which the strategy and its learning rate determine."""
    settings = {"clip_norm": 1e-3, "hidden": (200,), "dtype": "float64", "steps": 1, **settings}
    quiet = run(experiment(strategy, noise_multiplier=0.0, count_noise_multiplier=1e-9, **settings))
    for trust in trusts:
        noisy = run(experiment(strategy, noise_multiplier=3.0, count_noise_multiplier=1e-9, trust=trust, **settings))
        helper = server(strategy, noise_multiplier=3.0, trust=trust, **settings)
        expected = deviation(helper, 0.005 if strategy == "fair-dp: late" else 0.1)
        assert is_normal(noise_between(quiet, noisy) / expected), trust


@pytest.mark.usefixtures("keyed_by_seed")
@pytest.mark.parametrize("strategy", [name for name in PRIVATE
                                      if name not in (*ONE_ROUND, "scaffold")])  # which has local epochs alone
def test_the_released_sum_carries_the_noise_that_the_ledger_charges(strategy: str) -> None:
    """Hazard 1 too: every gradient exceeds so small a clip norm, so dpsgd-f's bounds are C0 times the cap, 1.5, or C0
    times 2 in the authors' form; the batch holds at most one record of class 8, so naive's largest weight is the
    largest possible one, b / K.
    """
    def deviation(helper: Strategy, learning_rate: float) -> float:
        largest = LARGEST.get(strategy) or sensitivity(helper.rule(), len(helper.population.names))
        each = learning_rate / helper.divisor() * helper.sum_noise(helper.rule()) * largest
        return each * (math.sqrt(10) if helper.training.trust is Trust.LOCAL else 1)

    options = {**OPTIONS.get(strategy, {}), **({"max_bound": 1.5} if strategy in CAPPED else {})}
    arrives(strategy, [Trust.CENTRAL] if strategy in ("fairlens", "puffle") else Trust, deviation, options=options)


@pytest.mark.usefixtures("keyed_by_seed")
@pytest.mark.parametrize("strategy", LOCALLY)
def test_one_local_step_carries_the_noise_that_the_ledger_charges(strategy: str) -> None:
    """Hazards 1 and 10: each client's full noise, divided by its own public batch, weighted as in the average."""
    def deviation(helper: Strategy, learning_rate: float) -> float:
        batches = [min(32, size) for size in helper.population.by_client]
        shares = [w / b * s for w, b, s in zip(helper.client_weights(), batches, helper.noise.multipliers, strict=True)]
        return learning_rate * sensitivity(helper.rule(), 10) * math.hypot(*shares)

    trusts = [Trust.CENTRAL, Trust.LOCAL] if strategy == "scaffold" else Trust
    arrives(strategy, trusts, deviation, sync="epoch")


@pytest.mark.usefixtures("keyed_by_seed")
@pytest.mark.parametrize("trust", list(Trust))
@pytest.mark.parametrize("sampled", [("discrete", "seeded"), ("discrete", "system"), ("gaussian", "system")])
def test_every_way_of_sampling_arrives_with_its_scale(sampled: tuple[str, str], trust: Trust) -> None:
    """Hazards 14 and 15; full batches, so that drawing them anew changes nothing."""
    noise, randomness = sampled
    made = experiment("dpsgd", steps=1, hidden=(200,), dtype="float64", clip_norm=1e-3, trust=trust)
    made = made.model_copy(update={"batch_size": len(made.task.data().train)})
    quiet = run(made.model_copy(update={"noise_multiplier": 0.0}))
    noisy = run(made.model_copy(update={"noise_multiplier": 3.0, "noise": noise, "randomness": randomness}))
    deviation = 0.1 / made.batch_size * 3e-3 * (math.sqrt(10) if trust is Trust.LOCAL else 1)
    assert is_normal(noise_between(quiet, noisy) / deviation)


@pytest.mark.usefixtures("keyed_by_seed")
@pytest.mark.parametrize("strategy", COUNTING)
def test_counts_arrive_with_the_noise_that_the_ledger_charges(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hazard 3: learning is replaced by listening, so that both runs see the same batches and models."""
    heard: list[torch.Tensor] = []
    monkeypatch.setattr(type(server(strategy)), "learn", lambda self, counts, expected: heard.append(counts.flatten()))
    one_count = strategy.startswith(("dpsgd-global", "dpsgd-bounded"))  # a step; else some for each group
    steps = 150 if one_count else 15
    for noise in (1e-9, 7.0):
        result = run(experiment(strategy, steps=steps, learning_rate=1e-9, count_noise_multiplier=noise))
    exact, noisy = torch.stack(heard[:steps]), torch.stack(heard[steps:])
    assert is_normal(((noisy - exact) / 7.0).flatten().numpy())
    assert {event.count_multiplier for event in result.ledger.events} == {7.0}


@pytest.mark.usefixtures("keyed_by_seed")
def test_counts_of_local_epochs_carry_the_clients_own_noise_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client, which adds all of it: the server's noise on top would make it sqrt(2) times as much."""
    heard: list[torch.Tensor] = []
    monkeypatch.setattr(type(server("dpsgd-f")), "learn", lambda self, counts, expected: heard.append(counts.flatten()))
    for noise in (1e-9, 7.0):
        run(experiment("dpsgd-f", sync="epoch", clients=1, steps=40, batch_size=200, learning_rate=1e-9,
                       count_noise_multiplier=noise))
    exact, noisy = torch.stack(heard[:40]), torch.stack(heard[40:])
    assert float((noisy - exact).square().mean().sqrt()) == pytest.approx(7.0, rel=0.15)  # 800 draws


class LossyGrid(LocalGrid):
    """Local grid that loses the replies of some nodes from the second exchange of the run on."""

    def __init__(self, nodes: int, lost: set[int]) -> None:
        super().__init__(client_app.app, nodes)
        self.lost, self.exchanges = lost, 0

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """See `Grid`; node n has the id n + 2."""
        replies = list(super().send_and_receive(messages))
        self.exchanges += 1
        return replies if self.exchanges == 1 else [r for r in replies if r.metadata.src_node_id - 2 not in self.lost]


def lossy(made: Experiment, lost: set[int]) -> Result:
    return conduct(made, LossyGrid(10, lost), lambda *_: None)


class FailingGrid(LocalGrid):
    """Local grid whose first node fails with this error whenever it should train."""

    def __init__(self, code: int) -> None:
        super().__init__(client_app.app, 10)
        self.code = code

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """See `Grid`."""
        return [Message(Error(self.code, "KeyError: 'x'"), reply_to=message)
                if message.metadata.message_type.startswith("train") and message.metadata.dst_node_id == 2
                else next(iter(super(FailingGrid, self).send_and_receive([message]))) for message in messages]


def test_a_client_that_raises_is_not_a_lost_one(caplog: pytest.LogCaptureFixture) -> None:
    made = experiment("dpsgd", dropouts=1, trust="distributed")
    with pytest.raises(ClientError, match="node 2 failed: KeyError: 'x'"):
        conduct(made, FailingGrid(ErrorCode.CLIENT_APP_RAISED_EXCEPTION), lambda *_: None)
    assert "did not answer" not in caplog.text
    conduct(made, FailingGrid(ErrorCode.NODE_UNAVAILABLE), lambda *_: None)
    assert "client 0 did not answer: the round goes on without" in caplog.text


@pytest.mark.parametrize("told", [{"partition-id": 0}, {"num-partitions": 3}])
def test_two_nodes_that_answer_for_one_client_are_refused(told: dict[str, int]) -> None:
    """A record would count twice, against noise for one."""
    grid = LocalGrid(client_app.app, 2)
    grid._contexts[3].node_config.update(told)  # type: ignore[arg-type] # the second SuperNode, started wrongly
    with pytest.raises(ClientError, match=r"nodes say that they are number 0 of 2, .* give each its own partition-id"):
        conduct(experiment("dpsgd", clients=2), grid, lambda *_: None)


@pytest.mark.parametrize("sync", ["step", "epoch"])
def test_a_lost_client_ends_the_run_unless_dropouts_are_allowed(sync: str) -> None:
    with pytest.raises(ClientError, match="client 4 did not answer, and dropouts is 0"):
        lossy(experiment("dpsgd", sync=sync), {4})
    with pytest.raises(ClientError, match="client 4 and 5 did not answer, and dropouts is 1"):
        lossy(experiment("dpsgd", sync=sync, dropouts=1), {4, 5})
    with pytest.raises(ValueError, match="dropouts is 10, but there are only 10 clients"):
        server("dpsgd", dropouts=10)


@pytest.mark.usefixtures("keyed_by_seed")
@pytest.mark.parametrize("lost", [set[int](), {1, 7, 8}])
def test_the_noise_of_those_who_are_left_is_enough(lost: set[int]) -> None:
    """Hazard 13: shares of 1 / sqrt(n - dropouts) add up to no less than the ledger charges, whoever is lost."""
    settings: dict[str, Any] = {"trust": "distributed", "dropouts": 3, "steps": 1, "hidden": (200,), "clip_norm": 1e-3,
                                "dtype": "float64"}
    quiet, noisy = (lossy(experiment("dpsgd", noise_multiplier=noise, **settings), lost) for noise in (0.0, 3.0))
    deviation = 0.1 / 32 * 3e-3 * math.sqrt((10 - len(lost)) / 7)
    assert is_normal(noise_between(quiet, noisy) / deviation)
    assert {event.multipliers[0] for event in noisy.ledger.events} == {3.0}
    full = run(experiment("dpsgd", noise_multiplier=3.0, **{**settings, "dropouts": 0})).ledger
    assert noisy.ledger.by_observer()["client"] > full.by_observer()["client"]


def test_the_average_of_those_who_are_left_is_an_average() -> None:
    """All weights start alike, so with almost no training the average is where they started."""
    made = experiment("dpsgd", sync="epoch", dropouts=2, learning_rate=1e-12)
    start = torch.cat([p.detach().flatten() for p in made.task.build_model().parameters()])
    assert torch.allclose(weights(lossy(made, {0, 3})), start, atol=1e-6)


def test_counts_of_those_who_are_left_are_shares_of_their_own_batches() -> None:
    """Only noise exceeds so large a clip norm, whoever is lost: naive's weights stay about 1."""
    heard: list[tuple[float, float]] = []
    made = experiment("naive", sync="epoch", dropouts=5, clip_norm=1e3, count_noise_multiplier=1e-6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(server("naive")), "learn", lambda self, counts, expected: heard.append(
            (float(counts.sum()), expected)))
        lossy(made, {0, 1, 2, 3, 4})
    for counted, expected in heard:
        assert counted == pytest.approx(expected, rel=0.2)


def test_both_exchanges_of_a_round_use_one_batch_wherever_they_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches from the operating system travel with Flower's state of the node, not with the process."""
    drawn: list[list[int]] = []
    sample, keep = client_app.Node._sample, client_app._keep_batch

    def listening(self: client_app.Node, data: Any, values: Any, round_: Any, rows: torch.Tensor) -> Any:
        drawn.append(rows.tolist())
        return sample(self, data, values, round_, rows)

    def forgetting(context: Context, here: client_app.Node) -> None:
        keep(context, here)
        here._last, here.kept = None, None

    monkeypatch.setattr(client_app.Node, "_sample", listening)
    monkeypatch.setattr(client_app, "_keep_batch", forgetting)
    run(experiment("dpsgd-f", randomness="system", steps=5))
    pairs = list(zip(drawn[::2], drawn[1::2], strict=True))
    assert len(pairs) == 5
    assert all(first == second for first, second in pairs)
    assert len({tuple(first) for first, _ in pairs}) == 5
