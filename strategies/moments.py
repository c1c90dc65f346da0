"""Moments: a noisy release of second moments, from which every linear classifier follows without further cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedfair.fairness.group_counts import favourable_of
from fedfair.gradients.layer_gradients import Gradients
from fedfair.mechanisms.clipping import ClipRule, Flat, sensitivity
from fedfair.mechanisms.noise import Trust, client_share, server_share
from fedfair.mechanisms.randomness import source
from fedfair.moments import logistic, release, sums
from fedfair.moments.filled_bins import Filled, filled
from fedfair.moments.fitting import Fitting
from fedfair.moments.front import EVEN, LOGISTIC, HeadName, Point, few_points, heads_for, points
from fedfair.moments.heads import GAPS, Constraint, Head, least_squares
from fedfair.moments.monotone import directions_of, refuse_unordered
from fedfair.moments.sums import CLASSES, unmixed
from fedfair.node.exchanges import send_gradient_sum
from fedfair.node.masked_sums import send_masked_gradient_sum
from fedfair.node.moment_sums import send_masked_moments, send_moments
from fedfair.protocol.exchange import Exchange
from strategies.server.releases.front import MeasuredFront, least_constrained, most_accurate
from strategies.server.strategy import Strategy


class Moments(Strategy):
    """One round in which every record takes part, and by `logistic_steps` a few more.

    With features phi of norm at most 1 (`features`), the nodes add up phi phi' over all records, and phi by group and
    class; of two classes these are mixed, so that their difference has less noise (`fedfair.moments.sums`). A
    record changes these sums by at most sqrt(2), so a noise multiplier sigma is one Gaussian release with mu = 1/sigma:
    there is no clipping, no sampling that must stay secret, no learning rate, and no number of steps. Everything after
    it is computed from the noisy sums (`fedfair.moments`):

    - `head`: "least_squares", or discriminant analysis with priors that are "equal" (nobody pays for being rare) or
      "counted"; by default the first for two classes, and the second for more. `floor` scales the least eigenvalue
      of the matrix that is inverted.
    - `tau`: what is left of the difference between groups' mean scores, 1 for all; 0 makes them equal. `constraint`
      says of which records: all ("demographic_parity"), those of the favourable class ("equal_opportunity"), or both.
    - `worst_group`: from 0 to 1, how much more weight groups have whose loss is larger. It needs `by_group`, a release
      with sqrt(K) times as much noise.
    - `threshold`: the probability above which the favourable one of two classes is decided for, the same for all
      groups. A gap that tau leaves too wide gets smaller where fewer decisions are for the rarer class.
    - `logistic_steps`: after the moments, as many releases of the gradient of logistic regression over all records,
      each with as much noise; mu^2 adds up (`fedfair.moments.logistic`). The model and its part of the front are then
      logistic regression, which loses less than least squares. "auto" takes 3 of two classes' records, else none.
    - `logistic_clip`: the clip norm of a record's gradient in these steps, of which the noise is a multiple. None is
      longer than 1; at epsilon .1, .5 was better on four tables of six.
    - `monotone`: columns whose number the score of the favourable class rises or falls with, as ["income=up"]
      (`fedfair.moments.monotone`).

    A category or bin that no record is taken to have decides nothing (`fedfair.moments.filled_bins`).

    The front, all of a grid of such settings, is kept with the result: `fedfair choose` takes another of them. With
    `gap`, the run itself ends with the most accurate of them whose gap between groups, of what `constraint` names, is
    at most that on the validation part, or with that of the smallest gap if none is. With private figures the grid is
    small, the figures of its classifiers share the budget of each held-out part, and the largest tau within the gap is
    taken.
    """

    class Options(Strategy.Options):
        """See `Moments`."""

        head: HeadName | None = None
        floor: Annotated[float, Field(gt=0, le=100)] = 1.0
        tau: Annotated[float, Field(ge=-2, le=2)] = 1.0
        constraint: Constraint = "demographic_parity"
        worst_group: Annotated[float, Field(ge=0, le=1)] = 0.0
        threshold: Annotated[float, Field(gt=0, lt=1)] = EVEN
        by_group: bool = False
        gap: Annotated[float, Field(ge=0, le=1)] | None = None
        logistic_steps: Annotated[int, Field(ge=0, le=1000)] | Literal["auto"] = 0
        logistic_clip: Annotated[float, Field(gt=0, le=1)] = 1.0
        monotone: tuple[str, ...] = ()

    modes = ("step",)
    needs = "features of bounded norm, and model linear"
    settings = {"features": "bounded", "model": "linear"}  # noqa: RUF012 - of the class, as all of these
    exchange = send_moments
    masked_exchange = send_masked_moments
    state: ClassVar[tuple[str, ...]] = ("second", "first", "adding", "deviation", "fitted", "path", "noises")
    options: Options

    def prepare(self) -> None:
        """Refuse settings of the data that do not fit, and a constraint on groups that are the classes."""
        task, options = self.task, self.options
        if task.features is None or task.model != "linear":
            raise ValueError(f"moments needs features of bounded norm and a linear model, but features is "
                             f"{task.features!r} and model {task.model!r}: take features = \"bounded\" and "
                             'model = "linear"')
        if task.record_weight or task.class_weights:
            raise ValueError("moments counts all records alike: leave record_weight and class_weights out")
        if options.worst_group and not options.by_group:
            raise ValueError(f"options.worst_group is {options.worst_group:g}, which needs the moments of each group: "
                             "take options.by_group = true too")
        if not self._constrains and (options.tau != 1 or options.by_group or options.gap is not None):
            raise ValueError("groups are the classes here, so their scores are to differ: leave options.tau, "
                             "options.by_group and options.gap out")
        if options.gap is not None and self.training.figures == "none":
            raise ValueError(f"options.gap is {options.gap:g}, and a classifier is chosen by figures of held-out "
                             'records, but figures is "none": take figures = "private" or "held-out", or leave '
                             "options.gap out")
        if not task.holds_out and not (self._steps and task.feature_map == "binned"):
            raise ValueError(f"split is {list(task.split)}, and without held-out records figures are of training "
                             "records, each decided by a logistic regression that it did not train, of binned features "
                             "and two classes by logistic steps: give test a share, or take features = \"binned\" and "
                             'options.logistic_steps = "auto"')
        if options.gap is not None and task.holds_out and task.split[1] == 0:
            raise ValueError(f"options.gap is {options.gap:g}, and a classifier is chosen on the validation part, "
                             f"but split is {list(task.split)}: give that part a share")
        if options.threshold != EVEN and self.population.classes != CLASSES:
            raise ValueError(f"options.threshold is {options.threshold:g}, but there are {self.population.classes} "
                             "classes, and it is for 2: leave options.threshold out")
        self._refuse_misfit_of_steps()
        if options.monotone:
            refuse_unordered(directions_of(options.monotone), task.data().train.encoding, self.population.classes)
        self.second = self.first = torch.empty(0, dtype=torch.float64)  # the sums as they were released
        self.fitted = torch.empty(0, dtype=torch.float64)  # weights of the latest logistic step
        self.path = torch.empty(0, dtype=torch.float64)  # differences of scores' weights, before each step and after
        self.adding = self.sharers  # clients whose noise is in the moments
        self.deviation = 0.0  # of the noise on every number of them
        self.noises: list[float] = []  # deviation of the noise on the gradient of each logistic step
        self.entry = 1.0 if self.protects == "participant" else min(1.0, 0.5 / options.logistic_clip)  # beside 1s
        self.stepped: Head | None = None  # the logistic regression of the latest round, of the features it is fitted to

    def rule(self) -> ClipRule:
        """Return what one record adds at most to moments, sqrt(2) without clipping, or to a gradient."""
        return Flat(sums.SENSITIVITY * (self.options.logistic_clip if self._has_moments else 1.0))

    def rates(self) -> tuple[float, ...]:
        """Return 1 for every group: all records take part."""
        return (1.0,) * len(self.population.names)

    @property
    def rounds(self) -> int:
        """One round and the logistic steps, or none where the settings want no step."""
        return 0 if self.training.steps == 0 else 1 + self._steps

    @property
    def rounds_per_epoch(self) -> float:
        """One round."""
        return 1

    def next_exchange(self) -> Exchange | None:
        """Ask for moments first, and then for gradients."""
        if not self._has_moments:
            return super().next_exchange()
        return send_masked_gradient_sum if self.training.secure_aggregation else send_gradient_sum

    def asked_besides(self) -> Mapping[str, object]:
        """Say which groups have sums of their own."""
        if self._has_moments:
            return {}
        held = [size > 0 for sizes in self.population.sizes for size in sizes] if self._apart else []
        return {"by-group": self.options.by_group, "groups": self._groups, "mixing": self._mixes,
                **({"held": held} if held else {})}

    def like_sums(self) -> Mapping[str, Tensor]:
        """Return moments, or then gradients, of no record."""
        if self._has_moments:
            return self.descent.weights
        width = self.descent.weights[self._parameter].shape[1]
        return sums.zeros(width, self._groups, self.population.classes, self.options.by_group)

    def update(self, noisy: Gradients) -> None:
        """Keep the moments, or take a logistic step; after the last round, take the classifier that the options name.

        All others of the front follow from the same releases.
        """
        left = self.rounds - 1 - self.step
        if not self._has_moments:
            self.adding, self.deviation = self.answering, self._deviation_of(self.answering)
            self.second, self.first = noisy["second"], unmixed(noisy["first"]) if self._mixes else noisy["first"]
            trained = logistic.start(self.told.pooled(), self.options.floor) if left else None
        else:
            pooled, gradient = self.told.pooled(), noisy[self._parameter].double().cpu().T[self.bins.kept]
            trained = logistic.stepped(self._latest(pooled), gradient, pooled, self.step)
            self.noises = [*self.noises, self._deviation_of(self.answering)]
        self.stepped = trained
        if trained is not None:
            self.fitted = trained.weights
            self.path = torch.cat([self.path, (trained.weights[:, 1] - trained.weights[:, 0])[None]])
            self._become(self.bins.lift @ trained.weights)
        if left == 0:
            self._finish(trained)

    def finish(self) -> None:
        """Make the front of the latest logistic step."""
        inverse = least_squares(self.told.pooled(), self.options.floor).inverse
        self._finish(Head(self.fitted, inverse) if len(self.fitted) else None)

    def _finish(self, trained: Head | None) -> None:
        """Make the front, and take the classifier that the options name."""
        options, heads = self.options, heads_for(self.population.classes)
        head = LOGISTIC if trained else options.head or heads[0]
        chosen = Point(head, options.floor, options.tau, options.worst_group, options.threshold)
        few = self.training.figures in ("private", "none")
        grid = (few_points(head, options.floor, self._constrains) if few else
                points(heads, self._constrains, options.by_group, self.population.classes,
                       options.floor if trained else None))
        counted, fitting = self.bins.records, self._fitting
        tells = few and trained is not None and counted is not None  # what noise does to logistic regression on bins
        made = fitting.front([*dict.fromkeys((chosen, *grid))], trained, options.monotone,
                             source(self._released_already, "refits") if tells else None)
        self.made = made._replace(  # sums of participants count no records
            records=counted.rounded if counted and self.protects == "record" else None,
            left_out=None if self.task.holds_out else fitting.left_out(made))
        self._take(0)

    @property
    def _fitting(self) -> Fitting:
        """What classifiers are fitted by: the moments, the logistic steps, and public settings."""
        course = logistic.Course(self.told.pooled(), self.options.floor, self.path, tuple(self.noises),
                                 self.options.logistic_clip)
        return Fitting(self.told, course, self.bins, self.task.data().train.encoding, self.options.constraint,
                       self._favourable)

    @property
    def _released_already(self) -> str:
        """What draws that hide nothing follow from: the released sums, so that they tell nothing else."""
        parts = (self.second, self.first, self.path)
        return sha256(b"".join(part.detach().cpu().numpy().tobytes() for part in parts)).hexdigest()

    def choose(self, front: MeasuredFront) -> None:
        """Take the most accurate classifier whose gap is small enough, if that is asked."""
        if self.options.gap is not None:
            pick = least_constrained if self.training.figures == "private" else most_accurate
            self._take(pick(front, GAPS[self.options.constraint], self.options.gap))

    def _take(self, point: int) -> None:
        """Let the model be one of the front's classifiers."""
        assert self.made is not None
        self.taken = point
        self._become(self.made.weights[point])

    def _become(self, weights: Tensor) -> None:
        """Let the model have the weights `[d, C]`."""
        like = self.descent.weights[self._parameter]
        self.descent.become({self._parameter: weights.T.to(like).contiguous()})

    def _refuse_misfit_of_steps(self) -> None:
        """Raise `ValueError` for logistic steps that do not fit the other settings."""
        options, number = self.options, self._steps
        unfit = {f"there are {self.population.classes} classes, and they are made for 2": self.population.classes != 2,
                 "whole participants are protected, and they are made for records": self.protects != "record",
                 f"options.head is {options.head!r}, which takes none": options.head is not None,
                 f"options.worst_group is {options.worst_group:g}, and they weigh all records alike":
                     options.worst_group > 0,
                 f"average is {self.training.average:g}, and the front follows from the last step":
                     self.training.average > 0}
        for reason, holds in unfit.items():
            if number and holds:
                raise ValueError(f"options.logistic_steps is {number}, but {reason}: leave options.logistic_steps out")

    @property
    def _steps(self) -> int:
        """The number of logistic steps."""
        asked = self.options.logistic_steps
        if asked != "auto":
            return asked
        return logistic.AUTO_STEPS if self.population.classes == CLASSES and self.protects == "record" else 0

    @property
    def _has_moments(self) -> bool:
        """Whether the moments have been released."""
        return len(self.second) > 0

    @cached_property  # which nobody asks for before they were released, and they are released once
    def released(self) -> release.Moments:
        """The moments as they were released."""
        return release.Moments(sums.unsvec(self.second), self.first, self.deviation, self._last, self._deviations,
                               self._mixes)

    @cached_property
    def bins(self) -> Filled:
        """The features that some record has, as the released moments tell."""
        return filled(self.released, self.task.data().train.encoding)

    @cached_property
    def told(self) -> release.Moments:
        """The moments of these features, by which classifiers are fitted."""
        return self.released.of_features(self.bins.kept)

    def _latest(self, pooled: release.Pooled) -> Head:
        """Return the classifier of the latest round, with the matrix by which it was stepped."""
        weights = self.descent.weights[self._parameter].detach().double().cpu().T.clone()
        return Head(weights[self.bins.kept], least_squares(pooled, self.options.floor).inverse)

    @property
    def _constrains(self) -> bool:
        """Whether groups are something else than classes, so that scores may be made alike."""
        return not self.population.groups_are_classes(self.task)

    @property
    def _groups(self) -> int:
        """The number of groups whose features are added up apart: all, or one for all records."""
        return len(self.population.names) if self._constrains else 1

    @property
    def _favourable(self) -> int | None:
        """The number of the favourable class; of two classes the second, unless another is named."""
        return favourable_of(self.training.favourable_class(self.population.labels), self.population.classes)

    def _deviation_of(self, adding: int) -> float:
        """Return the standard deviation of the noise on every number of sums to which some clients add it."""
        share = client_share(self.training.trust, self.sharers) * math.sqrt(adding)
        return self.noise.of_sum * sensitivity(self.rule(), len(self.population.names)) * (
            share + server_share(self.training.trust))

    @property
    def _apart(self) -> bool:
        """Whether clients add noise to the numbers of their own groups alone, where some have none of a group."""
        local = self.training.trust is Trust.LOCAL and self.protects == "record" and not self.training.dropouts
        return local and self._groups > 1 and not all(all(sizes) for sizes in self.population.sizes)

    @property
    def _mixes(self) -> bool:
        """Whether sums of features are mixed for the contrast of two classes."""
        return self.population.classes == CLASSES and not self._apart

    @property
    def _deviations(self) -> tuple[float, ...] | None:
        """The same by group, of as many clients' noise as hold the group; None where that is all of them."""
        if not self._apart:
            return None
        alone = self.deviation / math.sqrt(self.adding)
        holders = [sum(size > 0 for size in sizes) for sizes in zip(*self.population.sizes, strict=True)]
        return tuple(alone * math.sqrt(number) for number in holders)

    @property
    def _last(self) -> float:
        """The constant last coordinate of every record's features, which is public."""
        bounding = self.task.data().train.encoding.bounding
        assert bounding is not None
        return bounding.last

    @property
    def _parameter(self) -> str:
        """Name of the model's only parameter."""
        return next(iter(self.descent.weights))
