"""The wheel and the sdist carry everything that a user needs, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest
from flwr.cli.build import build_fab_from_disk

ROOT = Path(__file__).resolve().parents[1]
NEEDED = {"fedfair/py.typed", "strategies/py.typed", "simulations/py.typed",
          "fedfair/node/node.py", "strategies/server/strategy.py", "simulations/cli.py",
          "simulations/configs/yang2024.toml", "simulations/configs/published/yang2024-table1.csv",
          "simulations/report/page/page.html.j2", "simulations/report/page/page.css", "simulations/report/page/page.js"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build both with hatchling, and return their folder."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True,
                   capture_output=True)
    return folder


@pytest.mark.slow
def test_the_wheel_holds_the_packages_and_their_files_and_no_tests(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(ZipFile(wheel).namelist())
    assert names >= NEEDED
    assert {name.split("/")[0] for name in names} <= {"fedfair", "strategies", "simulations", "fedfair-0.1.0.dist-info"}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not any("benchmarks" in name for name in names)


@pytest.mark.slow
def test_what_flwr_run_sends_to_every_node_is_the_program() -> None:
    names = ZipFile(BytesIO(build_fab_from_disk(ROOT))).namelist()
    program = {name for name in NEEDED if name.endswith((".py", ".toml"))}
    assert {*names} >= {"pyproject.toml", "LICENSE", "README.md", *program}
    folders = {name.split("/")[0] for name in names if "/" in name}
    assert folders == {"fedfair", "strategies", "simulations", ".info"}
    assert not any(name.startswith("simulations/benchmarks/") for name in names)


@pytest.mark.slow
def test_the_sdist_holds_what_is_needed_to_test_and_document_it(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= NEEDED | {"pyproject.toml", "README.md", "LICENSE", "constraints.txt", "mkdocs.yml",
                              "docs/index.md", "tests/test_readme.py", "CITATION.cff"}


@pytest.mark.slow
def test_what_is_installed_compares_and_reports_far_from_the_repository(built: Path, tmp_path: Path, forked: Path
                                                                        ) -> None:
    """From the wheel, and the sdist gives the same files."""
    wheel, sdist = (installed(built, kind, tmp_path) for kind in ("*.whl", "*.tar.gz"))
    assert contents(wheel) == contents(sdist)
    environment = {**os.environ, "PYTHONPATH": str(wheel)}

    def said(*words: str) -> str:
        """Return what a program says."""
        return subprocess.run([forked / words[0], *words[1:]], cwd=tmp_path, env=environment, check=True,
                              capture_output=True, text=True).stdout

    assert str(wheel) in said("python", "-c", "import simulations.cli; print(simulations.cli.__file__)")
    assert "yang2024" in said("fedfair", "compare", "--help")
    said("fedfair", "compare", "--strategies", "sgd,dpsgd", "--seeds", "1", "--set", "epochs=1", "--out", "out")
    assert "saved" in said("fedfair", "report", "out")
    assert "What each group pays" in (tmp_path / "out" / "report.html").read_text()


def installed(built: Path, kind: str, folder: Path) -> Path:
    """Install what was built, without what it needs, and return where."""
    (file,) = built.glob(kind)
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target",
                    str(folder / kind[2:]), str(file)], check=True)
    return folder / kind[2:]


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of the packages in a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for package in ("fedfair", "strategies", "simulations")
            for path in (folder / package).rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_every_dependency_has_a_wheel_at_its_pinned_version(version: str, tmp_path: Path) -> None:
    chosen = tmp_path / "chosen.txt"
    subprocess.run([sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", "--python-version", version,
                    "--extra", "test", "--constraints", "constraints.txt", "--only-binary", ":all:", "--quiet",
                    "--no-annotate", "--output-file", str(chosen)], cwd=ROOT, check=True)
    pinned = (ROOT / "constraints.txt").read_text().split()
    ours = {line for line in pinned if line.partition("==")[0] in {"flwr", "ray", "torch", "opacus"}}
    assert len(ours) == 4
    assert ours <= set(chosen.read_text().split())
