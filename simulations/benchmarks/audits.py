"""White-box audits of claims around 1, 3 and 8, for every strategy whose guarantee is proved."""

from __future__ import annotations

from statistics import mean
from typing import Annotated

import torch
import typer

from fedfair.node.participant_updates import send_update_sum
from simulations.audits.audit import DEFAULTS, audit
from simulations.audits.findings import Audit
from simulations.benchmarks.measuring import Figures, Out, Target, report
from simulations.settings.experiment import Experiment
from strategies import STRATEGIES

CLAIMS = (1.0, 3.0, 8.0)
_REACHED = 0.35  # share of every claim that the canaries of dpsgd should reach

_AUDITED = [name for name in STRATEGIES
            if STRATEGIES[name].nominal is None and STRATEGIES[name].exchange in (None, send_update_sum)
            and STRATEGIES[name].local_exchange is None]


def main(seeds: Annotated[int, typer.Option(min=1, help="Runs of every strategy at every claim.")] = 5,
         strategies: Annotated[str, typer.Option(help="Names, separated by commas.")] = ",".join(_AUDITED),
         out: Out = None) -> None:
    """Audit every strategy with a proved guarantee; seconds for each run."""
    torch.set_num_threads(1)
    rows: list[Figures] = []
    refuted, reached = 0, 1.0
    for name in strategies.split(","):
        for claim in CLAIMS:
            audits = [_audit(name, claim, seed) for seed in range(seeds)]
            if audits[0].guarantee not in ("proved", "simulated"):
                break
            rows.append(_row(name, audits))
            refuted += sum(each.refuted for each in audits)
            if name == "dpsgd":
                reached = min(reached, *(each.overall.bound.epsilon / each.overall.claimed for each in audits))
    targets = [Target("refuted claims, of all records or of a group", refuted, 0)]
    if "dpsgd" in strategies.split(","):
        targets.append(Target("share of the claim that dpsgd's canaries reach, least of all runs", reached, _REACHED,
                              at_least=True))
    report(f"White-box audits, {seeds} seeds, 95 % confidence", rows, targets, out)


def _audit(strategy: str, claim: float, seed: int) -> Audit:
    """Audit one run."""
    return audit(Experiment(**{**DEFAULTS, "strategy": strategy, "target_epsilon": claim, "seed": seed}))


def _row(strategy: str, audits: list[Audit]) -> Figures:
    """Summarise a strategy at a claim: mean and largest bound, and the largest share of its own claim by group."""
    bounds = [each.overall.bound.epsilon for each in audits]
    groups = [finding for each in audits for finding in each.findings[1:]]
    return {"strategy": strategy, "claimed": mean(each.overall.claimed for each in audits), "found": mean(bounds),
            "largest": max(bounds), "by curve": mean(each.overall.by_curve for each in audits),
            "if Gaussian": mean(each.overall.if_gaussian or 0.0 for each in audits),
            "group nearest its claim": max(each.bound.epsilon / each.claimed for each in groups)}


if __name__ == "__main__":
    typer.run(main)
