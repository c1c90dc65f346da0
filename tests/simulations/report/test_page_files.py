"""The files of pages, which Flower does not send along with an app."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from simulations.report.page import page_folder

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide the package of fits as an app has it: its Python files alone."""
    folder = tmp_path / "simulations" / "fitting"
    folder.mkdir(parents=True)
    for path in (ROOT / "simulations" / "fitting").glob("*.py"):
        shutil.copy(path, folder)
    monkeypatch.setattr(sys.modules[page_folder.__module__], "_ROOT", tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path), str(ROOT)])
    return folder


def test_a_checkout_has_its_own() -> None:
    assert page_folder("simulations.fitting") == ROOT / "simulations" / "fitting" / "page"


def test_an_app_takes_those_of_the_same_program(app: Path) -> None:
    assert page_folder("simulations.fitting") == ROOT / "simulations" / "fitting" / "page"


def test_those_of_another_program_are_not_taken(app: Path) -> None:
    (app / "page.py").write_text("# another version\n")
    with pytest.raises(FileNotFoundError, match="install the same version of fedfair here as in the app"):
        page_folder("simulations.fitting")
