"""Every place where noise is added is marked, so that an audit by replay hears of every release."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DRAWING = {"normal", "discrete_gaussian", "add_gaussian", "add_discrete_gaussian"}
"""Functions that draw noise, or add it."""
WITHIN = {"add_gaussian", "add_discrete_gaussian"}
"""Those of them that draw it for one that is marked."""
HYPOTHETICAL = {"_with_fresh_noise"}
"""Those that draw what was not released, to say what noise does: they see what was released before alone."""


def drawing(source: str) -> Iterator[tuple[str, bool]]:
    """Yield each function that uses one of these, by its name, and whether it is marked as a release."""
    for part in ast.walk(ast.parse(source)):
        if isinstance(part, ast.FunctionDef):
            used = {node.id for node in ast.walk(part) if isinstance(node, ast.Name)}
            used |= {node.attr for node in ast.walk(part) if isinstance(node, ast.Attribute) and node.attr != "normal"}
            if used & DRAWING and part.name not in WITHIN | HYPOTHETICAL:
                yield part.name, any(isinstance(mark, ast.Name) and mark.id == "releases"
                                     for mark in part.decorator_list)


def test_noise_is_drawn_only_within_marked_functions() -> None:
    """Benchmarks measure how long draws take, and release nothing."""
    found = [use for package in ("fedfair", "strategies", "simulations") for file in (ROOT / package).rglob("*.py")
             if "benchmarks" not in file.parts for use in drawing(file.read_text())]
    assert dict(found) == {"add_noise": True, "noisy_steps": True}


def test_a_draw_without_a_mark_is_found() -> None:
    plain = "def noisy(x, source):\n    return x + normal(source, 1, x.dtype)\n"
    assert list(drawing(plain)) == [("noisy", False)]
    assert list(drawing("@releases\n" + plain)) == [("noisy", True)]
