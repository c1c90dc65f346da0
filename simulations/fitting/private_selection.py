"""Private selection among whole trainings: a random number of trials, of which the best by a noisy score is kept.

What is selected among are methods with a few settings each. Every trial reads all training records in every step, so
that it is Gaussian releases without sampling, and all cost the same: mu^2 = 1 / m^2 for a trial of noise multiplier m,
of which each of T steps has a T-th.

A trial trains a drawn candidate on the training part, and counts with noise how often it is right on the validation
part. Both parts are charged for the selection (`fedfair.accounting.selection`), each for what a trial costs it. Neither
the number of trials nor anything of those that lost leaves this module.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import pandas as pd
import torch
from flwr.serverapp import Grid

from fedfair.accounting import Accountant, Ledger, Release, calibrate, multiplier_of
from fedfair.accounting.events import Preprocessed, joint_multiplier
from fedfair.accounting.selection import Charged, Selection, gamma_of, number_of_trials
from fedfair.gradients.layer_probe import trained_parameters
from fedfair.mechanisms.noise import Trust, add_noise
from fedfair.mechanisms.randomness import Source, SystemEntropy, random_bits, uniform
from fedfair.moments.front import TRAINED, Front, Point
from fedfair.moments.logistic import AUTO_STEPS
from fedfair.plugins.registry import unknown
from fedfair.protocol.messages import pack
from fedfair.protocol.task import Task
from simulations.engines.engines import Engine, make_engine
from simulations.engines.run import conduct
from simulations.results.result import Result
from simulations.settings.experiment import Experiment
from strategies import Strategy, find_strategy
from strategies.server.budget_shares import (
    COUNT_NOISE_RATIO,
    FRONT_SHARES_AFTER_SELECTION,
    PREPROCESSING_SHARE,
    with_share,
)
from strategies.server.releases.front import noisy
from strategies.server.releases.preprocessing import learn_columns, planned
from strategies.server.releases.private_figures import rows_of
from strategies.server.replies.requests import population
from strategies.server.rounds import Rounds

AUTO = 10.0
"""Expected number of trials, where none is named."""

_GRID = [{"clip_norm": 1.0, "steps": steps, "learning_rate": rate} for steps, rate in product((20, 60), (3.0, 8.0))]
_ADAPTIVE = {"options": {"bound": 1.0}}

METHODS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "moments": [{}],
    "dpsgd": _GRID,
    "dpsgd-global-adapt": [{**settings, **_ADAPTIVE} for settings in _GRID],
}
"""Methods with the settings that are tried: small grids, and no function of any table."""

_SYSTEM = SystemEntropy()


class Candidate(NamedTuple):
    """A method, and its settings."""

    method: str
    settings: Mapping[str, Any]

    def with_noise(self, multiplier: float) -> dict[str, Any]:
        """Return its settings with the noise that makes it cost what one Gaussian release does."""
        noise = multiplier * math.sqrt(self.settings.get("steps", 1 + self._logistic_steps))
        if self.method == "dpsgd-global-adapt":  # which counts large gradients in every step
            noise /= joint_multiplier(1.0, COUNT_NOISE_RATIO)
            return {**self.settings, "noise_multiplier": noise, "count_noise_multiplier": COUNT_NOISE_RATIO * noise}
        return {**self.settings, "noise_multiplier": noise}

    @property
    def _logistic_steps(self) -> int:
        """The most steps that follow the moments of a trial."""
        steps = self.settings.get("options", {}).get("logistic_steps", 0)
        return AUTO_STEPS if steps == "auto" else int(steps)


class Among(NamedTuple):
    """What is selected among.

    Attributes:
        methods: Names of methods.
        trials: Expected number of trials; their number follows the geometric distribution.
    """

    methods: tuple[str, ...]
    trials: float = AUTO

    def candidates(self) -> list[Candidate]:
        """Return all candidates."""
        found = []
        for method in self.methods:
            found += [Candidate(method, settings) for settings in METHODS[method]]
        return found

    def drawn(self, source: Source) -> Candidate:
        """Draw a method, and then one of its candidates: every trial anew."""
        first, second = uniform(random_bits(source, 2))
        method = self.methods[int(first * len(self.methods))]
        return Candidate(method, METHODS[method][int(second * len(METHODS[method]))])


def among(methods: Sequence[str], trials: float | None) -> Among | None:
    """Return what is selected among; None for moments alone, which have nothing to select.

    Args:
        methods: Names of methods.
        trials: Expected number of trials; None for `AUTO`.

    Raises:
        ValueError: If a method or the number is not allowed.
    """
    for method in methods:
        if method not in METHODS:
            raise unknown("method of a fit", method, METHODS)
    if len({*methods}) < len(methods) or not methods:
        raise ValueError(f"methods are {', '.join(methods) or 'none'}: name at least one of {', '.join(METHODS)}, each "
                         "once")
    if tuple(methods) == ("moments",):
        if trials is not None:
            raise ValueError(f"{trials:g} trials are asked for, but moments alone have one setting, and nothing "
                             "is selected: leave trials out, or name other methods beside it")
        return None
    wanted = Among(tuple(methods), AUTO if trials is None else trials)
    gamma_of(wanted.trials, 1.0)
    return wanted


@dataclass(frozen=True)
class Terms:
    """What a selection may cost.

    Attributes:
        among: What is selected among.
        epsilon: Epsilon that any record is kept within.
        delta: Its delta.
        accountant: How releases are composed.
        kinds: Release of which all records are charged already, or None.
    """

    among: Among
    epsilon: float
    delta: float
    accountant: Accountant
    kinds: Release | None

    def trial(self, *beside: Release, delta: float | None = None) -> Selection:
        """Return a selection that keeps a record within epsilon, with what else it is charged.

        Args:
            *beside: Releases besides that of the kinds of columns.
            delta: Delta that is left; None for all.
        """
        def charged(multiplier: float) -> Counter[Charged]:
            """Return all that a record is charged."""
            charges: Counter[Charged] = Counter([*beside, *filter(None, [self.kinds])])
            return charges + Counter([self.selection(multiplier)])

        return self.selection(calibrate(charged, self.epsilon, self.delta if delta is None else delta, self.accountant))

    def selection(self, multiplier: float) -> Selection:
        """Return the selection of trials that cost as much as one Gaussian release.

        Args:
            multiplier: Noise multiplier of that release.
        """
        return Selection(multiplier, self.among.trials)


def experiment_of(made: Experiment, candidate: Candidate, cost: Selection) -> Experiment:
    """Return the settings of a candidate's run.

    Args:
        made: Settings of the fit, with the epsilon that preprocessing takes its share of.
        candidate: Method and settings.
        cost: What a trial may cost.
    """
    assert made.target_epsilon is not None
    if candidate.method == "moments":
        candidate = candidate._replace(settings={"options": made.options})
    own = candidate.with_noise(cost.multiplier)
    options = own.pop("options", {})
    return Experiment(**{**made.settings(), "csv": made.csv, **own, "options": options, "strategy": candidate.method,
                         "target_epsilon": None, "preprocessing_epsilon": PREPROCESSING_SHARE * made.target_epsilon})


def refuse_unfit(made: Experiment, wanted: Mapping[str, Any], gap: float | None, among: Among) -> None:
    """Raise `ValueError` for what a selection cannot do, before anything is released.

    Args:
        made: Settings of the fit.
        wanted: Those among them that a person gave.
        gap: Largest gap that is asked for, or None.
        among: What is selected among.
    """
    if gap is not None:
        raise ValueError(f"the gap is {gap:g}, but only the front of moments has models with smaller gaps, and a "
                         "selection is by accuracy alone: leave gap out, or fit moments alone")
    if made.options.get("monotone"):
        raise ValueError(f"monotone is asked of {', '.join(made.options['monotone'])}, but only the front of moments "
                         "has models whose scores go one way: leave monotone out, or fit moments alone")
    if made.randomness != "system":
        raise ValueError(f"randomness is {made.randomness!r}, but trials of one candidate would then share their "
                         'noise: take randomness = "system", or fit moments alone')
    if made.trust is not Trust.CENTRAL:
        raise ValueError(f"trust is {made.trust.value!r}, but all trials but one stay secret, so who makes them must "
                         'be trusted: take trust = "central", or fit moments alone')
    if made.split[1] == 0:
        raise ValueError(f"split is {list(made.split)}, but trials are compared on the validation part: give it a "
                         "share")
    for candidate in among.candidates():
        for name in (*candidate.settings, "count_noise_multiplier"):
            if name in wanted and name != "options":
                raise ValueError(f"{name} is among the settings, but the selection chooses it: leave it out")
        experiment_of(made, candidate, Selection(1.0, among.trials))


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
