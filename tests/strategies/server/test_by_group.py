"""Settings by group: a group's clip norm, noise and epsilon are its own, in the training, the ledger and the files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.serverapp.strategy import FedAvg
from torch import Tensor, nn

from fedfair.accounting import Release
from fedfair.mechanisms.clipping import PerGroup
from fedfair.mechanisms.counting import GroupSizes
from simulations import Experiment, run
from simulations.flower_run import experiment_of as from_run_config
from simulations.report import write_report
from simulations.results.run_folder import read_folder
from simulations.settings.experiment import SettingsError
from strategies import find_strategy
from strategies.dpsgd import Dpsgd
from strategies.server.existing_app import PrivateTraining
from strategies.server.population import Population
from tests.fedfair.accounting.oracle import direct
from tests.strategies.test_equivalence import SPREAD, refuse_another_result, weights
from tests.strategies.two_groups import two_groups

CLIPS = {"a": 0.4, "b": 1.3}
SMALL: dict[str, Any] = {**two_groups(), "split": (0.7, 0.0, 0.3), "hidden": (12,), "learning_rate": 0.5,
                         "dtype": "float64", "delta": 1e-4, "accountant": "rdp"}


def made_of(**settings: Any) -> Experiment:
    return Experiment(**{**SMALL, "strategy": "gs-dp-sgd", "steps": 3, "batch_size": 16, **settings})


def whole(**settings: Any) -> Experiment:
    """Return an experiment whose batches are all records of each group, so that nothing is drawn."""
    made = made_of(**settings)
    return made.model_copy(update={"batch_size": max(made.task.data().train.group_sizes())})


def sizes_of(made: Experiment) -> dict[str, int]:
    train = made.task.data().train
    return dict(zip(train.names, train.group_sizes(), strict=True))


def yang_algorithm_2(made: Experiment, clips: dict[str, float]) -> Tensor:
    """Train a model for each group from the common weights, one example at a time, and average them; without noise."""
    data, model = made.task.data().train, made.task.build_model()
    common = nn.utils.parameters_to_vector(model.parameters()).detach()
    for _ in range(made.steps or 0):
        trained = []
        for k, name in enumerate(data.names):
            own, total = common.clone(), torch.zeros_like(common)
            nn.utils.vector_to_parameters(own.clone(), model.parameters())
            for i in range(len(data)):
                if data.group[i] == k:
                    loss = nn.functional.cross_entropy(model(data.x[i][None]), data.y[i][None])
                    g = torch.cat([part.flatten() for part in torch.autograd.grad(loss, [*model.parameters()])])
                    total += g * min(1.0, clips[name] / float(g.norm()))
            trained.append(own - made.learning_rate * total / int((data.group == k).sum()))
        common = torch.stack(trained).mean(0)
    return common


@pytest.mark.parametrize("sync", ["step", "epoch"])
def test_each_group_is_clipped_by_its_own_norm_as_in_a_plain_loop(sync: str) -> None:
    made = whole(sync=sync, clip_norm=CLIPS, noise_multiplier=0.0)
    plain = yang_algorithm_2(made, CLIPS)
    refuse_another_result(made, plain, 1e-10, SPREAD if sync == "step" else [(2, "group", 1), (2, "group", 2)])
    assert not torch.allclose(plain, yang_algorithm_2(made, {"a": 1.3, "b": 1.3}), rtol=0, atol=1e-3)


@pytest.mark.parametrize("sync", ["step", "epoch"])
@pytest.mark.parametrize("noises", [{"a": 0.0, "b": 3.0}, {"a": 3.0, "b": 0.0}, {"a": 2.0, "b": 1.0}])
def test_the_noise_that_arrives_is_that_of_each_group_in_units_of_its_own_clip_norm(
        sync: str, noises: dict[str, float]) -> None:
    """One step of lr (g_k + N(0, (sigma_k C_k)^2)) / N_k by each group, averaged over the two."""
    made = whole(sync=sync, steps=1, hidden=(400,), clip_norm=CLIPS, noise_multiplier=noises)
    arrived = weights(run(made)) - weights(run(whole(sync=sync, steps=1, hidden=(400,), clip_norm=CLIPS,
                                                    noise_multiplier=0.0)))
    of_groups = [noises[name] * CLIPS[name] / size for name, size in sizes_of(made).items()]
    expected = made.learning_rate / 2 * math.hypot(*of_groups)
    assert float(arrived.std()) == pytest.approx(expected, rel=4 / math.sqrt(2 * len(arrived)))


@pytest.mark.parametrize("sync", ["step", "epoch"])
def test_each_group_is_charged_for_its_own_noise_at_its_own_rate(sync: str) -> None:
    noises = {"a": 1.1, "b": 2.3}
    made = made_of(sync=sync, clip_norm=CLIPS, noise_multiplier=noises)
    ledger = run(made).ledger
    for name, size in sizes_of(made).items():
        steps = 3 if sync == "step" else 3 * (size // 16)
        alone = direct({Release(16 / size, noises[name]): steps}, delta=1e-4)
        assert ledger.epsilon_by_group()[name] == pytest.approx(alone, rel=1e-3)
        assert ledger.guaranteed_by_group()[name] == pytest.approx(alone, rel=1e-3)
    assert ledger.epsilon() == max(ledger.guaranteed_by_group().values())


@pytest.mark.parametrize("sync", ["step", "epoch"])
def test_a_table_of_equal_numbers_is_the_number(sync: str) -> None:
    for name, number in (("clip_norm", 0.7), ("noise_multiplier", 1.3), ("target_epsilon", 3.0)):
        one = made_of(sync=sync, **{name: number})
        table = made_of(sync=sync, **{name: {"b": number, "a": number}})
        kind = find_strategy("gs-dp-sgd")
        assert kind.key_of(table.task, table.training) == kind.key_of(one.task, one.training)
        first, second = run(one), run(table)
        assert torch.equal(weights(first), weights(second))
        assert first.ledger.to_dict() == second.ledger.to_dict()
        assert first.metrics.equals(second.metrics)


def test_tables_that_differ_have_keys_of_their_own_whatever_their_order() -> None:
    key = find_strategy("gs-dp-sgd").key_of
    tables = [{"a": 1.0, "b": 2.0}, {"a": 2.0, "b": 1.0}, {"a": 1.0, "b": 2.5}, {"a": 2.0, "b": 2.0}]
    keys = [key(made_of(clip_norm=table).task, made_of(clip_norm=table).training) for table in tables]
    assert len({*keys}) == len(tables)
    turned = made_of(clip_norm={"b": 2.0, "a": 1.0})
    assert key(turned.task, turned.training) == keys[0]


def test_a_table_is_the_same_in_settings_files_and_the_run_config(tmp_path: Path) -> None:
    made = made_of(clip_norm=CLIPS, noise_multiplier={"a": 1, "b": 2})
    assert made.settings()["clip_norm"] == CLIPS
    assert made.identity()["noise_multiplier"] == {"a": 1.0, "b": 2.0}
    assert Experiment(**made.settings()) == made != made_of(clip_norm=1.3, noise_multiplier=2.0)
    config = {name.replace("_", "-"): str(list(value)) if isinstance(value, tuple) else value
              for name, value in SMALL.items()}
    config |= {"strategy": "gs-dp-sgd", "steps": 3, "batch-size": 16}
    assert from_run_config({**config, "clip-norm": "{a = 0.4, b = 1.3}",
                            "settings": "noise_multiplier={a=1,b=2}"}).tables == made.tables
    run(made).save(tmp_path / "out")
    source, _ = read_folder(tmp_path / "out")
    assert Experiment(**source.settings) == made
    page = write_report([tmp_path / "out"])[0].read_text()
    assert "clip_norm={a = 0.4, b = 1.3}" in page


def test_what_a_group_has_is_checked_like_what_all_have() -> None:
    for wrong, sentence in (
            ({"clip_norm": {"a": 1.0, "b": -1.0}}, "clip_norm is -1.0: it should be greater than 0"),
            ({"clip_norm": {"a": 1.0, "b": "x"}}, "clip_norm is 'x': it should be a valid number"),
            ({"clip_norm": {"a": 1.0, "b": 1e300}}, "clip_norm is 1e\\+300, which no run can compute with"),
            ({"clip_norm": {}}, "clip_norm is {}: give a number to each group, for example clip_norm = {F = 0.5"),
            ({"clip_norm": {"a": {"x": 0.5, "y": 2.0}, "b": 1.0}}, "clip_norm is .* give a number to each group"),
            ({"clip_norm": {0: 1.0, 1: 2.0}}, "clip_norm is .* give a number to each group"),
            ({"clip_norm": CLIPS, "noise_multiplier": {"a": 1.0}},
             "clip_norm has numbers for a, b, but noise_multiplier for a: name the same groups in both"),
            ({"target_epsilon": 2.0, "noise_multiplier": {"a": 0.5, "b": 1.0}},
             "target_epsilon is 2, which takes the place of noise_multiplier, but that is given as well, 0.5"),
            ({"strategy": "dpsgd-f", "clip_norm": CLIPS},
             "clip_norm is a table by group, but dpsgd-f has one clip_norm for all groups: give a number, or take")):
        with pytest.raises(SettingsError, match=sentence):
            made_of(**wrong)


@pytest.mark.parametrize("table", [{"a": 1.0, "B": 2.0}, {"a": 1.0}, {"a": 1.0, "b": 1.0, "c": 1.0}])
def test_groups_that_are_not_those_of_the_data_are_named_before_anything_is_released(table: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"clip_norm has numbers for {', '.join(table)}, but the groups of the data "
                                         "are a, b: give a number to each"):
        run(made_of(clip_norm=table))


def test_a_number_of_all_is_safe_for_each_group() -> None:
    training = made_of(clip_norm=CLIPS, noise_multiplier={"a": 3.0, "b": 1.0}).training
    assert (training.clip_norm, training.noise_multiplier) == (1.3, 3.0)
    assert training.of_group("b") == made_of(clip_norm=1.3, noise_multiplier=1.0).training
    assert training.sized(100).tables == training.tables
    assert f"clip_norm={CLIPS}, noise_multiplier={{'a': 3.0, 'b': 1.0}}" in repr(training)
    assert training.model_copy(update={"clip_norm": 2.0}).by_group("clip_norm", ("a", "b")) == (2.0, 2.0)


@pytest.mark.parametrize("sync", ["step", "epoch"])
def test_each_group_gets_the_least_noise_that_keeps_its_own_target(sync: str) -> None:
    targets = {"a": 0.8, "b": 4.0}
    made = made_of(sync=sync, target_epsilon=targets, clip_norm=CLIPS)
    ledger = run(made).ledger
    guaranteed = ledger.guaranteed_by_group()
    for k, (name, size) in enumerate(sizes_of(made).items()):
        alone = run(made_of(sync=sync, target_epsilon=targets[name])).ledger
        assert guaranteed[name] == alone.guaranteed_by_group()[name]
        assert 0.99 * targets[name] < guaranteed[name] <= targets[name]
        steps = 3 if sync == "step" else 3 * (size // 16)
        noise = next(event.guaranteed(k).multiplier for event in ledger.events if event.rates[k])
        assert direct({Release(16 / size, noise): steps}, delta=1e-4) == pytest.approx(guaranteed[name], rel=1e-3)
        assert direct({Release(16 / size, 0.98 * noise): steps}, delta=1e-4) > targets[name]



def test_private_preprocessing_and_figures_go_by_the_smallest_target(table: dict[str, Any]) -> None:
    targets = {"f": 1.0, "m": 5.0}
    own = {**table, "ranges": None, "categories": None, "preprocessing": "private", "figures": "private",
           "split": (0.6, 0.2, 0.2), "delta": 1e-4, "steps": 2, "batch_size": 64, "strategy": "gs-dp-sgd"}
    ledger = run(Experiment(**own, target_epsilon=targets)).ledger
    for name, spent in ledger.guaranteed_by_group().items():
        assert 0.98 * targets[name] < spent <= targets[name]
    assert ledger.preprocessing_epsilon() == pytest.approx(0.25, rel=0.02)
    assert ledger.held_out_epsilon("test") <= 1.0


def one_step_of_dpsgd(made: Experiment, clips: dict[str, float]) -> Tensor:
    """Clip one gradient after the other by the norm of its group, and step along their mean."""
    data, model = made.task.data().train, made.task.build_model()
    total = torch.zeros_like(nn.utils.parameters_to_vector(model.parameters()))
    for i in range(len(data)):
        loss = nn.functional.cross_entropy(model(data.x[i][None]), data.y[i][None])
        g = torch.cat([part.flatten() for part in torch.autograd.grad(loss, [*model.parameters()])])
        total += g * min(1.0, clips[data.names[int(data.group[i])]] / float(g.norm()))
    return (nn.utils.parameters_to_vector(model.parameters()) - made.learning_rate * total / len(data)).detach()


def test_dpsgd_clips_each_group_by_its_own_norm_as_in_a_plain_loop() -> None:
    made = made_of(strategy="dpsgd", steps=1, clip_norm=CLIPS, noise_multiplier=0.0)
    made = made.model_copy(update={"batch_size": len(made.task.data().train)})
    refuse_another_result(made, one_step_of_dpsgd(made, CLIPS), 1e-10)


def test_the_noise_of_dpsgd_is_that_of_the_largest_clip_norm() -> None:
    quiet, noisy = (made_of(strategy="dpsgd", steps=1, sampling_rate=1.0, batch_size=256, hidden=(400,),
                            clip_norm=CLIPS, noise_multiplier=sigma) for sigma in (0.0, 2.0))
    arrived = weights(run(noisy)) - weights(run(quiet))
    expected = 0.5 * 2.0 * 1.3 / sum(sizes_of(noisy).values())
    assert float(arrived.std()) == pytest.approx(expected, rel=4 / math.sqrt(2 * len(arrived)))


@pytest.mark.parametrize("settings", [
    {}, {"sync": "epoch", "partition": "group"}, {"strategy": "dpsgd-is"}, {"target_epsilon": 3.0},
    {"options": {"noise_scale": "absolute"}}])
def test_dpsgd_charges_each_group_the_noise_in_units_of_its_own_clip_norm(settings: dict[str, Any]) -> None:
    made = made_of(**{"strategy": "dpsgd", "clip_norm": CLIPS,
                      **({} if "target_epsilon" in settings else {"noise_multiplier": 1.2}), **settings})
    ledger, sizes = run(made).ledger, sizes_of(made)
    records = sum(sizes.values())
    for name, size in sizes.items():
        sigma = 1.2 / 1.3 if made.options else multiplier_of(made) if "target_epsilon" in settings else 1.2
        rate, steps = 16 / records, 3
        if made.sync == "epoch":
            rate, steps = 16 / size, 3 * (size // 16)
        if made.strategy == "dpsgd-is":
            rate = 16 / (2 * size)
        alone = direct({Release(rate, sigma * 1.3 / CLIPS[name]): steps}, delta=1e-4)
        assert ledger.guaranteed_by_group()[name] == pytest.approx(alone, rel=1e-3)
        assert ledger.epsilon_by_group()[name] == ledger.guaranteed_by_group()[name]
    assert ledger.to_dict()["spent_by_group_is"] == "guaranteed in advance"
    if "target_epsilon" in settings:
        assert 0.99 * 3 < ledger.guaranteed_by_group()["b"] <= 3 > 1.5 * ledger.guaranteed_by_group()["a"]


def multiplier_of(made: Experiment) -> float:
    """Return the least noise multiplier that keeps all records within the target, by halving."""
    rate, low, high = 16 / len(made.task.data().train), 0.1, 10.0
    for _ in range(40):
        middle = (low + high) / 2
        enough = direct({Release(rate, middle): 3}, delta=1e-4) <= (made.target_epsilon or 0.0)
        low, high = (low, middle) if enough else (middle, high)
    return high


def test_dpsgd_with_a_clip_norm_for_each_group_keeps_budgets_by_group() -> None:
    budgets = {"a": 0.15, "b": 2.0}
    free, kept = (run(made_of(strategy="dpsgd", clip_norm=CLIPS, group_epsilon=budget)).ledger
                  for budget in (None, budgets))
    for name, most in budgets.items():
        assert kept.guaranteed_by_group()[name] <= most < free.guaranteed_by_group()[name]


def test_dpsgd_with_equal_clip_norms_is_dpsgd() -> None:
    first, second = (run(made_of(strategy="dpsgd", clip_norm=clip)) for clip in (0.7, {"a": 0.7, "b": 0.7}))
    assert torch.equal(weights(first), weights(second))
    assert first.ledger.to_dict() == second.ledger.to_dict()


@pytest.mark.parametrize("strategy", ["dpsgd-rank", "dpsgd-soft", "moments", "sgd"])
def test_methods_with_one_bound_refuse_a_clip_norm_by_group(strategy: str) -> None:
    with pytest.raises(SettingsError, match=f"clip_norm is a table by group, but {strategy} has one clip_norm for all"):
        made_of(strategy=strategy, clip_norm=CLIPS)


def test_an_existing_app_takes_clip_norms_by_group_and_no_target() -> None:
    clips, inner = {"f": 1.0, "m": 2.0}, FedAvg()
    app = PrivateTraining(inner, ("f", "m"), "dpsgd", clip_norm=clips, noise_multiplier=1.0)
    assert app.method.rule().group_sensitivities(2) == (1.0, 2.0)
    with pytest.raises(ValueError, match="target_epsilon is a table by group, but a plan by which every client"):
        PrivateTraining(inner, ("f", "m"), "dpsgd", rounds=2, target_epsilon=clips)


@pytest.mark.parametrize("sync", ["step", "epoch"])
def test_clip_norms_with_whose_noise_no_accountant_could_compute_are_refused(sync: str) -> None:
    with pytest.raises(ValueError, match=r"clip_norm is 1e-06 for one group and 2 for another, so that the noise is "
                                         r"2e\+06 times the smaller one, more than 1e\+06"):
        run(made_of(strategy="dpsgd", sync=sync, clip_norm={"a": 1e-6, "b": 2.0}))


class Falling(Dpsgd):
    """Halves the clip norm of the first group with every count: a bound that no group knows in advance."""

    state = ("factor",)

    def prepare(self) -> None:
        """Start at the clip norms of the settings."""
        self.factor = 1.0

    def rule(self) -> PerGroup:
        """Return the clip norms of the moment."""
        first, second = self.training.by_group("clip_norm", self.population.names)
        return PerGroup((first * self.factor, second))

    def query(self) -> GroupSizes:
        """Count the records of each group."""
        return GroupSizes()

    def learn(self, counts: Tensor, expected_batch: float) -> None:
        """Halve the first clip norm."""
        self.factor /= 2


def test_bounds_that_counts_move_are_not_guaranteed_in_advance() -> None:
    made = made_of(strategy="dpsgd", sync="epoch", clip_norm=CLIPS)
    sizes = tuple(sizes_of(made).values())
    population = Population(("a", "b"), ((sizes[0], 0), (0, sizes[1])), (0, 0), ("0", "1"))
    for kind, guaranteed in ((Dpsgd, 1.3 / 0.4), (Falling, 1.0)):
        plan = kind(made.task, made.training, population).plan(0)
        event = next(plan.charges(population.sizes)).event
        assert event.multipliers[0] == pytest.approx(guaranteed)
        assert event.spent_multipliers[0] == pytest.approx(1.3 / 0.4)
    app = PrivateTraining(FedAvg(), ("a", "b"), "dpsgd", clip_norm=CLIPS, noise_multiplier=1.0)
    assert app.method.has_fixed_bounds
