"""Audits over several seeds, and their tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedfair.accounting.figures import down, up
from fedfair.fairness.intervals import Estimate
from fedfair.plugins.registry import unknown
from simulations.audits.audit import DEFAULTS, audit
from simulations.audits.findings import Audit
from simulations.audits.folder import FolderAudit, audit_folder
from simulations.audits.membership import membership, split_off_at_random
from simulations.audits.outlier import OutlierAudit, audit_outlier
from simulations.audits.releases import ReleaseAudit, audit_releases
from simulations.drawing.figure import Range
from simulations.drawing.svg import bar_chart
from simulations.drawing.table import Coloured, Row, Table
from simulations.engines.run import run
from simulations.plans.compare import OnRound, following
from simulations.settings.experiment import Experiment
from simulations.settings.presets import for_strategy, merged, needed
from simulations.statistics.over_seeds import over_seeds
from strategies import find_strategy

_SHOWN = 10  # findings of a seed
_OF_FOLDERS = ("fixed: the same in all runs with the target, and another in all runs without it. exact: equal to a "
               "figure of the training records that were used. One of these refutes a proved guarantee.")
_OF_RELEASES = ("too small: deviation of a tensor's noise, in units of what is charged. correlated: of two releases. "
                "repeated: numbers that come twice, with either sign. All limits hold together with probability {}.")


def folder_table(audits: Sequence[FolderAudit]) -> Table:
    """Lay out what in the folders tells two data sets apart: a row for each entry, or one that says there is none."""
    first, rows = audits[0], list[Row]()
    for each in audits:
        begin, colour = (each.experiment.seed, f"row {each.target}"), "red" if each.refuted else "yellow"
        rows += [(*begin, Coloured(leak.kind, colour), leak.entry, leak.detail) for leak in each.leaks[:_SHOWN]]
        rows += [(*begin, words, "", "") for words in _not_shown(each.leaks)]
    title = (f"{first.experiment.strategy} on {first.experiment.dataset}, folders of {first.runs} runs with one "
             f"training record and {first.runs} without: guarantee {first.guarantee}")
    return Table("", title, ("seed", "target", "kind", "entry", "detail"), rows,
                 f"{first.entries:,} entries were read. {_OF_FOLDERS}")


def release_table(audits: Sequence[ReleaseAudit]) -> Table:
    """Lay out what each seed's noise gave away: a row for each suspicion, or one that says that there is none."""
    first, rows = audits[0], list[Row]()
    for each in audits:
        seed = each.experiment.seed
        rows += [(seed, Coloured(found.test, "red"), f"{found.value:.4g}", f"{found.limit:.4g}", found.where)
                 for found in each.suspicions[:_SHOWN]]
        rows += [(seed, words, "", "", "") for words in _not_shown(each.suspicions)]
    title = (f"{first.experiment.strategy}, noise of {first.releases:,} releases, {first.numbers:,} numbers: guarantee "
             f"{first.guarantee}")
    return Table("", title, ("seed", "finding", "value", "limit", "where"), rows,
                 _OF_RELEASES.format(f"{first.confidence:.3g}"), figures=(2, 3))


def _not_shown(found: Sequence[object]) -> list[str]:
    """Say that nothing was found, or how much more than is shown; nothing where all is shown."""
    more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return more if found else ["nothing found"]


def outlier_table(audits: Sequence[OutlierAudit]) -> Table:
    """Lay out what an extreme value in each column of one record moved: a row for each column that moved others."""
    first, rows = audits[0], list[Row]()
    verdict = f"nominal: {first.learned}" if first.learned else "nothing was learned from records"
    for each in audits:
        seed, colour = each.experiment.seed, "red" if each.refuted else "yellow"
        rows += [(seed, Coloured(moved.column, colour), moved.records, moved.features, f"{moved.largest:.3g}")
                 for moved in each.moved] or [(seed, f"none of {len(each.columns)}", 0, 0, "0")]
    return Table("", f"one extreme row, preparation of {first.experiment.dataset}",
                 ("seed", "column", "other records moved", "new features", "largest change"), rows,
                 f"what the ledger says: {verdict}", figures=(4,))


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
    of_folders = [each for each in audits if isinstance(each, FolderAudit)]
    if of_releases:
        return release_table(of_releases)
    if of_outliers:
        return outlier_table(of_outliers)
    if of_folders:
        return folder_table(of_folders)
    return _bounds([each for each in audits if isinstance(each, Audit)])


