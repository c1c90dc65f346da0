"""A threshold on top of any strategy: what it changes, what it leaves, what it asks for and what it costs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from fedfair.accounting import Release, epsilon
from fedfair.accounting.ledger_words import held_out_data
from fedfair.fairness.reject_option import CELLS, RejectOption, score, score_counts
from fedfair.mechanisms.histograms import sensitivity
from fedfair.mechanisms.noise import Trust
from simulations import Experiment, run
from simulations.engines.run import conduct
from simulations.results.result import Result
from strategies import COMBINATIONS, STRATEGIES, find_strategy
from strategies.server.population import Population
from strategies.server.releases.threshold_search import ThresholdSearch
from strategies.server.rounds import Rounds
from tests.fedfair.mechanisms.test_prefix_sums import square_root
from tests.for_each import for_each
from tests.strategies.server.test_released_noise import LossyGrid
from tests.strategies.test_contract import SETTINGS
from tests.strategies.two_groups import two_groups

OPTIONS: dict[str, dict[str, Any]] = {
    "dpsgd-global": {"bound": 5.0}, "dpsgd-global-adapt": {"bound": 5.0}, "dp-fedavg": {"server_learning_rate": 0.1}}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write a file with two classes that depend on a number and on the group, which has three values."""
    rng = np.random.default_rng(0)
    group, x = rng.integers(0, 3, 900), rng.normal(size=900)
    y = (x + 0.9 * group - 1 + rng.normal(size=900) > 0).astype(int)
    path = tmp_path_factory.mktemp("data") / "own.csv"
    rows = [f"{a:.3f},{'abc'[k]},{b}" for a, k, b in zip(x, group, y, strict=True)]
    path.write_text("\n".join(["x,group,label", *rows]))
    return str(path)


def experiment(table: str, strategy: str = "dpsgd", **settings: Any) -> Experiment:
    return Experiment(**{"csv": table, "label": "label", "group": "group", "strategy": strategy, "model": "logistic",
                         "split": (0.4, 0.3, 0.3), "learning_rate": 0.5, "clip_norm": 1.0, "steps": 6, "batch_size": 32,
                         "noise_multiplier": 0.5, "options": OPTIONS.get(strategy, {}), "delta": 1e-4,
                         "accountant": "rdp", **settings, **SETTINGS.get(strategy, {})})


def exact_scores(result: Result) -> torch.Tensor:
    valid = result.data.valid
    with torch.no_grad():
        return score_counts(score(result.model(valid.x), result.search.favourable)[0], valid.group, len(valid.names))


def final(result: Result, split: str) -> dict[tuple[str, str], float]:
    rows, last = result.metrics, result.metrics["round"].max()
    return {(row.group, row.metric): row.value
            for row in rows[(rows["split"] == split) & (rows["round"] == last)].itertuples()}


@pytest.mark.usefixtures("keyed_by_seed")
@pytest.mark.parametrize(("strategy", "sync"), [(name, sync) for name in STRATEGIES for sync in STRATEGIES[name].modes])
def test_metrics_are_those_of_the_rule_and_nothing_else_changes(strategy: str, sync: str) -> None:
    made = experiment("", strategy, sync=sync, **two_groups(600))
    plain, result = run(made), run(made.model_copy(update={"threshold": "toc"}))
    assert all(torch.equal(a, b) for a, b in zip(plain.model.parameters(), result.model.parameters(), strict=True))
    assert torch.equal(result.search.scores, exact_scores(result))
    with torch.no_grad():
        output, test = result.model(result.data.test.x), result.data.test
    for split, predicted in (("test", result.threshold.rule.predict(output, test.group)),
                             ("test before threshold", output.argmax(1))):
        found = final(result, split)
        rates = [float((predicted[test.group == k] == 1).double().mean()) for k in range(2)]
        assert found["all", "accuracy"] == pytest.approx(float((predicted == test.y).double().mean()))
        assert found["all", "demographic_parity"] == pytest.approx(max(rates) - min(rates))
    assert result.ledger.events == plain.ledger.events
    assert (plain.ledger.held_out_epsilon("valid"), plain.threshold) == (0, None)
    assert math.isinf(result.ledger.held_out_epsilon("valid"))
    assert held_out_data(result.ledger, "valid") == "validation data: not protected"
    assert result.search.choose(made.theta) == result.threshold


