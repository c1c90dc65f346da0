"""What a method is: its clip rule, what it counts and learns, and all that it may change of what most methods do.

Everything here may be overridden. `strategies.server.strategy` is a method for one run, with its noise and charges.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from fedfair.accounting.events import Preprocessed
from fedfair.gradients.layer_gradients import Gradients
from fedfair.gradients.layer_probe import padding_rows, without_rows
from fedfair.mechanisms.clipping import ClipRule
from fedfair.mechanisms.counting import CountQuery
from fedfair.models.optimizers import Optimizer, make_optimizer
from fedfair.protocol.round import LocalSgd, LocalTraining
from fedfair.protocol.task import Task
from strategies.server.calibration import Beside, NoisePlan, Sampled, common_noise, count_noise, search_charge
from strategies.server.server_optimizer import Descent

if TYPE_CHECKING:
    from fedfair.protocol.exchange import Exchange
    from strategies.server.releases.front import MeasuredFront


class Ask(Protocol):
    """Asks all nodes for sums over the records of a round's batch, without noise."""

    def __call__(self, exchange: Exchange, like: Mapping[str, Mapping[str, Tensor]], rule: ClipRule | None = None,
                 **parts: Any) -> Mapping[str, Gradients]:
        """Return the sums over all nodes, by record and name.

        Args:
            exchange: What nodes are asked for.
            like: Tensors of the names, shapes and types of the sums, by record.
            rule: The rule that clips, if not the round's.
            **parts: What the request says besides: options, and `tensors` by record and name.
        """
        ...


