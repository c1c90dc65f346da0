"""What is particular to single methods, beyond the equivalence with their plain loops."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from fedfair import client_app
from fedfair.mechanisms.clipping import ClipRule, Flat, sensitivity
from fedfair.mechanisms.counting import Above, CountQuery
from simulations import Experiment, run
from simulations.engines.local import LocalGrid
from strategies import Strategy, find_strategy
from strategies.server.replies.requests import population
from tests.strategies.test_contract import experiment, server


def test_dpsgd_f_follows_the_papers_formula_on_noisy_counts() -> None:
    strategy = server("dpsgd-f")
    above = torch.tensor([12.0, -3.0, 0.0] + [1.0] * 7)
    below = torch.tensor([4.0, 9.0, -2.0] + [1.0] * 7)
    strategy.learn(torch.stack([above, below]), 32)
    denominator = (12 + 7) / 32
    assert strategy.rule().clip_norms[:4] == pytest.approx(  # type: ignore[attr-defined]
        [1 + 0.75 / denominator, 1.0, 1 + 1 / denominator, 1 + 0.5 / denominator])


def test_dpsgd_f_keeps_a_cap_and_survives_counts_of_zero() -> None:
    capped = server("dpsgd-f", options={"max_bound": 1.5})
    capped.learn(torch.tensor([[1.0] * 10, [0.0] * 10]), 32)
    assert capped.rule().clip_norms == pytest.approx([1.5] * 10)  # type: ignore[attr-defined]
    authors = server("dpsgd-f", options={"bounds": "authors"})
    authors.learn(torch.tensor([[0.0] * 10, [5.0] * 10]), 32)
    assert authors.rule().clip_norms == pytest.approx([1.0] * 10)  # type: ignore[attr-defined]


def test_weights_by_clip_norm_are_paid_for_with_noise_unless_it_stays_at_the_base() -> None:
    counts = torch.tensor([[6.0] * 2 + [0.0] * 8, [2.0] * 2 + [4.0] * 8])
    honest, port = (server("dpsgd-f", options={"bounds": "authors", "weighting": "clip-norms", "noise_at": where},
                           noise_multiplier=0.8) for where in ("largest", "base"))
    for strategy in (honest, port):
        strategy.learn(counts, 32)
    largest, mean = 1 + 0.75 / 0.15, (2 * (1 + 0.75 / 0.15) + 8) / 10
    rule = honest.rule()
    assert rule.group_sensitivities(10)[1:3] == pytest.approx((largest**2 / mean, 1 / mean))
    assert honest.sum_noise(rule) == 0.8
    assert port.sum_noise(rule) * sensitivity(rule, 10) == pytest.approx(0.8 * largest / mean)


def test_noise_at_the_base_is_charged_for_what_it_is() -> None:
    """Hazard 1: noise at C0 protects a record of the group with clip norm C_k only by sigma C0 / C_k."""
    honest, base = (run(experiment("dpsgd-f", options={"noise_at": where})).ledger for where in ("largest", "base"))
    event = next(iter(base.events))
    assert max(event.multipliers) < 1
    assert min(event.spent_multipliers) == pytest.approx(event.multipliers[0])
    assert base.epsilon() > 1.5 * honest.epsilon()
    with pytest.raises(ValueError, match='noise_at is "base", with which no target_epsilon can be met'):
        server("dpsgd-f", options={"noise_at": "base"}, target_epsilon=5.0)


def test_noise_at_the_base_is_proved_by_nothing_and_is_not_for_local_epochs() -> None:
    """What a record is charged follows from noisy counts, so that another seed gives another epsilon."""
    ledgers = [run(experiment("dpsgd-f", seed=seed, options={"noise_at": "base"})).ledger for seed in (0, 1)]
    assert ledgers[0].epsilon() != ledgers[1].epsilon()
    assert {ledger.guarantee for ledger in ledgers} == {"nominal"}
    assert "follows from earlier noisy counts" in ledgers[0].reason
    assert server("dpsgd-f").unproved() is None
    with pytest.raises(ValueError, match='noise_at is "base", but in local epochs'):
        server("dpsgd-f", options={"noise_at": "base"}, sync="epoch")


def test_global_adapt_moves_its_bound_by_the_public_batch_size_and_stops_at_the_floor() -> None:
    """Hazards 2 and 17."""
    strategy = server("dpsgd-global-adapt", options={"bound": 5.0, "min_bound": 4.0})
    strategy.learn(torch.tensor([16.0]), 32)
    assert strategy.bound == pytest.approx(5 * math.exp(-0.1 + 0.5))  # type: ignore[attr-defined]
    for _ in range(50):
        strategy.learn(torch.tensor([-3.0]), 32)
    assert strategy.bound == 4.0  # type: ignore[attr-defined]


def test_each_groups_clip_norm_moves_to_its_quantile_by_the_public_size_of_an_even_group() -> None:
    """Hazard 2, and 8: a group whose gradients are mostly clipped gets a larger clip norm."""
    strategy = server("dpsgd-f-quantile", options={"quantile": 0.7, "eta": 0.5, "min_bound": 0.5, "max_bound": 2.0})
    above = torch.tensor([4.0, 3.0, 0.0, -90.0, 90.0] + [0.0] * 5)
    below = torch.tensor([0.0, 7.0, 4.0, 0.0, 0.0] + [0.0] * 5)
    strategy.learn(torch.stack([above, below]), 40)
    assert strategy.rule().clip_norms == pytest.approx(  # type: ignore[attr-defined]
        [math.exp(0.5 * 0.7), 1.0, math.exp(-0.5 * 0.3), 0.5, 2.0] + [1.0] * 5)
    assert strategy.query().thresholds == strategy.rule().clip_norms  # type: ignore[union-attr, attr-defined]


@pytest.mark.usefixtures("keyed_by_seed")
@pytest.mark.parametrize("sync", ["step", "epoch"])
def test_fair_dp_starts_every_round_from_a_small_last_layer_and_ends_with_slow_sgd(sync: str) -> None:
    made = experiment("fair-dp", sync=sync, steps=10, options={"max_norm": 0.3}, noise_multiplier=0.0)
    free = run(made.model_copy(update={"options": {"max_norm": 100.0, "late_share": 0.0}}))
    small, plain = run(made), run(made.model_copy(update={"strategy": "gs-dp-sgd", "options": {}}))
    assert all(torch.equal(a, b) for a, b in zip(free.model.parameters(), plain.model.parameters(), strict=True))
    small_norm, plain_norm = (float([p for p in result.model.parameters() if p.dim() > 1][-1].detach().norm())
                              for result in (small, plain))
    assert small_norm < 0.31 < 1 < plain_norm
    assert small.ledger.to_dict() == plain.ledger.to_dict()


def test_naive_gives_every_group_the_same_share_and_no_weight_above_b_over_k() -> None:
    strategy = server("naive")
    strategy.learn(torch.tensor([16.0, 3.2, 0.5, -20.0] + [6.4] * 6), 32)
    assert strategy.rule().weights == pytest.approx([0.2, 1.0, 3.2, 3.2] + [0.5] * 6)  # type: ignore[attr-defined]


def test_a_global_bound_below_the_clip_norm_is_refused() -> None:
    with pytest.raises(ValueError, match=r"bound is 0\.5, below clip_norm 1\.0"):
        server("dpsgd-global", options={"bound": 0.5})


def test_gs_dp_sgd_gives_every_group_the_target_on_adult(data_dir: object) -> None:
    made = Experiment(dataset="adult", strategy="gs-dp-sgd", target_epsilon=2.66, accountant="rdp", epochs=1)
    schedule_noise = server("gs-dp-sgd", sync="epoch", target_epsilon=5.0, accountant="rdp").noise.multipliers
    assert len(set(schedule_noise)) > 1
    ledger = run(made.model_copy(update={"hidden": (8,)})).ledger
    assert ledger.epsilon() == pytest.approx(2.66, abs=0.01)
    assert list(ledger.guaranteed_by_group().values()) == pytest.approx([2.66, 2.66], abs=0.01)


def test_gs_dp_sgd_refuses_sites_adam_and_momentum_where_they_mean_something_else() -> None:
    with pytest.raises(ValueError, match="trains each group on a client of its own"):
        server("gs-dp-sgd", sync="epoch", partition="site")
    with pytest.raises(ValueError, match="averages steps of plain SGD"):
        server("gs-dp-sgd", sync="step", optimizer="adam")
    with pytest.raises(ValueError, match=r"with momentum 0\.5: take sgd and 0"):
        server("gs-dp-sgd", sync="step", momentum=0.5)


@pytest.mark.usefixtures("keyed_by_seed")
def test_a_strategy_of_ones_own_is_found_by_name(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_clip.py").write_text(  # type: ignore[operator]
        "from fedfair.mechanisms.clipping import ClipRule, Flat\nfrom strategies import Strategy\n\n\n"
        "class HalfClip(Strategy):\n    def rule(self) -> ClipRule:\n"
        "        return Flat(self.training.clip_norm / 2)\n")
    monkeypatch.chdir(tmp_path)  # type: ignore[arg-type]
    assert issubclass(find_strategy("half-clip"), Strategy)
    halved, plain = run(experiment("half-clip")), run(experiment("dpsgd", clip_norm=0.5))
    assert all(torch.equal(a, b) for a, b in zip(halved.model.parameters(), plain.model.parameters(), strict=True))


def test_an_unknown_strategy_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'dpsgd-f'"):
        find_strategy("dpsgdf")


@pytest.mark.parametrize("name", ["dpsgd", "gs-dp-sgd", "fair-dp"])
def test_an_epoch_meets_every_record_once_on_average(name: str) -> None:
    strategy = server(name, sync="step", steps=None, epochs=4, batch_size=20)
    met = sum(rate * size for rate, size in zip(strategy.rates(), strategy.population.by_group, strict=True))
    assert strategy.rounds * met == pytest.approx(4 * strategy.population.records, rel=0.1)


def test_in_local_epochs_a_count_is_over_the_batches_that_clients_can_fill() -> None:
    """A client smaller than b has a batch of its N_c records, by which its own steps are divided too."""
    strategy = server("naive", sync="epoch")
    sizes = strategy.population.by_client
    assert sizes[8] == 5 < 32 < min(sizes[:8])
    assert strategy.expected_batch() == 9 * 32 + 5
    assert strategy.expected_batch([0, 8]) == 32 + 5
    strategy.sync = "step"
    assert strategy.expected_batch() == 32


def test_the_authors_counts_are_whole_and_the_papers_denominator_is_at_least_one_record() -> None:
    authors, paper = (server("dpsgd-f", options={"bounds": bounds}) for bounds in ("authors", "paper"))
    authors.learn(torch.tensor([[3.9, 0.9] + [0.0] * 8, [1.2, 3.7] + [4.0] * 8]), 32)
    assert authors.rule().clip_norms == pytest.approx([11.0] + [1.0] * 9)  # type: ignore[attr-defined]
    paper.learn(torch.tensor([[0.5] + [0.0] * 9, [1.5] + [4.0] * 9]), 32)
    assert paper.rule().clip_norms == pytest.approx([1 + 0.25 * 32] + [1.0] * 9)  # type: ignore[attr-defined]


def test_no_count_however_noisy_ends_a_run_of_global_adapt() -> None:
    strategy = server("dpsgd-global-adapt", options={"bound": 5.0}, clip_norm=2.0)
    for count, bound in ((1e9, 5e6), (-1e9, 2e-6), (1e9, 5e6)):
        strategy.learn(torch.tensor([count]), 32)
        assert strategy.bound == pytest.approx(bound)  # type: ignore[attr-defined]


def test_global_adapt_starts_where_its_paper_does() -> None:
    assert server("dpsgd-global-adapt", options={}).options.model_dump() == {
        "bound": 50, "tau": 1, "eta": 0.1, "min_bound": 0}


def test_noise_at_the_base_is_not_for_noise_that_nobody_can_repeat() -> None:
    with pytest.raises(ValueError, match='noise_at is "base", which is only for comparison in simulation'):
        server("dpsgd-f", options={"noise_at": "base"}, randomness="system")


@pytest.mark.usefixtures("keyed_by_seed")
@pytest.mark.parametrize("early", [{"optimizer": "adam"}, {"momentum": 0.5}])
def test_fair_dp_ends_with_plain_sgd_whatever_optimiser_it_began_with(early: dict[str, Any]) -> None:
    options = {"max_norm": 100.0, "late_share": 1.0}
    late = run(experiment("fair-dp", sync="epoch", batch_size=8, options=options, **early))
    plain = run(experiment("gs-dp-sgd", sync="epoch", batch_size=8, learning_rate=0.005))
    assert all(torch.equal(a, b) for a, b in zip(late.model.parameters(), plain.model.parameters(), strict=True))


def test_a_local_epoch_is_charged_to_the_groups_that_its_client_holds() -> None:
    strategy = server("dpsgd", sync="epoch")
    ledger = run(experiment("dpsgd", sync="epoch")).ledger
    for event in ledger.events:
        assert event.client is not None
        held = strategy.population.sizes[event.client]
        assert [rate > 0 for rate in event.rates] == [size > 0 for size in held]
    assert max(ledger.epsilon_by_group().values()) > 1.1 * min(ledger.epsilon_by_group().values())


@pytest.mark.parametrize(("share", "rounds", "late"), [(0.3, 90, 27), (0.9, 10, 9), (0.34, 50, 17), (0.1, 25, 3),
                                                       (0.0, 7, 0), (1.0, 7, 7)])
def test_fair_dp_ends_with_plain_sgd_for_the_share_of_rounds_that_is_asked_for(
        share: float, rounds: int, late: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    strategy = server("fair-dp", sync="epoch", steps=rounds, optimizer="adam", options={"late_share": share})
    monkeypatch.setattr("strategies.gs_dp_sgd.with_small_last_layer", lambda weights, max_norm: weights)
    for step in range(strategy.rounds):
        strategy.step = step
        strategy.start({})
        seen.append(strategy.training.optimizer)
    assert seen == ["adam"] * (rounds - late) + ["sgd"] * late


def test_a_method_that_changes_what_it_does_not_declare_is_refused() -> None:
    """Else a run that goes on from a checkpoint would begin with the first value again."""

    class Forgetful(Strategy):
        """Counts, and moves an attribute that `state` does not name."""

        def prepare(self) -> None:
            self.bound = self.training.clip_norm

        def rule(self) -> ClipRule:
            return Flat(self.bound)

        def query(self) -> CountQuery:
            return Above(self.bound)

        def learn(self, counts: Tensor, expected_batch: float) -> None:
            self.bound *= 0.9

    class Declared(Forgetful):
        """The same with its state declared."""

        state = ("bound",)

    made = Experiment(hidden=(4,), steps=2, batch_size=32)
    sizes = population(LocalGrid(client_app.app, 1), made.task)
    with pytest.raises(ValueError, match=r"Forgetful\.learn changes 'bound', which `state` does not declare"):
        Forgetful(made.task, made.training, sizes).take_counts(torch.ones(1), 32.0)
    declared = Declared(made.task, made.training, sizes)
    declared.take_counts(torch.ones(1), 32.0)
    assert declared.bound == pytest.approx(0.9 * made.clip_norm)
