"""What every client must know of a run: the data, how they are split and dealt, and the model."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import nn

from fedfair.datasets import GroupedDataset, Parts
from fedfair.datasets.partition import Shares, by_group, by_mixture, by_own_site, by_site, numbered_apart
from fedfair.datasets.schema import Agreement
from fedfair.models import find, published
from fedfair.protocol.feature_settings import FeatureSettings
from fedfair.protocol.record_settings import NODES
from fedfair.protocol.task_data import Preparation, prepared_data

Width = Annotated[int, Field(ge=1, le=1_000_000_000)]


class Task(FeatureSettings):
    """Data, partition and model of a run; frozen, and validated when it is made.

    Every field describes itself; docs/settings.md and `fedfair settings` list them.

    Examples:
        >>> task = Task(partition="site", clients=3, hidden=(8,), round_sizes=100)
        >>> {part: len(records) for part, records in task.data()}
        {'train': 1258, 'valid': 180, 'test': 359}
        >>> [len(client.train) for client in task.clients_data().values()], task.number_of_clients()
        ([420, 419, 419], 3)
        >>> task.learned_from_records() is None
        True
        >>> [tuple(parameter.shape) for parameter in task.build_model().parameters()]
        [(8, 64), (8,), (10, 8), (10,)]
        >>> task.at_node(file=None, nodes=3) == task
        True
    """

    model: str = Field(
        default="mlp",
        description=f"Model: {', '.join(published.MODELS)}, or the name of a file in the folder models/.")
    hidden: tuple[Width, ...] = Field(
        default=(), json_schema_extra={"belongs_to": "model"},
        description="Widths of the hidden layers, for example [256, 256], or numbers of a cnn's channels; by default "
                    "the published ones.")
    seed: Annotated[int, Field(ge=0)] = Field(
        default=0, json_schema_extra={"chosen_by": "--seed or --seeds, or by seeds in a sweep"},
        description="Random seed of the split, the initial model and, with randomness seeded and all settings, of "
                    "batches and noise.")
    device: str = Field(
        default="cpu", json_schema_extra={"same_releases": True},
        description="Device that nodes compute on: cpu, or cuda on a machine that has it.")
    dtype: Literal["float32", "float64"] = Field(
        default="float32",
        description="Floating-point type of features and parameters.")

    @model_validator(mode="after")
    def _task_fits(self) -> Task:
        """Refuse files of nodes that nothing is known of, an unknown model, and a device that is not here."""
        self._refuse_unknown_nodes()
        find.find_model(self.model)
        try:
            torch.ones(1, device=self.device).cpu()  # the device meta holds nothing
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"device {self.device!r} cannot be used here: take cpu, or cuda on a machine that has it"
                             ) from error
        return self

    def _refuse_unknown_nodes(self) -> None:
        """Refuse settings that do not describe the files of nodes, or that name a file for all of them."""
        known = self.agreement
        if known is None:
            return
        for name in ("csv", "clients", "balance", "imbalance"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} is {getattr(self, name)!r}, but with partition nodes every node opens a file "
                                 "of its own, which its policy or --node-config names: leave it out")
        if self.wrong_groups:
            raise ValueError(f"wrong_groups is {self.wrong_groups:g}, which is for simulations, but partition is "
                             '"nodes", whose records are real: leave it out')
        if self.missing == "keep":
            raise ValueError('missing is "keep", which is not known with partition nodes: take refuse, or drop')
        if self.prepares != "public":
            raise ValueError(f"partition is \"nodes\", but preprocessing is {self.prepares!r}: give a schema_file, or "
                             "ranges and categories, from which all nodes prepare their records alike")
        for name in (known.label, *known.attributes):
            known.names(name)

    def at_node(self, file: str | None, nodes: int, site: str | None = None, clients: int | None = None) -> Task:
        """Return the task with a node's own file, where nodes have files of their own; else the task as it is.

        Args:
            file: The node's file, or None if it has none.
            nodes: Number of nodes of the run.
            site: Column of the file that makes a client of each of the node's sites; None if the node is one client.
            clients: Number of clients of the run; None if each node is one, or if it is not known yet.

        Raises:
            ValueError: If the node needs a file and has none, or the column of sites has another role.
        """
        if self.partition != NODES:
            return self
        if not file:
            raise ValueError("partition is \"nodes\", but this node has no file of its own: name one by file in its "
                             "policy, or by --node-config 'data=\"FILE\"'")
        own = self.model_copy(update={"csv": file, "clients": clients or nodes, "site": site or None})
        own._refuse_unknown_sites()
        return own

    @property
    def as_sent(self) -> Task:
        """The task as the server knows it, without a node's own file."""
        mine = {"csv": None, "clients": None, "site": None}
        return self.model_copy(update=mine) if self.partition == NODES else self

    @property
    def agreement(self) -> Agreement | None:
        """What is known of nodes' own tables; None where nodes have none."""
        if self.partition != NODES:
            return None
        attributes = tuple(name for name in self.attributes if name)
        return Agreement(str(self.label), attributes, self.schema_of_columns, self.without or (), self.participant,
                         self.record_weight, self.missing, self.asked, self.site)

    def data(self) -> Parts:
        """Return the prepared parts in the run's dtype, pixels as bytes; the same object for the same task and file.

        Where preprocessing is private, numbers are not scaled before their ranges have been learned.
        Raises `ValueError` or `FileNotFoundError` if they cannot be made, or a group has no training record.
        """
        return prepared_data(Preparation(**{name: getattr(self, name) for name in Preparation._fields}))

    @property
    def text(self) -> str:
        """The task as messages carry it, in JSON."""
        return _text(self)

    def clients_data(self, node: int = 0, nodes: int = 1, first: int | None = None) -> Shares:
        """Return the records of the clients node, node + nodes, ..., by default of all clients; validation and test
        records are dealt like training records.

        A node with a file of its own holds the clients first, first + 1, ..., one for each of its sites; by default
        from the number of the node on.
        """
        if self.partition == NODES:
            return by_own_site(numbered_apart(self.data(), node), node if first is None else first)
        parts, groups, clients = self.data(), len(self.data().train.names), self.number_of_clients()

        def holder(data: GroupedDataset) -> torch.Tensor:
            """Return the client of each record of one part."""
            if self.partition == "natural":
                return data.participant
            if self.partition == "group":
                return by_group(data.group, groups, clients)
            if self.alpha is not None:
                return by_mixture(data.group, groups, clients, self.alpha, self.seed)
            return by_site(len(data), clients, self.seed)

        return Shares.dealt(parts, {part: holder(data) for part, data in parts}, clients, node, nodes)

    def number_of_clients(self) -> int:
        """Return the number of clients that the records are dealt to; raise `ValueError` if no participant is named."""
        if self.partition == "natural":
            return self._participants()
        return self.clients or len(self.data().train.names)

    def _participants(self) -> int:
        """Return the number of participants that the data set names; raise `ValueError` if it names none."""
        named = [part.participant for _, part in self.data() if len(part.participant)]
        participants = max((int(participant.max()) + 1 for participant in named), default=0)
        if not participants:
            raise ValueError(f"{self.dataset} does not say whose its records are, as partition natural needs: take "
                             "partition site, or group")
        return participants

    def trained_rows(self) -> int | None:
        """Return the training share of the number of rows of the user's table, which is public; None without one.

        How many rows are in the training part, and can be read, no ledger says: that depends on every one of them.

        Examples:
            >>> Task().trained_rows() is None
            True
        """
        rows = self.data().train.rows
        return round(self.split[0] * rows) if rows and self.prepares != "records" else None

    def learned_from_records(self) -> str | None:
        """Say what preprocessing learned from the records without noise, so that no epsilon covers it; None if nothing.

        Raises what `data` does.
        """
        return self.learned_by(self.data().train.encoding)

    def build_model(self) -> nn.Module:
        """Build the model with its initial parameters; raise `ValueError` for one that does not fit the records."""
        train = self.data().train
        find.refuse_misfit(self.model, self.hidden, train.classes, train.features(slice(0, 0)))
        return find.build(self.model, self.hidden, train.x.shape[1:], train.classes, self.seed, self.torch_dtype)

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype of features and parameters."""
        return torch.float64 if self.dtype == "float64" else torch.float32


@lru_cache(maxsize=4)
def _text(task: Task) -> str:
    """Write a task as JSON once: every message of a run asks for it."""
    return task.model_dump_json()
