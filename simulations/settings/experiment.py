"""One experiment: a validated, frozen description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import Field, ValidationError, model_validator
from pydantic_core import to_jsonable_python

from fedfair.plugins.registry import unknown
from fedfair.protocol.task import Task
from simulations.settings.deployment import refuse_no_deployment, with_deployment
from strategies import COMBINATIONS, STRATEGIES, find_strategy
from strategies.server.by_group import refuse_tables
from strategies.server.releases.risk_meter import refuse_unmeasurable
from strategies.server.training import Training


class SettingsError(ValueError):
    """A setting is wrong; the message names it, its value, and what is allowed."""


class Experiment(Task, Training):
    """What is trained (see `Task`), how (see `Training`), and by which `strategy`; frozen, and validated when made.

    Args:
        settings: Fields by name; docs/settings.md and `fedfair settings` list them.

    Raises:
        SettingsError: If a value is not allowed; the message names the field, the value and what is allowed.

    Examples:
        >>> experiment = Experiment(strategy="dpsgd-p", target_epsilon=3)
        >>> experiment.key, experiment.settings()["clip_norm"]
        (RunKey(dataset='digits', strategy='dpsgd-p', seed=0), 0.5)
        >>> experiment.identity()
        {'dataset': 'digits', 'seed': 0, 'strategy': 'dpsgd-p', 'target_epsilon': 3.0, 'threshold': 'roc'}
        >>> Experiment(strategy="dpsgd", epoch=5)
        Traceback (most recent call last):
            ...
        simulations.settings.experiment.SettingsError: unknown setting 'epoch': did you mean 'epochs' or ...
    """

    strategy: str = Field(
        default="dpsgd",
        json_schema_extra={"chosen_by": "--strategy or --strategies, or by strategies in a sweep"},
        description=f"Method: {', '.join((*STRATEGIES, *COMBINATIONS))}, or the name of a file with your own.")

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise SettingsError(in_words(error, Experiment.model_fields)) from None

    @model_validator(mode="before")
    @classmethod
    def _combination(cls, values: Any) -> Any:
        """Add the settings of a combination."""
        name = str(values.get("strategy")) if isinstance(values, dict) else ""
        return {**COMBINATIONS[name].settings, **values} if name in COMBINATIONS else values

    @model_validator(mode="before")
    @classmethod
    def _deployment(cls, values: Any) -> Any:
        """Add the settings of a deployment."""
        return with_deployment(values) if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _is_one(self) -> Experiment:
        """Refuse what is no deployment under that name."""
        refuse_no_deployment(self, self)
        return self

    @model_validator(mode="after")
    def _threshold_has_records(self) -> Experiment:
        """Refuse a search for a threshold without a validation part."""
        if self.searches and self.split[1] == 0:
            raise ValueError(f"threshold {self.threshold!r} is looked for in the validation part, but split is "
                             f"{list(self.split)}: give that part a share, for example split=[0.7,0.1,0.2]")
        return self

    @model_validator(mode="after")
    def _figures_have_records(self) -> Experiment:
        """Refuse to hold nothing out where figures are of held-out records."""
        if not self.holds_out and (self.strategy != "moments" or self.figures != "private"):
            raise ValueError(f"split is {list(self.split)}, so nothing is held out, but figures are of held-out "
                             'records, unless they are private ones of moments: give test a share, or take strategy = '
                             '"moments" and figures = "private"')
        return self

    @model_validator(mode="after")
    def _figures_have_true_groups(self) -> Experiment:
        """Refuse wrong groups where figures may be of the records that have them."""
        if self.wrong_groups and self.figures == "private":
            raise ValueError(f"wrong_groups is {self.wrong_groups:g}, a simulation whose figures are of the true "
                             'groups, but figures is "private": leave one of them out')
        return self

    @model_validator(mode="after")
    def _sites_have_figures(self) -> Experiment:
        """Refuse sites where no figures by site are made."""
        if self.site is not None and self.figures != "private":
            raise ValueError(f"site is {self.site!r}, for private figures by site, but figures is {self.figures!r}: "
                             'take figures = "private", or leave site out')
        return self

    @model_validator(mode="after")
    def _strategy_fits(self) -> Experiment:
        """Refuse an unknown strategy, and what it does not know or allow."""
        strategy = find_strategy(self.strategy)
        refuse_tables(self.tables, self.strategy, strategy.tables)
        if self.sync is not None and self.sync not in strategy.modes:
            raise ValueError(f"sync is {self.sync!r}, but {self.strategy} runs only with sync = "
                             f"{' or '.join(map(repr, strategy.modes))}: leave it out")
        if self.risk_every is not None and (self.record_weight or self.class_weights):
            raise ValueError("risk_every describes steps on losses without weights: leave it out, or record_weight and "
                             "class_weights")
        if self.risk_every is not None:
            refuse_unmeasurable(self, self.sync or strategy.default_sync, strategy.exchange)
        try:
            strategy.Options(**self.options)
        except ValidationError as error:
            raise ValueError(f"options of {self.strategy}: {in_words(error, strategy.Options.model_fields)}") from None
        return self

    @property
    def task(self) -> Task:
        """The fields that every client must know."""
        return Task(**{name: getattr(self, name) for name in Task.model_fields})

    @property
    def training(self) -> Training:
        """The fields that the strategy must know."""
        return Training(**{**{name: getattr(self, name) for name in Training.model_fields}, **self.tables})

    @property
    def key(self) -> RunKey:
        """What tells the runs of a comparison apart."""
        return RunKey(self.dataset, self.strategy, self.seed)

    def settings(self) -> dict[str, Any]:
        """Return all fields that are not None, as plain values for TOML."""
        return self.model_dump(mode="json", exclude_none=True)

    def identity(self) -> dict[str, Any]:
        """Return what tells this experiment from every other one (see `identity_of`), as JSON values, sorted by name.

        A field that is added later, with a default, changes no identity of what was saved before.
        """
        return identity_of(self.settings())


class RunKey(NamedTuple):
    """Data set, method and seed of a run, which tell it from the others of a comparison."""

    dataset: str
    strategy: str
    seed: int

    @property
    def name(self) -> str:
        """The run's name in the files of a comparison: "strategy/seed-0"."""
        return f"{self.strategy}/seed-{self.seed}"


