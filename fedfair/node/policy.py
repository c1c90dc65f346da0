"""A node's policy: what its owner allows any server to ask of it, in a TOML file beside the data.

Where there is a policy, what it does not list is refused. Without one a node does what it is asked, as in a simulation.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from fedfair.plugins.registry import unknown
from fedfair.plugins.text_values import read_toml
from fedfair.protocol.feature_settings import Preprocessing
from fedfair.protocol.record_settings import NODES
from fedfair.protocol.task import Task

VARIABLE = "FEDFAIR_NODE_POLICY"
"""Environment variable with the path of a node's policy."""

FILE = "fedfair-node.toml"
"""The policy's name in the working directory, if neither Flower's node config nor the environment names a file."""

FREE = ("model", "hidden", "dtype")
"""Fields of a task that a server chooses; the policy lists the models."""


PRIVATE: Preprocessing = "private"
NOT_CHARGED = ("whose release a node with a policy does not make, since its ledger cannot charge for it: take public "
               "ranges and categories")


class Refused(ValueError):
    """The node's policy does not allow a request; the message depends on policy, ledger and request, never on data."""


class Data(BaseModel):
    """Records that a server may have read, and how much may be learned of them.

    Examples:
        >>> entry = Data(name="digits", task={"dataset": "digits", "clients": 2}, largest_epsilon=2.0, delta=1e-6,
        ...              smallest_noise_multiplier=1.0)
        >>> entry.allows(Task(clients=2, hidden=(8,)).model_dump(mode="json"))
        True
        >>> entry.allows(Task(clients=3, hidden=(8,)).model_dump(mode="json"))
        False
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(
        min_length=1,
        description="Name of the records in the node's ledger. Entries about the same records must share it, and then "
                    "share a budget.")
    task: dict[str, Any] | None = Field(
        default=None,
        description="The settings by which a server may have them read: dataset or csv, or a schema_file with "
                    "partition nodes, label, group, ranges, partition, clients, seed and so on, all but model, hidden "
                    "and dtype. One that is not given must have its default. None for data that an existing Flower app "
                    "opens itself.")
    file: Path | None = Field(
        default=None,
        description="File of the node's own, relative to the policy's folder, for a task with partition nodes; a "
                    "server never names it.")
    site: str | None = Field(
        default=None,
        description="Column of the file whose values are clients of their own: the node's sites, such as wards. By "
                    "default the node is one client. Their number, and how many records of each group each has, are "
                    "public like those of nodes.")
    largest_epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        description="Largest epsilon at delta for one record, over all runs and servers together.")
    delta: Annotated[float, Field(gt=0, lt=1)] = Field(
        description="Delta of that epsilon; below one over the number of records.")
    smallest_noise_multiplier: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        description="Smallest noise multiplier of a release, its counts included, by the node's own noise alone.")
    largest_sampling_rate: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.5,
        description="Largest sampling rate of a batch; 1 allows batches of all records.")

    _pinned: dict[str, Any] | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _task_is_one(self) -> Data:
        """Keep the task's fields as a server sends them; raise `ValueError` for what makes no task."""
        if self.site is not None and self.file is None:
            raise ValueError(f"site is {self.site!r}, a column of the node's own file, and there is no file: give "
                             "file, or leave site out")
        if self.task is not None:
            for name in filter(self.task.__contains__, FREE):
                raise ValueError(f"task has {name}, which a server chooses: leave it out; the policy's models says "
                                 "which models the node builds")
            if self.task.get("preprocessing") == PRIVATE:
                raise ValueError(f"task has preprocessing = {PRIVATE!r}, {NOT_CHARGED}")
            task = Task(**self.task)
            if (task.partition == NODES) != (self.file is not None):
                raise ValueError(f"task has partition = {task.partition!r}, and file is {self.file}: a node has a file "
                                 "of its own with partition nodes, and only then")
            self._pinned = pinned(task.model_dump(mode="json"))
        return self

    @property
    def fingerprint(self) -> str:
        """What tells the records of this entry, as they are read, from those of another."""
        opened = [self.name, str(self.file or ""), self._pinned, *([self.site] if self.site else [])]
        return sha256(json.dumps(opened, sort_keys=True).encode()).hexdigest()[:16]

    def allows(self, task: Mapping[str, Any]) -> bool:
        """Say whether a server's task, as it travels, is the one that this entry lists."""
        return self._pinned is not None and pinned(task) == self._pinned


