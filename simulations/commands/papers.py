"""`fedfair curve` and `fedfair reproduce`: the papers' figures and tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedfair.datasets.names import visible
from fedfair.plugins.registry import unknown
from fedfair.protocol.fields import MOST_JOBS, MOST_RUNS
from simulations.commands.options import (
    Csv,
    DatasetName,
    EngineName,
    Group,
    Label,
    Out,
    Preset,
    Seeds,
    Set,
    StrategyNames,
    names_of,
    settings_of,
)
from simulations.commands.terminal import READING, say, showing_progress, telling_of_kept
from simulations.commands.words import reproductions
from simulations.settings.names import pairs

REPRODUCED = "NAME is one of {reproductions}."


def curve(
    dataset: DatasetName = None,
    strategies: StrategyNames = "dpsgd,gs-dp-sgd-to,dpsgd-p",
    over: Annotated[list[str], typer.Option(help="Values to try: target_epsilon=[...] or another setting for all "
                                            "strategies, STRATEGY.key=[...] for one, theta=[...] for those that search "
                                            "a threshold, which is the default.")] = [],  # noqa: B006
    preset: Preset = None,
    seeds: Seeds = 1,
    engine: EngineName = "local",
    set_: Set = [],  # noqa: B006 - Typer copies it
    csv: Csv = None,
    label: Label = None,
    group: Group = None,
    out: Out = None,
    jobs: Annotated[int, typer.Option(min=1, max=MOST_JOBS, help="Runs at a time, a process with one thread each.")] =
    1,
) -> None:
    """Vary a setting, and measure how demographic parity trades off against accuracy parity and accuracy.

    Without a preset, built-in data sets have the settings of yang2024, and a file of your own those that suit it.

    Example: fedfair curve --strategies dpsgd,gs-dp-sgd-to,dpsgd-p --over theta=[0.02,0.05,0.1] --out out/curve
    """
    from simulations.plans.curves import follow, missing_in, plan
    from simulations.plans.plan_files import kept_curves, write_curves
    from simulations.results.result_folder import refuse_other
    from simulations.settings.presets import is_own, suited

    names = names_of(strategies)
    settings = settings_of(set_, default="adult", dataset=dataset, csv=csv, label=label, group=group)
    values = pairs(over)
    if preset is None and is_own(settings):
        with showing_progress(READING):
            settings = suited({"split": [0.7, 0.1, 0.2], **settings}, None, names)
    else:
        preset = preset or "yang2024"
    described = {"strategies": names, "seeds": seeds, "over": values, "settings": settings,
                 **({"preset": preset} if preset else {})}
    if out is not None:
        refuse_other(out, described)
    planned = plan(names, list(range(seeds)), preset, settings, values)
    with kept_curves(out, described, planned) as runs:
        if out is not None and not missing_in(runs, planned):
            say(f"{out} holds these curves, finished: nothing is run again")
        with (telling_of_kept(out, lambda: len(planned) - len(missing_in(runs, planned)), len(planned)),
              showing_progress() as on_round):
            frame = follow(planned, runs, engine, on_round, jobs)
        if out is not None:
            write_curves(frame, described, out)
    print(visible(frame.drop(columns="dataset").to_string(index=False, float_format="{:.3f}".format), keep="\n"))
    if out is not None:
        print(f"saved in {out}")


def reproduce(
    name: Annotated[str, typer.Argument(help="Table or figure to reproduce, see below.")],
    out: Annotated[Path, typer.Option(help="Folder to save the comparison in; runs found there are not repeated.")],
    quick: Annotated[bool, typer.Option("--quick", help="Run a smaller version; the page says what differs.")
                     ] = False,
    seeds: Annotated[int | None, typer.Option(min=1, max=MOST_RUNS, help="Number of seeds; by default our choice "
                                                     "for each, not always the paper's, and often fewer with --quick: "
                                                     "the page says how many.")] = None,
    device: Annotated[str, typer.Option(help="Device: cpu or cuda.")] = "cpu",
    jobs: Annotated[int, typer.Option(min=1, max=MOST_JOBS, help="Runs at a time, a process each; several "
                                           "can share a GPU.")] = 1,
    datasets: Annotated[str | None, typer.Option(help="Some of its data sets, as the page calls them, separated by "
                                                 "commas. A later call with the same folder adds the others.")] = None,
    runs: Annotated[Path | None, typer.Option(help="Folder of kept runs (runs.parquet), by default OUT. Reproductions "
                                              "with runs in common can share one, one command at a time.")] = None,
    epsilons: Annotated[str | None, typer.Option(help="Some of the frontier's epsilons, separated by commas.")] = None,
) -> None:
    """Run a published table or figure again and set it beside the paper's; or fair-fight or frontier, all tuned alike.

    Or cost-sources: where the cost of privacy comes from, and who pays; surface: what it costs a group by its share; or
    heterogeneity: local epochs, FedProx and SCAFFOLD on sites whose records differ.

    Example: fedfair reproduce xu2021-table1 --quick --out out/xu2021-table1
    """
    from simulations.reproductions import (
        cost_sources,
        cost_study,
        frontier,
        heterogeneity,
        shakespeare,
        surface,
        surface_study,
        tables,
        tuning,
        yang_curves,
    )
    from simulations.reproductions.fair_fight import fair_fight
    from simulations.reproductions.markdown import sentence
    from simulations.reproductions.request import Request

    if name not in reproductions():
        raise unknown("reproduction", name, reproductions())
    chosen = tuple(names_of(datasets or ""))
    if datasets is not None and not chosen:
        raise ValueError(f"datasets is {datasets!r}, which names none: name some, or leave --datasets out for all")
    if epsilons is not None and name != frontier.NAME:
        raise ValueError(f"epsilons is {epsilons!r}, but {name} has its own: leave --epsilons out, or take frontier")
    request = Request(seeds, quick, chosen, device, runs, () if epsilons is None else _epsilons(epsilons))
    with showing_progress() as on_round:
        if name == tuning.NAME:
            conclusion = fair_fight(out, request, on_round, jobs)
        elif name == cost_study.NAME:
            conclusion = cost_sources.cost_sources(out, request, on_round, jobs)
        elif name == surface_study.NAME:
            conclusion = surface.surface(out, request, on_round, jobs)
        elif name == heterogeneity.NAME:
            conclusion = heterogeneity.heterogeneity(out, request, on_round, jobs)
        elif name == frontier.NAME:
            conclusion = frontier.frontier(out, request, on_round, jobs)
        elif name == yang_curves.NAME:
            conclusion = yang_curves.yang_curves(out, request, on_round, jobs)
        elif name == shakespeare.NAME:
            conclusion = shakespeare.reproduce(out, request, on_round, jobs)
        else:
            conclusion = sentence(tables.reproduce(name, out, request, on_round, jobs))
    print(f"{conclusion} See {out / 'README.md'}.")


def _epsilons(text: str) -> tuple[float, ...]:
    """Return the numbers of an option, which commas separate; raise `ValueError` for what is none, or for no number."""
    try:
        numbers = tuple(map(float, names_of(text)))
    except ValueError:
        numbers = ()
    if not numbers:
        raise ValueError(f"epsilons is {text!r}: give numbers, separated by commas, or leave --epsilons out for all")
    return numbers
