"""Who pays for participant-level privacy: Bagdasaryan and Shmatikov 2019 (poster), "Federated Learning".

`fedfair reproduce shakespeare --out DIR`.

They trained a next-word model on 80,000 participants of Reddit, and saw that the private model has a smaller active
vocabulary than the non-private one, and that it suits participants with simpler vocabularies better. Here 171 speaking
roles are the participants: fedavg against dp-fedavg with the same splits, seeds and settings.

With three seeds we make the first observation, and not the second: how simple a role's vocabulary is has next to
nothing to do with what privacy costs it (rank correlation -0.05). More training would not change that: against the most
frequent continuation of two words, which predicts 370 of the 1,000 words where fedavg predicts 58, and is right more
often, the correlation is no larger. No model learns from so small a text the rare words that privacy is thought to take
from those who use them, and the vocabularies differ little (71 to 80 distinct words in 100 in the outer quarters).
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from simulations.plans.compare import experiments
from simulations.reproductions import shakespeare_report as report
from simulations.reproductions.continuations import accuracies
from simulations.reproductions.request import EVERYTHING, Request
from simulations.reproductions.store import OnRound, kept_runs, versions
from simulations.reproductions.vocabularies import (
    MEASURES,
    PRIVATE,
    REFERENCE,
    active_vocabulary,
    by_participant,
    by_quarter,
    observations,
)
from simulations.results.atomic_files import write_json, write_text
from simulations.results.csv_text import to_csv
from simulations.results.environment import environment
from simulations.results.summary import final_test

NAME = "shakespeare"
_SEEDS = 3


def reproduce(out: Path, request: Request = EVERYTHING, on_round: OnRound = lambda *_: None, jobs: int = 1) -> str:
    """Run both strategies, `jobs` runs at a time, write the tables, a picture, environment.json and README.md, and say
    how many observations are made.

    Kept runs are not run again. Raises `ValueError` for another data set and for a quick version, which does not exist,
    `FileExistsError` if the folder holds something else, another `OSError` if it or that of the runs cannot be written,
    and what `kept_runs` raises.
    """
    if request.quick:
        raise ValueError(f"{NAME} has no quick version: leave --quick out, or take --seeds 1")
    request.among((NAME,))
    planned = experiments([REFERENCE, PRIVATE], range(request.seeds or _SEEDS), None,
                          {"dataset": "shakespeare", "group": "role", "device": request.device})
    folder = request.begin(NAME, out)
    runs = kept_runs(planned, folder, on_round, jobs)
    final = final_test(pd.concat([run.metrics.assign(dataset=made.dataset, strategy=made.strategy, seed=made.seed)
                                  for made, run in zip(planned, runs, strict=True)]))
    best = {made.seed: accuracies(made.task.data())[0] for made in planned if made.strategy == REFERENCE}
    participants, active = by_participant(final, best), active_vocabulary(final)
    quarters = {measure: by_quarter(participants, measure) for measure in MEASURES}
    observed = observations(participants, active)
    tables = {"participants": participants, "active_vocabulary": active.reset_index(), "observations": observed,
              **{f"quarters_by_{measure}": table for measure, table in quarters.items()}}
    for name, table in tables.items():
        write_text(out / f"{name}.csv", to_csv(table))
    write_json(out / "environment.json", environment(planned))
    write_text(out / "picture.svg", report.drawing(quarters, active))
    page = report.page(request.command(NAME, len(active)), quarters, active, observed, runs[-1].ledger,
                       versions(folder, planned))
    write_text(out / "README.md", page)
    return report.seen(observed)
