"""A privacy filter for every group: adaptive bounds with an epsilon that is guaranteed in advance."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedfair.accounting import Release, RenyiFilter
from fedfair.accounting.events import joint_multiplier
from fedfair.accounting.figures import up
from fedfair.accounting.odometer import filter_for
from fedfair.mechanisms.clipping import ClipRule, capped, sensitivity
from strategies.server.training import Training


def group_budget(training: Training, names: Sequence[str], sync: str, rule: ClipRule, noise: float,
                 rates: Sequence[float], steps: int, count_multiplier: float | None, counts_first: bool) -> GroupBudget:
    """Return the filters that keep the groups of a run within `group_epsilon`; see `GroupBudget` for the arguments.

    `names` are the groups', `rule` is the method's first clip rule, `noise` its least noise multiplier. Raises
    `ValueError` if the method has no bounds by group, does not release single steps, has no noise, or counts with too
    little noise.
    """
    if sync == "epoch":
        raise ValueError('group_epsilon limits single steps, but sync is "epoch": set sync = "step"')
    if noise == 0:
        raise ValueError("group_epsilon lowers bounds until the noise is enough for every group, but noise_multiplier "
                         "is 0: give one above 0, or a target_epsilon")
    capped(rule, (math.inf,) * len(rates))
    return GroupBudget(training.by_group("group_epsilon", names), training.delta, rates, steps, count_multiplier,
                       counts_first)


class GroupBudget:
    """Lowers the bounds of groups whose records would otherwise be charged more than a budget.

    Each step of a group with budget B may cost an equal share of what is left, (B - spent so far) / (steps left) in
    Renyi divergence at one order fixed in advance. With noise of standard deviation N in the gradient sum and s1 on the
    counts, that asks for a joint multiplier of at least some m, hence that a record of the group adds at most
    N (m^-2 - s1^-2)^(1/2). The noise stays that of the rule before the cap: the cap lowers a bound C_k, and never
    raises the noise of others.

    Proof that no sequence of bounds exceeds B: the share is at most what is left, so after every step the sum of the
    divergences that were charged is at most B; what a step is charged is fixed by earlier outputs before it is taken.
    So the sequence is one that a Renyi filter lets pass (Feldman and Zrnic 2021, Theorem 3.1), and all steps together
    are as private as the budget says.

    Bounds that follow from earlier steps are charged as they are, and what a group does not use is left for later. With
    `counts_first`, counts of the same batch choose the bounds, which are not known before the step: the step is charged
    its whole share, the cost at the least noise that the counts could have left (`Event` says why). The constructor
    checks that counts alone never cost more than a share: shares only grow, because no step costs more than its share.

    `epsilons` are the groups' budgets, `rates` their sampling rates, `steps` the length of the run, `count_multiplier`
    the noise of the counts or None. `least` are the least noise multipliers of the last step by group, as they were
    certain before it. Raises `ValueError` if counts alone would exceed the budget.
    """

    def __init__(self, epsilons: Sequence[float], delta: float, rates: Sequence[float], steps: int,
                 count_multiplier: float | None, counts_first: bool = False) -> None:
        self.epsilons, self.counts_first = tuple(epsilons), counts_first
        self.filters: tuple[RenyiFilter, ...] = tuple(filter_for(each, delta, max(rates), steps) for each in epsilons)
        self.filter: RenyiFilter | tuple[RenyiFilter, ...] = (  # as a ledger has it
            self.filters[0] if len({*self.filters}) == 1 else self.filters)
        self.rates, self.left, self.counts = tuple(rates), steps, count_multiplier
        self.spent = [0.0] * len(self.rates)
        self.least = self._least() if steps else (math.inf,) * len(self.rates)
        if steps and count_multiplier is not None and not all(map(math.isfinite, self.least)):
            raise ValueError(f"group_epsilon {min(epsilons)} is too small: the counts alone, with noise multiplier "
                             f"{count_multiplier:g}, cost more in {steps} steps; allow more, take fewer steps, or "
                             "a larger count_noise_multiplier")

    def within(self, rule: ClipRule, noise: float) -> tuple[ClipRule, float]:
        """Charge the next step; return the rule with bounds that the budget allows, and its noise multiplier.

        `noise`, above 0, is in units of the given rule's sensitivity; what is returned is in units of the new rule's.
        """
        self.least = self._least()
        deviation = noise * sensitivity(rule, len(self.rates))
        allowed = capped(rule, tuple(deviation / least for least in self.least))
        for k, bound in enumerate(allowed.group_sensitivities(len(self.rates))):
            multiplier = joint_multiplier(self.least[k] if self.counts_first else deviation / bound, self.counts)
            self.spent[k] += self.filters[k].cost(Release(self.rates[k], multiplier))
        self.left -= 1
        return allowed, deviation / sensitivity(allowed, len(self.rates))

    def lose_step(self) -> tuple[float, ...]:
        """Charge every group its share of the next step, which may have been released and will be taken again.

        Return by group, `[K]`, the least noise multipliers that its sum can have had. Raises `ValueError` if too little
        of the budget is left for the remaining steps.
        """
        least = self._least()
        self.spent = [spent + (whole.divergence - spent) / self.left
                      for whole, spent in zip(self.filters, self.spent, strict=True)]
        if not all(map(math.isfinite, self._least())):
            raise ValueError("a round was interrupted, and may have been seen: group_epsilon "
                             f"{up(min(self.epsilons), '.6g')} leaves too little for the {self.left} still to come: "
                             "start again, in another folder, or with a larger one")
        return least

    def _least(self) -> tuple[float, ...]:
        """Return by group, `[K]`, the least noise multipliers that the gradient sum of the next step may have.

        They are infinite where no noise is enough.
        """
        least = []
        for whole, rate, spent in zip(self.filters, self.rates, self.spent, strict=True):
            joint = whole.least_multiplier(rate, (whole.divergence - spent) / self.left)
            square = joint**-2 - (0.0 if self.counts is None else self.counts**-2)
            least.append(square**-0.5 if square > 0 else math.inf)
        return tuple(least)
