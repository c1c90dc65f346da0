"""The terms of a private selection among trainings: what it may cost, what a trial runs, and what cannot be asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedfair.accounting import Accountant, Release, calibrate
from fedfair.accounting.selection import Charged, Selection
from fedfair.mechanisms.noise import Trust
from simulations.fitting.candidates import Among, Candidate
from simulations.settings.experiment import Experiment
from strategies.server.releases.preprocessing import SHARE_OF_EPSILON


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
                         "target_epsilon": None, "preprocessing_epsilon": SHARE_OF_EPSILON * made.target_epsilon})


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
