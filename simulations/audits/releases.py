"""The audit of releases: an attacker who knows all records looks at the noise of every step, and compares.

An attacker who notes what nodes compute, exactly, beside what they send: what remains of a release is its noise. It may
come back, be shared, or be too small. Noise of standard deviation 1 is expected in every number, independent of all
others. Each test has a third of the error, shared evenly among its comparisons, so that a run without a mistake is
accused with a probability of at most 1 - confidence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy
import torch
from flwr.app import Message
from torch import Tensor

from fedfair import client_app
from fedfair.auditing.canaries import AuditedNode, Canaries
from fedfair.datasets import GroupedDataset
from fedfair.gradients.layer_gradients import Gradients, flat, shaped
from fedfair.gradients.layer_probe import trained_parameters
from fedfair.mechanisms.noise import Trust, client_share
from fedfair.node.node import Batch
from fedfair.protocol.messages import unpack
from fedfair.protocol.round import LocalTraining, Round
from simulations.audits.audit import Seen, WatchedGrid, attacked, expected_deviation, step_of
from simulations.audits.findings import refuse_confidence
from simulations.engines.local import quiet_flower
from simulations.engines.run import Progress, conduct
from simulations.settings.experiment import Experiment
from strategies import Strategy
from strategies.server.rounds import Rounds

Floats = npt.NDArray[np.float64]
_SAME = 1e-9  # two numbers of noise that are as near as this, in standard deviations, are the same


class Counts(NamedTuple):
    """The counts that nodes sent in one exchange, `[nodes, ...]`, and the request."""

    round_: Round
    sent: Tensor


class ListeningNode(AuditedNode):
    """A node of one client that notes by step, beside its exact sums, the exact counts of its batches."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.exact = dict[int, Tensor]()

    def _sample(self, data: GroupedDataset, weights: Any, round_: Round, rows: Tensor) -> Batch:
        """See `AuditedNode`."""
        batch = super()._sample(data, weights, round_, rows)
        if round_.query is not None:
            self.exact[round_.step] = round_.query.counts(batch.probe.norms, batch.groups, len(round_.rates)).cpu()
        return batch


class ListeningGrid(WatchedGrid):
    """Local grid that also records the counts that nodes send."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.counts = list[Counts]()

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """See `Grid`."""
        asked = list(messages)
        replies = list(super().send_and_receive(asked))
        if replies and all("counts" in reply.content for reply in replies):
            sent = torch.stack([unpack(reply.content, "counts")["counts"] for reply in replies])
            self.counts.append(Counts(Round.from_json(str(asked[0].content["round"]["json"])), sent))
        return replies


def nothing(parameters: int) -> Canaries:
    """Return canaries at all coordinates, none of which is in the data: what nodes note is then their whole sum."""
    zeros = torch.zeros(parameters, dtype=torch.long)
    return Canaries(torch.arange(parameters), zeros, zeros, zeros.bool(), 1.0)


@dataclass(frozen=True)
class ReleaseAudit:
    """What the noise of a run's releases gives away.

    `releases` is the number of noisy sums and counts that were compared, of `numbers` numbers in all. `suspicions` are
    what was found, at `confidence` for all tests together.
    """

    experiment: Experiment
    guarantee: str
    releases: int
    numbers: int
    confidence: float
    suspicions: tuple[Suspicion, ...]

    @property
    def refuted(self) -> bool:
        """Whether the noise is not the independent noise that the ledger charges, at the confidence."""
        return bool(self.suspicions)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields and the verdict, ready for JSON."""
        return {"attack": "releases", "experiment": self.experiment.settings(), "guarantee": self.guarantee,
                "releases": self.releases, "numbers": self.numbers, "confidence": self.confidence,
                "refuted": self.refuted, "suspicions": [asdict(each) for each in self.suspicions]}


