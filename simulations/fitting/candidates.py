"""What a fit can select among: methods with a few settings each, and how many of them it tries.

Every trial reads all training records in every step, so that it is Gaussian releases without sampling, and all cost the
same: mu^2 = 1 / m^2 for a trial of noise multiplier m, of which each of T steps has a T-th.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from fedfair.accounting.events import joint_multiplier
from fedfair.accounting.selection import gamma_of
from fedfair.mechanisms.randomness import Source, random_bits, uniform
from fedfair.plugins.registry import unknown
from strategies.moments import AUTO_STEPS
from strategies.server.budget_shares import COUNT_NOISE_RATIO

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
