"""A Ray head that dies in a run: the run stops in seconds and says what is kept, and goes on at another head."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from simulations.benchmarks.kills import FEDFAIR, different
from simulations.engines import ray_workers
from tests.ports import free_ports

WAITS = """
    import threading, time
    from simulations.engines import ray_workers
    ray_workers._PAUSE, ray_workers._LEAVE = 0.05, 10
    ray_workers._is_in = lambda head: {within}
    watching = threading.Thread(target=ray_workers._stop_without, args=("127.0.0.1:{port}",), daemon=True)
    watching.start()
    try:
        watching.join({seconds})
        print("left alone")
    except KeyboardInterrupt:
        print("kept", flush=True)
        time.sleep(600)
"""


def waited(port: int, seconds: float, within: bool = True) -> subprocess.CompletedProcess[str]:
    """Watch a head in a program that waits, and then waits for what never comes."""
    program = textwrap.dedent(WAITS).format(port=port, seconds=seconds, within=within)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_a_head_that_does_not_answer_interrupts_and_nothing_waits_for_it() -> None:
    done = waited(free_ports(1)[0], 600)
    assert (done.returncode, done.stdout) == (130, "kept\n")
    assert "does not answer any more" in done.stderr
    assert "the same command goes on" in done.stderr


def test_a_head_that_answers_and_a_cluster_that_was_left_interrupt_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        assert waited(head.getsockname()[1], 1.5).stdout == "left alone\n"
    assert waited(free_ports(1)[0], 600, within=False).stdout == "left alone\n"


@pytest.mark.parametrize(("inside", "address", "within"), [(True, "a:1", True), (True, "b:1", False),
                                                           (False, "a:1", False)])
def test_a_process_that_joined_another_cluster_left_this_one(inside: bool, address: str, within: bool,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_workers, "ray", SimpleNamespace(
        is_initialized=lambda: inside, get_runtime_context=lambda: SimpleNamespace(gcs_address=address)))
    assert ray_workers._is_in("a:1") == within


@contextmanager
def head(port: int) -> Iterator[psutil.Process]:
    """Start a head, yield its server, and end all that it started."""
    folder = tempfile.mkdtemp(prefix="head")  # short: sockets lie in it
    program = shutil.which("ray", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    subprocess.run([str(program), "start", "--head", "--port", str(port), "--num-cpus", "2",
                    "--include-dashboard=false", "--temp-dir", folder], check=True, capture_output=True)
    started = [process for process in psutil.process_iter() if folder in " ".join(_words(process))]
    try:
        yield next(process for process in started if "gcs_server" in _words(process)[0])
    finally:
        for process in started:
            if process.is_running():
                process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _words(process: psutil.Process) -> list[str]:
    """Return a process's command; [""] if it is gone."""
    try:
        return process.cmdline() or [""]
    except psutil.Error:
        return [""]


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
def test_a_run_stops_in_a_sentence_when_its_head_dies_and_goes_on_at_another(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    command = [*FEDFAIR, "run", "--dataset", "digits", "--strategy", "dpsgd", "--set", "steps=1500", "--set",
               "hidden=[8]", "--set", "eval_every=100.0", "--checkpoint-every", "20"]
    there = [*command, "--engine", "ray", "--engine-set", f"address=127.0.0.1:{port}", "--nodes", "2", "--out",
             str(tmp_path / "there")]
    with head(port) as server, subprocess.Popen(there, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                                text=True) as run:
        while run.poll() is None and not (tmp_path / "there" / "checkpoint.pt").exists():
            time.sleep(0.01)
        server.kill()
        said, _ = run.communicate()
    assert run.returncode == 130, said  # as after Ctrl-C
    assert "does not answer any more" in said
    assert "keeps a checkpoint, from which the same command goes on" in said
    assert "Failed to connect to GCS" not in said  # Ray's own words, after a minute
    with head(port):
        assert "going on after round" in subprocess.run(there, check=True, capture_output=True, text=True).stderr
    subprocess.run([*command, "--nodes", "2", "--out", str(tmp_path / "here")], check=True, capture_output=True)
    assert not [name for name in different(tmp_path / "there", tmp_path / "here") if name != "environment.json"]
