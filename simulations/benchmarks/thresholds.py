"""What each kind of threshold search is worth against the plain one: python -m simulations.benchmarks.thresholds.

One model is trained on Adult; then, again and again, validation records are drawn from those it has not seen, a
threshold is looked for on them, and demographic parity and accuracy are measured on all the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from fedfair.accounting import Release, calibrate
from fedfair.fairness.metrics import largest_gap
from fedfair.fairness.reject_option import CELLS, RejectOption, below_average, favoured, score, score_counts
from fedfair.fairness.threshold_search import by_group, confident, counted, toc
from fedfair.mechanisms import prefix_sums
from fedfair.mechanisms.randomness import generator
from simulations.engines.run import run
from simulations.settings.experiment import Experiment

THETA, CONFIDENCE, DRAWS, VALID = 0.05, 0.9, 200, 4522

Search = Callable[[Tensor, torch.Generator], RejectOption]
"""From exact score counts to a rule; noise is drawn from the generator."""


class Unseen(NamedTuple):
    """Records that the model was not trained on: its output, their labels and groups, and the favourable class."""

    output: Tensor
    y: Tensor
    group: Tensor
    favourable: int


class Measured(NamedTuple):
    """Means over draws: how often demographic parity exceeds theta on the rest, promised or not; parity; accuracy."""

    violated: float
    parity: float
    accuracy: float


def plain(counts: Tensor, draws: torch.Generator) -> RejectOption:
    """One gamma, on the counts as they are: Yang et al. 2024, Algorithm 4."""
    deprived = below_average(counts)
    return RejectOption.shifted(toc(counted(counts), deprived, THETA).shifts, deprived, 1)


def own_gammas(counts: Tensor, draws: torch.Generator) -> RejectOption:
    """A gamma for each group."""
    shifts = by_group(counted(counts), favoured(counts), THETA).shifts
    return RejectOption.shifted(shifts, [shift > 0 for shift in shifts], 1)


def with_confidence(counts: Tensor, draws: torch.Generator) -> RejectOption:
    """One gamma that holds theta with confidence."""
    deprived = below_average(counts)
    return RejectOption.shifted(toc(confident(counts, CONFIDENCE, True), deprived, THETA).shifts, deprived, 1)


def own_gammas_with_confidence(counts: Tensor, draws: torch.Generator) -> RejectOption:
    """A gamma for each group that holds theta with confidence."""
    shifts = by_group(confident(counts, CONFIDENCE, False), favoured(counts), THETA).shifts
    return RejectOption.shifted(shifts, [shift > 0 for shift in shifts], 1)


def private(epsilon: float, correlated: bool = True) -> Search:
    """The plain search on noisy counts; for comparison with independent noise on every count."""
    multiplier = calibrate(lambda m: {Release(1.0, m): 1}, epsilon, 1e-6)

    def search(counts: Tensor, draws: torch.Generator) -> RejectOption:
        """The thresholds that noisy counts lead to."""
        if correlated:
            deviation = multiplier * prefix_sums.sensitivity(CELLS)
            return plain(prefix_sums.add_noise("gaussian", counts, deviation, draws), draws)
        return plain(counts + multiplier * torch.randn(counts.shape, generator=draws, dtype=counts.dtype), draws)

    return search


def private_with_confidence(epsilon: float) -> Search:
    """One gamma that holds theta with confidence, on noisy counts."""
    multiplier = calibrate(lambda m: {Release(1.0, m): 1}, epsilon, 1e-6)

    def search(counts: Tensor, draws: torch.Generator) -> RejectOption:
        """The thresholds that noisy counts lead to, with confidence."""
        noisy = prefix_sums.add_noise("gaussian", counts, multiplier * prefix_sums.sensitivity(CELLS), draws)
        deprived = below_average(noisy)
        found = toc(confident(noisy, CONFIDENCE, True, multiplier), deprived, THETA)
        return RejectOption.shifted(found.shifts, deprived, 1)

    return search


def measure(unseen: Unseen, search: Search) -> Measured:
    """Draw validation records, search, and measure on the rest, `DRAWS` times."""
    p, groups = score(unseen.output, unseen.favourable)[0], int(unseen.group.max()) + 1
    found = []
    for number in range(DRAWS):
        draws = generator(number, "validation")
        order = torch.randperm(len(p), generator=draws)
        valid, rest = order[:VALID], order[VALID:]
        rule = search(score_counts(p[valid], unseen.group[valid], groups), draws)
        predicted, group = rule.predict(unseen.output[rest], unseen.group[rest]), unseen.group[rest]
        given = predicted == unseen.favourable
        parity = largest_gap([float(given[group == k].double().mean()) for k in range(groups)])
        found.append((parity > THETA, parity, float((predicted == unseen.y[rest]).double().mean())))
    return Measured(*torch.tensor(found, dtype=torch.float64).mean(0).tolist())


def trained(group: str, label: Callable[[Tensor, Tensor], Tensor] | None = None) -> Unseen:
    """A private model of Adult, and what it says about the records that it was not trained on."""
    result = run(Experiment(dataset="adult", group=group, strategy="dpsgd", model="mlp", hidden=(64,), epochs=4,
                            split=(0.3, 0.1, 0.6), learning_rate=1.0, noise_multiplier=1.0, eval_every=100,
                            accountant="rdp"))
    parts = (result.data.valid, result.data.test)
    x, y, groups = (torch.cat([getattr(part, name) for part in parts]) for name in ("x", "y", "group"))
    with torch.no_grad():
        return Unseen(result.model(x), y, groups, 1)


def rows() -> Iterator[tuple[str, Measured]]:
    """Every comparison, one after the other."""
    sex = trained("sex")
    yield "sex: no threshold", measure(sex, lambda counts, draws: RejectOption((0.5, 0.5), (True, False)))
    for name, search in (("plain", plain), ("own gammas", own_gammas), ("confidence 0.9", with_confidence),
                         ("own gammas, confidence 0.9", own_gammas_with_confidence)):
        yield f"sex: {name}", measure(sex, search)
    for epsilon in (3.0, 1.0, 0.3, 0.1):
        yield f"sex: private, epsilon {epsilon}", measure(sex, private(epsilon))
        yield f"sex: private, epsilon {epsilon}, independent noise", measure(sex, private(epsilon, correlated=False))
        yield f"sex: private, epsilon {epsilon}, confidence 0.9", measure(sex, private_with_confidence(epsilon))
    both = trained("sex,race")
    yield "sex and race: no threshold", measure(both, lambda counts, draws: RejectOption((0.5,) * 4, (True,) * 4))
    yield "sex and race: plain, deprived below average", measure(both, plain)
    yield "sex and race: own gammas", measure(both, own_gammas)


if __name__ == "__main__":
    print(f"theta {THETA}, {VALID:,} validation records, {DRAWS} draws\nviolated parity accuracy")
    for what, found in rows():
        print(f"{found.violated:8.3f} {found.parity:6.3f} {found.accuracy:8.4f}  {what}", flush=True)
