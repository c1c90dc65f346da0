"""Imports go one way, and nowhere in a circle: the tests read every import of the program."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import fedfair
from fedfair import accounting
from tests.for_each import for_each

ROOT = Path(__file__).resolve().parents[1]

LAYERS = (
    ("simulations",),
    ("strategies",),
    ("fedfair.client_app",),
    ("fedfair.auditing", "fedfair.risk"),
    ("fedfair.node",),
    ("fedfair.moments",),
    ("fedfair.protocol",),
    ("fedfair.datasets", "fedfair.models", "fedfair.fairness"),
    ("fedfair.accounting", "fedfair.mechanisms"),
    ("fedfair.gradients", "fedfair.secure_sums"),
    ("fedfair",),
    ("fedfair.plugins",),
)
"""Packages from the top down: each may import those below it, and itself. `fedfair` is its face, `__init__.py`."""

BESIDE = {("fedfair.accounting", "fedfair.mechanisms")}
"""Which package of a layer may import another of the same layer."""

OF_LEDGER = re.compile(r"(?<!\w)ledger\.\w+")
"""An attribute of something that is called a ledger."""

CHANGES = ("append", "clear", "extend", "pop", "setdefault", "update")
"""Methods by which a list or a dictionary is changed."""

Imports = Mapping[str, set[str]]


def module_name(path: Path) -> str:
    """Return the dotted name of a file of the program."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(source: str, modules: set[str]) -> Iterator[str]:
    """Yield the modules of the program that a source imports, also within functions and for types alone."""
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            within = [f"{node.module}.{name}" for name in names]
            names = [name if name in modules else str(node.module) for name in within]
        yield from (name for name in names if name in modules)


@cache
def program() -> Imports:
    """Return what each module of the program imports of the program."""
    paths = [path for package in ("fedfair", "strategies", "simulations") for path in (ROOT / package).rglob("*.py")]
    modules = {module_name(path) for path in paths}
    return {module_name(path): set(imported(path.read_text(), modules)) for path in paths}


def layer(module: str) -> tuple[int, str]:
    """Return the layer of a module, 0 at the top, and its package there: the longest of those that it lies in."""
    holding = [(len(package), depth, package) for depth, packages in enumerate(LAYERS) for package in packages
               if module == package or module.startswith(f"{package}.")]
    return max(holding)[1:]


def against_the_arrows(imports: Imports) -> list[str]:
    """Return the imports that go up, or to the side, "a -> b"."""
    wrong = []
    for module, others in imports.items():
        depth, package = layer(module)
        for other in others:
            other_depth, other_package = layer(other)
            aside = other_depth == depth and other_package != package and (package, other_package) not in BESIDE
            if other_depth < depth or aside:
                wrong.append(f"{module} -> {other}")
    return sorted(wrong)


def circle(imports: Imports) -> list[str]:
    """Return modules that import each other in a circle, or none."""
    try:
        TopologicalSorter({module: others - {module} for module, others in imports.items()}).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def assigned_to_ledgers(source: str) -> list[str]:
    """Return what a source assigns to a ledger's attributes, deletes there, or changes within them."""
    changed = []
    for node in ast.walk(ast.parse(source)):
        stored = isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load)
        within = isinstance(node, ast.Attribute) and node.attr in CHANGES
        text = ast.unparse(node) if stored or within else ""
        if (stored and OF_LEDGER.search(text)) or (within and re.search(rf"{OF_LEDGER.pattern}\.", text)):
            changed.append(text)
    return changed


def test_a_ledger_is_changed_by_its_methods_alone() -> None:
    for package in ("strategies", "simulations"):
        for path in (ROOT / package).rglob("*.py"):
            assert assigned_to_ledgers(path.read_text()) == [], path


@for_each("source", [
    "strategy.ledger.log = log", "ledger.size += 1", "del ledger.unprotected[name]", "ledger.held_out[part] = release",
    "self.ledger.unprotected.pop(name)", "ledgers['a'].ledger.files.update({})"])
def test_a_change_of_a_ledger_from_outside_is_found(source: str) -> None:
    assert len(assigned_to_ledgers(source)) == 1


def test_no_import_goes_against_the_arrows() -> None:
    assert len(program()) > 200
    assert against_the_arrows(program()) == []


def test_no_imports_form_a_circle() -> None:
    """The face `fedfair.accounting` is lazy: what it names is imported when it is asked for."""
    assert circle({**program(), "fedfair.accounting": set()}) == []


def test_the_faces_say_to_type_checkers_what_they_offer() -> None:
    """Every name that is imported when it is asked for comes from the module that types say, and from where it is."""
    stub = ast.parse((ROOT / "fedfair/__init__.pyi").read_text())
    typed = {alias.name: node.module for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert sorted(typed) == sorted(fedfair.__all__)
    for face, names in ((fedfair, fedfair.__all__), (accounting, accounting.__all__)):
        for name in names:
            assert getattr(face, name) is not None
    for name, module in typed.items():
        assert getattr(fedfair, name) is getattr(import_module(str(module)), name)


@for_each(("module", "source"), [
    ("fedfair.gradients.probe", "from fedfair.node.node import Node"),
    ("fedfair.mechanisms.noise", "def f():\n    from fedfair.accounting import Ledger"),
    ("fedfair.datasets.table", "import fedfair.fairness.metrics"),
    ("fedfair", "from strategies.server.existing_app import PrivateTraining"),
    ("fedfair", "if TYPE_CHECKING:\n    from fedfair.accounting.ledger import Ledger"),
    ("strategies.dpsgd", "from simulations.engines import run"),
])
def test_an_import_against_the_arrows_is_found(module: str, source: str) -> None:
    imports = {**program(), module: {*program()[module], *imported(source, set(program()))}}
    assert len(against_the_arrows(imports)) == 1


def test_a_circle_is_found() -> None:
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}
