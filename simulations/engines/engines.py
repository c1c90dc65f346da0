"""Where clients run: in this process, on a Ray cluster, or on Flower's own simulation."""

from __future__ import annotations

import logging
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedfair import client_app
from fedfair.plugins.registry import Registry
from simulations.engines.local import LocalGrid
from simulations.settings.experiment import SettingsError, in_words

T = TypeVar("T")
Count = Annotated[int, Field(ge=1)]
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Engine(BaseModel):
    """A description of where clients run; frozen, and validated when it is made.

    `nodes` is the number of Flower nodes that host the clients. No result depends on it beyond float rounding.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: Count | None = None

    @abstractmethod
    def __call__(self, serve: Callable[[Grid], T]) -> T:
        """What `serve`, the server's part, returns when it is given the grid of a run."""

    def without_repeats(self) -> Engine:
        """The same engine, but no node is asked a question again by itself: with randomness from the operating system
        its answer would be another one, a second release.
        """
        return self


ENGINES: Registry[type[Engine]] = Registry("engine")
"""Engines by name."""


def make_engine(name: str | Engine, nodes: int | None = None, settings: Mapping[str, Any] | None = None) -> Engine:
    """The engine called `name`, or the one that is given; raises `ValueError` for one that there is not, or a setting
    that is not allowed.
    """
    if isinstance(name, Engine):
        return name
    kind = ENGINES[name]
    try:
        return kind(nodes=nodes, **(settings or {}))
    except ValidationError as error:
        raise SettingsError(f"engine {name}: {in_words(error, kind.model_fields)}") from None


@ENGINES.register("local")
class Local(Engine):
    """In this process: no serialisation, thousands of steps a minute. One node unless told otherwise, which computes
    for all clients together.
    """

    def __call__(self, serve: Callable[[Grid], T]) -> T:
        """See `Engine`."""
        with quiet_flower():
            return serve(LocalGrid(client_app.app, self.nodes or 1))


@ENGINES.register("ray")
class Ray(Engine):
    """Ray actors, one for each node; by default as many as the cluster has room for.

    `address` is that of a cluster ("auto": the one on this machine), by default the environment's RAY_ADDRESS, or else
    a cluster of this process alone. Every actor gets `cpus` cores and `gpus` GPUs, shares of one allowed, and `threads`
    threads of PyTorch, by default one for each core. Actors outlive a run: the next in this process finds them, and the
    records that they keep. One that dies, or does not answer within `timeout` seconds, is restarted and asked again, up
    to `restarts` times; the time that a worker takes to start and to load its records counts. Runs with randomness from
    the operating system end instead, and charge the round when they go on.
    """

    address: str | None = None
    cpus: Amount = 1
    gpus: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0
    threads: Count | None = None
    timeout: Amount = 300
    restarts: Annotated[int, Field(ge=0)] = 3

    def without_repeats(self) -> Ray:
        """See `Engine`."""
        return self.model_copy(update={"restarts": 0})

    def __call__(self, serve: Callable[[Grid], T]) -> T:
        """See `Engine`; raises `ConnectionError` if no cluster answers, and `ValueError` if it is too small."""
        from simulations.engines import ray_workers as workers  # here, because importing Ray takes a second
        from simulations.engines.ray import RayGrid

        workers.connect(self.address)
        shape = workers.Shape(self.cpus, self.gpus, self.threads or max(1, int(self.cpus)), self.restarts)
        with quiet_flower():
            return serve(RayGrid(client_app.app, self.nodes or workers.room(shape), shape, self.timeout))


@ENGINES.register("flower")
class Flower(Engine):
    """Flower's own simulation, on Ray, with two nodes unless told otherwise; the program that `flwr run` starts."""

    def __call__(self, serve: Callable[[Grid], T]) -> T:
        """See `Engine`."""
        from flwr.simulation import run_simulation  # here, because it imports a SuperLink, which takes a second

        from simulations.engines import ray_workers as workers

        workers.release()  # Flower waits for free cores, however long that takes
        results: list[T] = []
        server_app = ServerApp()

        @server_app.main()
        def main(grid: Grid, context: Context) -> None:
            """Keep what `serve` returns."""
            results.append(serve(grid))

        with quiet_flower(logging.ERROR), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            run_simulation(server_app, client_app.app, self.nodes or 2, backend_config={
                "client_resources": {"num_cpus": 1}, "init_args": {"log_to_driver": False}})
        return results[0]


@contextmanager
def quiet_flower(least: int = logging.WARNING) -> Iterator[None]:
    """Keep Flower's log to what is as serious as `least` for a while; FEDFAIR_LOG names another level."""
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(os.environ.get("FEDFAIR_LOG", "").upper() or least)
    try:
        yield
    finally:
        logger.setLevel(level)
