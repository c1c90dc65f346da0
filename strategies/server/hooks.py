"""The methods that a person's strategy defines, checked: what each is given, what it returns, what it changes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from fedfair.mechanisms.clipping import ClipRule
from fedfair.mechanisms.counting import CountQuery
from fedfair.mechanisms.rule_trial import refuse_broken_query, refuse_broken_rule
from fedfair.plugins.user_files import UserFileError, name_in_file, place_of, sentence_of

_Strategy = Any  # of `strategies.server.strategy`, which imports this module


def rule_of(strategy: _Strategy) -> ClipRule:
    """Return a strategy's clip rule; raise `ValueError`, with file and line, for what is none."""
    rule: ClipRule = strategy.rule()
    if isinstance(rule, type) or not (hasattr(rule, "coefficients") and hasattr(rule, "group_sensitivities")):
        raise ValueError(f"{_of(strategy, strategy.rule)} returns {_described(rule)}: it must return a clip rule, for "
                         "example Flat(self.training.clip_norm)")
    _named(strategy.rule, refuse_broken_rule, rule, len(strategy.population.names))
    return rule


def query_of(strategy: _Strategy) -> CountQuery | None:
    """Return a strategy's count query, if any; raise `ValueError`, with file and line, for what is none."""
    query: CountQuery | None = strategy.query()
    if query is not None and (isinstance(query, type) or not hasattr(query, "counts")):
        raise ValueError(f"{_of(strategy, strategy.query)} returns {_described(query)}: it must return a count query, "
                         "for example GroupSizes(), or None")
    if query is not None:
        _named(strategy.query, refuse_broken_query, query, len(strategy.population.names))
    return query


def refuse_broken_hooks(strategy: _Strategy) -> None:
    """Try a strategy before anything is trained: its rule, its query and, if it is the user's, how it learns.

    It learns from counts that are made up, and nothing of them stays. Raises `ValueError` for an
    attribute of `state` that is not there, and what the methods raise.
    """
    kind = type(strategy)
    missing = [name for name in kind.state if not hasattr(strategy, name)]
    if missing:
        raise ValueError(f"{_of(strategy, strategy.prepare)} does not set {missing[0]!r}, which `state` names: set "
                         f"self.{missing[0]} to its first value")
    rule_of(strategy)
    query = query_of(strategy)
    if query is None or name_in_file(type(strategy)) is None:
        return
    norms = torch.empty(0, dtype=strategy.task.torch_dtype)
    none = query.counts(norms, torch.empty(0, dtype=torch.long), len(strategy.population.names))
    expected = strategy.expected_batch()
    for count in (0.0, -expected, expected):  # noise makes counts of any sign
        _try_learning(strategy, none + count, expected)


def refuse_misshapen_class(kind: type[_Strategy]) -> None:
    """Raise `ValueError`, with file and line, for a class of a person's that is not a method.

    It must define what every method does, and what it defines must take the arguments that the round gives it.
    """
    base: Any = next(parent for parent in kind.__mro__ if parent.__module__ == "strategies.server.strategy")
    for name in sorted(getattr(kind, "__abstractmethods__", ())):
        raise ValueError(f"{place_of(kind)}: it does not define {name}: every method needs "
                         f"def {name}(self), which returns its clip rule")
    if not isinstance(kind.state, tuple):
        raise ValueError(f"{place_of(kind)}: state is {kind.state!r}: give a tuple of names, for example "
                         'state = ("bound",)')
    if not (inspect.isclass(kind.Options) and issubclass(kind.Options, base.Options)):
        raise ValueError(f"{place_of(kind)}: Options is no subclass of strategies.Options: write "
                         "class Options(Strategy.Options)")
    for name, value in inspect.getmembers(base, inspect.isfunction):
        if not name.startswith("_"):
            _refuse_other_arguments(kind, name, value)


def _refuse_other_arguments(kind: type[_Strategy], name: str, of_base: Callable[..., Any]) -> None:
    """Raise `ValueError` if a class defines something in place of a method that cannot be called like it."""
    own = inspect.getattr_static(kind, name)
    if own is of_base:
        return
    arguments = ", ".join(inspect.signature(of_base).parameters)
    if not inspect.isfunction(own):
        raise ValueError(f"{place_of(kind)}: {name} is a {type(own).__name__}: define it as a method, "
                         f"def {name}({arguments})")
    given = [None] * len([part for part in inspect.signature(of_base).parameters.values()
                          if part.default is part.empty])
    try:
        inspect.signature(own).bind(*given)
    except TypeError:
        raise ValueError(f"{place_of(own)}: {name} takes ({', '.join(inspect.signature(own).parameters)}): the round "
                         f"calls it as {name}({arguments})") from None


def _try_learning(strategy: _Strategy, counts: Tensor, expected: float) -> None:
    """Let a strategy learn from counts, and put back what it has changed."""
    before = {name: deepcopy(getattr(strategy, name)) for name in strategy.state}
    try:
        _named(strategy.learn, strategy.take_counts, counts, expected)
        _named(strategy.learn, rule_of, strategy)
        _named(strategy.learn, query_of, strategy)
    finally:
        for name, value in before.items():
            setattr(strategy, name, value)


def _named(method: Callable[..., Any], check: Callable[..., Any], *given: Any) -> None:
    """Check what a method of the user's gave, and name its file and line if that is refused."""
    try:
        check(*given)
    except UserFileError:
        raise
    except ValueError as error:
        raise UserFileError(sentence_of(error) or f"{place_of(method)}: {error}") from error


def _of(strategy: _Strategy, method: Callable[..., Any]) -> str:
    """Return where a method of a strategy is defined, and its name."""
    return f"{place_of(method)}: {method.__name__} of {type(strategy).__name__}"


def _described(value: object) -> str:
    """Describe what was returned in place of a rule or query."""
    if isinstance(value, type):
        return f"the class {value.__name__} itself"
    return "nothing" if value is None else f"a {type(value).__name__}"
