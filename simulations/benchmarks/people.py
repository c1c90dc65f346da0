"""Generated participants with few records each: the data, model and cohort of the benchmarks of scale.

Every participant has 20 images of 8 x 8 pixels in 10 classes; the model is logistic regression, 650 parameters. The
data serve to time rounds, not to learn anything.
"""

from __future__ import annotations

from functools import partial

import torch

from fedfair.datasets import DATASETS, GroupedDataset, Source
from fedfair.mechanisms.randomness import generator
from simulations.settings.experiment import Experiment

FEATURES, CLASSES, RECORDS, TESTED = 64, 10, 20, 1000
BATCH, LEARNING_RATE, CLIP_NORM, NOISE = 10, 0.1, 0.5, 1.0
POPULATIONS = (10, 100, 1_000, 8_000, 10_000, 80_000, 100_000)


def people(participants: int, group: str | None = None) -> GroupedDataset:
    """Generate 20 training records of each participant, one after the other, and 1,000 test records of the first ones.

    A label is the class that a random linear model scores highest. There is one group.
    """
    draws, training = generator(0, "people"), participants * RECORDS
    x = torch.randint(256, (training + TESTED, FEATURES), generator=draws, dtype=torch.uint8)
    scores = torch.randn(FEATURES, CLASSES, generator=draws)
    y = torch.cat([((part.float() - 127.5) @ scores).argmax(1) for part in torch.split(x, 2**16)])
    participant = torch.cat([torch.arange(training) // RECORDS, torch.arange(TESTED) % participants])
    published = (torch.arange(len(x)) >= training).long() * 2
    return GroupedDataset(x, y, torch.zeros_like(y), ("everybody",), CLASSES, participant=participant,
                          published=published)


def register() -> None:
    """Register the populations as data sets "people-10" and so on, in this process."""
    for participants in POPULATIONS:
        DATASETS.register(f"people-{participants}")(Source(partial(people, participants), {}))


def experiment(participants: int, cohort: int, rounds: int) -> Experiment:
    """Describe DP-FedAvg with `cohort` participants expected in a round, an epoch each; evaluated once, at the end."""
    register()
    return Experiment(dataset=f"people-{participants}", split=(0.9, 0.0, 0.1), partition="natural", model="logistic",
                      strategy="dp-fedavg", steps=rounds, batch_size=BATCH, learning_rate=LEARNING_RATE,
                      clip_norm=CLIP_NORM, noise_multiplier=NOISE, eval_every=1e9,
                      options={"participation": min(1.0, cohort / participants)})
