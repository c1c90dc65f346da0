"""Fixtures that all tests share: the real data files, and one thread, so that tests do not compete for two cores."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.chance import chance_of
from tests.forked_programs import forked_programs
from tests.guard import Guard, adopt_orphans

gc.disable()  # until all is imported, which stays: to look through it again and again is a quarter of collecting

SHARED = Path(__file__).resolve().parents[2] / "shared"

# Neither a busy machine nor chance is an error: every run tries the same examples, however long it takes to draw them.
# To look for others: pytest --hypothesis-profile=others
hypothesis.settings.register_profile("fedfair", deadline=None, max_examples=40, derandomize=True,
                                     suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("others", hypothesis.settings.get_profile("fedfair"), derandomize=False)
hypothesis.settings.load_profile("fedfair")

DATA = os.environ.get("FEDFAIR_DATA_DIR") or (str(SHARED / "data") if (SHARED / "data").is_dir() else None)
"""Folder of real data files: the shared one, unless another is set."""


GUARD = pytest.StashKey[Guard]()


def pytest_configure(config: pytest.Config) -> None:
    """Start the guard over all tests of this process."""
    capture = config.pluginmanager.getplugin("capturemanager")
    config.stash[GUARD] = Guard(lambda: capture.suspend_global_capture(in_=True) if capture else None)
    adopt_orphans()
    config.stash[GUARD].start()


def pytest_collection_finish() -> None:
    """Collect garbage from now on, but look no more through what was imported."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Guard a test, and the fixtures that it is the first to need."""
    with item.config.stash[GUARD].over(item.nodeid), chance_of(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    """Let a fixture that tests share be the same whichever of them needs it first."""
    if fixturedef.scope == "function":
        return (yield)
    with chance_of(f"{fixturedef.baseid}::{fixturedef.argname}"):
        return (yield)


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
def own_ray() -> Iterator[None]:
    """Let no Ray of this process or its programs find that of another one, or give way to other tests.

    With a lower priority, as Ray gives it to its workers, they would miss its timeouts.
    """
    folder = tempfile.mkdtemp(prefix="ray")  # short, for the names of its sockets
    os.environ.pop("RAY_ADDRESS", None)
    os.environ.update(RAY_worker_niceness="0", RAY_TMPDIR=folder)
    yield
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def forked() -> Iterator[Path]:
    """Return a folder of programs that begin at once, to put first on the `PATH`."""
    with forked_programs() as binaries:
        yield binaries


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
    import torch

    torch.set_num_threads(1 if "PYTEST_XDIST_WORKER" in os.environ else 2)
