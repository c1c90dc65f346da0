"""A Ray cluster that does not answer is refused in seconds, with the command that mends it."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulations.engines import ray_workers
from simulations.engines.ray_workers import refuse_dead


@pytest.fixture
def silent() -> Iterator[str]:
    """Return the address of something that takes connections and never says a word."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def nobody() -> str:
    """Return an address where nobody listens."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_a_dead_address_is_refused_by_the_command_in_seconds(nobody: str, forked: Path) -> None:
    """In processes of their own: in this one another test may have a Ray running, which is then used.

    Ray itself would go on trying for ten minutes, in which the guard over all tests would end this one.
    """
    for engine in ("ray", "flower"):
        words = ["run", "--engine", engine, "--nodes", "2", "--set", "steps=1"]
        done = subprocess.run([forked / "fedfair", *words], check=False, capture_output=True, text=True,
                              env={**os.environ, "RAY_ADDRESS": nobody})
        assert done.returncode == 2
        assert f"no Ray cluster answers at '{nobody}'" in done.stderr.replace("\n", " ")
        assert "unset RAY_ADDRESS" in done.stderr.replace("\n", " ")


def test_what_listens_and_is_no_cluster_is_refused(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_workers, "_PATIENCE", 0.5)
    for address in (silent, f"ray://{silent}"):
        with pytest.raises(ConnectionError, match="or leave the address out"):
            refuse_dead(address)


def test_a_cluster_that_died_without_ray_stop_is_named(nobody: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                       ) -> None:
    monkeypatch.setattr(ray_workers, "_PATIENCE", 0.5)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    refuse_dead("auto")
    refuse_dead(None)
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(nobody)
    with pytest.raises(ConnectionError, match="`ray stop --force`"):
        refuse_dead("auto")
    refuse_dead(None)  # starts one of its own
    refuse_dead("local")


def test_what_ray_reads_in_its_own_way_is_left_to_it(nobody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_dead("anyscale://cluster")
    monkeypatch.setenv("RAY_USE_TLS", "1")
    refuse_dead(nobody)