class Policy(BaseModel):
    """What a node's owner allows; every field describes itself.

    Examples:
        >>> entry = Data(name="digits", largest_epsilon=2.0, delta=1e-6, smallest_noise_multiplier=1.0)
        >>> policy = Policy(data=(entry,), exchanges=("exchanges.send_sizes",), rules=("flat",))
        >>> policy.data[0].largest_sampling_rate, policy.exact_exchanges, policy.trusts_server
        (0.5, (), False)
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    ledger: Path = Field(
        default=Path("fedfair-node-ledger.jsonl"),
        description="File of the node's ledger, relative to the policy's folder.")
    data: tuple[Data, ...] = Field(
        min_length=1,
        description="Records that a server may have read, a table [[data]] for each.")
    exchanges: tuple[str, ...] = Field(
        default=(),
        description="Exchanges that the node answers and enters into its ledger, as module.function, for example "
                    "exchanges.send_sizes.")
    exact_exchanges: tuple[str, ...] = Field(
        default=(),
        description="Exchanges that the node answers although exact figures leave with them, which no epsilon covers: "
                    "evaluation, FairLens, risk terms, and exchanges of your own that promise nothing.")
    evaluated_parts: tuple[Literal["train", "valid", "test"], ...] = Field(
        default=(),
        description="Parts of the data whose exact counts and losses exchanges.send_evaluation may send.")
    rules: tuple[str, ...] = Field(
        default=(),
        description="Clip rules that the node applies, for example flat, per-group.")
    queries: tuple[str, ...] = Field(
        default=(),
        description="Count queries that the node answers, for example above-and-below.")
    models: tuple[str, ...] = Field(
        default=(),
        description="Models that the node builds, for example logistic, mlp.")
    own_files: bool = Field(
        default=False,
        description="Whether rules, queries, exchanges and models listed here may be those of Python files beside the "
                    "node, which are then run.")
    trusts_server: bool = Field(
        default=False,
        description="Whether the node counts on the noise that the server says it adds under central trust. Exact sums "
                    "then leave the node, and epsilon is the server's promise, not the node's.")

    @model_validator(mode="after")
    def _one_budget_a_name(self) -> Policy:
        """Raise `ValueError` for one budget with two limits, or records with two budgets."""
        limits: dict[str, tuple[float, float]] = {}
        names: dict[str, str] = {}
        for entry in self.data:
            limit = (entry.largest_epsilon, entry.delta)
            if limits.setdefault(entry.name, limit) != limit:
                raise ValueError(f"two entries of data are called {entry.name!r} with different limits: give both the "
                                 "same largest_epsilon and delta, since they share a budget")
            source = _source(entry)
            if source and names.setdefault(source, entry.name) != entry.name:
                raise ValueError(f"{source} is in entries of data called {names[source]!r} and {entry.name!r}: give "
                                 "both the same name, since what is spent of its records adds up")
        return self


def pinned(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a task that a policy decides."""
    return {name: value for name, value in task.items() if name not in FREE}


def find_policy(config: Mapping[str, Any]) -> Path | None:
    """Return the file with a node's policy, or None if the node has none.

    It is the `policy` of Flower's node config, else what `FEDFAIR_NODE_POLICY` names, else `FILE` in the working
    directory. A file that is named need not exist: reading it then fails, and the node answers nothing.
    """
    named = config.get("policy") or os.environ.get(VARIABLE)
    if named:
        return Path(str(named))
    return Path(FILE) if os.path.lexists(FILE) else None


def read_policy(path: Path) -> Policy:
    """Read a policy; its ledger's path is then absolute.

    Raises:
        OSError: For a file that cannot be read.
        ValueError: For a file that is no policy, with a sentence that names the key.
    """
    status = path.stat()
    return _read(path.resolve(), status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=8)
def _read(path: Path, modified: int, size: int) -> Policy:
    """Read a policy in one state of its file."""
    try:
        policy = Policy(**_beside(path.parent, read_toml(path)))
    except ValidationError as error:
        raise ValueError(f"{path}: {_in_words(error)}") from None
    return policy.model_copy(update={"ledger": path.parent / policy.ledger})


def _beside(folder: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Return a policy's values with the paths of nodes' files and schemas relative to its folder."""
    data = values.get("data")
    for entry in data if isinstance(data, list) else ():
        task = entry.get("task") if isinstance(entry, dict) else None
        for where, name in ((entry, "file"), (task, "schema_file")):
            if isinstance(where, dict) and isinstance(where.get(name), str):
                where[name] = str(folder / where[name])
    return values


def _in_words(error: ValidationError) -> str:
    """Return the first error of a policy as a sentence."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        known = Data.model_fields if len(first["loc"]) > 1 else Policy.model_fields
        return str(unknown("key of a policy", str(first["loc"][-1]), known))
    if first["type"] == "missing":
        return f"{where} is missing: give it"
    said = first["msg"].removeprefix("Value error, ")
    return said if first["type"] == "value_error" else f"{where} is {first['input']!r}: {said}"


def _source(entry: Data) -> str:
    """Return where the records of an entry come from: a file without links, or a data set."""
    task = entry.task or {}
    file = entry.file or task.get("csv")
    return str(Path(file).resolve()) if file else str(task.get("dataset", ""))
