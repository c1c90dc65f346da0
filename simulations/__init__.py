"""What a person runs: experiments, comparisons, and the command `fedfair`."""

from __future__ import annotations

import fedfair  # noqa: F401 - before its parts: two threads that import both ways would wait for each other
from fedfair.plugins.lazy import lazy

TYPE_CHECKING = False  # as typing's, which takes as long to import as all the rest
if TYPE_CHECKING:
    from simulations.engines.run import run
    from simulations.results.result import Result
    from simulations.settings.experiment import Experiment

__all__ = ["Experiment", "Result", "run"]

__getattr__ = lazy(__name__, {
    "Experiment": "simulations.settings.experiment",
    "Result": "simulations.results.result",
    "run": "simulations.engines.run",
})
