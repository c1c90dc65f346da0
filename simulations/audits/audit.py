"""Attack a run, and compare the epsilon that the attacker proves with the epsilon that the ledger claims."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from fedfair import client_app
from fedfair.accounting.events import Unit
from fedfair.auditing.bounds import Bound, Neighbours, gaussian_bound, lower_bound
from fedfair.auditing.canaries import AuditedNode, plant
from fedfair.datasets import GroupedDataset, Parts
from fedfair.gradients.layers import flat
from fedfair.gradients.probe import trained_parameters
from fedfair.mechanisms.clipping import ClipRule
from fedfair.mechanisms.randomness import generator
from fedfair.models.published import loss
from fedfair.node.exchanges import send_gradient_sum
from fedfair.node.participant_updates import send_update_sum
from simulations.audits.white_box import WatchedGrid, scores, step_of
from simulations.engines.local import LocalGrid
from simulations.engines.quiet import quiet_flower
from simulations.engines.run import Progress, conduct
from simulations.results.result import Result
from simulations.settings.experiment import Experiment
from strategies import find_strategy
from strategies.server.population import Population
from strategies.server.requests import population

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

DEFAULTS: dict[str, Any] = {
    "dataset": "digits", "split": (0.2, 0.0, 0.8), "model": "mlp", "hidden": (300,), "dtype": "float64", "steps": 30,
    "batch_size": 288, "eval_every": 1000, "clip_norm": 1.0, "learning_rate": 1e-3, "delta": 1e-5}
"""Settings of a run that takes seconds, and whose model has room for 20,000 canaries."""


@dataclass(frozen=True)
class Finding:
    """Result of an attack on the records of one group ("all" for all records), beside the ledger's claim for them.

    `claimed` is guaranteed in advance; `spent` is the reading for the bounds that were in force. `if_gaussian` is the
    sharper bound that holds if the mechanism is Gaussian; None for the black box.
    """

    group: str
    bound: Bound
    claimed: float
    spent: float
    if_gaussian: float | None = None

    @property
    def refuted(self) -> bool:
        """Whether the attack shows that the claim is false, at its confidence."""
        return self.bound.epsilon > self.claimed


@dataclass(frozen=True)
class Audit:
    """Findings for all records and by group, with the ledger's guarantee and delta."""

    attack: str
    experiment: Experiment
    guarantee: str
    delta: float
    findings: tuple[Finding, ...]

    @property
    def overall(self) -> Finding:
        """The finding for all records."""
        return self.findings[0]

    @property
    def refuted(self) -> bool:
        """Whether any finding shows the claim to be false."""
        return any(finding.refuted for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields and verdicts, ready for JSON."""
        findings = [{**asdict(finding), "refuted": finding.refuted} for finding in self.findings]
        return {"attack": self.attack, "experiment": self.experiment.settings(), "guarantee": self.guarantee,
                "delta": self.delta, "refuted": self.refuted, "findings": findings}


def audit(experiment: Experiment, canaries: int = 20_000, confidence: float = 0.95,
          progress: Progress = lambda *_: None) -> Audit:
    """Run the experiment once with canaries in its batches, and bound epsilon from what a white-box attacker sees.

    Canaries are held in this process, so the engine is "local", with a node for each client. Raises `ValueError` for an
    optimiser whose steps the attacker cannot turn back into sums, or for more canaries than parameters, and what `run`
    raises.
    """
    _refuse_confidence(confidence)
    if experiment.optimizer != "sgd" or experiment.weight_decay:
        raise ValueError(f"an audit reads the noisy sums off the steps of plain SGD, but optimizer is "
                         f"{experiment.optimizer!r} with weight_decay {experiment.weight_decay}: take sgd and 0")
    task = experiment.task
    sizes = population(LocalGrid(client_app.app, 1), task)
    strategy = find_strategy(experiment.strategy)(task, experiment.training, sizes)
    if strategy.exchange not in (send_gradient_sum, send_update_sum):
        raise ValueError(f"strategy {experiment.strategy!r} has no sums of gradients or updates into which canaries "
                         "could be put: attack it by membership")
    if step_of(strategy).get("momentum"):
        raise ValueError(f"an audit reads the noisy sums off plain steps, but the server's have a momentum of "
                         f"{step_of(strategy)['momentum']:g}: take 0")
    parameters = sum(parameter.numel() for parameter in task.build_model().parameters())
    planted = plant(canaries, parameters, _holders(sizes), _strongest_norm(strategy.rule(), sizes), experiment.seed)
    hosts = [AuditedNode({number: parts}, task.build_model().to(task.device), task.device, planted)
             for number, parts in task.clients_data().items()]
    grid = WatchedGrid(client_app.app, len(hosts), planted.coordinates)
    with client_app.replaced_nodes(task, hosts), quiet_flower():
        result = conduct(experiment, grid, progress)
    final = flat(trained_parameters(result.model)[0]).detach()[planted.coordinates]
    guesses = Guesses(scores(grid.seen, final, strategy, hosts).numpy(), planted.included.numpy(),
                      planted.groups.numpy())
    return _judged("white box", result, guesses, confidence)


def membership(result: Result, confidence: float = 0.95) -> Audit:
    """Bound epsilon from the final model alone: of two records, guess that the one with the smaller loss was trained
    on.

    For each group, training records are paired at random with records of the test part, or of the validation part where
    the source published the test part. Given the pairs, the random split made either record of a pair the member with
    probability 1/2, so this works for the result of any engine. The attack is weak: it shows gross mistakes. Raises
    what `split_off_at_random` does.
    """
    _refuse_confidence(confidence)
    held_out = split_off_at_random(result.data, result.ledger.protects)
    pairs = [_pairs(result, held_out, k) for k in range(len(held_out.names))]
    joined = Guesses(*(np.concatenate(parts) for parts in zip(*pairs, strict=True)))
    return _judged("black box", result, joined, confidence, "replace")


def split_off_at_random(data: Parts, protects: Unit) -> GroupedDataset:
    """Return the records that `membership` sets against the training records: the test part, or else the validation
    part.

    Raises `ValueError` if neither was split off at random, or if participants are protected.
    """
    if protects != "record":
        raise ValueError(f"membership compares records, but this strategy protects a whole {protects}, and "
                         "swapping two records changes two of them: take the attack canaries")
    for name in ("test", "valid"):
        part: GroupedDataset = getattr(data, name)
        if name not in data.published and len(part):
            return part
    raise ValueError("the source published the test part, whose records may be of another kind than the training "
                     "records, and no validation part was split off at random: give it a share in split, for example "
                     "[0.7, 0.1, 0.2], unless the source publishes one, or take the attack canaries")


def _refuse_confidence(confidence: float) -> None:
    """Raise `ValueError` unless the confidence lies strictly between 0 and 1."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}: it must lie strictly between 0 and 1")