def _bounds(audits: Sequence[Audit]) -> Table:
    """Lay out bound and claim of every seed, for all records and by group."""
    first, rows = audits[0], list[Row]()
    for each in audits:
        for finding in each.findings:
            bound = finding.bound
            share = "-" if not math.isfinite(finding.claimed) else f"{bound.epsilon / finding.claimed:.0%}"
            sharper = "-" if finding.if_gaussian is None else f"{finding.if_gaussian:.2f}"
            least = down(bound.epsilon, ".2f")
            epsilon = Coloured(f"REFUTED {least}", "red") if finding.refuted else least
            epsilon = Coloured(f"too weak {least}", "yellow") if finding.too_weak else epsilon
            rows.append((each.experiment.seed, finding.group, epsilon, up(finding.claimed, ".2f"), share,
                         f"{finding.ideal:.2f}", up(finding.spent, ".2f"), down(finding.by_curve, ".2f"), sharper,
                         f"{bound.correct}/{bound.guesses}"))
    title = (f"{first.experiment.strategy}, {first.attack}: epsilon at delta {up(first.delta, '.6g')}, guarantee "
             f"{first.guarantee}")
    columns = ("seed", "group", "found", "claimed", "share", "ideal", "spent", "by curve", "if Gaussian", "right")
    return Table("", title, columns, rows, _caption(first), figures=range(2, 10))


def by_group(audits: Sequence[Made]) -> str:
    """Draw what attacks found of each group beside what the ledger says, as SVG: means over seeds, all on one scale.

    Args:
        audits: What attacks by canaries or membership found, one for each seed.

    Raises:
        ValueError: For other attacks, which have no figures by group, and where an epsilon is infinite.
    """
    found = [each for each in audits if isinstance(each, Audit)]
    if not found:
        raise ValueError("this attack has no figures by group: take the attack canaries or membership for a picture")
    panels: dict[str, dict[str, Estimate]] = {}
    for group in dict.fromkeys(finding.group for finding in found[0].findings):
        own = [finding for each in found for finding in each.findings if finding.group == group]
        panels[group] = {"found, at least": over_seeds([finding.bound.epsilon for finding in own], 0.0),
                         "ideal attack": over_seeds([finding.ideal for finding in own], 0.0),
                         "spent": over_seeds([finding.spent for finding in own], 0.0),
                         "guaranteed": over_seeds([finding.claimed for finding in own], 0.0)}
    values = [value for bars in panels.values() for value in bars.values()]
    most = max(value.value if math.isnan(value.high) else value.high for value in values)
    if not math.isfinite(most):
        raise ValueError("an epsilon is infinite, which no bar is: attack a run with noise for a picture")
    first = found[0]
    title = f"{first.experiment.strategy}, {first.attack}: epsilon at delta {up(first.delta, '.6g')} by group"
    return bar_chart(title, panels, Range(0.0, max(most, 1e-9)))


def _caption(audit: Audit) -> str:
    """Explain the columns."""
    return (f"found: epsilon is at least this, at {audit.overall.bound.confidence:.0%} confidence (for all groups "
            "together, too). A bound below the claim is no proof of it; one above refutes it. ideal: what an ideal "
            "attacker would find if the claim were exact; too weak: found at most a quarter of that, so that the audit "
            "says nothing about the claim. by curve: found if the trade-off curve is a Gaussian mechanism's. if "
            "Gaussian: found if the mechanism is Gaussian and canaries do not disturb each other. right: of the "
            "guesses.")
