"""The examples of the reference: all that the page shows has one, and each runs and prints what it says."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, DocTestParser, DocTestRunner
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from pydantic import BaseModel

from tests.test_reference import PAGE, entries, resolved

SECTIONS = dict(section.split("\n", 1) for section in PAGE.split("\n## ")[1:])
"""The page by titles."""

LIBRARIES = ("MLflow", "TensorBoard", "WeightsAndBiases", "metric_frame", "tracking")
"""What needs a library that an installation for the fast tests has not: it runs with the slow ones."""


class Shown(NamedTuple):
    """What a page shows: its name, and what holds it, a class or a module."""

    name: str
    value: Any
    holder: Any


def shown(page: str) -> Iterator[Shown]:
    """Yield the functions, classes and methods that a page shows, those of settings too."""
    for name, value in entries(page):
        yield Shown(name, value, resolved(name.rpartition(".")[0]))
        if inspect.isclass(value) and issubclass(value, BaseModel):
            methods = [member for key, member in vars(value).items() if inspect.isfunction(member) and key[0] != "_"]
            yield from (Shown(f"{name}.{method.__name__}", method, value) for method in methods
                        if method.__module__ == value.__module__)


def face() -> str:
    """Return a page of what the three packages offer by name, but for what the reference shows."""
    known = [value for _, value in entries()]
    names = [f"{package}.{name}" for package in ("fedfair", "simulations", "strategies")
             for name in import_module(package).__all__]
    offered = [(name, resolved(name)) for name in names]
    return "\n".join(f"::: {name}" for name, value in offered if isinstance(value, type) or inspect.isfunction(value)
                     if value not in known)


def page(title: str) -> str:
    """Return a section of the reference, or the face of the packages."""
    return face() if title == "Face" else SECTIONS[title]


def prompts(value: Any) -> list[str]:
    """Return the lines after the prompts of a docstring."""
    return [example.source for example in DocTestParser().get_examples(inspect.getdoc(value) or "")]


def has_example(name: str, value: Any, holder: Any) -> bool:
    """Return whether something has an example, or the class or module that holds it has one that calls it."""
    call = re.compile(rf"{r'[.]' if inspect.isclass(holder) else r'(?<![.])'}\b{name.rpartition('.')[2]}\(")
    return bool(prompts(value)) or any(map(call.search, prompts(holder)))


def is_called(name: str, value: Any, holder: Any) -> bool:
    """Return whether a user calls something: not a hook, which a method overrides, nor what Flower or a base names."""
    doc = inspect.getdoc(value) or ""
    hook = getattr(value, "__isabstractmethod__", False) or "Override it for" in doc
    flowers = inspect.isclass(holder) and issubclass(holder, FlowerStrategy) and hasattr(FlowerStrategy, value.__name__)
    return not (hook or flowers or doc.startswith("See `"))


def failures(values: Iterable[Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the examples of each value, in a folder and with the names of its module; return what went wrong."""
    said: list[str] = []
    for number, value in enumerate(values):
        module = value if isinstance(value, ModuleType) else sys.modules[value.__module__]
        (folder / str(number)).mkdir()
        monkeypatch.chdir(folder / str(number))
        test = DocTestParser().get_doctest(inspect.getdoc(value) or "", dict(vars(module)), value.__name__,
                                           module.__file__, 0)
        DocTestRunner(optionflags=ELLIPSIS | NORMALIZE_WHITESPACE).run(test, out=said.append)
    return "".join(said)


def with_examples(title: str) -> list[Any]:
    """Return what a section shows and what holds it, each once, if it has examples."""
    values = {id(value): value for each in shown(page(title)) for value in (each.holder, each.value)}
    return [value for value in values.values() if prompts(value)]


def test_all_that_the_reference_and_the_packages_show_has_an_example() -> None:
    every = [*shown(PAGE), *shown(face())]
    assert len(every) > 200
    missing = [each.name for each in every if is_called(*each) and not has_example(*each)]
    assert not missing, missing


@pytest.mark.parametrize("title", [*SECTIONS, "Face"])
def test_examples_print_what_they_say(title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = [value for value in with_examples(title) if value.__name__ not in LIBRARIES]
    assert run
    assert failures(run, tmp_path, monkeypatch) == ""


@pytest.mark.slow
def test_examples_with_optional_libraries_print_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = [value for title in SECTIONS for value in with_examples(title) if value.__name__ in LIBRARIES]
    assert len(run) == len(LIBRARIES)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    assert failures(run, tmp_path, monkeypatch) == ""


def test_a_wrong_example_and_a_missing_one_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def double(number: int) -> int:
        return 2 * number

    assert not has_example("module.double", double, sys.modules[__name__])
    double.__doc__ = "Double it.\n\nExamples:\n    >>> 2 * 2\n    5"
    assert has_example("module.double", double, sys.modules[__name__])
    assert re.search(r"Expected:\s+5\s+Got:\s+4", failures([double], tmp_path, monkeypatch))
