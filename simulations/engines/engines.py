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
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedfair import client_app
from fedfair.protocol.fields import MOST_NODES, held
from simulations.engines.local import LocalGrid, quiet_flower
from simulations.settings.experiment import SettingsError, in_words
from simulations.settings.names import ENGINES

__all__ = ["ENGINES", "Connected", "Engine", "Flower", "Local", "Ray", "make_engine"]

T = TypeVar("T")
Count = Annotated[int, Field(ge=1, le=MOST_NODES)]
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Engine(BaseModel):
    """Description of where clients run; frozen, and validated when it is made.

    Results are the same on every engine, up to float rounding.

    Attributes:
        nodes: Number of Flower nodes that host the clients, at least 1; None for the engine's default.

    Examples:
        >>> engine: Engine = Local(nodes=2)
        >>> engine(lambda grid: len(list(grid.get_node_ids())))
        2
        >>> Ray(restarts=3).without_repeats().restarts
        0
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: Count | None = None

    @abstractmethod
    def __call__(self, serve: Callable[[Grid], T]) -> T:
        """Run the server's part on this engine's nodes.

        Args:
            serve: Server's part: it is called with the grid of the run.
        """

    def without_repeats(self) -> Engine:
        """Return the same engine, except that it never asks a node again on its own.

        With randomness from the operating system the second answer would differ from the first: a second release.
        """
        return self


def make_engine(name: str | Engine, nodes: int | None = None, settings: Mapping[str, Any] | None = None) -> Engine:
    """Make the engine called `name`, or return the engine that is given.

    Args:
        name: A name in `ENGINES`, or an engine, which is returned as it is.
        nodes: Number of Flower nodes that host the clients; None for the engine's default.
        settings: The engine's other fields by name, for example `{"cpus": 2}` for "ray".

    Returns:
        The engine, ready to be called.

    Raises:
        ValueError: If the name is unknown, or a setting is not allowed.

    Examples:
        >>> make_engine("ray", nodes=2, settings={"cpus": 0.5, "timeout": 60})
        Ray(nodes=2, address=None, cpus=0.5, gpus=0, threads=None, timeout=60.0, restarts=3)
        >>> make_engine("local", settings={"cpus": 2})
        Traceback (most recent call last):
            ...
        simulations.settings.experiment.SettingsError: engine local: unknown setting 'cpus': known are ...
    """
    if isinstance(name, Engine):
        return name
    kind: type[Engine] = ENGINES[name]
    try:
        return kind(nodes=nodes, **(settings or {}))
    except ValidationError as error:
        raise SettingsError(f"engine {name}: {in_words(error, kind.model_fields)}") from None


class Local(Engine):
    """Engine in this process: no serialisation, thousands of steps a minute.

    Attributes:
        nodes: Number of Flower nodes, by default one, which computes for all clients together.
        files: A file for each node, for a rehearsal of partition nodes; by default none.
        site: Column of those files whose values are clients of their own; by default each node is one client.

    Examples:
        >>> from simulations import Experiment, run
        >>> experiment = Experiment(strategy="dpsgd", steps=2, hidden=(4,), accountant="rdp")
        >>> run(experiment, Local(nodes=2)).ledger.epsilon() == run(experiment, Local(nodes=4)).ledger.epsilon()
        True
    """

    files: tuple[str, ...] = ()
    site: str | None = None

    @model_validator(mode="after")
    def _a_file_each(self) -> Local:
        """Refuse another number of nodes than there are files."""
        if self.site and not self.files:
            raise ValueError(f"site is {self.site!r}, a column of nodes' own files, and there are none: give files too")
        if self.files and self.nodes not in (None, len(self.files)):
            raise ValueError(f"nodes is {self.nodes}, but there are {len(self.files)} files: give one for each node")
        return self

    def __call__(self, serve: Callable[[Grid], T]) -> T:
        """See `Engine`."""
        with quiet_flower():
            return serve(LocalGrid(client_app.app, self.nodes or len(self.files) or 1, self.files, self.site))


class Connected(Engine):
    """Engine of nodes that are there already, as a SuperLink knows them.

    Attributes:
        nodes: Not used: the grid says which nodes there are.
        grid: The nodes.

    Examples:
        >>> nodes = LocalGrid(client_app.app, 3)
        >>> Connected(grid=nodes)(lambda grid: grid is nodes)
        True
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    grid: Grid

    def __call__(self, serve: Callable[[Grid], T]) -> T:
        """See `Engine`."""
        return serve(self.grid)


class Ray(Engine):
    """Engine of Ray actors, one for each node.

    Actors outlive a run: the next run in this process reuses them and the records that they hold. An actor that dies,
    or does not answer in time, is restarted and asked again. With randomness from the operating system the run ends
    instead; when it is resumed, the interrupted round is charged.

    Attributes:
        nodes: Number of actors, by default as many as the cluster has room for.
        address: Address of a cluster ("auto": the one on this machine); by default the environment's RAY_ADDRESS, or
            else a new cluster for this process alone.
        cpus: Cores for each actor, above 0; fractions are allowed.
        gpus: GPUs for each actor, at least 0; fractions are allowed.
        threads: PyTorch threads of each actor, by default one for each core.
        timeout: Seconds to wait for an answer, above 0; the time that an actor takes to start and to load its records
            counts.
        restarts: How often an actor is restarted for one message, at least 0.

    Examples:
        >>> Ray(nodes=4, cpus=0.5).without_repeats().restarts
        0
    """

    address: str | None = None
    cpus: Amount = 1
    gpus: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0
    threads: Count | None = None
    timeout: Annotated[Amount, held(1e-3, 1e7)] = 300
    restarts: Annotated[int, Field(ge=0, le=1_000)] = 3

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


class Flower(Engine):
    """Engine of Flower's own simulation, on the Ray cluster that RAY_ADDRESS names, or else one of its own.

    Attributes:
        nodes: Number of Flower nodes, by default two.

    Examples:
        >>> make_engine("flower", nodes=3)
        Flower(nodes=3)
    """

    def __call__(self, serve: Callable[[Grid], T]) -> T:
        """See `Engine`; raises `ConnectionError` if RAY_ADDRESS names a cluster that does not answer."""
        from flwr.simulation import run_simulation  # here, because it imports a SuperLink, which takes a second

        from simulations.engines import ray_workers as workers
        from simulations.engines.ray_workers import refuse_dead

        refuse_dead(None)
        workers.release()  # Flower waits for free cores, however long that takes
        results: list[T] = []
        server_app = ServerApp()

        @server_app.main()
        def main(grid: Grid, context: Context) -> None:
            """Keep what `serve` returns."""
            results.append(serve(grid))

        # Without an address Ray joins what anybody last started on this machine, and waits ten minutes if it has died
        cluster = {} if "RAY_ADDRESS" in os.environ else {"address": "local"}
        with quiet_flower(logging.ERROR), _search_path_kept(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            run_simulation(server_app, client_app.app, self.nodes or 2, backend_config={
                "client_resources": {"num_cpus": 1}, "init_args": {"log_to_driver": False, **cluster}})
        return results[0]


@contextmanager
def _search_path_kept() -> Iterator[None]:
    """Take back PYTHONPATH, which Flower sets to this process's search path for its Ray, and programs would inherit."""
    before = os.environ.get("PYTHONPATH")
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = before
