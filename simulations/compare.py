"""Several strategies on the same data, seeds and splits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from simulations.engines import Engine, make_engine
from simulations.experiment import Experiment, SettingsError
from simulations.presets import merged, preset
from simulations.result import Result
from simulations.run import Progress, run

OnRound = Callable[[int, int, str, int, int], None]
"""Called with runs done, runs in all, the current run's name, its rounds done and rounds in all."""


def experiments(strategies: Sequence[str], seeds: Sequence[int], preset_name: str | None,
                settings: Mapping[str, Any]) -> list[Experiment]:
    """The experiments of a comparison, all validated.

    `settings` win over the preset; a key "STRATEGY.key" is meant for one strategy, "options.key" for its options.
    Raises `SettingsError` or `ValueError` for what is not allowed.
    """
    if not strategies:
        raise SettingsError("no strategy was named: name one or several, for example sgd,dpsgd")
    if len(set(strategies)) < len(strategies):
        raise SettingsError(f"a strategy is named twice among {', '.join(strategies)}: name each once")
    file = settings.get("csv")
    dataset = str(settings.get("dataset") or (Path(str(file)).stem if file else "digits"))
    made = []
    for strategy in strategies:
        own = for_strategy(settings, strategy, strategies)
        layers = merged({"dataset": dataset}, preset(preset_name, dataset, strategy), own, {"strategy": strategy})
        made += [Experiment(**layers, seed=seed) for seed in seeds]
    return made


def compare(planned: Sequence[Experiment], engine: str | Engine = "local", nodes: int | None = None,
            on_round: OnRound = lambda *progress: None) -> list[Result]:
    """Run the experiments one after the other; raises what `run` raises."""
    chosen = make_engine(engine, nodes)
    return [run(experiment, chosen, progress=progress) for experiment, progress in following(planned, on_round)]


def following(planned: Sequence[Experiment], on_round: OnRound) -> Iterator[tuple[Experiment, Progress]]:
    """Each experiment with a `Progress` that says on `on_round` how far all of them are."""
    for done, experiment in enumerate(planned):
        name = f"{experiment.strategy}, seed {experiment.seed}"

        def progress(rounds: int, of: int, done: int = done, name: str = name) -> None:
            on_round(done, len(planned), name, rounds, of)

        yield experiment, progress


def for_strategy(settings: Mapping[str, Any], strategy: str, strategies: Sequence[str]) -> dict[str, Any]:
    """The settings that concern one strategy, with dotted keys resolved."""
    result: dict[str, Any] = {}
    for key, value in settings.items():
        owner, _, rest = key.partition(".")
        if owner in strategies:
            if owner != strategy:
                continue
            key = rest
        if key.startswith("options."):
            result.setdefault("options", {})[key.removeprefix("options.")] = value
        else:
            result[key] = value
    return result
