"""What each file of a run's folder holds of the run, and what protects it: the `files` of its ledger."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from fedfair.accounting import Ledger
from fedfair.accounting.contents import OTHER, Contents, Part, Protection
from fedfair.datasets.features.encoding import NO_TABLE, Encoding
from simulations.settings.experiment import Experiment

_NAMES = Part("names of groups and classes", "public")
_ADDED = ("report.html",)
"""Files that a command adds later."""
_FIT = ("fit.toml", "card.md", "card.json", "predict.py")
"""Files that `fedfair fit` adds."""
_CHOSEN = ("choice.toml",)
"""Files that `fedfair choose` adds where there is a front."""


class Run(NamedTuple):
    """What decides what a run's files hold: its settings, its ledger, and whether it ended with a threshold.

    `encoding` says how columns became features.
    """

    experiment: Experiment
    ledger: Ledger
    encoding: Encoding = NO_TABLE
    has_threshold: bool = False
    has_front: bool = False


def contents_of(run: Run, written: Iterable[str], kept: Iterable[str] = ()) -> Contents:
    """Say what the files of a folder hold of one run.

    Args:
        run: The run.
        written: Names of the files that fedfair writes.
        kept: Names of other files and folders that were there before.

    Returns:
        The parts of every file, those that a command may add later included.
    """
    added = (*_ADDED, *(_CHOSEN if run.has_front else ()), *(
        _FIT if run.has_front and run.experiment.figures == "private" else ()))
    return {**dict.fromkeys(kept, OTHER), **{name: _PARTS[name](run) for name in (*written, *added)}}


def _config(run: Run) -> tuple[Part, ...]:
    """Say what config.toml holds."""
    own = (Part("the path of your file as you gave it: give a relative one if it names a person", "public"),)
    return (Part("settings as you gave them, with the seed", "public"),
            *(own if run.experiment.csv else ()))


def _metrics(run: Run) -> tuple[Part, ...]:
    """Say what metrics.parquet holds."""
    parts = [*_held_out(run), Part("numbers of the clip rules", _releases(run)), _NAMES]
    if run.experiment.figures == "private":
        return tuple(parts)
    if run.experiment.exact_figures:
        parts.append(Part("counts, losses and norms of the training part", "training"))
    elif run.ledger.protects == "record":
        parts.append(Part("numbers of training records by group", "public"))
    return tuple(parts)


def _held_out(run: Run) -> tuple[Part, ...]:
    """Say what the metrics of held-out records are."""
    if run.experiment.figures == "private":
        of = "the validation and the test part" if run.experiment.holds_out else "training records, left out one by one"
        return (Part(f"figures of {of}, of noisy counts", "releases"),)
    if run.experiment.figures == "none":
        return (Part("no figure: nothing was measured", "no records"),)
    parts = [Part("counts, losses and norms of the validation and the test part", "held-out")]
    if run.ledger.guarantee == "none":
        parts.append(Part("how a model does that had no noise", "training"))
    return tuple(parts)


def _summary(run: Run) -> tuple[Part, ...]:
    """Say what summary.csv holds."""
    return (*_held_out(run), Part("epsilon", _releases(run)), _NAMES)


def _ledger(run: Run) -> tuple[Part, ...]:
    """Say what ledger.json holds."""
    return (Part("rates and noise of the releases, and what they cost", "public"),
            Part("bounds that were chosen on the way", _releases(run)),
            Part("numbers of records or participants", "public"), _NAMES)


def _nodes(run: Run) -> tuple[Part, ...]:
    """Say what nodes.csv holds."""
    figures = () if run.experiment.figures in ("private", "none") else _held_out(run)
    return (Part("numbers of training records by node", "public"), Part("rounds that each node answered", "public"),
            Part("epsilon", _releases(run)), *figures)


def _model(run: Run) -> tuple[Part, ...]:
    """Say what model.safetensors holds."""
    learned = run.experiment.task.learned_by(run.encoding)
    prepared: Protection = "releases" if run.ledger.preprocessing else "public"
    encoding = (Part(f"how columns become features, learned without noise: {learned}", "training") if learned else
                Part("how columns become features", prepared))
    return (Part("weights", _releases(run)), encoding, *_threshold(run), _NAMES)


def _front(run: Run) -> tuple[Part, ...]:
    """Say what the figures of a front's classifiers are, if the run has one."""
    return (*_held_out(run), _NAMES) if run.has_front else ()


def _weights(run: Run) -> tuple[Part, ...]:
    """Say what a file with weights of linear models holds."""
    return (Part("weights", _releases(run)), _NAMES)


def _threshold(run: Run) -> tuple[Part, ...]:
    """Say what the rule of decision is made of, if there is one."""
    if not run.has_threshold:
        return ()
    searched: Protection = "held-out" if math.isinf(run.ledger.held_out_epsilon("valid")) else "releases"
    return (Part("the threshold of decisions", searched),)


def _environment(run: Run) -> tuple[Part, ...]:
    """Say what environment.json holds."""
    sealed = (Part("a seal of your table, by a key that stays on your machine", "no records"),)
    return (Part("versions, and how noise was drawn", "no records"), *(sealed if run.experiment.csv else ()))


def _report(run: Run) -> tuple[Part, ...]:
    """Say what report.html holds, once `fedfair report` has written it."""
    return tuple(dict.fromkeys((*_config(run), *_summary(run), *_metrics(run), *_ledger(run),
                                *_environment(run))))


def _releases(run: Run) -> Protection:
    """Say what protects a function of the releases: nothing, where they carry no noise."""
    return "training" if run.ledger.guarantee == "none" else "releases"


_PARTS: Mapping[str, Callable[[Run], tuple[Part, ...]]] = {
    "config.toml": _config, "metrics.parquet": _metrics, "summary.csv": _summary, "statistics.csv": _held_out,
    "ledger.json": _ledger, "model.safetensors": _model, "thresholds.json": _threshold,
    "environment.json": _environment, "report.html": _report, "front.parquet": _front, "front.safetensors": _weights,
    "refits.safetensors": _weights, "scorecard.csv": _weights, "nodes.csv": _nodes, "choice.toml": _front,
    "figures.csv": _summary, "calibration.csv": _summary, "site_figures.csv": _summary,
    "cut_offs.csv": _summary,
    "fit.toml": _config, "card.md": _report, "card.json": _report, "predict.py": _model}
