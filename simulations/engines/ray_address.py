"""Whether a Ray cluster answers at an address, found out in seconds: Ray itself goes on trying for ten minutes."""

from __future__ import annotations

import os
from pathlib import Path

import grpc

_PATIENCE = 5  # seconds


def refuse_dead(address: str | None) -> None:
    """Raise `ConnectionError` if no cluster answers where Ray would look for one.

    Args:
        address: Address that Ray is given: "HOST:6379", "ray://HOST:10001", "auto" for the cluster that was last
            started on this machine, or None for the environment's RAY_ADDRESS, or else a new cluster.
    """
    named = os.environ.get("RAY_ADDRESS") or address if address in (None, "auto") else address
    if named == "auto":
        _refuse_stale()
    elif named and named != "local" and not _answers(named):
        unset = ", or `unset RAY_ADDRESS`" if named != address else ", or leave the address out"
        raise ConnectionError(f"no Ray cluster answers at {named!r}, within {_PATIENCE} s: start one with "
                              f"`ray start --head`{unset}")


def _refuse_stale() -> None:
    """Raise `ConnectionError` if the cluster that was last started on this machine has died without a `ray stop`."""
    file = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")  # noqa: S108 - Ray's own choice
    noted = file.read_text(encoding="utf-8").strip() if file.is_file() else ""
    if noted and not _answers(noted):
        raise ConnectionError(f"no Ray cluster answers at {noted!r}, which {file} names: one that was started there "
                              "has died. Clear what it left with `ray stop --force`, and start another with `ray start "
                              "--head`")


def _answers(address: str) -> bool:
    """Return whether a server of Ray's kind answers at HOST:PORT; True for an address that Ray reads in its own way."""
    place = address.removeprefix("ray://")
    if not place.rpartition(":")[2].isdigit() or "/" in place or os.environ.get("RAY_USE_TLS") == "1":
        return True
    with grpc.insecure_channel(place) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=_PATIENCE)
        except grpc.FutureTimeoutError:
            return False
    return True
