"""Server strategies by name: the published methods, combinations of one with settings, and any file of the user's own.

A name that is not published, "my-method", is that of the `Strategy` subclass in a file my_method.py, in the current
folder or in its folder strategies/.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedfair.plugins.registry import Registry, unknown
from fedfair.plugins.user_files import METHOD_FOLDERS, defined_in, file_name, user_file
from strategies.clipping_error import DirectionError, MagnitudeError
from strategies.dp_fedavg import DpFedavg
from strategies.dpsgd import Dpsgd
from strategies.dpsgd_f import DpsgdF
from strategies.dpsgd_f_quantile import DpsgdFQuantile
from strategies.dpsgd_global import DpsgdGlobal
from strategies.dpsgd_global_adapt import DpsgdGlobalAdapt
from strategies.fair_dp import FairDp
from strategies.fairlens import FairLens
from strategies.fedavg import Fedavg
from strategies.gs_dp_sgd import GsDpSgd
from strategies.naive import Naive
from strategies.server.hooks import refuse_misshapen_class
from strategies.server.strategy import Strategy
from strategies.sgd import Sgd

__all__ = ["COMBINATIONS", "STRATEGIES", "Combination", "Options", "Strategy", "file_of", "find_strategy"]

Options = Strategy.Options
"""The base of a method's own parameters, which refuses unknown ones."""

STRATEGIES: Registry[type[Strategy]] = Registry("strategy")
_PUBLISHED: dict[str, type[Strategy]] = {
    "dp-fedavg": DpFedavg,
    "direction-error": DirectionError,
    "dpsgd": Dpsgd,
    "dpsgd-f": DpsgdF,
    "dpsgd-f-quantile": DpsgdFQuantile,
    "dpsgd-global": DpsgdGlobal,
    "dpsgd-global-adapt": DpsgdGlobalAdapt,
    "fair-dp": FairDp,
    "fairlens": FairLens,
    "fedavg": Fedavg,
    "gs-dp-sgd": GsDpSgd,
    "magnitude-error": MagnitudeError,
    "naive": Naive,
    "sgd": Sgd,
}
for _name, _strategy in _PUBLISHED.items():
    STRATEGIES.register(_name)(_strategy)


class Combination(NamedTuple):
    """A published method that is a strategy with certain settings; a person's own settings win over them."""

    strategy: str
    settings: Mapping[str, Any]


COMBINATIONS: Registry[Combination] = Registry("combination")
"""By name: gs-dp-sgd-to, Yang et al. 2024, Algorithm 5; dpsgd-p, Pannekoek and Spigler 2021 as used there."""
for _name, _combination in (("gs-dp-sgd-to", Combination("gs-dp-sgd", {"threshold": "toc"})),
                            ("dpsgd-p", Combination("dpsgd", {"threshold": "roc"}))):
    COMBINATIONS.register(_name)(_combination)


def file_of(name: str) -> Path | None:
    """Return the file with a method of the user's own, or None for a published or unknown name."""
    return None if name in STRATEGIES or name in COMBINATIONS else user_file(name, METHOD_FOLDERS)


def find_strategy(name: str) -> type[Strategy]:
    """Return the strategy called `name`, or that of the combination called so; run a user's file to get its strategy.

    Raises `ValueError` with the nearest names if there is none, or if a file does not define exactly one strategy.
    """
    if name in COMBINATIONS:
        name = COMBINATIONS[name].strategy
    if name in STRATEGIES:
        return STRATEGIES[name]
    path = file_of(name)
    if path is not None:
        return _from_file(path)
    error = unknown("strategy", name, [*STRATEGIES, *COMBINATIONS])
    raise ValueError(f"{error}, or a file {file_name(name)} in the current folder")


def _from_file(path: Path) -> type[Strategy]:
    """Return the one strategy that a file defines."""
    defined = [value for value in defined_in(path).values() if inspect.isclass(value) and issubclass(value, Strategy)]
    if len(defined) != 1:
        raise ValueError(f"{path} defines {len(defined)} strategies: it must define exactly one subclass of "
                         "strategies.Strategy")
    refuse_misshapen_class(defined[0])
    return defined[0]
