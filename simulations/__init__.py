"""What a person runs: experiments, comparisons, and the command `fedfair`."""

from simulations.experiment import Experiment
from simulations.result import Result
from simulations.run import run

__all__ = ["Experiment", "Result", "run"]
