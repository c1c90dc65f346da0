"""Every known mistake, planted, and the check that fails on it. `MUTATIONS` is the table: hazard, mistake, check.

The numbers are those of the project's list of hazards (docs/attacking.md has the list in words). `test_the_checks_pass`
and the checks' own modules show that the checks pass on the code as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from fedfair.accounting import Event, Ledger
from fedfair.gradients import paths
from fedfair.gradients import probe as gradients
from fedfair.gradients.layer_gradients import Gradients
from fedfair.gradients.model_state import ModelState
from fedfair.mechanisms import clipping, noise
from fedfair.mechanisms.randomness import stream
from fedfair.node import large_batches, noisy_sums
from fedfair.node import node as host
from fedfair.protocol import round as rounds
from fedfair.protocol.local_budget import LocalEpoch
from fedfair.protocol.task import Task
from strategies.dp_fedavg import DpFedavg
from strategies.dpsgd_global import DpsgdGlobalAdapt
from strategies.fairlens import FairLens
from strategies.server import calibration as budget
from strategies.server import rounds as served
from strategies.server import strategy as base
from strategies.server.releases import threshold_search
from strategies.server.replies import requests as exchange
from tests.fedfair.mechanisms import test_noise
from tests.hazards import checks, test_mixing
from tests.strategies import test_contract, test_dp_fedavg, test_methods
from tests.strategies.server import test_released_noise

Patch = pytest.MonkeyPatch
ORIGINAL_RELEASE, ORIGINAL_SUM = host.release, host.Node.gradient_sum
ORIGINAL_CHARGED, ORIGINAL_LEARN = budget._charged, DpsgdGlobalAdapt.learn
ORIGINAL_FOLLOW = DpFedavg.learn
ORIGINAL_ASK = threshold_search.ThresholdSearch.ask
ORIGINAL_WEIGHTED_SUM, ORIGINAL_PROBE = gradients.LayerProbe.weighted_sum, large_batches.per_example


def noise_at_the_base_clip_norm(patch: Patch) -> None:
    patch.setattr(rounds, "sensitivity", lambda rule, groups: 1e-3)


def noise_over_the_groups_that_are_present(patch: Patch) -> None:
    def release(probe: Any, groups: Tensor, round_: Any, clients: list[int]) -> Any:
        present = groups.unique().tolist()
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(rounds, "sensitivity",
                          lambda rule, k: max((rule.group_sensitivities(k)[g] for g in present), default=0.0))
            return ORIGINAL_RELEASE(probe, groups, round_, clients)

    patch.setattr(host, "release", release)


def no_noise_on_counts(patch: Patch) -> None:
    patch.setattr(served.Rounds, "_noisy_counts", lambda self, counts, plan: counts)


def counts_left_out_of_the_ledger(patch: Patch) -> None:
    def forgetful(*args: Any, **named: Any) -> Event:
        return replace(Event(*args, **named), count_multiplier=None)

    patch.setattr(rounds, "Event", forgetful)


def counts_left_out_of_the_calibration(patch: Patch) -> None:
    patch.setattr(budget, "_charged", lambda schedule, training, beside, noise: ORIGINAL_CHARGED(
        schedule, training, beside._replace(counting=False), noise))


def division_by_the_realised_batch(patch: Patch) -> None:
    def divided(self: Any, weights: Any, round_: Any) -> Any:
        found = ORIGINAL_SUM(self, weights, round_)
        size = max(1, len(self.batch(weights, round_).groups))
        return found._replace(sums={name: value * 32 / size for name, value in found.sums.items()})

    patch.setattr(host.Node, "gradient_sum", divided)


def an_adaptive_bound_divided_by_the_realised_batch(patch: Patch) -> None:
    patch.setattr(DpsgdGlobalAdapt, "learn", lambda self, counts, expected: ORIGINAL_LEARN(self, counts, expected - 3))


def shuffled_batches(patch: Patch) -> None:
    def fixed(seed: int, step: int, records: Tensor, rates: float) -> Tensor:
        order = torch.randperm(len(records), generator=torch.Generator().manual_seed(step))
        return order[: round(rates * len(records))].sort().values

    patch.setattr(host, "poisson", fixed)


def batch_norm_accepted(patch: Patch) -> None:
    interaction_sought_by_outputs_in_evaluation(patch)
    patch.setattr(gradients, "refuse_mixing_layers", lambda model: None)


def interaction_sought_by_outputs_in_evaluation(patch: Patch) -> None:
    patch.setattr(gradients, "refuse_interaction", lambda *args: None)
    patch.setattr(gradients, "keeps_rows", lambda *args: True)
    for module in (gradients, paths):
        patch.setattr(module, "is_known", lambda *args: True)
    patch.setattr(gradients, "_same_layers", {})


def a_state_that_the_first_batch_shows_or_nothing(patch: Patch) -> None:
    patch.setattr(gradients, "refuse_interaction", lambda *args: None)
    patch.setattr(ModelState, "restore", lambda self: None)


def scaling_by_the_records_called_proved(patch: Patch) -> None:
    patch.setattr(Task, "learned_from_records", lambda task: None)


def a_seeded_run_called_proved(patch: Patch) -> None:
    patch.setattr(base, "SEEDED", None)


def fairlens_called_proved(patch: Patch) -> None:
    patch.setattr(FairLens, "nominal", None)


def a_small_client_divides_by_the_batch_size_of_all(patch: Patch) -> None:
    def careless(records: int, batch_size: int, epochs: int) -> LocalEpoch:
        return LocalEpoch.of(records, batch_size, epochs)._replace(batch_size=batch_size)

    patch.setattr(rounds, "LocalEpoch", SimpleNamespace(of=careless))


def a_client_in_two_replies(patch: Patch) -> None:
    patch.setattr(exchange, "refuse_doubles", lambda senders: None)


def an_inverted_bit(patch: Patch) -> None:
    patch.setattr(DpFedavg, "learn",
                  lambda self, counts, expected: ORIGINAL_FOLLOW(self, expected - counts, expected))


def a_nan_that_passes_the_clip(patch: Patch) -> None:
    def tolerant(*args: Any) -> Any:
        probe = ORIGINAL_PROBE(*args)
        probe.norms = probe.norms.nan_to_num()
        return probe

    patch.setattr(large_batches, "per_example", tolerant)


def a_zero_gradient_divided_by_its_norm(patch: Patch) -> None:
    patch.setattr(clipping.Flat, "coefficients", lambda self, norms, groups: self.clip_norm / norms)


def shares_of_one_in_n(patch: Patch) -> None:
    patch.setattr(noisy_sums, "client_share", lambda trust, clients: 1 / clients)


def a_search_that_is_not_charged(patch: Patch) -> None:
    def unseen(self: Any, arrays: Any, grid: Any, ledger: Ledger) -> None:
        ORIGINAL_ASK(self, arrays, grid, Ledger(ledger.groups, ledger.delta))

    patch.setattr(threshold_search.ThresholdSearch, "ask", unseen)


def a_ledger_that_starts_from_zero(patch: Patch) -> None:
    patch.setattr(Ledger, "from_dict", staticmethod(lambda values: Ledger(values["groups"], values["delta"])))


def shares_of_lost_clients_counted(patch: Patch) -> None:
    patch.setattr(noisy_sums, "client_share", lambda trust, clients: noise.client_share(trust, clients + 3))


def one_stream_for_sampling_and_noise(patch: Patch) -> None:
    patch.setattr(noisy_sums, "source", lambda key, purpose, client, step: stream(key, "sampling", 0, step))


def a_seed_after_all(patch: Patch) -> None:
    patch.setattr(base, "Round", lambda key, **named: rounds.Round(key="0", **named))


def a_seed_alone_as_the_key_of_the_noise(patch: Patch) -> None:
    patch.setattr(base, "noise_key", lambda method, sync, options, task, training: str(task.seed))


def noise_in_floating_point(patch: Patch) -> None:
    patch.setattr(test_noise, "add_discrete_gaussian", noise.add_gaussian)


def results_without_labels(patch: Patch) -> None:
    patch.setattr(checks, "environment", lambda results: {"not_private": [], "randomness": ["secure"]})


def clipping_after_the_noise(patch: Patch) -> None:
    def clipped(kind: Any, values: Any, deviation: float, source: Any) -> Any:
        noisy = noise.add_noise(kind, values, deviation, source)
        norm = math.sqrt(sum(float(value.square().sum()) for value in noisy.values()))
        return {name: value * min(1.0, deviation / norm) for name, value in noisy.items()}

    patch.setattr(served, "add_noise", clipped)


def clipping_layer_by_layer(patch: Patch) -> None:
    def by_layer(self: gradients.LayerProbe, coefficients: Tensor) -> Gradients:
        if not self._layers or bool((coefficients == 1).all()):
            return ORIGINAL_WEIGHTED_SUM(self, coefficients)
        sums: Gradients = {}
        for layer in self._layers:
            sums |= layer.weighted_sum((coefficients * self.norms / layer.squares().values.sqrt()).nan_to_num())
        return sums

    patch.setattr(gradients.LayerProbe, "weighted_sum", by_layer)
    patch.setattr(gradients, "_is_right", lambda *_: True)  # else the probe notices, and takes another path


def the_sensitivity_of_theta_forgotten(patch: Patch) -> None:
    patch.setattr(clipping.Reweighted, "group_sensitivities", lambda self, groups: self.clip_norms)


def released_sum(strategy: str) -> Callable[[], None]:
    return partial(test_released_noise.test_the_released_sum_carries_the_noise_that_the_ledger_charges, strategy)


def noisy_counts() -> None:
    with pytest.MonkeyPatch.context() as patch:
        test_released_noise.test_counts_arrive_with_the_noise_that_the_ledger_charges("dpsgd-f", patch)


def target_met() -> None:
    test_contract.test_the_target_epsilon_is_met_with_count_queries_included("dpsgd-f", "step")


def noise_of_a_small_client() -> None:
    test_released_noise.test_one_local_step_carries_the_noise_that_the_ledger_charges("gs-dp-sgd")


def noise_of_those_who_are_left() -> None:
    test_released_noise.test_the_noise_of_those_who_are_left_is_enough({1, 7, 8})


class Mutation(NamedTuple):
    """A mistake and the check that notices it; `hazards` are numbers of the list, 0 for a mistake that is not on it."""

    hazards: tuple[int, ...]
    plant: Callable[[Patch], None]
    check: Callable[[], None]


MUTATIONS = [
    Mutation((1,), noise_at_the_base_clip_norm, released_sum("dpsgd-f")),
    Mutation((1,), noise_over_the_groups_that_are_present,
             checks.an_empty_batch_gets_the_noise_of_the_largest_bound_of_all_groups),
    Mutation((2,), division_by_the_realised_batch, checks.a_step_divides_by_the_public_batch_size),
    Mutation((2,), an_adaptive_bound_divided_by_the_realised_batch,
             test_methods.test_global_adapt_moves_its_bound_by_the_public_batch_size_and_stops_at_the_floor),
    Mutation((3,), counts_left_out_of_the_ledger, noisy_counts),
    Mutation((3,), counts_left_out_of_the_calibration, target_met),
    Mutation((3,), no_noise_on_counts, noisy_counts),
    Mutation((4,), shuffled_batches, checks.batch_sizes_vary_as_poisson_sampling_makes_them),
    Mutation((5,), batch_norm_accepted, checks.batch_norm_is_refused),
    Mutation((6,), fairlens_called_proved, checks.fairlens_is_nominal),
    Mutation((7,), a_small_client_divides_by_the_batch_size_of_all, noise_of_a_small_client),
    Mutation((8,), an_inverted_bit,
             test_dp_fedavg.test_the_clip_norm_grows_when_too_many_are_clipped_and_shrinks_when_too_few),
    Mutation((9,), a_nan_that_passes_the_clip, checks.a_nan_adds_nothing_and_a_zero_gradient_stays_zero),
    Mutation((9,), a_zero_gradient_divided_by_its_norm, checks.a_nan_adds_nothing_and_a_zero_gradient_stays_zero),
    Mutation((10,), shares_of_one_in_n, released_sum("dpsgd")),
    Mutation((11,), a_search_that_is_not_charged, checks.a_threshold_search_is_in_the_ledger),
    Mutation((12,), a_ledger_that_starts_from_zero, checks.a_resumed_ledger_goes_on),
    Mutation((13,), shares_of_lost_clients_counted, noise_of_those_who_are_left),
    Mutation((14,), one_stream_for_sampling_and_noise, checks.every_draw_has_a_stream_of_its_own),
    Mutation((14,), a_seed_after_all, checks.a_seed_tells_nothing_where_the_operating_system_draws),
    Mutation((15,), noise_in_floating_point,
             test_noise.test_discrete_noise_leaves_only_multiples_of_a_step_that_depends_on_public_numbers),
    Mutation((16,), results_without_labels, checks.results_say_what_is_not_private),
    Mutation((27,), scaling_by_the_records_called_proved, checks.a_run_that_scales_by_its_records_is_nominal),
    Mutation((29,), interaction_sought_by_outputs_in_evaluation,
             partial(test_mixing.test_a_model_that_mixes_is_refused_or_bounded, test_mixing.standardised)),
    Mutation((29,), interaction_sought_by_outputs_in_evaluation,
             partial(test_mixing.test_a_model_that_mixes_is_refused_or_bounded, test_mixing.Rarely)),
    Mutation((32,), a_state_that_the_first_batch_shows_or_nothing,
             partial(test_mixing.test_what_a_model_keeps_of_a_record_does_not_leave, 1e8)),
    Mutation((30,), a_seeded_run_called_proved, checks.a_seeded_run_is_simulated),
    Mutation((30,), a_seed_alone_as_the_key_of_the_noise, checks.two_settings_share_no_noise),
    Mutation((0,), a_client_in_two_replies,
             partial(test_released_noise.test_two_nodes_that_answer_for_one_client_are_refused, {"partition-id": 0})),
    Mutation((0,), clipping_after_the_noise, released_sum("dpsgd")),
    Mutation((0,), clipping_layer_by_layer, checks.one_record_adds_at_most_the_sensitivity_of_its_group_and_can_add_it),
    Mutation((0,), the_sensitivity_of_theta_forgotten,
             checks.one_record_adds_at_most_the_sensitivity_of_its_group_and_can_add_it),
]
OWN = sorted({m.check for m in MUTATIONS if m.check.__module__ == checks.__name__}, key=lambda check: check.__name__)


@pytest.mark.usefixtures("keyed_by_seed")  # since checks compare runs of different settings
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.plant.__name__)
def test_a_planted_mistake_is_noticed(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check fails: on an assertion, or because an error that should be raised is not."""
    mutation.plant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        mutation.check()


@pytest.mark.parametrize("check", OWN, ids=lambda check: check.__name__)
def test_the_checks_pass(check: Callable[[], None]) -> None:
    check()


def test_every_hazard_of_privacy_has_a_mutation() -> None:
    assert {number for mutation in MUTATIONS for number in mutation.hazards} >= set(range(1, 17))
