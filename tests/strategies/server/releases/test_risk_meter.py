"""Risk terms as an option of a run: the same whoever holds the records, and without effect on the training."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from flwr.serverapp import Grid
from torch import Tensor, nn

from fedfair import client_app
from fedfair.datasets import GroupedDataset
from fedfair.mechanisms.clipping import Flat
from fedfair.mechanisms.noise import Trust
from fedfair.node.exchanges import find_exchange
from fedfair.protocol.exchange import Request
from fedfair.protocol.messages import pack, requests
from fedfair.protocol.round import Round
from fedfair.risk.derivatives import hessian_products, losses_and_gradients, repeated_samples
from fedfair.risk.risk_sums import send_hessian_products, send_traces
from fedfair.risk.terms import trace_estimate
from simulations import Experiment, run
from simulations.engines.checkpoint import Checkpoint
from simulations.results.result import Result
from strategies.server.releases.risk_meter import RiskMeter
from tests.for_each import for_each
from tests.strategies.oracle import gradients


def experiment(**settings: Any) -> Experiment:
    return Experiment(**{"strategy": "dpsgd", "split": (0.2, 0.0, 0.8), "hidden": (5,), "steps": 3, "batch_size": 40,
                         "learning_rate": 0.2, "dtype": "float64", "risk_every": 2, "risk_vectors": 4, **settings})


def terms(result: Result) -> pd.Series[float]:
    rows = result.metrics[result.metrics["metric"].str.contains("risk|eigenvalue|trace|expected_error|exact")]
    return rows.set_index(["round", "group", "metric"])["value"].sort_index()


def weights(result: Result) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in result.model.parameters()])


@pytest.mark.usefixtures("keyed_by_seed")
def test_terms_do_not_depend_on_clients_and_nodes_nor_change_the_training() -> None:
    plain, together = run(experiment(risk_every=None, risk_vectors=1000)), run(experiment())
    spread = run(experiment(partition="site", clients=3), nodes=2)
    assert torch.equal(weights(plain), weights(together))
    assert terms(plain).empty
    assert sorted(set(terms(together).index.get_level_values("round"))) == [1, 3]
    pd.testing.assert_series_equal(terms(together), terms(spread), rtol=1e-8, atol=1e-12)
    assert plain.ledger.epsilon() == together.ledger.epsilon()


@pytest.mark.usefixtures("keyed_by_seed")
def test_the_loss_of_each_group_is_that_of_all_its_training_records_before_the_step() -> None:
    """At rounds 1 and 3, of the initial weights and of those after two steps; the last round has metrics besides."""
    measured, data = run(experiment()), experiment().task.data().train
    assert {"loss", "loss_exact"} <= set(measured.metrics.query("split == 'train' and round == 3")["metric"])
    for round_, before in ((1, experiment().task.build_model()), (3, run(experiment(steps=2)).model)):
        before.requires_grad_(False)
        for k, name in enumerate(data.names):
            mine = data.group == k
            loss = torch.nn.functional.cross_entropy(before(data.x[mine]), data.y[mine])
            assert terms(measured)[round_, name, "loss_exact"] == pytest.approx(float(loss), rel=1e-12)


def test_what_the_terms_tell_of_the_training_records_is_named_as_unprotected() -> None:
    """Clients are sent the batch's gradient, for products with it, which is no secret of theirs."""
    plain, measured = (run(experiment(risk_every=every, risk_vectors=1000, steps=1)).ledger for every in (None, 1))
    assert set(measured.unprotected) - set(plain.unprotected) == {"risk terms on the train part"}
    assert math.isfinite(plain.by_observer()["client"])
    assert math.isinf(measured.by_observer()["client"])


@pytest.mark.usefixtures("keyed_by_seed")
def test_terms_are_those_of_the_records_that_there_are_though_their_numbers_are_rounded() -> None:
    made = experiment(steps=1, imbalance="8:9")
    exact, rounded = (terms(run(made.model_copy(update={"round_sizes": size}))) for size in (1, 50))
    for metric in ("loss_exact", "gradient_norm_exact", "largest_eigenvalue", "hessian_trace"):
        pd.testing.assert_series_equal(exact.xs(metric, level="metric"), rounded.xs(metric, level="metric"), rtol=1e-9)


def test_about_as_many_records_are_sampled_as_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """However numbers are rounded: with rates of the rounded ones a small group would have next to none."""
    asked: dict[str, list[float]] = {}
    ask = RiskMeter._ask

    def noted(self: RiskMeter, grid: Grid, action: str, name: str, **parts: Any) -> Any:
        if "rates" in parts:
            asked[action] = parts["rates"]
        return ask(self, grid, action, name, **parts)

    monkeypatch.setattr(RiskMeter, "_ask", noted)
    made = experiment(steps=1, risk_records=7, risk_vectors=30, round_sizes=1000, imbalance="8:9")
    run(made)
    sizes = made.task.data().train.group_sizes()
    assert asked == {send_hessian_products: pytest.approx([min(1, 7 / size) for size in sizes]),
                     send_traces: pytest.approx([min(1, 30 / size) for size in sizes])}


