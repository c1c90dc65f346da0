"""Server strategies by name: the published methods, and any file of the user's own.

The name "my-method" is looked for here, then as the `Strategy` subclass in a file my_method.py in the current folder
or in its folder strategies/.
"""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path

from fedfair.registry import Registry, unknown
from strategies.base import Strategy
from strategies.dpsgd import Dpsgd
from strategies.dpsgd_f import DpsgdF
from strategies.dpsgd_global import DpsgdGlobal
from strategies.dpsgd_global_adapt import DpsgdGlobalAdapt
from strategies.gs_dp_sgd import GsDpSgd
from strategies.naive import Naive
from strategies.sgd import Sgd

__all__ = ["STRATEGIES", "Strategy", "find_strategy"]

STRATEGIES: Registry[type[Strategy]] = Registry("strategy")
for _name, _strategy in (("sgd", Sgd), ("dpsgd", Dpsgd), ("dpsgd-f", DpsgdF), ("dpsgd-global", DpsgdGlobal),
                         ("dpsgd-global-adapt", DpsgdGlobalAdapt), ("gs-dp-sgd", GsDpSgd), ("naive", Naive)):
    STRATEGIES.register(_name)(_strategy)


def find_strategy(name: str) -> type[Strategy]:
    """The strategy called `name`; a file of the user's own is run to get it.

    Raises `ValueError` with the nearest names if there is none, or if a file does not define exactly one strategy.
    """
    if name in STRATEGIES:
        return STRATEGIES[name]
    for folder in (Path(), Path("strategies")):
        path = folder / f"{name.replace('-', '_')}.py"
        if path.is_file():
            return _from_file(path)
    error = unknown("strategy", name, STRATEGIES)
    raise ValueError(f"{error}, or a file {name.replace('-', '_')}.py in the current folder")


def _from_file(path: Path) -> type[Strategy]:
    """The one strategy that a file defines."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = [value for value in vars(module).values() if inspect.isclass(value) and issubclass(value, Strategy)
             and value.__module__ == module.__name__]
    if len(found) != 1:
        raise ValueError(f"{path} defines {len(found)} strategies: it must define exactly one subclass of "
                         "strategies.Strategy")
    return found[0]
