"""Private selection among whole trainings: a random number of trials, of which the best by a noisy score is kept.

A trial trains a drawn candidate on the training part, and counts with noise how often it is right on the validation
part. Both parts are charged for the selection (`fedfair.accounting.selection`), each for what a trial costs it. Neither
the number of trials nor anything of those that lost leaves this module.
"""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd
import torch
from flwr.serverapp import Grid

from fedfair.accounting import Ledger, Release, multiplier_of
from fedfair.accounting.events import Preprocessed
from fedfair.accounting.selection import Selection, number_of_trials
from fedfair.gradients.layer_probe import trained_parameters
from fedfair.mechanisms.noise import add_noise
from fedfair.mechanisms.randomness import SystemEntropy
from fedfair.moments.front import TRAINED, Front, Point
from fedfair.protocol.messages import pack
from fedfair.protocol.task import Task
from simulations.engines.engines import Engine, make_engine
from simulations.engines.run import conduct
from simulations.fitting.budget import Terms, experiment_of
from simulations.fitting.candidates import Among, Candidate
from simulations.results.result import Result
from simulations.settings.experiment import Experiment
from strategies import Strategy, find_strategy
from strategies.server.budget_shares import FRONT_SHARES_AFTER_SELECTION, with_share
from strategies.server.releases.front import noisy
from strategies.server.releases.preprocessing import learn_columns, planned
from strategies.server.releases.private_figures import rows_of
from strategies.server.replies.requests import population
from strategies.server.rounds import Rounds

_SYSTEM = SystemEntropy()


class Trial(NamedTuple):
    """A finished trial.

    Attributes:
        score: How often it is right on validation records, with noise.
        candidate: What was trained.
        result: The model.
        front: What follows from its releases.
    """

    score: float
    candidate: Candidate
    result: Result
    front: Front


def select(made: Experiment, terms: Terms, engine: str | Engine) -> Result:
    """Make a random number of trials, and return the best with its figures.

    Args:
        made: Settings of the fit, with the budgets of preprocessing and of figures.
        terms: What the selection may cost.
        engine: Where the nodes are.
    """
    return make_engine(engine).without_repeats()(lambda grid: _selected(made, terms, grid))


def _selected(made: Experiment, terms: Terms, grid: Grid) -> Result:
    """Learn columns once, make the trials, and measure the best of them."""
    task, learned = _with_columns(made, grid)
    left = terms.delta - (learned.delta if learned else 0.0)
    training = terms.trial(*([Release(1.0, learned.multiplier)] if learned else []), delta=left)
    figures = multiplier_of(made.figures_epsilon or terms.epsilon, terms.delta, terms.accountant)
    scoring = terms.trial(Release(1.0, with_share(figures, FRONT_SHARES_AFTER_SELECTION["valid"])))
    trials = number_of_trials(terms.among.trials, training.shape, _SYSTEM)
    best = max((_trial(made, task, terms.among, training, scoring, grid) for _ in range(trials)),
               key=lambda trial: trial.score)
    result = _measured(best, experiment_of(made, best.candidate, training), task, learned, grid)
    result.ledger.record_selection("train", training)
    result.ledger.record_selection("valid", scoring)
    return result


def _with_columns(made: Experiment, grid: Grid) -> tuple[Task, Preprocessed | None]:
    """Return the task with what private preprocessing learned, for all trials, and what that is charged."""
    task, training = made.task, made.training
    spent = planned(task, training)
    if spent is None:
        return task, None
    sizes = population(grid, task, training.answer_timeout)
    return learn_columns(task, training, sizes, grid, spent, "record", None), spent


def _trial(made: Experiment, task: Task, among: Among, training: Selection, scoring: Selection, grid: Grid) -> Trial:
    """Train a candidate that is drawn, and score it."""
    candidate, followed = among.drawn(_SYSTEM), list[Rounds]()
    told = experiment_of(made, candidate, training).model_copy(update={
        **{name: getattr(task, name) for name in ("ranges", "categories", "edges")}, "figures": "none",
        "figures_epsilon": None, "gap_among": None, "preprocessing_epsilon": None})
    result = conduct(told, grid, lambda *_: None, watch=lambda rounds, _: followed.append(rounds))
    _refuse_dearer(result.ledger, training)
    valid = result.data.valid
    with torch.no_grad():
        right = (result.model(valid.x).argmax(1) == valid.y).sum().to(torch.float64).view(1)
    score = add_noise(made.noise, {"right": right}, scoring.multiplier, _SYSTEM)["right"]
    return Trial(float(score), candidate, result, _front(followed[-1].method, result))


def _refuse_dearer(ledger: Ledger, cost: Selection) -> None:
    """Raise `AssertionError` if a trial's plan cost more than it is charged, whoever's record it is."""
    for group, _ in enumerate(ledger.groups):
        releases = [(event.guaranteed(group), steps) for event, steps in ledger.events.items()]
        spent = sum(steps / release.multiplier**2 for release, steps in releases)
        if spent > (1 + 1e-9) / cost.multiplier**2:
            raise AssertionError(f"a trial spent mu^2 = {spent}, more than its selection is charged")


def _front(method: Strategy, result: Result) -> Front:
    """Return all classifiers that follow from a trial's releases: that of a method without a front is alone."""
    if method.made is not None:
        return method.made
    weights = next(iter(result.model.parameters())).detach()
    return Front((Point(TRAINED),), weights.T.to(torch.float64)[None])


def _measured(best: Trial, made: Experiment, task: Task, learned: Preprocessed | None, grid: Grid) -> Result:
    """Release the figures of a trial's model and front, and return all of it as a run's result."""
    rounds = Rounds(find_strategy(made.strategy)(task, made.training, population(grid, task, made.answer_timeout),
                                                 preprocessing=learned))
    figures, ledger = rounds.evaluation.figures, rounds.ledger
    assert figures is not None
    parameters, _ = trained_parameters(best.result.model)
    counts = figures.model(grid, pack({name: value.detach() for name, value in parameters.items()}), ledger, None,
                           "test", 1 - FRONT_SHARES_AFTER_SELECTION["test"])
    rounds.rows.add(rounds.rounds, "test", rows_of(counts))
    front = noisy(best.front, {split: figures.front(grid, best.front, ledger, split, share)
                               for split, share in FRONT_SHARES_AFTER_SELECTION.items()})
    return Result(made, task.data(), pd.DataFrame(rounds.rows.all), ledger, best.result.model, rounds.search,
                  front=front, figures=figures.released)
