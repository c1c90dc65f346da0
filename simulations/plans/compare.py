"""Several strategies on the same data, seeds and splits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from simulations.engines.engines import Engine, make_engine
from simulations.engines.run import Progress, refuse_unfit, run
from simulations.results.result import Result
from simulations.settings.experiment import Experiment, SettingsError
from simulations.settings.presets import joined, merged, preset

OnRound = Callable[[int, int, str, int, int], None]
"""Called with runs done, runs in all, the current run's name, its rounds done and rounds in all."""

CHOSEN_BY = {"dataset": "--dataset, or by datasets in a sweep",
             "strategy": "--strategy or --strategies, or by strategies in a sweep",
             "seed": "--seed or --seeds, or by seeds in a sweep"}
"""Fields of an experiment that people do not choose among its settings, and where they do."""


def experiments(strategies: Sequence[str], seeds: Sequence[int], preset_name: str | None,
                settings: Mapping[str, Any]) -> list[Experiment]:
    """The experiments of a comparison, all validated.

    `settings` win over the preset; a key "STRATEGY.key" is meant for one strategy, "options.key" for its options. Of a
    preset, a file of one's own (`csv`) gets what is not meant for a data set.
    Raises `SettingsError` or `ValueError` for what is not allowed.
    """
    if not strategies:
        raise SettingsError("no strategy was named: name one or several, for example sgd,dpsgd")
    if len(set(strategies)) < len(strategies):
        raise SettingsError(f"a strategy is named twice among {', '.join(strategies)}: name each once")
    made, refused = [], {}
    for strategy in strategies:
        own = for_strategy(settings, strategy, strategies)
        dataset = None if own.get("csv") else str(own.get("dataset", "digits"))
        layers = merged(preset(preset_name, dataset, strategy), own, {"strategy": strategy})
        try:
            made += [Experiment(**layers, seed=seed) for seed in seeds]
        except SettingsError as error:
            refused[strategy] = str(error)
    if refused:
        raise SettingsError(_of_each(refused, strategies))
    return made


def _of_each(refused: Mapping[str, str], strategies: Sequence[str]) -> str:
    """What is wrong with each strategy's settings; once, if it is the same for all of them."""
    said = set(refused.values())
    if len(said) == 1 and len(refused) == len(strategies):
        return said.pop()
    return "; ".join(f"{strategy}: {error}" for strategy, error in refused.items())


def compare(planned: Sequence[Experiment], engine: str | Engine = "local", nodes: int | None = None,
            on_round: OnRound = lambda *progress: None) -> list[Result]:
    """Run the experiments one after the other; raises what `run` raises, for settings that do not fit before the
    first.
    """
    chosen = make_engine(engine, nodes)
    refuse_unfit(planned)
    return [run(experiment, chosen, progress=progress) for experiment, progress in following(planned, on_round)]


def following(planned: Sequence[Experiment], on_round: OnRound) -> Iterator[tuple[Experiment, Progress]]:
    """Each experiment with a `Progress` that says on `on_round` how far all of them are."""
    for done, experiment in enumerate(planned):
        name = f"{experiment.strategy}, seed {experiment.seed}"

        def progress(rounds: int, of: int, done: int = done, name: str = name) -> None:
            """Tell how far this run is."""
            on_round(done, len(planned), name, rounds, of)

        yield experiment, progress


def refuse_chosen(settings: Mapping[str, Any], fields: Iterable[str] = CHOSEN_BY) -> None:
    """Raise `SettingsError` if one of the `fields`, which are chosen in another way, is among the settings."""
    for field in fields:
        if field in settings:
            raise SettingsError(f"{field} is {settings[field]!r} among the settings, but it is chosen by "
                                f"{CHOSEN_BY[field]}")


def for_strategy(settings: Mapping[str, Any], strategy: str, strategies: Sequence[str]) -> dict[str, Any]:
    """The settings that concern one strategy, with dotted keys resolved; those that are meant for it alone win.

    Raises `SettingsError` for options that are not a table, and for a strategy, a seed, or a data set for one strategy.
    """
    general: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for key, value in settings.items():
        owner, _, rest = key.partition(".")
        if owner not in strategies or not rest:
            general = joined(general, _resolved(key, value))
        elif owner == strategy:
            own = joined(own, _resolved(rest, value))
    refuse_chosen(general, ("strategy", "seed"))
    refuse_chosen(own)
    return merged(general, own)


def _resolved(key: str, value: Any) -> dict[str, Any]:
    """A setting by its name; "options.key" is one of the strategy's own."""
    if key.startswith("options."):
        return {"options": {key.removeprefix("options."): value}}
    if key == "options" and not isinstance(value, Mapping):
        raise SettingsError(f"options is {value!r}: give a strategy's own settings by name, for example "
                            "options.max_bound=4")
    return {key: value}