class Method(Sampled, ABC):
    """What a person writes of a method: `rule` and, if it counts, `query`, `counts_first`, `learn` and `state`.

    `Strategy` makes of it a method for one run, and sets `task`, `training`, `population`, `preprocessing`, `sync`,
    `noise` and `descent`, which the methods here read. How often a record is met is in
    `strategies.server.calibration.Sampled`.

    Attributes:
        modes: Modes that the method supports, of "step" and "epoch".
        default_sync: Mode of a run whose settings name none.
        samplings: Ways to come into batches, of the setting `sampling`, that what it charges is right for.
        exchange: What nodes are asked for when they train, except in local epochs; None for the clipped gradient sum.
        local_exchange: What nodes are asked for in local epochs; None for the sum of the trained weights.
        masked_exchange: The same sums under masks, for secure aggregation; None for a method that has none.
        needs: What it needs beyond a clip norm and noise, for `fedfair methods`; "" for nothing.
        settings: Settings that it cannot do without, for commands: they win over a preset's, and a person's over them.
        tables: Settings that it takes by group, as tables; without bounds by group it refuses any `group_epsilon`.
        counts_first: Whether the query is answered before the gradients are clipped; if not, with their sum.
        nominal: Why no proof supports the epsilon, whatever the options, or None.
        broadcasts: Whether clients are sent sums without noise.
        state: Names of the attributes that `learn` changes, which a checkpoint keeps.
        entry: What a record adds at most to one number of a sum, in units of the rule's sensitivity.
    """

    class Options(BaseModel):
        """A method's own parameters: none, unless it defines some. Unknown ones are refused.

        Examples:
            >>> class Quantile(Method.Options):
            ...     quantile: float = 0.5
            >>> Quantile(quantile=0.7)
            Quantile(quantile=0.7)
        """

        model_config = ConfigDict(frozen=True, extra="forbid")

    modes: ClassVar[tuple[Literal["step", "epoch"], ...]] = ("step", "epoch")
    default_sync: ClassVar[Literal["step", "epoch"]] = "step"
    samplings: ClassVar[frozenset[str]] = frozenset({"poisson"})
    exchange: ClassVar[Exchange | None] = None
    local_exchange: ClassVar[Exchange | None] = None
    masked_exchange: ClassVar[Exchange | None] = None
    needs: ClassVar[str] = ""
    settings: ClassVar[Mapping[str, Any]] = {}
    tables: ClassVar[frozenset[str]] = frozenset({"group_epsilon"})
    counts_first: ClassVar[bool] = False
    nominal: ClassVar[str | None] = None
    broadcasts: ClassVar[bool] = False
    state: ClassVar[tuple[str, ...]] = ()
    entry: float = 1.0

    task: Task
    preprocessing: Preprocessed | None
    noise: NoisePlan
    descent: Descent

    # What a method is.

    def prepare(self) -> None:
        """Check the options against the population, and set the attributes that `state` names to their first values.

        Override it for a method with options to check or with state, which must be plain values or tensors. Raise
        `ValueError` for what does not fit.
        """

    @abstractmethod
    def rule(self) -> ClipRule:
        """Return the clip rule of the next batch.

        Every method defines it. A rule may depend on options and state, never on records.
        """

    def query(self) -> CountQuery | None:
        """Return the counts that the method needs of every batch, or None.

        Override it for a method that counts, together with `learn`.
        """
        return None

    def learn(self, counts: Tensor, expected_batch: float) -> None:
        """Change the attributes that `state` names by noisy counts; this is post-processing and costs no privacy.

        Override it for a method that counts. In step mode with `counts_first` it runs before the batch's gradients are
        clipped, otherwise after.

        Args:
            counts: Noisy counts in the shape of the query's; any may be negative.
            expected_batch: Public expected number of records (or participants) that were counted.
        """

    # What most methods have in common, and some change.

    def unproved(self) -> str | None:
        """Return why no proof supports the epsilon of this run, or None.

        Override it for a method whose guarantee depends on options; otherwise `nominal` is enough.
        """
        return self.nominal

    def divisor(self) -> float:
        """Return what a sum of gradients or updates is divided by: a public number, never the realised batch size.

        Override it for a method that does not take the mean over the expected batch.
        """
        return self.expected_batch()

    def local_training(self) -> LocalTraining | None:
        """Return how clients train privately by themselves before models are averaged; None in step mode.

        Override it for a method that trains otherwise in epoch mode.
        """
        if self.sync == "step":
            return None
        return self.training.local_epoch(self.noise.multipliers, self.client_weights(), self.population.by_client,
                                         self.has_fixed_bounds)

    @property
    def has_fixed_bounds(self) -> bool:
        """Whether each group has a bound of its own that no count can move, so that it is guaranteed in units of it."""
        return "clip_norm" in self.training.tables and not self.state

    def local_sgd(self) -> LocalSgd | None:
        """Return how participants train before their whole updates are clipped, or None.

        Override it for a method that clips updates rather than gradients.
        """
        return None

    def optimizer(self, parameters: dict[str, nn.Parameter]) -> Optimizer:
        """Return what steps along the noisy mean, at the server.

        Override it for a method with an optimiser other than that of the settings.

        Args:
            parameters: Parameters of the model by name.
        """
        training = self.training
        return make_optimizer(training.optimizer, parameters, training.learning_rate, training.weight_decay,
                              training.momentum)

    def next_exchange(self) -> Exchange | None:
        """Return what nodes are asked for in the next round: the method's `exchange`, under masks if sums are secure.

        Override it for a method whose rounds ask for different sums.
        """
        return self.masked_exchange if self.training.secure_aggregation else self.exchange

    def asked_besides(self) -> Mapping[str, Any]:
        """Return what requests of the next round's exchange say beside weights and plan, by name.

        Override it for a method whose exchange takes options: numbers, texts or lists of them.
        """
        return {}

    def ask_first(self, ask: Ask) -> Mapping[str, Any]:
        """Return what `asked_besides` does, once nodes have been asked for other sums over the round's batch.

        Override it for a method whose sum depends on sums without noise, which then are sent to everybody.

        Args:
            ask: Asks all nodes for sums over the same batch, and returns them.
        """
        return self.asked_besides()

    def start(self, weights: Gradients) -> Gradients:
        """Return the weights that the next round starts from: those after the last.

        Override it for a method that changes them in between; it reads no record, and costs no privacy.

        Args:
            weights: Weights of the model by name.
        """
        return weights

    def like_sums(self) -> Mapping[str, Tensor]:
        """Return tensors of the names, shapes and types of the sums that nodes send: those of the weights.

        Override it for a method that adds up something else.
        """
        return self.descent.weights

    def like_counts(self) -> Tensor:
        """Return counts of the shape and type that nodes send: those of a batch without records.

        Override it for a method whose query does not count gradient norms.
        """
        query = self.query()
        assert query is not None
        none = torch.empty(0, dtype=self.task.torch_dtype)
        return query.counts(none, torch.empty(0, dtype=torch.long), len(self.population.names))

    def update(self, noisy: Gradients) -> None:
        """Change the weights by the noisy sums of a round, in step mode: a step of the optimiser along their mean.

        Override it for a method that does something else with the sums; it is post-processing, and costs no privacy.

        Args:
            noisy: Sums over all nodes, with all of the round's noise.
        """
        mean = {name: value / self.divisor() for name, value in noisy.items()}
        self.descent.step(without_rows(mean, self._padding))

    @cached_property
    def _padding(self) -> dict[str, int]:
        """Rows of the model that are not trained, by the name of their parameter."""
        return padding_rows(self.task.build_model())

    def finish(self) -> None:
        """Make what follows from the rounds so far, of which there is one, in a run that went on after its last.

        Override it for a method that makes something of all its rounds, from what `state` names.
        """

    def client_weights(self) -> tuple[float, ...]:
        """Return each client's share in the average of locally trained weights: its share of the records.

        Override it for a method that averages otherwise; the shares sum to 1.
        """
        return tuple(size / self.population.records for size in self.population.by_client)

    def noise_plan(self) -> NoisePlan:
        """Return how much noise the run adds: one multiplier, enough for every record.

        Override it for a method that adds no noise, or another amount for each group.
        """
        schedules = self.schedules()
        common = common_noise(schedules, self.training, self.beside)
        counts = None if self.query() is None else count_noise(self.training, common)
        return NoisePlan((common,) * len(schedules), common, counts)

    def sum_noise(self, rule: ClipRule) -> float:
        """Return the noise multiplier of one gradient sum in step mode, in units of the rule's sensitivity.

        Override it for a method whose noise does not follow the sensitivity of the rule.

        Args:
            rule: The clip rule of this batch.
        """
        return self.noise.of_sum

    @property
    def beside(self) -> Beside:
        """What a record is charged beside the noise of its schedule."""
        return Beside(self.query() is not None, search_charge(self.training, self.protects), self.preprocessing)

    def choose(self, front: MeasuredFront) -> None:
        """Take one of the classifiers that the method `made`, by their figures; it keeps its own by default.

        Override it for a method that chooses among several.

        Args:
            front: The classifiers, with their figures.
        """
