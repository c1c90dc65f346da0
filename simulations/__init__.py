"""What a person runs: experiments, comparisons, and the command `fedfair`."""

from simulations.engines.run import run
from simulations.results.result import Result
from simulations.settings.experiment import Experiment

__all__ = ["Experiment", "Result", "run"]
