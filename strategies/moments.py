"""Moments: one noisy release of second moments, from which every linear classifier follows without further cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from pydantic import Field
from torch import Tensor

from fedfair.mechanisms.clipping import ClipRule, Flat, sensitivity
from fedfair.mechanisms.noise import sum_share
from fedfair.moments import release, sums
from fedfair.moments.constraints import Constraint
from fedfair.moments.front import Front, HeadName, Point, front, points
from fedfair.node.front_counts import HELD_OUT, send_front_counts
from fedfair.node.moment_sums import send_moments
from strategies.server.metrics_log import Rows
from strategies.server.requests import group_counts
from strategies.server.strategy import Strategy


class Moments(Strategy):
    """One round in which every record takes part, and no gradient.

    With features phi of norm at most 1 (`features`), the nodes add up phi phi' over all records, and phi by group and
    class. A record changes these sums by at most sqrt(2), so a noise multiplier sigma is one Gaussian release with
    mu = 1/sigma: there is no clipping, no sampling that must stay secret, no learning rate, and no number of steps.
    Everything after it is computed from the noisy sums (`fedfair.moments`):

    - `head`: "least_squares", or discriminant analysis with priors that are "equal" (nobody pays for being rare) or
      "counted"; by default the first for two classes, and the second for more.
    - `tau`: what is left of the difference between groups' mean scores, 1 for all; 0 makes them equal. `constraint`
      says of which records: all ("demographic_parity"), those of the favourable class ("equal_opportunity"), or both.
    - `worst_group`: from 0 to 1, how much more weight groups have whose loss is larger. It needs `by_group`, a release
      with sqrt(K) times as much noise.

    The front, all of a grid of such settings, is kept with the result: `fedfair choose` takes another of them.
    """

    class Options(Strategy.Options):
        """See `Moments`."""

        head: HeadName | None = None
        tau: Annotated[float, Field(ge=-2, le=2)] = 1.0
        constraint: Constraint = "demographic_parity"
        worst_group: Annotated[float, Field(ge=0, le=1)] = 0.0
        by_group: bool = False

    modes = ("step",)
    needs = "features of bounded norm, and model linear"
    settings = {"features": "bounded", "model": "linear"}  # noqa: RUF012 - of the class, as all of these
    exchange = send_moments
    options: Options

    def prepare(self) -> None:
        """Refuse settings of the data that do not fit."""
        task, options = self.task, self.options
        if task.features is None or task.model != "linear":
            raise ValueError(f"{self._name} needs features of bounded norm and a linear model, but features is "
                             f"{task.features!r} and model {task.model!r}: take features = \"bounded\" and "
                             'model = "linear"')
        if task.record_weight or task.class_weights:
            raise ValueError(f"{self._name} counts all records alike: leave record_weight and class_weights out")
        if options.worst_group and not options.by_group:
            raise ValueError(f"options.worst_group is {options.worst_group:g}, which needs the moments of each group: "
                             "take options.by_group = true too")
        self.moments: release.Moments | None = None
        self.front: Front | None = None
        self.front_rows: list[Rows] = []

    def rule(self) -> ClipRule:
        """Return what one record adds at most: sqrt(2), without clipping."""
        return Flat(sums.SENSITIVITY)

    def rates(self) -> tuple[float, ...]:
        """Return 1 for every group: all records take part."""
        return (1.0,) * len(self.population.names)

    @property
    def rounds(self) -> int:
        """One round, or none where the settings want no step."""
        return 0 if self.training.steps == 0 else 1

    @property
    def rounds_per_epoch(self) -> float:
        """One round."""
        return 1

    def asked_besides(self) -> Mapping[str, object]:
        """Ask for second moments by group, or over all."""
        return {"by-group": self.options.by_group}

    def like_sums(self) -> Mapping[str, Tensor]:
        """Return moments of no record."""
        width = self.descent.weights[self._parameter].shape[1]
        return sums.zeros(width, len(self.population.names), self.population.classes, self.options.by_group)

    def update(self, noisy: Mapping[str, Tensor]) -> None:
        """Keep the moments and the front, and take the classifier that the options name."""
        self.moments = release.Moments(sums.unsvec(noisy["second"]), noisy["first"], self._deviation, self._last)
        options, favourable = self.options, self.rows.favourable
        chosen = Point(options.head or self._heads[0], options.tau, options.worst_group)
        grid = points(self._heads, options.by_group)
        self.front = front(self.moments, [*dict.fromkeys((chosen, *grid))], options.constraint, favourable)
        like = self.descent.weights[self._parameter]
        self.descent.become({self._parameter: self.front.weights[0].T.to(like).contiguous()})

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
                           ) -> Iterable[Message]:
        """Measure the whole front on held-out records too."""
        if self.front is not None:
            self._measure_front(self.front, grid)
        return super().configure_evaluate(server_round, arrays, config, grid)

    def _measure_front(self, made: Front, grid: Grid) -> None:
        """Ask for counts of every classifier on held-out parts."""
        favourable, dtype = self.rows.favourable, self.task.torch_dtype
        replies = self._ask(send_front_counts, grid, tensors={"front": {"weights": made.weights.to(dtype)}},
                            splits=list(HELD_OUT), favourable=-1 if favourable is None else favourable)
        self.ledger.expose("figures of the front on held-out parts", "counts by group of classifiers, without noise")
        self.front_rows = [Rows(self.population.names, favourable) for _ in made.points]
        for number, rows in enumerate(self.front_rows):
            for split in HELD_OUT:
                counts = group_counts(replies, f"{split} {number}", len(self.population.names), self.population.classes)
                rows.add_counts(self.rounds, split, counts)

    @property
    def _heads(self) -> tuple[HeadName, ...]:
        """How classifiers of the front are fitted; the first is the default."""
        return ("least_squares", "equal") if self.population.classes == 2 else ("equal", "counted")

    @property
    def _deviation(self) -> float:
        """The standard deviation of the noise on every number of the sums."""
        rule = self.rule()
        return (self.noise[0] * sensitivity(rule, len(self.population.names))
                * sum_share(self.training.trust, self.sharers))

    @property
    def _last(self) -> float:
        """The constant last coordinate of every record's features, which is public."""
        return float(self.task.data().train.x[0, -1])

    @property
    def _parameter(self) -> str:
        """Name of the model's only parameter."""
        return next(iter(self.descent.weights))

    @property
    def _name(self) -> str:
        """The method's name in errors."""
        return "moments"