_ALWAYS = ("dataset", "seed", "strategy")
"""Fields that name an experiment, even at their defaults."""
_LONGEST = 200
"""Characters of a value that an error shows."""


def identity_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of saved `settings` that are not an experiment's defaults, sorted by name.

    The data set, the strategy and the seed stay if they are there, and so does what is no field of an experiment.
    """
    defaults = to_jsonable_python({name: field.default for name, field in Experiment.model_fields.items()})
    return {name: value for name, value in sorted(settings.items())
            if name in _ALWAYS or name not in defaults or value != defaults[name]}


def in_words(error: ValidationError, known: Any) -> str:
    """Return a sentence for each thing that is wrong; `known` are the names of settings."""
    sentences = []
    for problem in error.errors():
        field = ".".join(map(str, problem["loc"][:-1] if problem["type"] == "missing" else problem["loc"])) or "it"
        if problem["type"] == "extra_forbidden":
            sentences.append(str(unknown("setting", field, known or ("none",), "`fedfair settings`")))
        elif problem["type"] == "value_error":
            sentences.append(problem["msg"].removeprefix("Value error, "))
        else:
            sentences.append(f"{field} is {_shown(problem['input'])}: {_wanted(problem)}")
    return "; ".join(sentences)


def _shown(value: Any) -> str:
    """Return a value as it was given, or its beginning where it is long."""
    try:
        text = repr(value)
    except RecursionError:
        return "nested too deep"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _wanted(problem: Mapping[str, Any]) -> str:
    """Return what a value should be, with an example where its type is wrong."""
    given, kind, name = problem["input"], problem["type"], problem["loc"][-1]
    if kind == "tuple_type":
        return f"it should be a list, for example {name} = [{given!r}]"
    if kind == "string_type":
        return f'it should be a text, for example {name} = "{given}"'
    if kind == "missing":
        return "a value is missing" if isinstance(name, int) else f"{name} is missing"
    return str(problem["msg"]).replace("Input should", "it should")
