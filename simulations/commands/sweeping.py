"""`fedfair sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from fedfair.datasets.names import visible


def sweep(
    config: Annotated[Path, typer.Argument(help="TOML file that describes the sweep.")],
    out: Annotated[Path, typer.Option(help="Folder of the results; trials finished there are not repeated.")],
    ray_address: Annotated[str | None, typer.Option(help="Address of a Ray cluster, auto for the one on this machine; "
                                                    "by default RAY_ADDRESS, or else a new cluster.")] = None,
    cpus: Annotated[int, typer.Option(min=1, help="Cores, and PyTorch threads, for each trial.")] = 1,
    gpus: Annotated[float, typer.Option(min=0, help="GPUs for each trial; fractions are allowed.")] = 0,
) -> None:
    """Run data sets x strategies x seeds x settings on a Ray cluster; the same command resumes a stopped sweep.

    Example: fedfair sweep yang.toml --out out/yang, with datasets, strategies, seeds, preset, and tables settings and
    vary in yang.toml; a table search instead of vary looks for the best settings.
    """
    from simulations.plans.search import refuse_unmeasured
    from simulations.plans.sweep import Sweep, prepare_folder, trials

    described = Sweep.read(config)
    planned = trials(described)
    if described.search is not None:
        refuse_unmeasured(described.search, next(iter(planned.values())))
    kept = prepare_folder(out, described)
    from simulations.engines.ray_workers import connect
    from simulations.plans.sweep_results import collect  # here, because importing Ray takes a second
    from simulations.plans.trial_folder import is_finished, refuse_changed
    from simulations.plans.trials import Resources, run_trials

    for name, made in planned.items():
        refuse_changed(out / "trials" / name, made)
    left = {name: made for name, made in planned.items() if not is_finished(out / "trials" / name)}
    console = Console(stderr=True)
    console.print(f"{len(planned)} trials, of which {len(planned) - len(left)} are finished"
                  + (f"; the sweep that was here had {kept}" if kept else ""), highlight=False)
    failed: dict[str, str] = {}
    if left:
        connect(ray_address)
        failed = run_trials(left, len(planned) - len(left), out / "trials", Resources(cpus, gpus), described.search)
    collect(described, out, failed)
    print(f"saved in {out}: summary.csv and trials.csv")
    for name, reason in failed.items():
        console.print(Text.assemble(("failed:", "red"), visible(f" {name}: {reason}", keep="\n")), soft_wrap=True)
    if failed:
        raise typer.Exit(1)
