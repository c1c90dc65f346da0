"""`fedfair choose`: take another classifier of a run's front, at no cost in privacy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from simulations.commands.options import Json

Limit = Annotated[float | None, typer.Option(min=0, max=1, help="Largest gap between groups that is allowed.")]


def choose(
    folder: Annotated[Path, typer.Argument(help="Folder of a finished run of moments, or of a comparison.")],
    run: Annotated[str | None, typer.Option(help="Run of a comparison, for example moments/seed-0.")] = None,
    demographic_parity: Limit = None,
    equal_opportunity: Limit = None,
    equalised_odds: Limit = None,
    accuracy_parity: Limit = None,
    worst_group: Annotated[bool, typer.Option("--worst-group", help="Look for the best accuracy of the worst group, "
                                              "not of all records.")] = False,
    tau: Annotated[float | None, typer.Option(help="Share that is left of differences between groups' scores.")] = None,
    threshold: Annotated[float | None, typer.Option(help="Probability above which the favourable of two classes is "
                                                    "decided for, the same for all groups.")] = None,
    json: Json = False,
) -> None:
    """Choose another point of a run's front, the most accurate within limits: it replaces the model of the folder.

    All points follow from one release, so this costs no privacy of training records. It goes by figures on the
    validation part. Example: fedfair choose out/people --demographic-parity 0.05
    """
    from simulations.commands.fitting import show
    from simulations.fitting.folder import chosen_again, is_fit
    from simulations.results.atomic_files import in_json
    from simulations.results.choice import Gap, Wish  # here, because pandas takes time
    from simulations.results.choice import choose as choose_point

    limits: dict[Gap, float | None] = {
        "demographic_parity": demographic_parity, "equal_opportunity": equal_opportunity,
        "equalised_odds": equalised_odds, "accuracy_parity": accuracy_parity}
    wish = Wish({name: limit for name, limit in limits.items() if limit is not None}, worst_group, tau, threshold)
    chosen = choose_point(folder, wish, run)
    if is_fit(folder):
        show(chosen_again(folder, chosen.number), json)
        return
    if json:
        print(in_json({"run": chosen.run, **chosen.point._asdict(), "figures": chosen.figures.to_dict()}))
        return
    table = Table(title=f"{chosen.run or folder}: {chosen.point.name}")
    for column in ("all records", *chosen.figures):
        table.add_column(column, justify="left" if column == "all records" else "right")
    for metric, row in chosen.figures.dropna(how="all").iterrows():
        table.add_row(str(metric).replace("_", " "), *(f"{value:,.3f}" for value in row))
    Console(highlight=False).print(table)
    print(f"the model in {folder} is this one now")
