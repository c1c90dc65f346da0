"""The program's version names the revision that it runs from, and none where git knows nothing of it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from simulations.results import environment as module
from simulations.results.environment import program_version

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def asked_anew() -> None:
    program_version.cache_clear()


def of_copy(folder: Path, forked: Path) -> str:
    """Return what a copy of the program in a folder says of itself."""
    done = subprocess.run(
        [forked / "python", "-c", "from simulations.results.environment import program_version as v; print(v())"],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments], check=True,
                   capture_output=True)


def test_the_revision_and_whether_anything_was_changed(tmp_path: Path, forked: Path) -> None:
    for package in ("fedfair", "strategies", "simulations"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    git(tmp_path, "init")
    assert "revision" not in of_copy(tmp_path, forked)  # a repository that does not hold the program
    (tmp_path / ".gitignore").write_text("__pycache__\n")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "-m", "all")
    assert of_copy(tmp_path, forked).count("(revision ") == 1
    assert "with changes" not in of_copy(tmp_path, forked)
    (tmp_path / "fedfair" / "client_app.py").touch()
    (tmp_path / "fedfair" / "new.py").write_text("")
    assert of_copy(tmp_path, forked).endswith(", with changes)")


def test_without_git_there_is_no_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.subprocess, "run", lambda *_, **__: (_ for _ in ()).throw(FileNotFoundError))
    assert "(" not in program_version()
