"""Threshold searches compared, and rivals of moments that move their thresholds too.

python -m simulations.benchmarks.thresholds searches
FEDFAIR_DATA_DIR=DIR python -m simulations.benchmarks.thresholds rivals FRONTIER [--datasets credit,law] [--seeds N]

`searches` compares each kind of search with the plain one. One model is trained on Adult. Then validation records are
drawn repeatedly from those that it has not seen, a threshold is searched on them, and demographic parity and accuracy
are measured on all the others.

`rivals` says whether rivals pass moments in the frontier when they move their thresholds, which costs no method
anything. Rivals are trained again, and each has the thresholds of moments' front; moments' points are those of the
frontier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pandas as pd
import torch
import typer
from torch import Tensor

from fedfair.accounting import Release, calibrate
from fedfair.fairness.group_counts import GroupCounts
from fedfair.fairness.metrics import largest_gap, metrics
from fedfair.fairness.reject_option import CELLS, RejectOption, below_average, favoured, score, score_counts
from fedfair.fairness.threshold_search import by_group, confident, counted, toc
from fedfair.mechanisms import histograms
from fedfair.mechanisms.randomness import generator
from fedfair.moments.front import EVEN, THRESHOLDS, TRAINED, Point, moved
from fedfair.node.front_counts import HELD_OUT, confusions
from simulations.engines.run import run
from simulations.reproductions import frontier
from simulations.reproductions import frontier_choice as choice
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
    """Means over draws, on the other records: how often demographic parity exceeds theta, parity, and accuracy."""

    violated: float
    parity: float
    accuracy: float


def plain(counts: Tensor, draws: torch.Generator) -> RejectOption:
    """Search one gamma on the counts as they are: Yang et al. 2024, Algorithm 4."""
    deprived = below_average(counts)
    return RejectOption.shifted(toc(counted(counts), deprived, THETA).shifts, deprived, 1)


def own_gammas(counts: Tensor, draws: torch.Generator) -> RejectOption:
    """Search a gamma for each group."""
    shifts = by_group(counted(counts), favoured(counts), THETA).shifts
    return RejectOption.shifted(shifts, [shift > 0 for shift in shifts], 1)


def with_confidence(counts: Tensor, draws: torch.Generator, multiplier: float = 0.0) -> RejectOption:
    """Search one gamma that holds theta with confidence; `multiplier` is that of the noise on the counts."""
    deprived = below_average(counts)
    rates = confident(counts, CONFIDENCE, True, multiplier)
    return RejectOption.shifted(toc(rates, deprived, THETA).shifts, deprived, 1)


def own_gammas_with_confidence(counts: Tensor, draws: torch.Generator) -> RejectOption:
    """Search a gamma for each group that holds theta with confidence."""
    shifts = by_group(confident(counts, CONFIDENCE, False), favoured(counts), THETA).shifts
    return RejectOption.shifted(shifts, [shift > 0 for shift in shifts], 1)


def private(epsilon: float) -> Search:
    """Make a search that does what `plain` does, on noisy counts."""
    multiplier = _calibrated(epsilon)
    return lambda counts, draws: plain(_noisy(counts, multiplier, draws), draws)


def private_with_confidence(epsilon: float) -> Search:
    """Make a search that does what `with_confidence` does, on noisy counts."""
    multiplier = _calibrated(epsilon)
    return lambda counts, draws: with_confidence(_noisy(counts, multiplier, draws), draws, multiplier)


def private_independently(epsilon: float) -> Search:
    """Make a search that does what `plain` does, on counts with independent noise, for comparison."""
    multiplier = _calibrated(epsilon)
    return lambda counts, draws: plain(
        counts + multiplier * torch.randn(counts.shape, generator=draws, dtype=counts.dtype), draws)


def _calibrated(epsilon: float) -> float:
    """Return the noise multiplier at which one release costs `epsilon`."""
    return calibrate(lambda multiplier: {Release(1.0, multiplier): 1}, epsilon, 1e-6)


def _noisy(counts: Tensor, multiplier: float, draws: torch.Generator) -> Tensor:
    """Add noise that is correlated between prefix sums, as the strategies do."""
    return histograms.add_noise("gaussian", counts, multiplier * histograms.sensitivity(CELLS), draws)


def measure(unseen: Unseen, search: Search) -> Measured:
    """Draw validation records, search, and measure on the rest, `DRAWS` times."""
    p, groups = score(unseen.output, unseen.favourable)[0], int(unseen.group.max()) + 1
    measured = []
    for number in range(DRAWS):
        draws = generator(number, "validation")
        order = torch.randperm(len(p), generator=draws)
        valid, rest = order[:VALID], order[VALID:]
        rule = search(score_counts(p[valid], unseen.group[valid], groups), draws)
        predicted, group = rule.predict(unseen.output[rest], unseen.group[rest]), unseen.group[rest]
        given = predicted == unseen.favourable
        parity = largest_gap([float(given[group == k].double().mean()) for k in range(groups)])
        measured.append((parity > THETA, parity, float((predicted == unseen.y[rest]).double().mean())))
    return Measured(*torch.tensor(measured, dtype=torch.float64).mean(0).tolist())


def trained(group: str, label: Callable[[Tensor, Tensor], Tensor] | None = None) -> Unseen:
    """Train a private model of Adult, and return its output on the records that it was not trained on."""
    result = run(Experiment(dataset="adult", group=group, strategy="dpsgd", model="mlp", hidden=(64,), epochs=4,
                            split=(0.3, 0.1, 0.6), learning_rate=1.0, noise_multiplier=1.0, eval_every=100,
                            accountant="rdp"))
    parts = (result.data.valid, result.data.test)
    x, y, groups = (torch.cat([getattr(part, name) for part in parts]) for name in ("x", "y", "group"))
    with torch.no_grad():
        return Unseen(result.model(x), y, groups, 1)


def rows() -> Iterator[tuple[str, Measured]]:
    """Yield every comparison, one after the other."""
    sex = trained("sex")
    yield "sex: no threshold", measure(sex, lambda counts, draws: RejectOption((0.5, 0.5), (True, False)))
    for name, search in (("plain", plain), ("own gammas", own_gammas), ("confidence 0.9", with_confidence),
                         ("own gammas, confidence 0.9", own_gammas_with_confidence)):
        yield f"sex: {name}", measure(sex, search)
    for epsilon in (3.0, 1.0, 0.3, 0.1):
        yield f"sex: private, epsilon {epsilon}", measure(sex, private(epsilon))
        yield f"sex: private, epsilon {epsilon}, independent noise", measure(sex, private_independently(epsilon))
        yield f"sex: private, epsilon {epsilon}, confidence 0.9", measure(sex, private_with_confidence(epsilon))
    both = trained("sex,race")
    yield "sex and race: no threshold", measure(both, lambda counts, draws: RejectOption((0.5,) * 4, (True,) * 4))
    yield "sex and race: plain, deprived below average", measure(both, plain)
    yield "sex and race: own gammas", measure(both, own_gammas)


_OURS, _EPSILON = "moments", 1.0
_FAVOURABLE = 1  # a gap between two groups' rates is the same for either class


Frontier = Annotated[Path, typer.Argument(help="Folder that `fedfair reproduce frontier` wrote.")]
Names = Annotated[str, typer.Option(help="Names, separated by commas.")]


def rivals(frontier_folder: Frontier, datasets: Names = "adult,dutch,bank,credit,compas,law",
           methods: Annotated[str, typer.Option("--rivals", help="Names, separated by commas.")] =
           "dpsgd,dpsgd-soft,dpsgd-auto", seeds: Annotated[int, typer.Option(min=1)] = 5) -> None:
    """Print where a rival's front passes that of moments, and how often either is above, by measure."""
    named, whole = tuple(datasets.split(",")), frontier.load()
    plan = whole.model_copy(update={
        "datasets": named, "epsilons": (_EPSILON,), "seeds": seeds, "pictured_seeds": seeds, "ours": (),
        "methods": {name: whole.methods[name] for name in methods.split(",")}})
    theirs = [row for entry in frontier.runs_of(plan, "cpu") for row in _points(entry)]
    points = pd.read_csv(frontier_folder / "points.csv")
    ours = points[(points["method"] == _OURS) & points["dataset"].isin(named) & (points["epsilon"] == _EPSILON)
                  & (points["seed"] < seeds)]
    compared = choice.against(choice.fronts(pd.concat([pd.DataFrame(theirs), ours]), plan.limits), _OURS)
    print(compared[compared["passes"]].drop(columns=["ours", "epsilon", "passes"]).round(4).to_string(index=False))
    for measure, rows in compared.groupby("measure", sort=False):
        print(f"{measure}: {len(rows)} comparisons, a rival above in {int(rows['passes'].sum())}, moments in "
              f"{int((rows['high'] < 0).sum())}")


