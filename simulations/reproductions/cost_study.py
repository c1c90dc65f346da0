"""Every combination of the four sources of cost, as runs: the configuration, the settings, the learning rates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from simulations.reproductions.request import EVERYTHING, Request
from simulations.reproductions.tuning import Positives
from simulations.settings.experiment import Experiment
from strategies.server.calibration import Beside, Schedule, own_noise

NAME = "cost-sources"
CONFIG = Path(str(files("simulations") / "configs" / "tuning" / f"{NAME}.toml"))
SOURCES = ("clipping", "noise", "sampling", "steps")
"""What differs from training without privacy."""

NONE = "none"
"""The name of the combination of no source: training without privacy."""

_UNREACHED = 1e6  # times the clip norm: no gradient of a model that learns is so long
_AT_THE_END = 1000.0  # epochs between evaluations: only the end of training decides

Sources = tuple[str, ...]
"""Some of `SOURCES`, in their order."""


class Study(BaseModel):
    """What is trained: `steps` steps on batches of `batch_size` records at a target epsilon.

    Without "sampling" a batch has `times_records` as many records, or all; without "steps" there are `times_steps` as
    many. Of the seeds the first `choosing_seeds` choose the learning rate. `settings` hold for every run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    datasets: tuple[str, ...]
    target_epsilon: Annotated[float, Field(gt=0)]
    clip_norm: Annotated[float, Field(gt=0)]
    batch_size: Annotated[int, Field(ge=1)]
    steps: Annotated[int, Field(ge=1)]
    times_records: Annotated[int, Field(ge=2)]
    times_steps: Annotated[int, Field(ge=2)]
    learning_rates: Positives
    seeds: Annotated[int, Field(ge=2)]
    choosing_seeds: Annotated[int, Field(ge=1)]
    settings: Mapping[str, Any] = {}
    text: str = ""


class Entry(NamedTuple):
    """One run: its data set, the name of a combination of sources, and its experiment."""

    dataset: str
    combination: str
    experiment: Experiment


def load(request: Request = EVERYTHING, file: Path = CONFIG) -> Study:
    """Read the requested part of the configuration.

    Raises what `Request.of_configuration` raises, and `ValueError` for a data set that is not in it.
    """
    study = request.of_configuration(NAME, file, Study)
    return study.model_copy(update={"datasets": request.among(study.datasets)})


def named(sources: Iterable[str]) -> str:
    """Return the name of a combination of `SOURCES`, given in any order.

    Examples:
        >>> named({"steps", "clipping"}), named(())
        ('clipping + steps', 'none')
    """
    given = {*sources}
    return " + ".join(source for source in SOURCES if source in given) or NONE


def combinations_of(sources: Sequence[str]) -> dict[str, Sources]:
    """Return every combination of some sources by its name, from none to all.

    Examples:
        >>> list(combinations_of(("noise", "steps")))
        ['none', 'noise', 'steps', 'noise + steps']
    """
    return {named(chosen): chosen for size in range(len(sources) + 1) for chosen in combinations(sources, size)}


def settings_of(study: Study, sources: Sources, noise: float, records: int) -> dict[str, Any]:
    """Return the settings of one combination: all four are DP-SGD's, and none are SGD's.

    Args:
        study: What is trained.
        sources: Those of `SOURCES` that are in it.
        noise: Noise multiplier of DP-SGD at the target epsilon, in units of the clip norm.
        records: Number of training records.
    """
    batch = study.batch_size if "sampling" in sources else min(study.times_records * study.batch_size, records)
    longer = 1.0 if "clipping" in sources else _UNREACHED
    multiplier = noise / longer * batch / study.batch_size if "noise" in sources else 0.0
    return {"clip_norm": study.clip_norm * longer, "noise_multiplier": multiplier, "batch_size": batch,
            "steps": study.steps * (1 if "steps" in sources else study.times_steps)}


def plan(study: Study, device: str, chosen: Mapping[tuple[str, str], float] | None = None) -> list[Entry]:
    """Return the runs that choose learning rates; once they are `chosen`, by data set and combination, the others."""
    entries = []
    for dataset in study.datasets:
        shared = {"strategy": "dpsgd", "dataset": dataset, "device": device, "eval_every": _AT_THE_END,
                  **study.settings}
        records, noise = _noise(study, shared)
        for name, sources in combinations_of(SOURCES).items():
            settings = {**shared, **settings_of(study, sources, noise, records)}
            rates = study.learning_rates if chosen is None else (chosen[dataset, name],)
            first = min(study.choosing_seeds, study.seeds)
            seeds = range(first) if chosen is None else range(first, study.seeds)
            entries += [Entry(dataset, name, Experiment(**settings, learning_rate=rate, seed=seed))
                        for rate in rates for seed in seeds]
    return entries


def _noise(study: Study, shared: Mapping[str, Any]) -> tuple[int, float]:
    """Return the number of training records of a data set, and the noise multiplier that keeps the target epsilon."""
    private = Experiment(**shared, target_epsilon=study.target_epsilon, batch_size=study.batch_size, steps=study.steps)
    records = len(private.task.data().train)
    schedule = Schedule(study.batch_size / records, study.steps)
    return records, own_noise(schedule, private.training, Beside())
