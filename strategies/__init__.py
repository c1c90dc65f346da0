"""Server strategies by name: the published methods, combinations of one with settings, and any file of the user's own.

A name that is not published, "my-method", is that of the `Strategy` subclass in a file my_method.py, in the current
folder or in its folder strategies/.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import fedfair  # noqa: F401 - before its parts: two threads that import both ways would wait for each other
from fedfair.plugins.lazy import lazy
from fedfair.plugins.registry import Registry, unknown
from fedfair.plugins.user_files import METHOD_FOLDERS, defined_in, file_name, user_file

if TYPE_CHECKING:
    from strategies.server.strategy import Options, Strategy

__all__ = ["COMBINATIONS", "STRATEGIES", "Combination", "Options", "Strategy", "file_of", "find_strategy"]

__getattr__ = lazy(__name__, dict.fromkeys(("Options", "Strategy"), "strategies.server.strategy"))

STRATEGIES: Registry[type[Strategy]] = Registry("strategy")
_PUBLISHED = {
    "dp-fedavg": "dp_fedavg.DpFedavg",
    "direction-error": "clipping_error.DirectionError",
    "dpsgd": "dpsgd.Dpsgd",
    "dpsgd-asc": "dpsgd_asc.DpsgdAsc",
    "dpsgd-auto": "smooth_clipping.DpsgdAuto",
    "dpsgd-bounded": "dpsgd_bounded.DpsgdBounded",
    "dpsgd-f": "dpsgd_f.DpsgdF",
    "dpsgd-f-quantile": "dpsgd_f.DpsgdFQuantile",
    "dpsgd-global": "dpsgd_global.DpsgdGlobal",
    "dpsgd-global-adapt": "dpsgd_global.DpsgdGlobalAdapt",
    "dpsgd-is": "dpsgd.DpsgdIs",
    "dpsgd-rank": "dpsgd_rank.DpsgdRank",
    "dpsgd-soft": "smooth_clipping.DpsgdSoft",
    "fair-dp": "gs_dp_sgd.FairDp",
    "fairlens": "fairlens.FairLens",
    "fermi": "fermi.Fermi",
    "fedavg": "dp_fedavg.Fedavg",
    "gs-dp-sgd": "gs_dp_sgd.GsDpSgd",
    "moments": "moments.Moments",
    "moments-of-participants": "moments_of_participants.MomentsOfParticipants",
    "magnitude-error": "clipping_error.MagnitudeError",
    "naive": "naive.Naive",
    "puffle": "puffle.Puffle",
    "raco": "raco.Raco",
    "raco-odds": "raco.RacoOdds",
    "scaffold": "scaffold.Scaffold",
    "sgd": "dpsgd.Sgd",
}


def _published(place: str) -> type[Strategy]:
    """Return the strategy MODULE.CLASS, which is imported now, with PyTorch: help texts only need the names."""
    module, _, name = place.partition(".")
    strategy: type[Strategy] = getattr(import_module(f"strategies.{module}"), name)
    return strategy


for _name, _place in _PUBLISHED.items():
    STRATEGIES.register_later(_name, partial(_published, _place))


class Combination(NamedTuple):
    """A published method that is a strategy with certain settings; a person's own settings win over them.

    Examples:
        >>> COMBINATIONS["dpsgd-p"]
        Combination(strategy='dpsgd', settings={'threshold': 'roc'})
    """

    strategy: str
    settings: Mapping[str, Any]


COMBINATIONS: Registry[Combination] = Registry("combination")
"""By name: gs-dp-sgd-to, Yang et al. 2024, Algorithm 5; dpsgd-p, Pannekoek and Spigler 2021 as used there."""
for _name, _combination in (("gs-dp-sgd-to", Combination("gs-dp-sgd", {"threshold": "toc"})),
                            ("dpsgd-p", Combination("dpsgd", {"threshold": "roc"}))):
    COMBINATIONS.register(_name)(_combination)


def file_of(name: str) -> Path | None:
    """Return the file with a method of the user's own, or None for a published or unknown name.

    Examples:
        >>> _ = Path("half_clip.py").write_text("class HalfClip: ...")
        >>> file_of("half-clip"), file_of("dpsgd")
        (PosixPath('half_clip.py'), None)
    """
    return None if name in STRATEGIES or name in COMBINATIONS else user_file(name, METHOD_FOLDERS)


def find_strategy(name: str) -> type[Strategy]:
    """Return the strategy called `name`, or that of the combination called so; run a user's file to get its strategy.

    Raises `ValueError` with the nearest names if there is none, or if a file does not define exactly one strategy.

    Examples:
        >>> find_strategy("gs-dp-sgd-to").__name__
        'GsDpSgd'
        >>> find_strategy("dpgsd")
        Traceback (most recent call last):
            ...
        ValueError: unknown strategy 'dpgsd': did you mean 'dpsgd' or 'dpsgd-p'? known are ...
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
    from strategies.server.hooks import refuse_misshapen_class
    from strategies.server.strategy import Strategy

    defined = [value for value in defined_in(path).values() if inspect.isclass(value) and issubclass(value, Strategy)]
    if len(defined) != 1:
        raise ValueError(f"{path} defines {len(defined)} strategies: it must define exactly one subclass of "
                         "strategies.Strategy")
    refuse_misshapen_class(defined[0])
    return defined[0]
