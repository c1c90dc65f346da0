"""A SuperLink that another environment started is noticed and named, with the command that ends it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import psutil
import pytest

from simulations.engines.superlink import PORT, Started, flwr_run, mend, stale, this_process
from simulations.server_app import PYPROJECT, unmet
from tests.for_each import for_each
from tests.ports import free_ports
from tests.simulations.engines.other_environment import other_environment
from tests.simulations.engines.runtime import ONE_AT_A_TIME

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = [sys.executable, "-c", "from simulations.cli import app; app()"]


def test_this_process_is_not_stale_for_itself() -> None:
    here = this_process()
    assert here is not None
    assert here.process == os.getpid()
    assert here.environment.resolve() == Path(sys.prefix).resolve()
    assert here.folder == Path.cwd()
    assert stale(here, here) == []
    assert f"`kill {os.getpid()}`" in mend(here)


def test_a_run_is_compared_with_those_that_meet_its_superlink_alone(tmp_path: Path) -> None:
    """Another person's, or another test's, may begin later and meet another SuperLink."""
    program = tmp_path / "flwr"
    program.write_text("print(flush=True)\ninput()")
    begun = []
    for port in (PORT, PORT + 1):
        begun.append(subprocess.Popen([sys.executable, str(program), "run"], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE,
                                      env={**os.environ, "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(port)}))
        assert begun[-1].stdout is not None
        begun[-1].stdout.readline()  # the next begins later
    found = flwr_run()
    for each in begun:
        each.communicate(b"\n")
    assert found is not None
    assert found.process == begun[0].pid


def test_runs_that_are_active_are_counted_and_only_python_runs_a_program(tmp_path: Path) -> None:
    for name in ("flwr-simulation", "flwr"):
        (tmp_path / name).write_text("input()")
    here = this_process()
    assert here is not None
    others = [subprocess.Popen([program, *options], stdin=subprocess.PIPE) for program, options in (
        (sys.executable, [str(tmp_path / "flwr-simulation")]), ("tail", ["-f", str(tmp_path / "flwr"), "run"]))]
    try:
        assert "the run that is active in it would end too" in mend(here)
        found = flwr_run()
        assert found is None or found.process != others[1].pid
    finally:
        for each in others:
            each.kill()
            each.communicate()
    assert f"`kill {os.getpid()}` (no run is active in it)" in mend(here)


@for_each(("changed", "said"), [
    ({"user": "alice"}, "belongs to alice"),
    ({"environment": Path("/nowhere/venv")}, "/nowhere/venv is gone"),
    ({"environment": Path("/usr")}, "another environment than"),
    ({"folder": None}, "the folder in which it was started is gone"),
    ({"settings": {"RAY_ADDRESS": "old:6379"}}, "it has RAY_ADDRESS=old:6379"),
    ({"settings": {}}, "it does not have FEDFAIR_DATA_DIR=/data"),
    ({"settings": {"FEDFAIR_DATA_DIR": "/old"}}, "it does not have FEDFAIR_DATA_DIR=/data, but /old"),
])
def test_whatever_differs_is_said(changed: dict[str, object], said: str, tmp_path: Path) -> None:
    asking = Started(1, "bob", 0.0, tmp_path, tmp_path, {"FEDFAIR_DATA_DIR": "/data"})
    assert any(said in part for part in stale(asking._replace(**changed), asking))
    assert stale(asking._replace(process=2, when=1.0), asking) == []


def test_what_an_environment_lacks_is_said_with_what_it_has(tmp_path: Path) -> None:
    assert unmet(PYPROJECT) == []
    other = tmp_path / "pyproject.toml"
    assert unmet(other) == []
    other.write_text('[project]\nrequires-python = ">=4"\ndependencies = ["torch>=99", "no-such-package-here[x]", '
                     '"numpy", "no-such-marker; python_version < \'3\'"]\n')
    python, torch, none = unmet(other)
    assert re.fullmatch(r"Python>=4 \(has 3\.\d+\.\d+\)", python)
    assert torch.startswith("torch>=99 (has ")
    assert none == "no-such-package-here (has none)"


def test_a_package_is_found_while_another_thread_changes_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path
                                                                  ) -> None:
    """Flower takes the app's folder out of the path of its process, beside the thread that looks for packages."""
    (tmp_path / "none").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "app"), str(tmp_path / "none"), sysconfig.get_paths()["purelib"]])
    listed = os.listdir

    def listing(folder: str) -> list[str]:
        """Return a folder's names, after the app's left the path."""
        if folder == str(tmp_path / "none"):
            sys.path.remove(str(tmp_path / "app"))
        return listed(folder)

    monkeypatch.setattr(os, "listdir", listing)
    assert unmet(PYPROJECT) == []
    assert str(tmp_path / "app") not in sys.path


def asked(environment: dict[str, str]) -> tuple[int, str]:
    """Return what `fedfair superlink` says, and its exit code."""
    done = subprocess.run([*PROGRAM, "superlink"], capture_output=True, text=True, check=False,
                          env={**environment, "PYTHONPATH": str(ROOT), "COLUMNS": "1000"})
    return done.returncode, done.stdout + done.stderr


def test_no_superlink_and_a_port_that_something_else_has() -> None:
    (port,) = free_ports(1)
    environment = {**os.environ, "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(port)}
    assert asked(environment) == (0, "no SuperLink of `flwr run` is running: the next one starts it, in its "
                                     "environment and folder\n")
    with ThreadingHTTPServer(("127.0.0.1", port), BaseHTTPRequestHandler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        code, said = asked(environment)
        server.shutdown()
    assert code == 2
    assert f"port {port} that is not a SuperLink" in said


@ONE_AT_A_TIME
@pytest.mark.slow
def test_a_run_in_a_superlink_of_another_environment_says_so_and_how_to_end_it(flower: dict[str, str], tmp_path: Path
                                                                               ) -> None:
    """Two commands, as people give them: in another environment, and in this one."""
    other_environment(tmp_path / "old")
    (tmp_path / "elsewhere").mkdir()
    begun = {**flower, "PATH": f"{tmp_path / 'old' / 'bin'}:{flower['PATH']}", "FEDFAIR_DATA_DIR": str(tmp_path)}

    def run(environment: dict[str, str], folder: Path) -> str:
        """Return what `flwr run` prints there."""
        done = subprocess.run(["flwr", "run", str(ROOT), "--stream", "--run-config", 'sync="step" steps=1 clients=2'],
                              env=environment, cwd=folder, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    first = run(begun, tmp_path / "elsewhere")
    assert "Results are in" in first, first[-3000:]
    assert f"from {tmp_path / 'old'} in {tmp_path / 'elsewhere'}" in first
    assert "stale" not in first
    code, said = asked(begun)
    assert code == 2  # asked from this environment
    (number,) = re.findall(r"meets process (\d+)", said)
    assert "flower-superlink" in " ".join(psutil.Process(int(number)).cmdline())
    assert f"another environment than {sys.prefix}; To mend" not in said
    assert f"another environment than {sys.prefix}. To mend it, end it with `kill {number}`" in said

    second = run(flower, tmp_path)
    assert "That SuperLink is stale: it was started from another environment than" in second, second[-3000:]
    assert f"it has FEDFAIR_DATA_DIR={tmp_path}" in second or "it does not have FEDFAIR_DATA_DIR" in second
    assert f"end it with `kill {number}`" in second

    shutil.rmtree(tmp_path / "old")
    assert f"its environment {tmp_path / 'old'} is gone, so that no run begins" in asked(flower)[1]
    os.kill(int(number), 15)
    psutil.Process(int(number)).wait()
    assert asked(flower)[0] == 0
