"""How a run trains: length, optimiser, privacy. What each strategy adds to it are its own `options`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedfair.accounting import Accountant
from fedfair.mechanisms.noise import NoiseName, Trust
from fedfair.models.optimizers import OptimizerName
from strategies.server.threshold_settings import ThresholdSettings

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]


class Training(ThresholdSettings, BaseModel):
    """Settings of the training itself and of what follows it; frozen, and validated when made.

    `sync` is "step" (one gradient sum a round) or "epoch" (one local epoch a round), by default the strategy's own;
    `steps` is the number of rounds, instead of `epochs`. `batch_size` is the expected one; `momentum` is that of
    `torch.optim.SGD`, taken of noisy steps, so that it costs no privacy. A noise multiplier of 0 trains without noise,
    and without any guarantee; `count_noise_multiplier` defaults to ten times the noise multiplier; `target_epsilon`
    asks, instead of a `noise_multiplier`, for the smallest one that stays within it at `delta` by `accountant`.
    `group_epsilon` keeps what the records of each group are charged at `delta` within that budget, for strategies with
    bounds or weights by group (see `strategies.server.group_budget`). `trust` says who sees sums without noise in step
    mode. `noise` is sampled in floating point or, "discrete", exactly on a grid. `randomness` is "seeded", for
    simulation, where whoever knows the seed knows batches and noise, or "system": both come from the operating system,
    and no run can be repeated. `dropouts` is how many clients a round may do without: so many shares of distributed
    noise are too many. `eval_every` is in epochs.

    `risk_every` measures the excessive-risk terms (see `fedfair.risk.terms`) before the first and every so many steps,
    without any privacy: "loss_exact" and "gradient_norm_exact", the mean loss of each group and the norm of its
    gradient, over all training records; Hessians over about `risk_records` training records of each group, their traces
    by about `risk_vectors` Rademacher vectors, each for a record of its own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sync: Literal["step", "epoch"] | None = None
    epochs: NotNegative = 20
    steps: Count | None = None
    batch_size: Annotated[int, Field(ge=1)] = 256
    optimizer: OptimizerName = "sgd"
    learning_rate: Positive = 0.01
    weight_decay: NotNegative = 0
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0
    clip_norm: Positive = 0.5
    noise_multiplier: NotNegative = 1
    count_noise_multiplier: NotNegative | None = None
    target_epsilon: Positive | None = None
    group_epsilon: Positive | None = None
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-6
    accountant: Accountant = "pld"
    trust: Trust = Trust.CENTRAL
    noise: NoiseName = "gaussian"
    randomness: Literal["seeded", "system"] = "seeded"
    dropouts: Count = 0
    eval_every: Positive = 1
    risk_every: Annotated[int, Field(ge=1)] | None = None
    risk_records: Annotated[int, Field(ge=1)] = 256
    risk_vectors: Annotated[int, Field(ge=2)] = 1000
    options: dict[str, Any] = {}

    @model_validator(mode="after")
    def _risk_terms_are_asked_for(self) -> Training:
        """What belongs to a measurement has no effect without one."""
        named = {"risk_records", "risk_vectors"} & self.model_fields_set
        defaults = {name for name in named if getattr(self, name) == type(self).model_fields[name].default}
        if self.risk_every is None and named - defaults:
            raise ValueError(f"{min(named - defaults)} is set, but risk_every is not, so nothing is measured: set "
                             "risk_every, or leave it out")
        return self

    @model_validator(mode="after")
    def _one_of_two_is_given(self) -> Training:
        """Of two settings that say the same in two ways, the one that has no effect is not given."""
        for name, instead_of in (("target_epsilon", "noise_multiplier"), ("steps", "epochs")):
            default, value = type(self).model_fields[instead_of].default, getattr(self, instead_of)
            if getattr(self, name) is not None and value != default:
                raise ValueError(f"{name} is {getattr(self, name):g}, which takes the place of {instead_of}, but that "
                                 f"is given as well, {value:g}: leave one of the two out")
        return self

    @model_validator(mode="after")
    def _momentum_is_of_sgd(self) -> Training:
        """Adam and RMSprop keep averages of their own."""
        if self.momentum and self.optimizer != "sgd":
            raise ValueError(f"momentum is {self.momentum:g}, but optimizer is {self.optimizer!r}, which has none: "
                             "take sgd, or leave momentum out")
        return self