@pytest.mark.parametrize("trust", list(Trust))
def test_the_private_search_carries_the_noise_that_it_is_charged(table: str, trust: Trust) -> None:
    made = experiment(table, threshold="toc", threshold_epsilon=0.7, trust=trust, noise_multiplier=1.0)
    result = run(made, nodes=2)
    assert 0.69 < result.ledger.held_out_epsilon("valid") <= 0.7
    assert result.ledger.events == run(made.model_copy(update={"threshold_epsilon": None})).ledger.events
    noise = (result.search.scores - exact_scores(result)) @ square_root_of_cells().T
    carried = result.search.multiplier * sensitivity(CELLS) * (math.sqrt(3) if trust is Trust.LOCAL else 1)
    drawn = (noise / carried).flatten().numpy()
    assert stats.kstest(drawn, "norm").pvalue > 1e-3
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(drawn * wrong, "norm").pvalue < 1e-4


def square_root_of_cells() -> torch.Tensor:
    """Compute C of `fedfair.mechanisms.histograms` by its inverse's definition, extended from a checked small case."""
    column = torch.cumprod(torch.tensor([1.0, *((j - 0.5) / j for j in range(1, CELLS))], dtype=torch.float64), 0)
    c = torch.stack([torch.cat([torch.zeros(k, dtype=torch.float64), column[: CELLS - k]]) for k in range(CELLS)], 1)
    assert torch.allclose(c[:24, :24], square_root(24))
    return c


def test_noise_and_spread_over_nodes_do_not_change_what_is_searched(table: str) -> None:
    made = experiment(table, threshold="toc", dtype="float64", noise_multiplier=0.0)
    assert torch.equal(run(made).search.scores, run(made, nodes=5).search.scores)
    quiet = run(made.model_copy(update={"partition": "site", "clients": 4}))
    assert torch.equal(quiet.search.scores.sum(1), run(made).search.scores.sum(1))


def test_a_threshold_that_is_given_asks_for_nothing(table: str) -> None:
    result = run(experiment(table, threshold="roc", gamma=0.8, deprived=("a",)))
    assert result.threshold.rule == RejectOption((0.8,) * 3, (True, False, False), 1)
    assert (result.search.scores, result.ledger.held_out) == (None, {})
    looked_up = run(experiment(table, threshold="roc", gamma=0.8))
    assert any(looked_up.threshold.rule.deprived)
    assert math.isinf(looked_up.ledger.held_out_epsilon("valid"))


def test_a_threshold_that_is_given_needs_no_validation_record(table: str) -> None:
    made = experiment(table, threshold="roc", gamma=0.8, deprived=("a",))
    Rounds(find_strategy("dpsgd")(made.task, made.training, population(valid=(9, 0))))


def test_by_group_holds_theta_and_changes_less_than_one_gamma(table: str) -> None:
    made = experiment(table, "sgd", steps=60)
    one, own = (run(made.model_copy(update={"threshold": name})) for name in ("toc", "by-group"))
    assert own.threshold.parity <= made.theta
    moved = [sum(abs(gamma - 0.5) for gamma in each.threshold.rule.gammas) for each in (own, one)]
    assert moved[0] <= moved[1]
    assert final(own, "valid")["all", "demographic_parity"] == pytest.approx(own.threshold.parity)


def test_confidence_is_promised_or_it_is_said_that_it_is_not(table: str) -> None:
    made = experiment(table, threshold="by-group", theta=0.4, threshold_confidence=0.8)
    promised = run(made).threshold
    assert (promised.confidence, promised.parity <= 0.4) == (0.8, True)
    assert run(made.model_copy(update={"theta": 0.01})).threshold.confidence is None


def population(**parts: Any) -> Population:
    return Population(**{"names": ("a", "b"), "sizes": ((50, 0), (0, 50)), "valid": (9, 9), "labels": ("no", "yes"),
                         **parts})


