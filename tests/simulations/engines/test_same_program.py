"""A Ray cluster that was started from another environment is refused, with the commands that mend it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from simulations.engines import program
from simulations.engines.ray_workers import refuse_dead
from tests.guard import wait_until
from tests.ports import free_ports
from tests.simulations.engines.other_environment import other_environment

ROOT = Path(__file__).resolve().parents[3]


def test_a_program_is_told_by_its_source_and_its_libraries(tmp_path: Path) -> None:
    here = program.program()
    assert here["environment"] == sys.prefix
    assert re.fullmatch("[0-9a-f]{8}", here["fedfair"])
    assert "+" not in here["torch"]
    copy_packages(tmp_path)
    told = [sys.executable, "-c", f"{Path(program.__file__).read_text()}\nprint(program()['fedfair'])"]

    def source() -> str:
        """Return how the copy is told, in a process of its own."""
        return subprocess.run(told, env={**os.environ, "PYTHONPATH": str(tmp_path)}, check=True, cwd=tmp_path,
                              capture_output=True, text=True).stdout.strip()

    assert source() == here["fedfair"]
    shutil.rmtree(tmp_path / "simulations" / "benchmarks", ignore_errors=True)  # as `pip install` leaves them out
    assert source() == here["fedfair"]
    with (tmp_path / "strategies" / "sgd.py").open("a") as file:
        file.write("# another\n")
    assert source() != here["fedfair"]


def copy_packages(to: Path) -> None:
    """Copy fedfair's packages."""
    for package in ("fedfair", "strategies", "simulations"):
        shutil.copytree(ROOT / package, to / package, ignore=shutil.ignore_patterns("__pycache__"))


@pytest.fixture
def another(tmp_path: Path) -> Iterator[str]:
    """Start a cluster from another environment, which has an older fedfair; return its address."""
    packages = other_environment(tmp_path / "old")
    copy_packages(packages)
    (packages / "simulations" / "engines" / "program.py").unlink()
    (port,) = free_ports(1)
    short = tempfile.mkdtemp(prefix="ray")
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "RAY_ADDRESS")}
    command = [tmp_path / "old" / "bin" / "python", "-m", "ray.scripts.scripts", "start", "--head", "--block", "--port",
               str(port), "--num-cpus", "1", "--include-dashboard", "false", "--temp-dir", short]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          cwd=tmp_path) as head:
        wait_until(lambda: is_cluster(f"127.0.0.1:{port}"), head)
        started = psutil.Process(head.pid).children(recursive=True)
        yield f"127.0.0.1:{port}"
        for process in (head, *started):
            with suppress(psutil.NoSuchProcess):  # which its head has ended before
                process.terminate()
        psutil.wait_procs(started, 30)
    shutil.rmtree(short, ignore_errors=True)


def is_cluster(address: str) -> bool:
    """Return whether a Ray cluster answers at an address."""
    try:
        refuse_dead(address)
    except ConnectionError:
        return False
    return True


@pytest.mark.slow
def test_a_cluster_of_another_environment_is_refused_however_it_is_named(another: str, tmp_path: Path, forked: Path
                                                                         ) -> None:
    command = [forked / "fedfair", "run", "--engine", "ray", "--nodes", "1", "--strategy", "dpsgd", "--set", "steps=2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for words, variables in ((["--engine-set", f"address={another}"], {}), ([], {"RAY_ADDRESS": another})):
        done = subprocess.run([*command, *words], env={**environment, **variables}, capture_output=True, text=True,
                              check=False, cwd=tmp_path)
        said = " ".join(done.stderr.split())
        assert done.returncode == 2, done.stdout + done.stderr
        assert f"started from another environment, or before an update: {tmp_path / 'old'} on " in said
        assert said.count("fedfair with source") == 2
        assert "`ray stop`" in said
