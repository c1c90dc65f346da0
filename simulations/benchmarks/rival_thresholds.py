"""Whether rivals pass moments in the frontier when they move their thresholds too, which costs no method anything.

Rivals are trained again, and each has the thresholds of moments' front; moments' points are those of the frontier.
Run: FEDFAIR_DATA_DIR=DIR python -m simulations.benchmarks.rival_thresholds FRONTIER [--datasets credit,law] [--seeds N]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from fedfair.fairness.group_counts import GroupCounts
from fedfair.fairness.metrics import metrics
from fedfair.moments.front import EVEN, THRESHOLDS, TRAINED, Point, moved
from fedfair.node.front_counts import HELD_OUT, confusions
from simulations.engines.run import run
from simulations.reproductions import frontier
from simulations.reproductions import frontier_choice as choice

_OURS, _EPSILON = "moments", 1.0
_FAVOURABLE = 1  # a gap between two groups' rates is the same for either class


def main() -> None:
    """Print where a rival's front passes that of moments, and how often either is above, by measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("frontier", type=Path, help="folder that `fedfair reproduce frontier` wrote")
    parser.add_argument("--datasets", default="adult,dutch,bank,credit,compas,law")
    parser.add_argument("--rivals", default="dpsgd,dpsgd-soft,dpsgd-auto")
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    datasets, whole = tuple(given.datasets.split(",")), frontier.load()
    plan = whole.model_copy(update={
        "datasets": datasets, "epsilons": (_EPSILON,), "seeds": given.seeds, "pictured_seeds": given.seeds, "ours": (),
        "methods": {name: whole.methods[name] for name in given.rivals.split(",")}})
    theirs = [row for entry in frontier.runs_of(plan, "cpu") for row in _points(entry)]
    points = pd.read_csv(given.frontier / "points.csv")
    ours = points[(points["method"] == _OURS) & points["dataset"].isin(datasets) & (points["epsilon"] == _EPSILON)
                  & (points["seed"] < given.seeds)]
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


if __name__ == "__main__":
    main()