def test_a_small_group_has_as_many_random_vectors_as_a_large_one() -> None:
    """Five equal records, of which Tr(H) is 2: with one vector each all samples are 0, or all 4, once in 16 times."""
    x, y = torch.ones(5, 3, dtype=torch.float64), torch.tensor([0, 1, 0, 1, 0])
    data, model = GroupedDataset(x, y, torch.zeros(5, dtype=torch.long), ("a",), 2), nn.Linear(3, 2).double()
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    errors = []
    for step in range(50):
        few = repeated_samples(model, data, torch.arange(5), "key", step, 1)
        errors.append(float(trace_estimate(few.sum(), few.square().sum(), torch.tensor(len(few)))[1]))
        if step < 10:
            many = repeated_samples(model, data, torch.arange(5), "key", step, 200)
            value, error = trace_estimate(many.sum(), many.square().sum(), torch.tensor(len(many)))
            assert abs(float(value) - 2) < 5 * float(error) < 0.4
            assert torch.equal(few, many[:5])
    assert 0.0 in errors


def test_every_group_has_about_as_many_samples_of_its_trace_as_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    def noted(sums: Tensor, squares: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(samples)
        return trace_estimate(sums, squares, samples)

    monkeypatch.setattr("strategies.server.releases.risk_meter.trace_estimate", noted)
    made = experiment(steps=1, risk_vectors=100, imbalance="8:9")
    for nodes in (1, 2):
        run(made.model_copy(update={"partition": "site", "clients": 3}), nodes=nodes)
    sizes = made.task.data().train.group_sizes()
    assert min(sizes) == 9
    expected = [size * math.ceil(100 / size) for size in sizes]
    assert [samples.tolist() for samples in seen] == [expected, expected]


def test_a_group_that_the_sample_misses_has_no_gap_and_no_bound() -> None:
    found = terms(run(experiment(steps=1, risk_records=1)))[1, "all"]
    assert math.isnan(found["risk_clip_gap"])
    assert math.isnan(found["risk_clip_gap_bound"])


@pytest.mark.parametrize("every", [1, 2])
def test_eigenvectors_are_kept_from_one_measurement_to_the_next(every: int, tmp_path: Path) -> None:
    """In checkpoints as well: a resumed run measures what an undisturbed one does."""

    class StoppedError(Exception):
        pass

    def stop(done: int, rounds: int) -> None:
        if done == 3:
            raise StoppedError

    made = experiment(steps=5, risk_every=every)
    checkpoint = Checkpoint(tmp_path / "out", made.settings(), 2)
    with pytest.raises(StoppedError):
        run(made, checkpoint=checkpoint, progress=stop)
    pd.testing.assert_series_equal(terms(run(made, checkpoint=checkpoint)), terms(run(made)))


def test_terms_are_those_of_the_learning_rate_of_the_step() -> None:
    """fair-dp has another one in the last tenth of its rounds."""
    found = terms(run(experiment(strategy="fair-dp", sync="step", steps=10, risk_every=9, optimizer="sgd",
                                 learning_rate=0.5)))
    for round_, rate in ((1, 0.5), (10, 0.005)):
        largest = found[round_].xs("largest_eigenvalue", level="metric").max()
        assert found[round_, "all", "learning_rate_times_eigenvalue"] == pytest.approx(rate * largest)


def test_parameters_that_are_not_trained_are_in_no_term() -> None:
    class Part(torch.nn.Module):
        def __init__(self, frozen: bool) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Linear(64, 5), torch.nn.Linear(5, 10)
            self.first.requires_grad_(not frozen)
            self.unused = torch.nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.first(x.flatten(1)).tanh())

    data = experiment().task.data().train
    for frozen, parameters in ((False, 64 * 5 + 5 + 60 + 6), (True, 60 + 6)):
        model = Part(frozen).double()
        losses, gradients_ = losses_and_gradients(model, data)
        assert gradients_.shape == (10, parameters)
        assert bool((losses > 0).all())
        products = hessian_products(model, data, torch.arange(5), torch.ones(1, parameters, dtype=torch.float64))
        assert bool((products[0, -6:] == 0).all())
        assert products.norm() > 0