def _points(entry: frontier.Entry) -> Iterator[dict[str, Any]]:
    """Yield the figures of a trained model at each threshold on each held-out part, as the frontier has them."""
    result = run(entry.experiment)
    weights = next(iter(result.model.parameters())).detach().double().T
    bounding = result.data.train.encoding.bounding
    assert bounding is not None
    settings = [Point(TRAINED, threshold=threshold) for threshold in (EVEN, *THRESHOLDS)]
    front = torch.stack([moved(weights, point, bounding.last, _FAVOURABLE) for point in settings])
    for split in HELD_OUT:
        data = getattr(result.data, split)
        majority = float(torch.bincount(data.y).max()) / len(data)
        for point, confusion in zip(settings, confusions(data, front), strict=True):
            found = choice.of_decisions(metrics(GroupCounts.of_decisions(confusion), data.names, _FAVOURABLE))
            yield {"dataset": entry.dataset, "epsilon": entry.epsilon, "method": entry.method, "split": split,
                   "seed": entry.experiment.seed, "setting": f"{entry.setting}, {point.name}", "majority": majority,
                   "spent": result.ledger.epsilon(), "worst_group_error": 1 - found.pop("worst_group"), **found}


def searches() -> None:
    """Print how often demographic parity exceeds theta, its mean, and that of accuracy, by kind of search."""
    print(f"theta {THETA}, {VALID:,} validation records, {DRAWS} draws\nviolated parity accuracy")
    for name, means in rows():
        print(f"{means.violated:8.3f} {means.parity:6.3f} {means.accuracy:8.4f}  {name}", flush=True)


app = typer.Typer(add_completion=False)
for _command in (searches, rivals):
    app.command()(_command)

if __name__ == "__main__":
    app()