def audit_releases(experiment: Experiment, confidence: float = 0.95, progress: Progress = lambda *_: None
                   ) -> ReleaseAudit:
    """Run the experiment once, and test whether the noise of its releases is independent, and as large as charged.

    Noise is taken off what leaves: sums of each client under trust "local" and "distributed" and in local epochs, the
    server's otherwise, and counts. It is compared over steps and clients, and between sums and counts. Take float64:
    coarser sums hide which numbers are equal. Raises `ValueError` for a run without noise, in float32, or of fewer than
    two steps, and what `audit` raises.
    """
    refuse_confidence(confidence)
    strategy = attacked(experiment)
    _refuse_silent(experiment, strategy)
    task = experiment.task
    nobody = nothing(sum(p.numel() for p in trained_parameters(task.build_model())[0].values()))
    hosts = [ListeningNode({number: parts}, task.build_model().to(task.device), task.device, nobody)
             for number, parts in task.clients_data().items()]
    grid, counted = ListeningGrid(client_app.app, len(hosts), nobody.coordinates), list[Tensor]()

    def note(rounds: Rounds, now: int) -> None:
        """Keep the counts that the server learned from."""
        counted.extend([] if rounds.counted is None else [rounds.counted.clone()])

    with client_app.replaced_nodes(task, hosts), quiet_flower():
        result = conduct(experiment, grid, progress, watch=note)
    weights = {name: p.detach() for name, p in trained_parameters(result.model)[0].items()}
    after = [now.weights for now in grid.seen[1:]] + [flat(weights)]
    noise = [each for now, following in zip(grid.seen, after, strict=True)
             for each in _noise_of_sums(now, following, strategy, hosts, weights)]
    noise += _noise_of_counts(grid.counts, counted, hosts)
    return ReleaseAudit(experiment, result.ledger.guarantee, len(noise), sum(len(each.numbers) for each in noise),
                        confidence, tuple(suspicions(noise, confidence)))


def _refuse_silent(experiment: Experiment, strategy: Strategy) -> None:
    """Raise `ValueError` for a run whose noise cannot be told."""
    groups = len(strategy.population.names)
    if not all(strategy.noise.multipliers) or math.isinf(max(strategy.rule().group_sensitivities(groups))):
        raise ValueError(f"{experiment.strategy} adds no noise with these settings, so that there is none to look at: "
                         "take a private strategy and a noise_multiplier above 0")
    if experiment.dtype != "float64":
        raise ValueError(f"dtype is {experiment.dtype!r}, in which sums are too coarse to tell equal noise from like "
                         'noise: take "float64"')
    if strategy.rounds < 2:
        raise ValueError(f"there are {strategy.rounds} rounds, but an audit of releases compares at least two: take "
                         "more steps or epochs")


def _noise_of_sums(now: Seen, following: Tensor, strategy: Strategy, hosts: list[ListeningNode], like: Gradients
                   ) -> Iterator[Noise]:
    """Yield the noise of one round's sums, in expected standard deviations."""
    round_, step = now.round_, now.round_.step
    if round_.local is not None:
        yield from _noise_of_epochs(now, round_.local, hosts, like)
        return
    real = torch.stack([host.real[step] for host in hosts])
    deviation = expected_deviation(round_, round_.noise_multiplier)
    if round_.trust is Trust.CENTRAL:
        added = (now.weights - following) * (strategy.divisor() / step_of(strategy)["lr"]) - real.sum(0)
        yield _noise(f"the sum of step {step}", added / deviation, like)
        return
    share = client_share(round_.trust, round_.clients)
    for client, added in enumerate(now.sent - real):
        yield _noise(f"the sum of client {client} in step {step}", added / (share * deviation), like)


def _noise_of_epochs(now: Seen, local: LocalTraining, hosts: list[ListeningNode], like: Gradients) -> Iterator[Noise]:
    """Yield the noise of each client's local epoch, the sum over its steps."""
    for client, host in enumerate(hosts):
        steps, _, batch = local.epoch(client)
        if steps == 0:
            continue
        first = now.round_.step * steps
        real = torch.stack([host.real[step] for step in range(first, first + steps)]).sum(0)
        moved = (now.weights - now.sent[client] / local.weights[client]) * batch / local.learning_rate
        deviation = expected_deviation(now.round_, local.noise_multipliers[client]) * math.sqrt(steps)
        yield _noise(f"the local epoch {now.round_.step} of client {client}", (moved - real) / deviation, like)


def _noise_of_counts(asked: list[Counts], learned: list[Tensor], hosts: list[ListeningNode]) -> Iterator[Noise]:
    """Yield the noise of counts in step mode: the server's, or each client's share."""
    for now, total in zip(asked, learned, strict=True):
        round_ = now.round_
        deviation = round_.count_noise_multiplier
        if not deviation or round_.local is not None:
            continue
        if round_.trust is Trust.CENTRAL:
            yield _of_counts(f"the counts of step {round_.step}", (total - now.sent.sum(0)) / deviation)
            continue
        share = client_share(round_.trust, round_.clients)
        for client, (sent, host) in enumerate(zip(now.sent, hosts, strict=True)):
            if round_.step in host.exact:
                name = f"the counts of client {client} in step {round_.step}"
                yield _of_counts(name, (sent - host.exact[round_.step]) / (share * deviation))


