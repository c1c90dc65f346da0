"""How a run trains: length, optimiser, privacy. A strategy adds its own `options`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from fedfair.accounting import ACCOUNTANTS, Accountant
from fedfair.datasets.names import names_in
from fedfair.fairness.sklearn_metrics import find_metric
from fedfair.mechanisms.noise import NoiseName, Trust
from fedfair.models.optimizers import OptimizerName
from fedfair.protocol.fields import (
    MOST_CLIENTS,
    MOST_STEPS,
    AnyNotNegative,
    AnyPositive,
    ClipNorm,
    NoiseMultiplier,
    NotNegative,
    Positive,
    Probability,
    held,
    marked,
)
from fedfair.protocol.round import LocalTraining
from strategies.server.by_group import SettingsByGroup
from strategies.server.threshold_settings import ThresholdSettings


def _known_metrics(names: Any) -> Any:
    """Return the names of metrics of scikit-learn from one or several; raise `ValueError` for an unknown one."""
    several = [names] if isinstance(names, str) else names
    for name in several if isinstance(several, list | tuple) else ():
        if isinstance(name, str):
            find_metric(name)
    return several


def _named(names: Any) -> Any:
    """Return the names of groups from a list, or from a text with commas between them."""
    return tuple(names_in(names)) if isinstance(names, str) else names


Metrics = Annotated[tuple[str, ...], BeforeValidator(_known_metrics)]


def _known_accountant(name: str) -> str:
    """Return the name of an accountant; raise `ValueError` with the nearest names for an unknown one."""
    ACCOUNTANTS[name]
    return name


class Training(ThresholdSettings, SettingsByGroup):
    """Settings of the training itself and of what follows it; frozen, and validated when made.

    Every field describes itself; docs/settings.md and `fedfair settings` list them.

    Examples:
        >>> Training(sampling_rate=0.1).sized(records=2500).batch_size
        250
        >>> Training().exact_figures, Training(randomness="system").exact_figures
        (True, False)
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Literal["simulation", "deployment"] = Field(
        default="simulation", json_schema_extra={"decided_by_app": True},
        description="What the run is for. A deployment has randomness system, trust local (or distributed), noise "
                    "discrete with dtype float64, figures none (or private, or held-out), and no attribute_in_model; "
                    "settings that give the noise away, or leave it out, are refused.")
    sync: Literal["step", "epoch"] | None = Field(
        default=None, json_schema_extra={"decided_by_app": True},
        description="What a round is: one gradient step over all clients, or local epochs of every client; by default "
                    "the strategy's own choice.")
    local_epochs: Annotated[int, Field(ge=1, le=1_000)] = Field(
        default=1, json_schema_extra={"decided_by_app": True},
        description="Local epochs in a round, after which weights are averaged, only with sync epoch: with more of "
                    "them there are fewer rounds in as many epochs. dp-fedavg and fedavg have options.local_epochs.")
    epochs: Annotated[AnyNotNegative, held(1e-9, MOST_STEPS)] = Field(
        default=20, json_schema_extra={"decided_by_app": True},
        description="Length of the training in epochs of expected batches.")
    steps: Annotated[int, Field(ge=0, le=MOST_STEPS)] | None = Field(
        default=None, json_schema_extra={"decided_by_app": True, "replaces": "epochs"},
        description="Number of rounds, in place of epochs; 0 returns the initial model.")
    batch_size: Annotated[int, Field(ge=1)] = Field(
        default=256,
        description="Expected number of records in a batch.")
    sampling: Literal["poisson", "balls-in-bins"] = Field(
        default="poisson", json_schema_extra={"decided_by_app": True},
        description="How records come into batches: each into every batch with the same probability (poisson), or each "
                    "into one batch of every epoch, by chance (balls-in-bins), which costs less where an epoch has few "
                    "steps; only with sync step, trust central, and sgd, dpsgd, dpsgd-f or dpsgd-f-quantile.")
    sampling_rate: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, json_schema_extra={"replaces": "batch_size"},
        description="Share of the training records, whose number is public, in place of batch_size; 1 takes all "
                    "records into every step, so that no sampling must stay secret.")
    optimizer: OptimizerName = Field(
        default="sgd",
        description="Optimiser of the noisy steps.")
    learning_rate: Positive = Field(
        default=0.01,
        description="Learning rate of the optimiser.")
    weight_decay: NotNegative = Field(
        default=0,
        description="Weight decay of the optimiser, as in torch.optim.")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0, json_schema_extra={"belongs_to": "optimizer"},
        description="Momentum of torch.optim.SGD, only with optimizer sgd; it follows the noise, so it costs no "
                    "privacy.")
    proximal: NotNegative = Field(
        default=0, json_schema_extra={"decided_by_app": True},
        description="Weight mu of FedProx's term mu / 2 ||w - w_0||^2, which holds what a client trains by itself near "
                    "the common weights w_0 (Flower's proximal_mu), only in local epochs; it reads no record, so it "
                    "costs no privacy.")
    average: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0, json_schema_extra={"decided_by_app": True},
        description="Decay of an exponential moving average of the weights over rounds, which the run returns in place "
                    "of the latest weights; it follows the noise, so it costs no privacy.")
    clip_norm: ClipNorm = Field(
        default=0.5, json_schema_extra={"by_group": "largest"},
        description="Clip norm C0: bound on the Euclidean norm of a per-example gradient.")
    noise_multiplier: NoiseMultiplier = Field(
        default=1, json_schema_extra={"by_group": "largest"},
        description="Standard deviation of the gradient noise, in multiples of the clip rule's sensitivity; 0 trains "
                    "without noise and without any guarantee.")
    count_noise_multiplier: Annotated[AnyNotNegative, held(1e-12, 1e9)] | None = Field(
        default=None,
        description="Standard deviation of the noise on counts by group, one record changing a count by 1; by default "
                    "ten times the noise multiplier.")
    target_epsilon: Positive | None = Field(
        default=None, json_schema_extra={"replaces": "noise_multiplier", "by_group": "smallest"},
        description="Epsilon at delta, by the accountant, in place of noise_multiplier: the smallest noise multiplier "
                    "within it is taken. What is asked of all groups alike, private preprocessing and figures, goes by "
                    "the smallest of a table.")
    preprocessing_epsilon: Positive | None = Field(
        default=None,
        description="Epsilon that the release of private preprocessing would cost alone; by default a quarter of "
                    "target_epsilon, which covers it.")
    group_epsilon: Positive | None = Field(
        default=None, json_schema_extra={"by_group": "smallest"},
        description="Epsilon at delta that the records of each group are kept within, only with sync step and "
                    "strategies that have bounds or weights by group.")
    delta: Probability = Field(
        default=1e-6,
        description="Delta at which every epsilon is stated.")
    accountant: Annotated[Accountant, AfterValidator(_known_accountant)] = Field(
        default="pld", json_schema_extra={"allowed": ", ".join(ACCOUNTANTS)},
        description="How events are composed: by privacy loss distributions (pld), or Renyi divergences (rdp), as the "
                    "papers do; rdp-classic is rdp with the conversion of papers before 2020, a larger figure, to "
                    "compare with theirs.")
    trust: Trust = Field(
        default=Trust.CENTRAL, json_schema_extra={"decided_by_app": True},
        description="Who adds the noise of a step: the server (central), the clients in shares, for secure "
                    "aggregation (distributed), or each client in full (local).")
    noise: NoiseName = Field(
        default="gaussian",
        description="How noise is sampled: in floating point (gaussian), or exactly on a grid (discrete), which needs "
                    "dtype float64.")
    secure_aggregation: bool = Field(
        default=False, json_schema_extra={"decided_by_app": True, "same_releases": True},
        description="Whether nodes add masks that cancel, so that the server sees only the sum over all of them; only "
                    "with trust distributed, noise discrete and moments.")
    randomness: Literal["seeded", "system"] = Field(
        default="seeded", json_schema_extra={"decided_by_app": True},
        description="Where batches and noise come from: the seed and all settings, for simulation, since anyone with "
                    "them can reconstruct the draws; or the operating system, and then no run can be repeated.")
    figures: Literal["exact", "held-out", "private", "none"] | None = Field(
        default=None, json_schema_extra={"decided_by_app": True, "same_releases": True},
        description="What is measured: figures of held-out records with noise (private), once, at the end, so that all "
                    "of a folder can be published; figures of held-out records without noise (held-out); of "
                    "training records too (exact), which is for simulation; or nothing (none). By default exact with "
                    "randomness seeded, and held-out with randomness system.")
    figures_epsilon: Positive | None = Field(
        default=None, json_schema_extra={"belongs_to": "figures"},
        description="Epsilon at delta of private figures, for a record of the validation or of the test part; by "
                    "default target_epsilon. Training records are in neither part: nothing is added to their epsilon. "
                    "Where split holds nothing out, of a training record, and part of what that is charged.")
    gap_among: Annotated[tuple[str, ...], BeforeValidator(_named)] | None = Field(
        default=None, json_schema_extra={"belongs_to": "figures", "allowed": "list of text"},
        description='Groups among which gaps of private figures are, ["F", "M"], whatever can be told of others such '
                    "as missing; name them without looking at the records. By default all of which the rates can be "
                    "told.")
    dropouts: Annotated[int, Field(ge=0, le=MOST_CLIENTS)] = Field(
        default=0, json_schema_extra={"decided_by_app": True},
        description="Number of clients that may be missing in a round; under distributed trust clients add that many "
                    "extra shares of noise.")
    answer_timeout: Annotated[AnyPositive, held(1e-3, 1e7)] = Field(
        default=3600, json_schema_extra={"decided_by_app": True, "same_releases": True},
        description="Seconds after which a node that has not answered is given up, under Flower's runtime; 3600 is "
                    "Flower's own default for a round.")
    eval_every: Annotated[AnyPositive, held(1e-9, 1e9)] = Field(
        default=1, json_schema_extra={"decided_by_app": True, "same_releases": True},
        description="Epochs between evaluations of the model.")
    metrics: Metrics = Field(
        default=(), json_schema_extra={"decided_by_app": True, "same_releases": True},
        description="Further metrics of every group, by scikit-learn's names of scorers or functions, for example "
                    '["matthews_corrcoef", "f1_macro", "sklearn:average_precision"].')
    risk_every: Annotated[int, Field(ge=1, le=MOST_STEPS)] | None = Field(
        default=None, json_schema_extra={"decided_by_app": True, "same_releases": True},
        description="Steps between measurements of the excessive-risk terms, which are not private; by default they "
                    "are not measured.")
    risk_records: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=256, json_schema_extra={"same_releases": True},
        description="Training records of each group, about, that Hessians are estimated from; only with risk_every.")
    risk_vectors: Annotated[int, Field(ge=2, le=1_000_000)] = Field(
        default=1000, json_schema_extra={"same_releases": True},
        description="Rademacher vectors, about, for the trace of a group's Hessian, each with another record, or with "
                    "all in turn where a group has fewer; only with risk_every.")
    options: dict[str, Any] = Field(
        default={},
        description="The strategy's own options by name; `fedfair settings options` lists them.")

    @model_validator(mode="after")
    def _risk_terms_are_asked_for(self) -> Training:
        """Refuse settings of the risk terms where those are not measured."""
        named = {"risk_records", "risk_vectors"} & self.model_fields_set
        defaults = {name for name in named if getattr(self, name) == type(self).model_fields[name].default}
        if self.risk_every is None and named - defaults:
            raise ValueError(f"{min(named - defaults)} is set, but risk_every is not, so nothing is measured: set "
                             "risk_every, or leave it out")
        return self

    @model_validator(mode="after")
    def _exact_figures_are_allowed(self) -> Training:
        """Refuse risk terms and further metrics, which have no noise, where figures without noise are not wanted."""
        if self.risk_every is not None and self.figures in ("held-out", "private", "none"):
            raise ValueError(f"risk_every is {self.risk_every}, which measures training records without noise, but "
                             f'figures is "{self.figures}": take figures = "exact", or leave risk_every out')
        if self.metrics and self.figures == "private":
            raise ValueError(f"metrics is {list(self.metrics)}, which are computed of exact counts, but figures is "
                             '"private": leave metrics out')
        if self.figures_epsilon is not None and self.figures != "private":
            raise ValueError(f"figures_epsilon is {self.figures_epsilon:g}, but figures is {self.figures!r}: take "
                             'figures = "private", or leave figures_epsilon out')
        return self

    @model_validator(mode="after")
    def _gaps_are_among_groups(self) -> Training:
        """Refuse groups of which no gap can be made, or gaps among groups where no private figures are made."""
        named = self.gap_among
        if named is None:
            return self
        if len({*named}) < max(2, len(named)):
            raise ValueError(f"gap_among is {list(named)}: name two groups or more, each once, or leave it out")
        if self.figures != "private":
            raise ValueError(f"gap_among is {list(named)}, for gaps of private figures, but figures is "
                             f'{self.figures!r}: take figures = "private", or leave gap_among out')
        return self

    def sized(self, records: int) -> Training:
        """Return the same settings with the batch size that the sampling rate asks for, if there is one."""
        if self.sampling_rate is None:
            return self
        size = max(1, round(self.sampling_rate * records))
        return self.model_copy(update={"batch_size": size, "sampling_rate": None})

    def steps_of_epoch(self, records: int) -> int | None:
        """Return the number of steps of an epoch that a record is in one of; None where batches are Poisson samples.

        Args:
            records: Public number of training records.

        Examples:
            >>> Training().steps_of_epoch(1050), Training(sampling="balls-in-bins").steps_of_epoch(1050)
            (None, 4)
        """
        return None if self.sampling == "poisson" else max(1, round(records / self.batch_size))

    def local_epoch(self, noise_multipliers: tuple[float, ...], weights: tuple[float, ...], sizes: tuple[int, ...],
                    bounds_fixed: bool) -> LocalTraining:
        """Return how each client trains by itself for an epoch, by these settings.

        Args:
            noise_multipliers: Noise multiplier of each client.
            weights: Each client's share in the average of the trained weights.
            sizes: Each client's public number of records.
            bounds_fixed: Whether the bounds of the rule are the same in all rounds.

        Examples:
            >>> Training(batch_size=50).local_epoch((2.0,), weights=(1.0,), sizes=(600,), bounds_fixed=True).batch_size
            50
        """
        return LocalTraining(
            batch_size=self.batch_size, optimizer=self.optimizer, learning_rate=self.learning_rate,
            weight_decay=self.weight_decay, momentum=self.momentum, noise_multipliers=noise_multipliers,
            weights=weights, sizes=sizes, proximal=self.proximal, bounds_fixed=bounds_fixed,
            epochs=self.local_epochs)

    @property
    def exact_figures(self) -> bool:
        """Whether training records are measured without noise."""
        return self.figures == "exact" or (self.figures is None and self.randomness == "seeded")

    @model_validator(mode="after")
    def _one_of_two_is_given(self) -> Training:
        """Refuse a setting beside the one that replaces it."""
        for name, instead_of in marked(type(self), "replaces").items():
            default, value = type(self).model_fields[instead_of].default, getattr(self, instead_of)
            if getattr(self, name) is not None and value != default:
                raise ValueError(f"{name} is {getattr(self, name):g}, which takes the place of {instead_of}, but that "
                                 f"is given as well, {value:g}: leave one of the two out")
        return self

    @model_validator(mode="after")
    def _secure_sums_are_of_whole_numbers(self) -> Training:
        """Refuse secure aggregation of sums that are no whole numbers, or whose noise is not the clients' together."""
        for name, value, needed in (("trust", self.trust, "distributed"), ("noise", self.noise, "discrete")):
            if self.secure_aggregation and value != needed:
                raise ValueError(f'secure_aggregation is true, but {name} is "{value}": take {name} = "{needed}", or '
                                 "leave secure_aggregation out")
        return self

    @model_validator(mode="after")
    def _momentum_is_of_sgd(self) -> Training:
        """Refuse momentum with an optimiser that keeps averages of its own."""
        if self.momentum and self.optimizer != "sgd":
            raise ValueError(f"momentum is {self.momentum:g}, but optimizer is {self.optimizer!r}, which has none: "
                             "take sgd, or leave momentum out")
        return self