@for_each(("settings", "parts", "expected"), [
    ({}, {"names": ("a",), "sizes": ((50,),), "valid": (9,)}, "there is only the group 'a'"),
    ({}, {"labels": ("a", "b", "c")}, "there are 3 classes: say which of 0..2 is favourable"),
    ({"favourable": 3}, {"labels": ("a", "b", "c")}, "favourable is 3, but there are 3 classes"),
    ({"favourable": "Yes"}, {}, "unknown favourable class 'Yes': did you mean 'yes'"),
    ({}, {"valid": (9, 0)}, "has no record of group 'b'"),
    ({"deprived": "c"}, {}, "unknown deprived group 'c'"),
    ({"deprived": ["a", "b"]}, {}, "every group is named as deprived"),
])
def test_what_cannot_be_is_refused_before_training(settings: Any, parts: Any, expected: str, table: str) -> None:
    made = experiment(table, threshold="toc", **settings)
    with pytest.raises(ValueError, match=expected):
        Rounds(find_strategy("dpsgd")(made.task, made.training, population(**parts)))
    ThresholdSearch(made.task, made.training.model_copy(update={"threshold": "none", "favourable": None}),
                    population(**parts), "record", None)


def test_a_participants_records_are_all_protected_by_a_private_search(table: str) -> None:
    """Its noise is that for as many counts as a participant has, and it is part of what a participant is charged."""
    made = experiment(table, "dp-fedavg", partition="site", clients=20, dtype="float64", threshold="toc",
                      noise_multiplier=2.0)
    result = run(made.model_copy(update={"threshold_epsilon": 0.7}), nodes=2)
    most = max(len(parts.valid) for parts in made.task.clients_data().values())
    noise = (result.search.scores - exact_scores(result)) @ square_root_of_cells().T
    drawn = (noise / (result.search.multiplier * most * sensitivity(CELLS))).flatten().numpy()
    assert stats.kstest(drawn, "norm").pvalue > 1e-3
    trained = run(made.model_copy(update={"threshold": "none"})).ledger.epsilon()
    assert max(trained, 0.7) < result.ledger.epsilon() < trained + 0.7
    assert "for each participant" in held_out_data(result.ledger, "valid")
    assert (run(made).ledger.guarantee, run(made).ledger.epsilon()) == ("none", math.inf)
    assert any("largest number of validation records" in name for name in result.ledger.unprotected)


def test_the_participant_with_the_most_validation_records_sets_the_noise_of_a_search(table: str) -> None:
    made = experiment(table, "dp-fedavg", partition="site", clients=20, alpha=0.5, dtype="float64", threshold="toc",
                      threshold_epsilon=0.7, noise_multiplier=2.0)
    result, sizes = run(made), [len(parts.valid) for parts in made.task.clients_data().values()]
    noise = (result.search.scores - exact_scores(result)) @ square_root_of_cells().T
    carried = result.search.multiplier * max(sizes) * sensitivity(CELLS)
    assert float(noise.std()) == pytest.approx(carried, rel=0.1)
    assert min(sizes) < max(sizes) / 2


def test_a_target_epsilon_for_participants_is_kept_with_the_search(table: str) -> None:
    made = experiment(table, "dp-fedavg", partition="site", clients=20, threshold="toc", target_epsilon=3.0,
                      noise_multiplier=1.0, threshold_epsilon=2.0)
    assert 2.99 < run(made).ledger.epsilon() <= 3
    with pytest.raises(ValueError, match="target_epsilon cannot be kept: the search for a threshold reads"):
        run(made.model_copy(update={"threshold_epsilon": None}))


def test_an_observer_who_sees_less_noise_sees_less_of_the_searchs_too(table: str) -> None:
    made = experiment(table, "dp-fedavg", partition="site", clients=20, threshold="toc", threshold_epsilon=0.7,
                      noise_multiplier=2.0, trust="distributed")
    ledger = run(made).ledger
    (event, steps), (search, share) = next(iter(ledger.events.items())), (ledger.held_out["valid"], 1 / math.sqrt(20))
    assert search is not None
    alone = {event.guaranteed(0, share): steps, Release(1.0, search.multiplier * share): 1}
    assert ledger.by_observer()["server"] == pytest.approx(epsilon(alone, 1e-4, "rdp"))
    assert ledger.by_observer()["model"] == ledger.epsilon()