def _of_counts(name: str, added: Tensor) -> Noise:
    """Return the noise of counts as one layer."""
    return Noise(name, {"counts": added.flatten().double().numpy()})


def _noise(name: str, added: Tensor, like: Gradients) -> Noise:
    """Return the noise of a sum by parameter."""
    return Noise(name, {layer: value.flatten().double().numpy() for layer, value in shaped(added, like).items()})


@dataclass(frozen=True)
class Suspicion:
    """What one test found: the releases it is about, in words, the value, and the limit that chance stays within."""

    test: str
    where: str
    value: float
    limit: float


@dataclass(frozen=True)
class Noise:
    """The noise of one release, in expected standard deviations.

    Args:
        name: The release in words.
        layers: The numbers by name of the tensor that carries them, each `[m]`.
    """

    name: str
    layers: Mapping[str, Floats]

    @property
    def numbers(self) -> Floats:
        """All numbers in a row."""
        return np.concatenate(list(self.layers.values()))


def suspicions(releases: Sequence[Noise], confidence: float) -> list[Suspicion]:
    """Return what is wrong with the noise of some releases; an empty list if nothing is found."""
    error = (1 - confidence) / 3
    return [*_too_small(releases, error), *_correlated(releases, error), *_repeated(releases, error)]


def _too_small(releases: Sequence[Noise], error: float) -> list[Suspicion]:
    """Test every tensor's sum of squares over all releases, by the chi-squared distribution."""
    layers: dict[str, list[Floats]] = {}
    for release in releases:
        for name, numbers in release.layers.items():
            layers.setdefault(name, []).append(numbers)
    found = []
    for name, parts in layers.items():
        numbers = np.concatenate(parts)
        limit = math.sqrt(scipy.stats.chi2.ppf(error / len(layers), len(numbers)) / len(numbers))
        deviation = math.sqrt(float(np.square(numbers).mean()))
        if deviation < limit:
            found.append(Suspicion("too small", name, deviation, limit))
    return found


def _correlated(releases: Sequence[Noise], error: float) -> list[Suspicion]:
    """Test the correlation of every two releases of equally many numbers, without taking off their means.

    The sum of products of two independent normal vectors `[m]` exceeds m r with a probability of at most
    2 exp(-m (s - 1 - log((1 + s) / 2)) / 2) with s = sqrt(1 + 4 r^2), by Chernoff's bound.
    """
    by_size: dict[int, list[Noise]] = {}
    for release in releases:
        by_size.setdefault(len(release.numbers), []).append(release)
    pairs = sum(len(alike) * (len(alike) - 1) // 2 for alike in by_size.values())
    found = []
    for size, alike in by_size.items():
        stacked = np.stack([release.numbers for release in alike])
        products = np.triu(stacked @ stacked.T, 1) / size
        limit = _largest_product(size, error / max(pairs, 1))
        for i, j in np.argwhere(np.abs(products) > limit):
            found.append(Suspicion("correlated", f"{alike[i].name} and {alike[j].name}", float(products[i, j]), limit))
    return found


def _largest_product(size: int, error: float) -> float:
    """Return what the mean product of two independent normal vectors exceeds in size with at most this probability."""

    def excess(r: float) -> float:
        """Return the logarithm of the bound less that of the error."""
        root = math.sqrt(1 + 4 * r * r)
        return math.log(2) - size / 2 * (root - 1 - math.log((1 + root) / 2)) - math.log(error)

    return float(scipy.optimize.brentq(excess, 0.0, 10.0 + 10 * math.log(2 / error) / size))


def _repeated(releases: Sequence[Noise], error: float) -> list[Suspicion]:
    """Test how many numbers of all releases come twice, at any place and with either sign."""
    numbers = np.abs(np.concatenate([release.numbers for release in releases]))
    owners = np.repeat(np.arange(len(releases)), [len(release.numbers) for release in releases])
    order = np.argsort(numbers)
    same = np.diff(numbers[order]) < _SAME
    expected = len(numbers) ** 2 * _SAME / math.sqrt(math.pi)  # |z| of normal z has a mean density of 1 / sqrt(pi)
    limit = float(scipy.stats.poisson.isf(error, expected))
    if same.sum() <= limit:
        return []
    first, second = owners[order[:-1]][same], owners[order[1:]][same]
    pairs, times = np.unique(np.sort(np.stack([first, second]), axis=0), axis=1, return_counts=True)
    i, j = pairs[:, times.argmax()]
    return [Suspicion("repeated", f"{releases[i].name} and {releases[j].name}, most often", float(same.sum()), limit)]
