"""What runs in a process, and whether a Ray cluster runs the same: one started from another environment may not.

`program` is sent to other machines by value, where fedfair may be missing or another one: it and what it calls need the
standard library alone.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import ray
from ray import cloudpickle
from ray.exceptions import GetTimeoutError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

_PACKAGES = ("fedfair", "strategies", "simulations")
_NOT_INSTALLED = "simulations/benchmarks"  # in a checkout alone
_LIBRARIES = ("torch", "numpy")
_PATIENCE = 60  # seconds in which a machine starts a process


def program() -> dict[str, str]:
    """Return what runs here, in words by name: the "environment", "fedfair" as a digest of its source, and libraries.

    A library's version is without the device that it was built for; what is missing is "none".
    """
    return {"environment": sys.prefix, "fedfair": _source(),
            **{name: _installed(name) for name in _LIBRARIES}}


def _source() -> str:
    """Return a digest of the files of fedfair's packages, the same of a checkout and of what is installed from it."""
    found = importlib.util.find_spec("fedfair")
    if found is None or found.origin is None:
        return "none"
    root, digest = Path(found.origin).parents[1], hashlib.sha256()
    for package in _PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            name = file.relative_to(root).as_posix()
            if not name.startswith(_NOT_INSTALLED):
                digest.update(name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:8]


def _installed(name: str) -> str:
    """Return the version of a library."""
    try:
        return version(name).partition("+")[0]
    except PackageNotFoundError:
        return "none"


class OtherProgram(ConnectionError):
    """A cluster that runs another program than this process, or none."""


def refuse_other_programs() -> None:
    """Raise `OtherProgram` if a machine of the cluster runs another fedfair than this process, or none.

    Also if the libraries that compute are others, or if no process starts there. Needs a connection to a cluster.
    """
    here = program()
    for machine, there in _programs().items():
        differing = [name for name in here if name != "environment" and there[name] != here[name]]
        if differing:
            raise OtherProgram(
                f"the Ray cluster was started from another environment, or before an update: {there['environment']} on "
                f"{machine} has {_listed(there, differing)}, and {here['environment']} here {_listed(here, differing)}."
                " Stop it there with `ray stop`, install there what is here, and start it again with `ray start`")


def _listed(known: dict[str, str], names: list[str]) -> str:
    """List versions."""
    return " and ".join("fedfair with source " + known[name] if name == "fedfair" else f"{name} {known[name]}"
                        for name in names)


def _programs() -> dict[str, dict[str, str]]:
    """Return what runs on each machine of the cluster; raise `OtherProgram` if a process does not start."""
    machines = {each["NodeID"]: each["NodeManagerHostname"] for each in ray.nodes()  # type: ignore[no-untyped-call]
                if each["Alive"]}
    with _sent_by_value():
        task = ray.remote(program)
        asked = [task.options(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(number, soft=False)
                              ).remote() for number in machines]
    try:
        return dict(zip(machines.values(), ray.get(asked, timeout=_PATIENCE), strict=True))
    except GetTimeoutError:
        raise OtherProgram(f"the Ray cluster starts no process within {_PATIENCE} s: end it with `ray stop "
                              "--force`, and start another with `ray start --head`") from None


@contextmanager
def _sent_by_value() -> Iterator[None]:
    """Let Ray send the module's functions as they are here: by name, an old cluster would run its own, or none."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