class Guesses(NamedTuple):
    """Attacker's scores of m canaries, whether each was included, and their groups: `[m]` each."""

    scores: Floats
    included: Bools
    groups: npt.NDArray[np.int64]

    def of(self, group: int) -> Guesses:
        """Select the guesses about one group."""
        chosen = self.groups == group
        return Guesses(self.scores[chosen], self.included[chosen], self.groups[chosen])


def _judged(attack: str, result: Result, guesses: Guesses, confidence: float,
            neighbours: Neighbours = "add-or-remove") -> Audit:
    """Build the audit: a finding for all records and one for each group, beside the ledger's claims.

    The bounds of the K groups share the error, so that all of them hold together with the stated confidence.
    """
    ledger = result.ledger
    delta, guaranteed, spent = ledger.delta, ledger.guaranteed_by_group(), ledger.epsilon_by_group()

    def finding(group: str, guesses: Guesses, claimed: float, spent: float, confidence: float) -> Finding:
        """Bound one group's epsilon."""
        bound = lower_bound(guesses.scores, guesses.included, delta, confidence, neighbours)
        sharper = (gaussian_bound(guesses.scores, guesses.included, delta, confidence) if attack == "white box"
                   else None)
        return Finding(group, bound, claimed, spent, sharper)

    each = 1 - (1 - confidence) / len(ledger.groups)
    findings = [finding("all", guesses, ledger.epsilon(), max(spent.values()), confidence)]
    findings += [finding(name, guesses.of(k), guaranteed[name], spent[name], each)
                 for k, name in enumerate(ledger.groups) if (guesses.groups == k).any()]
    return Audit(attack, result.experiment, ledger.guarantee, delta, tuple(findings))


def _holders(sizes: Population) -> tuple[int, ...]:
    """Return, for each group, the client with most of its records."""
    return tuple(max(range(len(sizes.sizes)), key=lambda c: sizes.sizes[c][k]) for k in range(len(sizes.names)))


def _strongest_norm(rule: ClipRule, sizes: Population) -> float:
    """Choose a gradient norm of which the rule leaves most: one of the rule's own numbers, or a huge one."""
    numbers = np.concatenate([np.atleast_1d(value) for value in vars(rule).values()] or [np.ones(1)])
    groups = torch.arange(len(sizes.names))

    def left(norm: float) -> float:
        """Sum over the groups what the rule leaves of gradients of this norm."""
        norms = torch.full((len(groups),), norm, dtype=torch.float64)
        return round(float((rule.coefficients(norms, groups) * norms).sum()), 9)

    return float(max([1e6 * float(numbers.max()), *numbers.tolist()], key=left))


def _pairs(result: Result, held_out: GroupedDataset, group: int) -> tuple[Floats, Bools, npt.NDArray[np.int64]]:
    """Pair a group's training and held-out records at random; score by how much larger the second's loss is."""
    draws = generator(result.experiment.seed, "membership", group)
    losses = []
    for part in (result.data.train, held_out):
        rows = torch.nonzero(part.group == group).flatten()
        shuffled = part.take(rows[torch.randperm(len(rows), generator=draws)])
        with torch.no_grad():
            losses.append(loss(result.model(shuffled.features()), shuffled.y))
    pairs = min(map(len, losses))
    trained_first = torch.rand(pairs, generator=draws) < 0.5
    difference = losses[1][:pairs] - losses[0][:pairs]
    return (torch.where(trained_first, difference, -difference).double().numpy(), trained_first.numpy(),
            np.full(pairs, group))
