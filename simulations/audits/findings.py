"""What an attack found, group by group, beside what the ledger claims."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedfair.auditing.bounds import Bound, Neighbours, curve_bound, gaussian_bound, ideal_bound, lower_bound
from simulations.results.result import Result
from simulations.settings.experiment import Experiment

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Finding:
    """Result of an attack on the records of one group ("all" for all records), beside the ledger's claim for them.

    `claimed` is guaranteed in advance; `spent` is the reading for the bounds that were in force. `by_curve` is the
    sharper bound that holds if the mechanism's trade-off curve is that of a Gaussian one, `if_gaussian` one that holds
    if it is Gaussian and canaries do not disturb each other; None for the black box. `ideal` is the bound that an ideal
    attacker would expect, with as many canaries, if the claim were exact.
    """

    group: str
    bound: Bound
    claimed: float
    spent: float
    ideal: float
    by_curve: float
    if_gaussian: float | None = None

    @property
    def refuted(self) -> bool:
        """Whether the attack shows that the claim is false, at its confidence."""
        return self.bound.epsilon > self.claimed

    @property
    def too_weak(self) -> bool:
        """Whether the bound is at most a quarter of the ideal attacker's, so that it says nothing about the claim."""
        return not self.refuted and self.bound.epsilon <= self.ideal / 4


@dataclass(frozen=True)
class Audit:
    """Findings for all records and by group, with the ledger's guarantee and delta."""

    attack: str
    experiment: Experiment
    guarantee: str
    delta: float
    findings: tuple[Finding, ...]

    @property
    def overall(self) -> Finding:
        """The finding for all records."""
        return self.findings[0]

    @property
    def refuted(self) -> bool:
        """Whether any finding shows the claim to be false."""
        return any(finding.refuted for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields and verdicts, ready for JSON."""
        findings = [{**asdict(finding), "refuted": finding.refuted, "too_weak": finding.too_weak}
                    for finding in self.findings]
        return {"attack": self.attack, "experiment": self.experiment.settings(), "guarantee": self.guarantee,
                "delta": self.delta, "refuted": self.refuted, "findings": findings}


def refuse_confidence(confidence: float) -> None:
    """Raise `ValueError` unless the confidence lies strictly between 0 and 1."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}: it must lie strictly between 0 and 1")


class Guesses(NamedTuple):
    """Attacker's scores of m canaries, whether each was included, and their groups: `[m]` each."""

    scores: Floats
    included: Bools
    groups: npt.NDArray[np.int64]

    def of(self, group: int) -> Guesses:
        """Select the guesses about one group."""
        chosen = self.groups == group
        return Guesses(self.scores[chosen], self.included[chosen], self.groups[chosen])


def judged(attack: str, result: Result, guesses: Guesses, confidence: float,
            neighbours: Neighbours = "add-or-remove") -> Audit:
    """Build the audit: a finding for all records and one for each group, beside the ledger's claims.

    The bounds of the K groups share the error, so that all of them hold together with the stated confidence.
    """
    ledger = result.ledger
    delta, guaranteed, spent = ledger.delta, ledger.guaranteed_by_group(), ledger.epsilon_by_group()

    def finding(group: str, guesses: Guesses, claimed: float, spent: float, confidence: float) -> Finding:
        """Bound one group's epsilon."""
        bound = lower_bound(guesses.scores, guesses.included, delta, confidence, neighbours)
        sharper = (gaussian_bound(guesses.scores, guesses.included, delta, confidence) if attack == "white box"
                   else None)
        ideal = ideal_bound(claimed, len(guesses.scores), delta, confidence, neighbours)
        by_curve = curve_bound(guesses.scores, guesses.included, delta, confidence, neighbours).epsilon
        return Finding(group, bound, claimed, spent, ideal, by_curve, sharper)

    each = 1 - (1 - confidence) / len(ledger.groups)
    findings = [finding("all", guesses, ledger.epsilon(), max(spent.values()), confidence)]
    findings += [finding(name, guesses.of(k), guaranteed[name], spent[name], each)
                 for k, name in enumerate(ledger.groups) if (guesses.groups == k).any()]
    return Audit(attack, result.experiment, ledger.guarantee, delta, tuple(findings))
