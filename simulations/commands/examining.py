"""`fedfair audit`, `ledger` and `report`: check what runs claim, and read what they left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from fedfair.datasets.names import visible
from fedfair.protocol.fields import MOST_RUNS
from simulations.commands.options import EngineName, Group, Label, Seeds, Set
from simulations.commands.terminal import showing_progress, showing_runs
from simulations.commands.words import completing, strategies
from simulations.files.atomic_files import refuse_as_file, refuse_unwritable, write_json, write_text
from simulations.settings.names import pairs

BY_GROUP = ("canaries", "membership")
"""Attacks that find a bound for each group."""


def audit(
    strategy: Annotated[str | None, typer.Option(help="{strategy} By default dpsgd; with replay, a fit.",
                                                 autocompletion=completing(strategies))] = None,
    attack: Annotated[str, typer.Option(help="Attack: canaries (white box), membership (black box, any engine), "
                                                 "releases (does noise come back, or is it too small?), outlier "
                                                 "(what does an extreme row do to other records?), or folder (does a "
                                                 "file of the result tell of one record?).")] =
    "canaries",
    epsilon: Annotated[float | None, typer.Option(help="Epsilon to claim: 3, unless noise_multiplier is set.")] =
    None,
    seeds: Seeds = 1,
    canaries: Annotated[int, typer.Option(min=100, max=10_000_000, help="Number of canaries.")] = 20_000,
    confidence: Annotated[float, typer.Option(min=0.5, max=0.999, help="Confidence of each bound.")] = 0.95,
    runs: Annotated[int, typer.Option(min=8, max=MOST_RUNS, help="Attack folder: runs on each of two data sets that "
                                      "differ in one record.")] = 10,
    replay: Annotated[Path | None, typer.Option(help="Run on this file and on its neighbours instead: is all that "
                                                "leaves the same, but for the releases? Needs label and group. Of a "
                                                "fit, unless a strategy or nodes are named.")] =
    None,
    node: Annotated[list[Path], typer.Option(help="With replay: file of another node, for a fit over nodes. Can be "
                                                  "repeated.")] = [],  # noqa: B006 - Typer copies it
    program: Annotated[Path | None, typer.Option(help="With replay: Python file whose function program(table, folder) "
                                                 "runs what is audited, such as an existing Flower app.")] = None,
    label: Label = "",
    group: Group = "",
    engine: EngineName = "local",
    set_: Set = [],  # noqa: B006 - Typer copies it
    out: Annotated[Path | None, typer.Option(help="JSON file to write the findings to.")] = None,
    picture: Annotated[Path | None, typer.Option(help="SVG file to draw what canaries or membership found of each "
                                                      "group in, beside what the ledger says.")] = None,
) -> None:
    """Attack a run, and compare the proven epsilon with the ledger's claim; exit code 1 if the claim is refuted.

    Example: fedfair audit --strategy dpsgd-f --epsilon 1 --seeds 5 --set trust=local
    """
    if picture is not None:
        refuse_as_file(picture)
        if replay is not None or attack not in BY_GROUP:
            raise ValueError("a picture shows what attacks find by group: take the attack canaries or membership, and "
                             "no replay")
    if replay is not None:
        _audit_by_replay(replay, label or "", group or "", strategy, node, program, epsilon, pairs(set_), out)
        return
    from simulations.audits.audit_table import audit_table, audits, by_group
    from simulations.drawing.table import terminal

    settings = pairs(set_)
    if epsilon is not None or "noise_multiplier" not in settings:
        settings = {"target_epsilon": 3.0 if epsilon is None else epsilon, **settings}
    if out is not None:
        refuse_as_file(out)
    with showing_progress() as on_round:
        made = audits(strategy or "dpsgd", attack, range(seeds), settings, canaries, confidence, engine, on_round, runs)
    Console().print(terminal(audit_table(made)))
    if out is not None:
        write_json(out, {"audits": [each.to_dict() for each in made]})
        print(f"saved in {out}")
    if picture is not None:
        write_text(picture, by_group(made))
        print(f"drawn in {picture}")
    if any(each.refuted for each in made):
        raise typer.Exit(1)


def _audit_by_replay(file: Path, label: str, group: str, strategy: str | None, nodes: list[Path],
                     own: Path | None, epsilon: float | None, settings: dict[str, Any], out: Path | None) -> None:
    """Audit by replay, and print the findings; exit code 1 if more than its releases tells of a row."""
    from simulations.audits.replay import replay
    from simulations.audits.replayed import fit_of, nodes_of, program_of, run_of
    from simulations.drawing.table import terminal
    from simulations.fitting.fit import Wanted

    if out is not None:
        refuse_as_file(out)
    spent = 1.0 if epsilon is None else epsilon
    if own is not None:
        if strategy is not None or nodes or epsilon is not None or settings:
            raise ValueError(f"{own} says by itself what runs: leave --strategy, --node, --epsilon and --set out")
        program, name = program_of(own), f"The program in {own.name}"
    elif nodes:
        program = nodes_of(Wanted(None, "", "", spent, settings=settings), nodes)
        name = f"A fit on {len(nodes) + 1} nodes"
    elif strategy is not None:
        asked = {"target_epsilon": spent, "label": label, "group": group, "strategy": strategy, **settings}
        program, name = run_of(asked), f"A run of {strategy}"
    else:
        program, name = fit_of(Wanted(file, label, group, spent, settings=settings)), "A fit"
    with showing_runs("replaying: runs on the table itself, and then on its neighbours") as on_round:
        made = replay(program, file, label, group, name=name,
                      progress=lambda done, of: on_round(0, 1, f"{name} on neighbours of the table", done, of))
    Console().print(terminal(made.table()))
    if out is not None:
        write_json(out, made.to_dict())
        print(f"saved in {out}")
    if made.refuted:
        raise typer.Exit(1)


def ledger(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished run or comparison.")],
    delta: Annotated[float | None, typer.Option(help="Delta to report epsilon at; by default the run's.")] = None,
) -> None:
    """Print what a run guarantees and what it spent, by group and observer, recomputed from its events.

    Example: fedfair ledger out/adult --delta 1e-5
    """
    from simulations.results.ledger_table import ledger_table, methods_ledger
    from simulations.results.run_folder import RunFolder

    if delta is not None and not 0 <= delta < 1:
        raise ValueError(f"delta is {delta:g}, but it is a probability below 1: give one, for example --delta 1e-6")
    ledgers = RunFolder(folder).ledgers
    if len(ledgers) > 1:
        Console().print(methods_ledger(ledgers, delta))
    for name, read in ledgers.items():
        Console().print(Text(f"\n{visible(name)}" if name else ""), ledger_table(read, delta), sep="\n")


def report(
    folders: Annotated[list[Path], typer.Argument(help="Folders of finished runs, comparisons or sweeps.")],
    out: Annotated[Path | None, typer.Option(help="HTML file; by default report.html in the first folder, "
                                                 "and beside it if that is a fit's, which has its page there.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Folder for figures as PNG and SVG and tables as LaTeX; "
                                                 "needs the extra figures.")] = None,
) -> None:
    """Write one HTML file about runs, comparisons and sweeps; it needs no network.

    Example: fedfair report out/adult --figures out/adult-figures
    """
    from simulations.fitting.save import is_fit
    from simulations.report import write_report  # here, because only this command needs a template engine

    first = folders[0].absolute()
    page = out or (first.with_name(f"{first.name}-report.html") if is_fit(first) else folders[0] / "report.html")
    if is_fit(page.parent) and page.name == "report.html":
        raise ValueError(f"{page} is the page of a fit, which a report would replace: write the report to another "
                         "file, for example --out chapters.html")
    refuse_as_file(page)
    if figures is not None:
        refuse_unwritable(figures)
    with showing_progress() as on_round:
        written = write_report(folders, page, figures, lambda done, of: on_round(0, 1, "chapters", done, of))
    print(f"saved {written[0]}" + (f" and {len(written) - 1} files in {figures}" if figures else ""))