@pytest.mark.parametrize("strategy", ["dpsgd", "dpsgd-f", "dpsgd-global-adapt", "naive"])
def test_terms_of_a_full_batch_say_what_the_step_did(strategy: str) -> None:
    """With every record in the batch and no noise nothing is random: the prediction is of second order."""
    options = {"bound": 3.0} if strategy == "dpsgd-global-adapt" else {}
    base = experiment(strategy=strategy, steps=1, noise_multiplier=0.0, sync="step", learning_rate=0.02,
                      risk_records=1000, risk_vectors=80, options=options, clip_norm=0.3)
    made = base.model_copy(update={"batch_size": len(base.task.data().train)})
    measured = run(made)
    data, model = made.task.data().train, made.task.build_model()
    risk = terms(measured).xs(1, level="round")
    rows = gradients(model, data.x, data.y)
    step = -0.02 * rows.mean(0)
    with torch.no_grad():
        for p, change in zip(model.parameters(), torch.split(step, [p.numel() for p in model.parameters()]),
                             strict=True):
            p += change.view_as(p)
    model.requires_grad_(False)
    measured.model.requires_grad_(False)
    for k, name in enumerate(data.names):
        mine = data.group == k
        losses = [float(torch.nn.functional.cross_entropy(m(data.x[mine]), data.y[mine]))
                  for m in (measured.model, model)]
        assert losses[0] - losses[1] == pytest.approx(risk[name, "risk_clip"], rel=0.05)
        assert risk[name, "risk_clip"] == pytest.approx(risk[name, "risk_magnitude"] + risk[name, "risk_direction"])
        assert risk[name, "risk_noise"] == 0


@pytest.mark.usefixtures("keyed_by_seed")
def test_the_noise_term_has_the_scaling_of_the_step() -> None:
    one, other = (terms(run(experiment(steps=1, noise_multiplier=noise, clip_norm=clip)))
                  for noise, clip in ((1.0, 0.5), (3.0, 1.0)))
    risk, trace = one[1, "4", "risk_noise"], one[1, "4", "hessian_trace"]
    assert risk == pytest.approx(0.2**2 / 2 * trace * (0.5 * 1.0 / 40) ** 2)
    assert other[1, "4", "risk_noise"] == pytest.approx(36 * risk)
    assert other[1, "4", "risk_noise_se"] == pytest.approx(36 * one[1, "4", "risk_noise_se"])


def test_the_gap_s_bound_belongs_to_the_pair_with_the_largest_gap() -> None:
    found = terms(run(experiment(steps=1, risk_records=1000, clip_norm=0.05))).xs(1, level="round")
    direction = found.xs("risk_direction", level="metric")
    assert found["all", "risk_direction_gap"] == pytest.approx(direction.max() - direction.min())
    assert found["all", "risk_direction_gap_bound"] <= found["all", "risk_direction_gap"]
    largest = found.xs("largest_eigenvalue", level="metric").max()
    assert found["all", "learning_rate_times_eigenvalue"] == pytest.approx(0.2 * largest)
    assert math.isfinite(found["all", "risk_clip_gap_bound"])


@for_each(("setting", "needed"), [({"sync": "epoch"}, "sync is 'epoch': take 'step'"),
                                  ({"optimizer": "adam"}, "optimizer is 'adam': take 'sgd'"),
                                  ({"momentum": 0.5}, r"momentum is '0\.5': take '0'"),
                                  ({"weight_decay": 5}, r"weight_decay is '5\.0': take '0'"),
                                  ({"trust": "distributed"}, "trust is 'distributed': take 'central'"),
                                  ({"dropouts": 1}, "dropouts is '1': take '0'"),
                                  ({"randomness": "system"}, "randomness is 'system': take 'seeded'"),
                                  ({"strategy": "gs-dp-sgd"}, "sync is 'epoch': take 'step'"),
                                  ({"strategy": "fairlens"}, "which this strategy does not take"),
                                  ({"risk_every": None}, "risk_vectors is set, but risk_every is not")])
def test_runs_whose_steps_the_terms_do_not_describe_are_refused_when_they_are_described(setting: dict[str, Any],
                                                                                       needed: str) -> None:
    with pytest.raises(ValueError, match=needed):
        experiment(**setting)


@pytest.mark.parametrize("strategy", ["direction-error", "magnitude-error"])
def test_steps_of_a_wrong_length_or_direction_have_no_terms_and_no_other_optimiser(strategy: str) -> None:
    with pytest.raises(ValueError, match="which this strategy does not take"):
        run(experiment(strategy=strategy))
    with pytest.raises(ValueError, match="'adam' would scale anew"):
        run(experiment(strategy=strategy, risk_every=None, risk_vectors=1000, optimizer="adam"))


@pytest.mark.parametrize("action", ["clipping_effect", "hessian_products", "traces"])
def test_a_client_answers_only_whom_it_trusts(action: str) -> None:
    task = experiment().task
    round_ = Round(key="0", step=0, rates=(0.1,) * 10, noise_multiplier=1.0, trust=Trust.LOCAL, clients=2,
                   rule=Flat(1.0))
    asked = find_exchange(f"risk_sums.send_{action}")
    message, = requests(asked.name, asked.category, [1], task, weights=pack(task.build_model().state_dict()),
                        round_=round_, tensors={"vectors": {}}, rates=[1.0] * 10)
    with pytest.raises(ValueError, match="trust is 'local': only central trust"):
        asked(client_app.node_of(task, 0, 1), Request(message, task, "cpu"))