@pytest.mark.usefixtures("keyed_by_seed")
def test_a_run_that_loses_a_whole_group_ends_without_a_threshold(table: str, caplog: pytest.LogCaptureFixture
                                                                ) -> None:
    """The only client of the group is lost before the search, so its rate is unknown."""
    plain = conduct(experiment(table, dropouts=1), LossyGrid(3, {2}), lambda *_: None)
    for threshold in ("toc", "by-group"):
        made = experiment(table, threshold=threshold, dropouts=1, threshold_confidence=0.9)
        result = conduct(made, LossyGrid(3, {2}), lambda *_: None)
        assert "no validation record of group 'c' was counted" in caplog.text
        assert result.threshold is not None
        assert (result.threshold.parity, result.threshold.confidence) == (None, None)
        assert final(result, "test") == pytest.approx(final(plain, "test"), nan_ok=True)


@pytest.mark.parametrize("dropouts", [0, 2])
@pytest.mark.parametrize("trust", list(Trust))
def test_a_promise_reckons_with_the_noise_that_is_there(table: str, trust: Trust, dropouts: int) -> None:
    """Shares for one client of three are three times as much noise where all three are there."""
    made = experiment(table, threshold="toc", threshold_epsilon=0.7, trust=trust, dropouts=dropouts,
                      noise_multiplier=1.0)
    result = run(made)
    noise = (result.search.scores - exact_scores(result)) @ square_root_of_cells().T
    carried = float(noise.std()) / sensitivity(CELLS)
    assert result.search._added_multiplier == pytest.approx(carried, rel=0.1)


def test_a_promise_reckons_with_the_noise_of_those_who_answered(table: str) -> None:
    made = experiment(table, threshold="toc", threshold_epsilon=0.7, trust="local", dropouts=1, noise_multiplier=1.0)
    result = conduct(made, LossyGrid(3, {2}), lambda *_: None)
    noise = (result.search.scores - exact_scores(result))[:2] @ square_root_of_cells().T  # c's client is lost
    assert result.search._added_multiplier == pytest.approx(float(noise.std()) / sensitivity(CELLS), rel=0.1)


def test_discrete_noise_is_discrete_in_the_search_too(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def floating(*_: Any) -> torch.Tensor:
        raise AssertionError("a Gaussian in floating point")

    monkeypatch.setattr("fedfair.mechanisms.noise.normal", floating)
    for trust in Trust:
        result = run(experiment(table, threshold="toc", threshold_epsilon=0.7, trust=trust, noise="discrete",
                                dtype="float64"))
        assert result.search.scores is not None


@pytest.mark.parametrize("name", list(COMBINATIONS))
def test_a_combination_is_its_strategy_with_its_settings(table: str, name: str) -> None:
    combination = COMBINATIONS[name]
    combined = run(experiment(table, name))
    made = run(experiment(table, combination.strategy, **combination.settings))
    assert combined.threshold == made.threshold is not None
    assert all(torch.equal(a, b) for a, b in zip(combined.model.parameters(), made.model.parameters(), strict=True))
    assert run(experiment(table, name, threshold="none")).threshold is None


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
def test_flowers_own_engine_finds_the_same_threshold(table: str) -> None:
    made = experiment(table, "gs-dp-sgd-to", dtype="float64", threshold_epsilon=1.0)
    local, flower = run(made), run(made, engine="flower")
    assert local.threshold == flower.threshold
    assert final(local, "test") == pytest.approx(final(flower, "test"), nan_ok=True)


@pytest.mark.parametrize("trust", list(Trust))
def test_a_seed_tells_nothing_of_a_searchs_noise_where_the_operating_system_draws(table: str, trust: Trust) -> None:
    """Hazard 14: neither at the server nor at the clients."""
    made = experiment(table, threshold="toc", threshold_epsilon=0.7, trust=trust, randomness="system", steps=1)
    one, other = (result.search.scores - exact_scores(result) for result in (run(made), run(made)))
    assert not torch.isclose(one, other, rtol=0, atol=1e-9).any()  # one in 10^5 of a cell's noise alike is chance
