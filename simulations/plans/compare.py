"""Several strategies on the same data, seeds and splits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from simulations.engines.engines import Engine, make_engine
from simulations.engines.run import Progress, refuse_unfit, run
from simulations.plans.kept_runs import KeptRuns
from simulations.results.progress_bar import bar_of_runs, in_notebook
from simulations.results.result import Result
from simulations.results.results import Results
from simulations.settings.experiment import Experiment, SettingsError
from simulations.settings.own_data import is_own
from simulations.settings.presets import for_strategy, merged, preset

OnRound = Callable[[int, int, str, int, int], None]
"""Called with the runs done, all runs, the current run's name, its rounds done and all its rounds."""


def experiments(strategies: Sequence[str], seeds: Sequence[int], preset_name: str | None,
                settings: Mapping[str, Any]) -> list[Experiment]:
    """Return the experiments of a comparison, all validated.

    Args:
        strategies: Names of strategies and combinations, each once.
        seeds: Random seeds; every strategy is run with each.
        preset_name: Published settings (`fedfair compare --help` lists them), or None for those named like the data
            set. A `csv` file gets only the settings that a preset has for all data.
        settings: Settings that win over the preset. A key "STRATEGY.key" is for one strategy, "options.key" for a
            strategy's own option.

    Returns:
        The experiments by strategy, then by seed.

    Raises:
        SettingsError: If a setting is not allowed; the message names its strategy.
        ValueError: If there is no such preset.
    """
    if not strategies:
        raise SettingsError("no strategy was named: name one or several, for example sgd,dpsgd")
    if len(set(strategies)) < len(strategies):
        raise SettingsError(f"a strategy is named twice among {', '.join(strategies)}: name each once")
    made, refused = [], {}
    for strategy in strategies:
        chosen = for_strategy(settings, strategy, strategies)
        dataset = None if is_own(chosen) else str(chosen.get("dataset", "digits"))
        layers = merged(preset(preset_name, dataset, strategy), chosen, {"strategy": strategy})
        try:
            made += [Experiment(**layers, seed=seed) for seed in seeds]
        except SettingsError as error:
            refused[strategy] = str(error)
    if refused:
        raise SettingsError(_of_each(refused, strategies))
    return made


def _of_each(refused: Mapping[str, str], strategies: Sequence[str]) -> str:
    """Return what is wrong with each strategy's settings; once, if it is the same for all of them."""
    reasons = set(refused.values())
    if len(reasons) == 1 and len(refused) == len(strategies):
        return reasons.pop()
    return "; ".join(f"{strategy}: {error}" for strategy, error in refused.items())


def compare(planned: Sequence[Experiment], engine: str | Engine = "local", nodes: int | None = None,
            on_round: OnRound | None = None, kept: KeptRuns | None = None) -> Results:
    """Run experiments one after the other, after checking that the settings of all fit their data.

    Args:
        planned: What `experiments` returns.
        engine: Name of an engine (see `simulations.engines.engines.ENGINES`), or an engine with settings.
        nodes: Number of Flower nodes that host the clients; None for the engine's own choice.
        on_round: Called after every round with the progress of all runs (see `OnRound`); by default a bar in a
            notebook, and nothing elsewhere.
        kept: Runs that are not made again, and to which those that end are added; None for none.

    Returns:
        The results, in the order of `planned`: a list that notebooks show as tables.

    Raises:
        ValueError: If settings do not fit their data; like all that `simulations.engines.run.run` raises.
    """
    chosen = make_engine(engine, nodes)
    refuse_unfit(planned)
    if on_round is None:
        on_round = bar_of_runs() if in_notebook() else lambda *_: None
    told = on_round

    def make(missing: Sequence[Experiment]) -> Iterator[tuple[int, Result]]:
        """Make runs one after the other."""
        for place, (experiment, progress) in enumerate(following(missing, told)):
            yield place, run(experiment, chosen, progress=progress)

    return (kept or KeptRuns()).complete(planned, make)


def following(planned: Sequence[Experiment], on_round: OnRound) -> Iterator[tuple[Experiment, Progress]]:
    """Yield each experiment with a `Progress` that reports to `on_round` how far all of them are."""
    for done, experiment in enumerate(planned):
        name = f"{experiment.strategy}, seed {experiment.seed}"

        def progress(rounds: int, of: int, done: int = done, name: str = name) -> None:
            """Report how far this run is."""
            on_round(done, len(planned), name, rounds, of)

        yield experiment, progress
