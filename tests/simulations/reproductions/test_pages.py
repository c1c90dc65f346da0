"""The committed pages are what the code makes of the runs that lie beside them, without training anything."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from typer.testing import CliRunner

from simulations.cli import app
from simulations.plans.kept_runs import RUNS
from tests.simulations.watched_runs import forbid_runs

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results"
SHARED = RESULTS / "xu-mnist-runs"
"""The runs that Xu et al.'s MNIST pages, and Bagdasaryan and Shmatikov's, have in common."""

OF_SHARED = ("bagdasaryan2019", "xu2020-table3", "xu2021-figures1-3", "xu2021-table1-mnist", "xu2021-table2-mnist",
             "xu2021-table3")


def pages() -> Iterator[tuple[str, Path]]:
    """Yield every page whose runs are kept, with the folder that has them."""
    yield from ((file.parent.name, file.parent) for file in sorted(RESULTS.glob(f"*/{RUNS}")) if file.parent != SHARED)
    yield from ((page, SHARED) for page in OF_SHARED)


def command_of(page: str) -> list[str]:
    """Return the arguments of the command that a page says made it."""
    (line,) = (line for line in (RESULTS / page / "README.md").read_text().splitlines() if line.startswith("`fedfair "))
    return shlex.split(line.strip("`"))[1:-2]  # without --out DIR


@pytest.mark.parametrize(("page", "kept"), pages())
def test_a_page_is_made_again_from_its_runs(page: str, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                            ) -> None:
    forbid_runs(monkeypatch, "a run is missing")
    out, runs = tmp_path / "out", tmp_path / "runs"
    runs.mkdir()
    shutil.copy(kept / RUNS, runs)
    result = CliRunner().invoke(app, [*command_of(page), "--runs", str(runs), "--out", str(out)],
                                catch_exceptions=False)
    assert result.exit_code == 0, result.output
    for file in (RESULTS / page).iterdir():
        if file.suffix == ".csv":  # a processor's own logarithm decides the last of seventeen digits of an epsilon
            assert_frame_equal(pd.read_csv(out / file.name), pd.read_csv(file), rtol=1e-12, obj=file.name)
        elif file.suffix in (".md", ".toml"):
            assert (out / file.name).read_text() == file.read_text(), file.name
    assert (runs / RUNS).read_bytes() == (kept / RUNS).read_bytes()


@pytest.mark.parametrize(("folder", "number"), [("esipova2023-table1", 12), ("esipova2023-table2", 10),
                                                (SHARED.name, 66)])
def test_no_run_is_lost(folder: str, number: int) -> None:
    assert len(pd.read_parquet(RESULTS / folder / RUNS, columns=["settings"])) >= number
