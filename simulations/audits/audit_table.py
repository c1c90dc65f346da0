"""Audits over several seeds, and their table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from fedfair.accounting.figures import down, up
from fedfair.datasets.names import visible
from fedfair.plugins.registry import unknown
from simulations.audits.audit import DEFAULTS, audit
from simulations.audits.findings import Audit
from simulations.audits.folder import FolderAudit, audit_folder
from simulations.audits.folder_table import folder_table
from simulations.audits.membership import membership, split_off_at_random
from simulations.audits.outlier import OutlierAudit, audit_outlier
from simulations.audits.release_table import outlier_table, release_table
from simulations.audits.releases import ReleaseAudit, audit_releases
from simulations.engines.run import run
from simulations.plans.compare import OnRound, following
from simulations.settings.experiment import Experiment
from simulations.settings.presets import for_strategy, merged, needed
from strategies import find_strategy

ATTACKS = ("canaries", "membership", "releases", "outlier", "folder")

Made = Audit | ReleaseAudit | OutlierAudit | FolderAudit
"""What an audit found."""


def audits(strategy: str, attack: str, seeds: Iterable[int], settings: Mapping[str, Any], canaries: int = 20_000,
           confidence: float = 0.95, engine: str = "local", on_round: OnRound = lambda *progress: None,
           runs: int = 10) -> list[Made]:
    """Run one audit for each seed; `settings` win over `simulations.audits.audit.DEFAULTS`,
    and over what the method cannot do without.

    The attack folder takes `runs` runs on each of two data sets, whose randomness is the system's unless it is set.
    Raises `ValueError` for an unknown attack, for canaries or releases on another engine than "local", for runs without
    steps, or for membership where it shows nothing, and what `run` raises.
    """
    if attack not in ATTACKS:
        raise unknown("attack", attack, ATTACKS)
    if attack not in ("membership", "outlier") and engine != "local":
        raise ValueError(f'engine is {engine!r}, but the attack {attack} needs all nodes in this process: take engine '
                         '"local", or the attack membership')
    usual = {**DEFAULTS, "randomness": "system"} if attack == "folder" else DEFAULTS  # a seed would give all away
    layers = merged(usual, needed(strategy), for_strategy(settings, strategy, [strategy]), {"strategy": strategy})
    planned = [Experiment(**layers, seed=seed) for seed in seeds]
    if any(each.steps == 0 for each in planned):
        raise ValueError("steps is 0: a run without steps releases nothing that could be attacked, so give it some")
    followed = following(planned, on_round)
    if attack == "canaries":
        return [audit(each, canaries, confidence, progress) for each, progress in followed]
    if attack == "outlier":
        return [audit_outlier(each) for each in planned]
    if attack == "folder":
        return [audit_folder(each, runs, progress=progress) for each, progress in followed]
    if attack == "releases":
        return [audit_releases(each, confidence, progress) for each, progress in followed]
    for each in planned:
        split_off_at_random(each.task.data(), find_strategy(strategy).protects)
    return [membership(run(each, engine, progress=progress), confidence) for each, progress in followed]


def audit_table(audits: Sequence[Made]) -> Table:
    """Lay out bound and claim of every seed, for all records and by group; or what noise, preparation or folder gave
    away.
    """
    of_releases = [each for each in audits if isinstance(each, ReleaseAudit)]
    of_outliers = [each for each in audits if isinstance(each, OutlierAudit)]
    if of_releases:
        return release_table(of_releases)
    of_folders = [each for each in audits if isinstance(each, FolderAudit)]
    if of_outliers:
        return outlier_table(of_outliers)
    if of_folders:
        return folder_table(of_folders)
    return _bounds([each for each in audits if isinstance(each, Audit)])


def _bounds(audits: Sequence[Audit]) -> Table:
    """Lay out bound and claim of every seed, for all records and by group."""
    first = audits[0]
    table = Table(title=Text(f"{first.experiment.strategy}, {first.attack}: epsilon at delta "
                             f"{up(first.delta, '.6g')}, guarantee {first.guarantee}"), title_justify="left",
                  title_style="bold", caption=_caption(first), caption_justify="left")
    for name in ("seed", "group", "found", "claimed", "share", "ideal", "spent", "if Gaussian", "right"):
        table.add_column(name, justify="left" if name == "group" else "right", no_wrap=True)
    for each in audits:
        for finding in each.findings:
            bound = finding.bound
            share = "-" if not math.isfinite(finding.claimed) else f"{bound.epsilon / finding.claimed:.0%}"
            sharper = "-" if finding.if_gaussian is None else f"{finding.if_gaussian:.2f}"
            least = down(bound.epsilon, ".2f")
            epsilon = f"[red]REFUTED {least}[/red]" if finding.refuted else least
            epsilon = f"[yellow]too weak[/yellow] {least}" if finding.too_weak else epsilon
            table.add_row(str(each.experiment.seed), Text(visible(finding.group)), epsilon, up(finding.claimed, ".2f"),
                          share, f"{finding.ideal:.2f}", up(finding.spent, ".2f"), sharper,
                          f"{bound.correct}/{bound.guesses}")
    return table


def _caption(audit: Audit) -> str:
    """Explain the columns."""
    return (f"found: epsilon is at least this, at {audit.overall.bound.confidence:.0%} confidence (for all groups "
            "together, too). A bound below the claim is no proof of it; one above refutes it. ideal: what an ideal "
            "attacker would find if the claim were exact; too weak: found at most a quarter of that, so that the audit "
            "says nothing about the claim. right: of the guesses.")
