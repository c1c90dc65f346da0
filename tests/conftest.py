"""Fixtures that all tests share: the real data files, and one thread, so that tests do not compete for two cores."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest
import torch

SHARED = Path(__file__).resolve().parents[2] / "shared"

hypothesis.settings.register_profile("fedfair", deadline=None)  # a busy machine is no error
hypothesis.settings.load_profile("fedfair")

DATA = os.environ.get("FEDFAIR_DATA_DIR") or (str(SHARED / "data") if (SHARED / "data").is_dir() else None)
"""Folder of real data files: the shared one, unless another is set."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Show the data to tests that ask for `data_dir` alone: others must pass where there are none, and would fail here.

    The slow tests are promised nobody without data.
    """
    if DATA and ("data_dir" in getattr(item, "fixturenames", ()) or item.get_closest_marker("slow")):
        os.environ["FEDFAIR_DATA_DIR"] = DATA
    else:
        os.environ.pop("FEDFAIR_DATA_DIR", None)


@pytest.fixture(scope="session", autouse=True)
def key_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the key that seals private files away from that of the user."""
    os.environ["FEDFAIR_STATE_DIR"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session", autouse=True)
def equal_workers() -> None:
    """Keep Ray from lowering its workers' priority: beside other tests they would starve, and miss their timeouts."""
    os.environ.update(RAY_worker_niceness="0")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the folder of real data files; skip the test where there is none."""
    if not DATA:
        pytest.skip("no data files: set FEDFAIR_DATA_DIR to a folder that holds them")
    return Path(DATA)


@pytest.fixture
def keyed_by_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the seed alone be the noise key, so that runs with different settings can be compared on one noise."""
    monkeypatch.setattr("strategies.server.strategy.noise_key", lambda method, sync, options, task, training: (
        None if training.randomness == "system" else str(task.seed)))


@pytest.fixture(autouse=True)
def two_threads() -> None:
    """Use the machine's two cores, or one where another pytest process has the other."""
    torch.set_num_threads(1 if "PYTEST_XDIST_WORKER" in os.environ else 2)
