"""Rounds of the same DP-FedAvg in pfl-research (Granqvist et al. 2024), one process.

PYTHON simulations/benchmarks/peers/pfl_research.py FOLDER COHORT ROUNDS

PYTHON is that of an environment with pfl and torch; FOLDER holds x.npy and y.npy, 20 records of each participant one
after the other. This file imports nothing of fedfair, so that the environment does not need it.
"""

# mypy: ignore-errors

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism

RECORDS, BATCH, LEARNING_RATE, CLIP_NORM, NOISE, WARM_UP = 20, 10, 0.1, 0.5, 1.0, 5


class Logistic(torch.nn.Linear):
    """Logistic regression with the two methods that pfl asks for."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__(features, classes)

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the mean cross entropy of a batch."""
        return torch.nn.functional.cross_entropy(self(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict:
        """Measure nothing."""
        return {}


class Stopwatch(TrainingProcessCallback):
    """Callback that notes when each round ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def after_central_iteration(self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
                                ) -> tuple[bool, Metrics]:
        """See `TrainingProcessCallback`."""
        self.ends.append(time.perf_counter())
        return False, Metrics()


def main(folder: Path, cohort: int, rounds: int) -> None:
    """Print the mean time of a round after the first few."""
    torch.set_num_threads(1)
    x, y = (torch.from_numpy(np.load(folder / f"{name}.npy")) for name in ("x", "y"))

    def one(user: int) -> Dataset:
        """Return one participant's records."""
        rows = slice(user * RECORDS, (user + 1) * RECORDS)
        return Dataset((x[rows], y[rows]), user_id=str(user))

    module = Logistic(x.shape[1], int(y.max()) + 1)
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), 1.0))
    data = FederatedDataset(one, get_user_sampler("random", range(len(x) // RECORDS)))
    privacy = CentrallyAppliedPrivacyMechanism(GaussianMechanism(CLIP_NORM, NOISE))
    stopwatch = Stopwatch()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(central_num_iterations=rounds, evaluation_frequency=10**9,
                                           train_cohort_size=cohort, val_cohort_size=0),
        backend=SimulatedBackend(data, data, [privacy]), model=model,
        model_train_params=NNTrainHyperParams(local_num_epochs=1, local_learning_rate=LEARNING_RATE,
                                              local_batch_size=BATCH),
        model_eval_params=NNEvalHyperParams(local_batch_size=BATCH), callbacks=[stopwatch])
    measured = stopwatch.ends[min(WARM_UP, rounds - 1) - 1:]
    print(json.dumps({"ms": (measured[-1] - measured[0]) / (len(measured) - 1) * 1000}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
