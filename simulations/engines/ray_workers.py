"""Long-lived Ray actors that answer for Flower nodes, and the cluster that they live in."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, NamedTuple

import ray
import torch
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from simulations.engines.numbered import identify_process


class Shape(NamedTuple):
    """What every worker gets: cores and GPUs (shares are allowed), threads of PyTorch; and how often it is restarted
    for one message.
    """

    cpus: float
    gpus: float
    threads: int
    restarts: int


class Worker:
    """One process that runs the client app in the folder `here`, and with it keeps the records of the nodes that it was
    asked for.
    """

    def __init__(self, client_app: ClientApp, threads: int, here: str) -> None:
        torch.set_num_threads(threads)
        if Path(here).is_dir():
            os.chdir(here)  # where files are named from: a cluster's processes start where it was started
        identify_process()
        self._client_app = client_app
        self._latest: tuple[int, dict[str, ArrayRecord]] = (0, {})

    def answer(self, content: RecordDict, action: str, context: Context, number: int, arrays: dict[str, ArrayRecord]
               ) -> tuple[RecordDict, RecordDict]:
        """The content of the reply to `content` with `arrays` added, and the node's state after it.

        `number` tells one set of arrays from another: where a set comes twice, the handler gets the same tensors.
        """
        if number != self._latest[0]:
            self._latest = number, arrays
        content.update(self._latest[1])
        reply = self._client_app(Message(content, context.node_id, action), context)
        return reply.content, context.state


class _Pool(NamedTuple):
    """The workers of this process, and what they were made for."""

    cluster: str
    client_app: ClientApp
    shape: Shape
    here: str
    workers: list[Any]


_pool: _Pool | None = None
_within_messages = 100 * 2**10  # bytes; Ray's own default


def connect(address: str | None) -> None:
    """Connect to the Ray cluster at `address` ("auto", "HOST:6379", "ray://HOST:10001"), unless this process is in one.

    Without an address, to the one that the environment's RAY_ADDRESS names, or else to a new one on this machine, whose
    messages carry up to 1 MiB themselves: for a model of that size the object store takes longer than a step. Raises
    `ConnectionError` if there is none at the address.
    """
    global _within_messages
    if not ray.is_initialized():
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's own advice; silences a warning
        own = address is None and "RAY_ADDRESS" not in os.environ
        try:
            if own:
                _within_messages = 2**20
                ray.init("local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
                         _system_config={"max_direct_call_object_size": _within_messages})
            else:
                ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, TimeoutError) as error:
            raise ConnectionError(f"no Ray cluster answers at {address or os.environ.get('RAY_ADDRESS')!r}: start one "
                                  f"with `ray start --head`, or leave the address out ({error})") from None


def within_messages() -> int:
    """How many bytes Ray sends within a message to a worker; a larger value goes through the object store."""
    return _within_messages


def room(shape: Shape) -> int:
    """How many workers of this shape the cluster can hold, at least one."""
    return max(1, int(min(total / each for _, each, total in _needs(shape) if each)))


def workers(client_app: ClientApp, wanted: int, shape: Shape) -> list[Any]:
    """Handles of `wanted` workers, those of earlier runs of this process before new ones.

    They are given back by `release`, when this process ends, or when it asks for workers of another shape. Raises
    `ValueError` if the cluster has not enough cores or GPUs for them.
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
    _pool.workers.extend(actor.remote(client_app, shape.threads, _pool.here) for _ in range(missing))
    return _pool.workers[:wanted]


def release() -> None:
    """End the workers that earlier runs of this process left, whose cores others on the cluster wait for."""
    global _pool
    if _pool is not None and ray.is_initialized() and _pool.cluster == _connected():
        for worker in _pool.workers:
            ray.kill(worker)
    _pool = None


def _connected() -> str:
    """The cluster, and this process's connection to it."""
    context = ray.get_runtime_context()
    return f"{context.gcs_address}/{context.get_job_id()}"


def _needs(shape: Shape) -> list[tuple[str, float, float]]:
    """By resource: what each worker takes, and what the cluster has in all."""
    total = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return [("CPU", shape.cpus, total.get("CPU", 0.0)), ("GPU", shape.gpus, total.get("GPU", 0.0))]
