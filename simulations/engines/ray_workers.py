"""Long-lived Ray actors that answer for Flower nodes, and the cluster that they live in.

Whether a Ray cluster answers at an address, found out in seconds: Ray itself goes on trying for ten minutes.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path
from threading import Thread, main_thread
from typing import Any, NamedTuple

import grpc
import ray
import torch
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from simulations.engines.numbered import identify_process
from simulations.engines.program import OtherProgram, refuse_other_programs

_log = logging.getLogger(__name__)

_PATIENCE = 5  # seconds
_LEAVE = 40  # seconds in which a command says what it keeps, also on a busy machine: Ray ends it after a minute
_STOPPED = 130  # the exit code of a command that was interrupted, whether it leaves by itself or not
_PAUSE, _MISSED = 2.0, 5  # a head that is asked every two seconds has died when it did not answer five times


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


class Shape(NamedTuple):
    """What every worker gets: cores and GPUs (fractions are allowed), PyTorch threads, and restarts for one message."""

    cpus: float
    gpus: float
    threads: int
    restarts: int


class Worker:
    """Process that runs the client app in `folder`, and keeps the records of the nodes that it serves."""

    def __init__(self, client_app: ClientApp, threads: int, folder: str) -> None:
        torch.set_num_threads(threads)
        if Path(folder).is_dir():
            os.chdir(folder)  # relative paths: a cluster's processes start where the cluster was started
        identify_process()
        self._client_app = client_app
        self._latest: tuple[int, dict[str, ArrayRecord]] = (0, {})

    def answer(self, content: RecordDict, action: str, context: Context, number: int, arrays: dict[str, ArrayRecord]
               ) -> tuple[RecordDict, RecordDict]:
        """Return the reply's content to `content` with `arrays` added, and the node's state after it.

        `number` identifies a set of arrays: if a set comes twice, the handler gets the same tensors.
        """
        if number != self._latest[0]:
            self._latest = number, arrays
        content.update(self._latest[1])
        reply = self._client_app(Message(content, context.node_id, action), context)
        return reply.content, context.state


class _Pool(NamedTuple):
    """Workers of this process, and what they were made for."""

    cluster: str
    client_app: ClientApp
    shape: Shape
    folder: str
    workers: list[Any]


_pool: _Pool | None = None
_within_messages = 100 * 2**10  # bytes; Ray's own default


def connect(address: str | None) -> None:
    """Connect to the Ray cluster at `address` ("auto", "HOST:6379", "ray://HOST:10001"), unless this process is
    connected.

    Without an address, connect to the cluster that the environment's RAY_ADDRESS names, or else start one on this
    machine. Messages of a new cluster carry values of up to 1 MiB themselves: for a model of that size the object store
    takes longer than a step. Raises `ConnectionError` if no cluster answers at the address, or one that was started
    from another environment.
    """
    global _within_messages
    if not ray.is_initialized():
        refuse_dead(address)
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's own advice; silences a warning
        new = address is None and "RAY_ADDRESS" not in os.environ
        try:
            if new:
                _within_messages = 2**20
                ray.init("local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
                         _system_config={"max_direct_call_object_size": _within_messages})
            else:
                ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
                refuse_other_programs()
                if not (address or os.environ.get("RAY_ADDRESS", "")).startswith("ray://"):
                    Thread(target=_stop_without, args=(ray.get_runtime_context().gcs_address,), daemon=True).start()
        except (ConnectionError, RuntimeError, TimeoutError) as error:
            raise _refusal(error, address or os.environ.get("RAY_ADDRESS")) from None


def _stop_without(head: str) -> None:
    """Stop the work of this process, as Ctrl-C does, when the head of its cluster does not answer any more.

    Ray ends the process a minute later, whatever it does, with words of its own. The interrupt lets a command say what
    it keeps; then nothing waits for Ray.

    Args:
        head: HOST:PORT of the head.
    """
    host, _, port = head.rpartition(":")
    missed = 0
    while missed < _MISSED and _is_in(head):
        time.sleep(_PAUSE)
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
            missed = 0
        except OSError:
            missed += 1
    if missed < _MISSED:
        return  # the process left the cluster
    _log.error("the head of the Ray cluster at %s does not answer any more, so that the work stops. What was kept with "
               "--out is on the disk: start a cluster again with `ray start --head`, and the same command goes on from "
               "there", head)
    signal.pthread_kill(main_thread().ident or 0, signal.SIGINT)
    time.sleep(_LEAVE)
    os._exit(_STOPPED)  # Ray would wait for its head


def _is_in(head: str) -> bool:
    """Return whether this process is in the cluster of a head: it may have left it, and joined another one."""
    return ray.is_initialized() and ray.get_runtime_context().gcs_address == head


def _refusal(error: Exception, address: str | None) -> ConnectionError:
    """Return why a cluster cannot be used."""
    ray.shutdown()
    words = " ".join(str(error).split())
    if "Version mismatch" in words:  # Ray's own, which name both versions of Ray and Python
        return ConnectionError(f"the Ray cluster at {address!r} was started from another environment: stop it "
                               f"with `ray stop`, and start it from this one ({sys.prefix}) with `ray start --head` "
                               f"({words})")
    if isinstance(error, OtherProgram):
        return error
    return ConnectionError(f"no Ray cluster answers at {address!r}: start one with `ray start --head`, or leave the "
                           f"address out ({words})")


def within_messages() -> int:
    """Return how many bytes Ray sends within a message to a worker; a larger value goes through the object store."""
    return _within_messages


def room(shape: Shape) -> int:
    """Return how many workers of this shape the cluster can hold, at least one."""
    return max(1, int(min(total / each for _, each, total in _needs(shape) if each)))


def workers(client_app: ClientApp, wanted: int, shape: Shape) -> list[Any]:
    """Return handles of `wanted` workers; those of earlier runs of this process are reused before new ones are made.

    They end with `release`, with this process, or when it asks for workers of another shape. Raises `ValueError` if the
    cluster has too few cores or GPUs for them.
    """
    global _pool
    for resource, each, total in _needs(shape):
        if wanted * each > total:
            raise ValueError(f"{wanted} workers with {each:g} {resource} each do not fit into a Ray cluster that has "
                             f"{total:g}: take fewer nodes, or a smaller share for each")
    made_for = _connected(), client_app, shape, os.getcwd()
    if _pool is None or _pool[:-1] != made_for:
        release()
        _pool = _Pool(*made_for, [])
    actor = ray.remote(num_cpus=shape.cpus, num_gpus=shape.gpus, max_restarts=-1,
                       max_task_retries=shape.restarts)(Worker)
    missing = wanted - len(_pool.workers)
    _pool.workers.extend(actor.remote(client_app, shape.threads, _pool.folder) for _ in range(missing))
    return _pool.workers[:wanted]


def release() -> None:
    """End the workers that earlier runs of this process left, so that others on the cluster get their cores."""
    global _pool
    if _pool is not None and ray.is_initialized() and _pool.cluster == _connected():
        for worker in _pool.workers:
            ray.kill(worker)
    _pool = None


def _connected() -> str:
    """Identify the cluster and this process's connection to it."""
    context = ray.get_runtime_context()
    return f"{context.gcs_address}/{context.get_job_id()}"


def _needs(shape: Shape) -> list[tuple[str, float, float]]:
    """Return, by resource, what each worker takes and what the cluster has in all."""
    total = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return [("CPU", shape.cpus, total.get("CPU", 0.0)), ("GPU", shape.gpus, total.get("GPU", 0.0))]
